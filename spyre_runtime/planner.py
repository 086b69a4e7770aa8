"""From a graph whose layouts are decided to a plan: divide, place in LX, bundle, align, and write everything down as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx
from torch.utils import _pytree as pytree

from .align import Loop, View, align
from .coordinates import as_mod, raw_device_coordinates, wrapping
from .divide import Division, divide
from .fuse import Bundle, Pool, bundle, plan_pool
from .host_steps import host_steps
from .ir import Access, Buffer, DataFormat, LoweredGraph, Op
from .kernels import RESTICKIFY, Kernel, select_kernel
from .plan import Operand, Plan, PlannedBuffer, PlannedOp, Result
from .profile import Profile
from .refusal import Refusal, refuse
from .scratchpad import Placement, place
from .terms import coordinates_of


def _view(graph: LoweredGraph, access: Access) -> View:
    layout = graph.layout(access.buffer)
    return View(layout.device_size, coordinates_of(raw_device_coordinates(layout, access)))


def _repeated(op: Op) -> frozenset[sympy.Symbol]:
    return frozenset(s for access in (*op.reads, *([op.write] if op.write else [])) for s in wrapping(as_mod(access.index), access.extents))


def _plan_op(graph: LoweredGraph, op: Op, kernel: Kernel, division: Division, repeated: frozenset[sympy.Symbol]) -> PlannedOp:
    assert op.write is not None
    splits = division.splits[op.name]
    accesses = (*kernel.inputs, op.write)
    try:
        aligned = align(op.iteration_space, splits, [_view(graph, a) for a in accesses], repeated)
    except Refusal as refusal:
        raise Refusal(refusal.obstacle.at(op=op.function, node=op.origin.node, source=op.origin.source)) from None
    meant = dict(op.meant)
    operands = [Operand(a.buffer, v.size, v.coordinates) for a, v in zip(accesses, aligned.views, strict=True)]
    return PlannedOp(
        name=op.name,
        kind=op.kind,
        function=op.function,
        kernel=kernel.name,
        output=op.output,
        loops=aligned.loops,
        inputs=tuple(operands[:-1]),
        result=operands[-1],
        planned=tuple(Loop(str(s), n, splits[s]) for s, n in op.iteration_space.items()),
        reads=tuple(meant.get(access, access) for access in kernel.inputs),
        write=op.write,
        misread=tuple((i, access) for i, access in enumerate(kernel.inputs) if access in meant),
        parameters=(*kernel.parameters, *op.attributes),
        node=op.origin.node,
        source=op.origin.source,
    )


def _plan_bundle(graph: LoweredGraph, ops: list[Op], division: Division, profile: Profile) -> tuple[list[PlannedOp], Refusal | None]:
    """The ops of one bundle. An op without a program ends up in it as a stub that raises when run; a release with the fault stub-not-last writes
    the stub without a separator, so that a bundle with anything behind it is no program at all. With index-data-stays, index tensors of a gather
    are handed to each copy behind it too, and one that moves a stick takes no such format."""
    kernels: list[Kernel | None] = []
    index_data: dict[str, None] = {}
    stub: Refusal | None = None
    for position, op in enumerate(ops):
        try:
            chosen = select_kernel(graph, op, profile)
            if chosen.name == RESTICKIFY and profile.has_fault("index-data-stays"):
                _refuse_index_data(graph, op, index_data)
            kernels.append(chosen)
            index_data |= dict.fromkeys(name for access in (*op.reads, op.write) if access for _, name in access.indirect)
        except Refusal as refusal:
            if refusal.verdict != "unimplemented":
                raise
            kernels.append(None)
            stub = stub or refusal
            if position < len(ops) - 1 and profile.has_fault("stub-not-last"):
                stub = _not_last(refusal)
    if stub is not None and stub.verdict == "error":
        raise stub
    # Which loops wrap around is remembered for a bundle's first op only.
    repeated = frozenset(s for op in ops for s in _repeated(op))
    planned = []
    for op, kernel in zip(ops, kernels, strict=True):
        if kernel is not None:
            planned.append(_plan_op(graph, op, kernel, division, repeated))
            repeated = frozenset()
    return planned, stub


def _refuse_index_data(graph: LoweredGraph, op: Op, index_data: Iterable[str]) -> None:
    own = {name for access in (*op.reads, op.write) if access for _, name in access.indirect}
    for name in sorted(set(index_data) - own):
        found = graph.layout(name).format
        if found is not DataFormat.DL16:
            raise refuse(
                f"op_dtype:{RESTICKIFY}@{found}",
                f"{op.function} moves a stick, and is in one bundle with an earlier gather whose index data it is given too ({name})",
                stage="plan",
                op=op.function,
                node=op.origin.node,
                source=op.origin.source,
                fault="index-data-stays",
            )


def _not_last(refusal: Refusal) -> Refusal:
    obstacle = refusal.obstacle
    return refuse(
        "codegen_syntax_error_unimplemented_in_fused",
        f"{obstacle.op} has no device program, and the bundle that it is in goes on behind it",
        stage="plan",
        op=obstacle.op,
        node=obstacle.node,
        source=obstacle.source,
        fault="stub-not-last",
    )


def _planned_buffer(graph: LoweredGraph, buffer: Buffer, placement: Placement, pool: Pool) -> PlannedBuffer:
    storage = graph.storage(buffer.name).name
    return PlannedBuffer(
        name=buffer.name,
        role=buffer.role,
        dtype=buffer.dtype,
        size=buffer.size,
        stride=buffer.stride,
        offset=buffer.offset,
        layout=graph.storage(buffer.name).layout,
        alias=buffer.alias,
        lx_address=placement.address(storage),
        pool_offset=pool.offset(storage),
    )


@dataclass(frozen=True)
class Decisions:
    """What the passes between padding and the plan decide. Each prints itself."""

    division: Division
    placement: Placement
    pool: Pool
    bundles: tuple[Bundle, ...]


def decide(graph: LoweredGraph, profile: Profile) -> Decisions:
    """Divide, place in LX, and bundle. Raises Refusal where a pass gives up."""
    division = divide(graph, profile)
    placement = place(graph, division, profile)
    pool = plan_pool(graph, placement, profile)
    return Decisions(division, placement, pool, bundle(graph, placement, pool, profile))


def _results(graph: LoweredGraph, module: torch.fx.GraphModule | None) -> tuple[Result, ...]:
    """The graph's outputs in order; without the functional graph, its output buffers whole."""
    if module is None:
        return tuple(Result(name, graph.buffer(name).size, graph.buffer(name).stride, graph.buffer(name).offset) for name in graph.outputs)
    names = iter(graph.outputs)
    return tuple(
        Result(next(names), tuple(map(int, v.shape)), tuple(map(int, v.stride())), int(v.storage_offset()))
        if isinstance(v, torch.Tensor)
        else Result(None)
        for v in output_samples(module)
    )


def output_samples(functional: torch.fx.GraphModule) -> list[Any]:
    """Fake tensors of the graph's outputs in order; None where an output is no tensor."""
    (end,) = functional.graph.find_nodes(op="output")
    leaves = pytree.tree_leaves(end.args[0], is_leaf=lambda v: v is None)
    return [leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else None for leaf in leaves]


def build_plan(graph: LoweredGraph, profile: Profile, module: torch.fx.GraphModule | None = None) -> Plan:
    """Divide, place, bundle and align a graph whose layouts are decided. module: the functional graph, which knows the host's calls.

    Raises Refusal where a pass gives up, or, with verdict "unimplemented", where an op has no device program.
    """
    decided = decide(graph, profile)
    by_name = {op.name: op for op in graph.ops}
    ops: list[PlannedOp] = []
    stub: Refusal | None = None
    for group in decided.bundles:
        planned, found = _plan_bundle(graph, [by_name[name] for name in group.ops], decided.division, profile)
        ops += planned
        stub = stub or found
    if stub is not None:
        raise stub
    return Plan(
        profile=profile.name,
        inputs=graph.inputs,
        outputs=graph.outputs,
        buffers=tuple(_planned_buffer(graph, b, decided.placement, decided.pool) for b in graph.buffers),
        ops=tuple(ops),
        host_steps=host_steps(graph, module),
        order=tuple(op.output for op in graph.ops),
        bundles=decided.bundles,
        pool_bytes=decided.pool.bytes,
        lx_peak=decided.placement.peak,
        results=_results(graph, module),
        spans=decided.division.spans,
    )
