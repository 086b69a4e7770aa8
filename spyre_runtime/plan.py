"""The plan: everything that running a compiled graph needs to know, as plain data that goes to JSON and back.

A plan names every buffer with its device layout and place (LX, the pool of intermediates, or a segment of its own), every device op with its
program, final loops, cores and operand coordinates, the host steps between, and the bundles.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy
import torch

from .align import Loop, View, align
from .coordinates import as_mod, raw_device_coordinates, wrapping
from .divide import Division, SpanFinding, divide
from .fuse import Bundle, Pool, bundle, plan_pool
from .ir import Access, Arrangement, Buffer, BufferRole, DataFormat, DeviceLayout, LoweredGraph, Op
from .kernels import Kernel, select_kernel
from .profile import Profile
from .refusal import Refusal, refuse
from .scratchpad import Placement, place
from .terms import Coordinate, Term, coordinates_of

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """A tensor in memory. At most one of `lx_address` (bytes on each core) and `pool_offset` (bytes) is set; `bytes` is its device size."""

    name: str
    role: BufferRole
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    layout: DeviceLayout | None
    alias: str | None = None
    lx_address: int | None = None
    pool_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as one op walks it: device dimensions (outermost first) and the coordinate along each, over the op's final loops."""

    buffer: str
    size: tuple[int, ...]
    coordinates: tuple[Coordinate, ...]


@dataclass(frozen=True)
class PlannedOp:
    """One device program. `planned`: the splits as the planner chose them, by loop of the loop nest, before alignment."""

    name: str
    kernel: str
    output: str
    loops: tuple[Loop, ...]
    inputs: tuple[Operand, ...]
    result: Operand
    is_reduction: bool
    planned: tuple[Loop, ...]
    parameters: tuple[tuple[str, Any], ...] = ()
    node: str = ""
    source: str = ""

    @property
    def cores(self) -> int:
        cores = 1
        for loop in self.loops:
            cores *= loop.cores
        return cores


@dataclass(frozen=True, slots=True)
class HostStep:
    """What the host does between bundles: a CPU fallback, a literal to upload, an allocation."""

    name: str
    function: str
    output: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """`order` is the sequence of op and host-step names. `spans` are findings, not refusals: the front-end goes on, the device aborts."""

    profile: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[PlannedBuffer, ...]
    ops: tuple[PlannedOp, ...]
    host_steps: tuple[HostStep, ...]
    order: tuple[str, ...]
    bundles: tuple[Bundle, ...]
    pool_bytes: int
    lx_peak: int
    spans: tuple[SpanFinding, ...] = ()

    @property
    def intermediates(self) -> tuple[PlannedBuffer, ...]:
        """Buffers of its own that device loops or allocations make (not inputs, literals, fallback results or aliases)."""
        own = (BufferRole.COMPUTED, BufferRole.EMPTY)
        return tuple(b for b in self.buffers if b.role in own and b.alias is None and b.layout is not None)

    def buffer(self, name: str) -> PlannedBuffer:
        return next(b for b in self.buffers if b.name == name)

    def to_json(self) -> str:
        return json.dumps({"version": FORMAT_VERSION, **_encode(self)})

    def __str__(self) -> str:
        lines = [
            f"plan for {self.profile}: {len(self.ops)} ops in {len(self.bundles)} bundles, pool {self.pool_bytes} B, LX {self.lx_peak} B a core"
        ]
        for op in self.ops:
            loops = ", ".join(f"{loop.name}:{loop.size}/{loop.cores}" for loop in op.loops)
            reads = ", ".join(o.buffer for o in op.inputs)
            lines.append(f"  {op.name}: {op.output} = {op.kernel}({reads}) over ({loops}) on {op.cores} cores")
        return "\n".join([*lines, *(f"  span: {f}" for f in self.spans)])


def _encode(value: Any) -> Any:
    """Plain JSON data; every dataclass becomes an object of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_encode(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    if isinstance(value, torch.dtype | sympy.Symbol):
        return str(value).removeprefix("torch.")
    return value


def _layout(data: dict[str, Any] | None) -> DeviceLayout | None:
    if data is None:
        return None
    return DeviceLayout(tuple(data["device_size"]), tuple(data["stride_map"]), DataFormat(data["format"]), Arrangement(data["arrangement"]))


def _coordinate(data: dict[str, Any]) -> Coordinate:
    terms = tuple(Term(sympy.Symbol(t["symbol"]), Fraction(*t["scale"]), t["modulus"], t["factor"], t["divisor"]) for t in data["terms"])
    return Coordinate(terms, data["offset"])


def _operand(data: dict[str, Any]) -> Operand:
    return Operand(data["buffer"], tuple(data["size"]), tuple(map(_coordinate, data["coordinates"])))


def _loops(data: list[dict[str, Any]]) -> tuple[Loop, ...]:
    return tuple(Loop(**entry) for entry in data)


def _buffer(data: dict[str, Any]) -> PlannedBuffer:
    fixed = {
        "role": BufferRole(data["role"]),
        "dtype": getattr(torch, data["dtype"]),
        "size": tuple(data["size"]),
        "stride": tuple(data["stride"]),
        "layout": _layout(data["layout"]),
    }
    return PlannedBuffer(**{**data, **fixed})


def _op(data: dict[str, Any]) -> PlannedOp:
    fixed = {
        "loops": _loops(data["loops"]),
        "planned": _loops(data["planned"]),
        "inputs": tuple(map(_operand, data["inputs"])),
        "result": _operand(data["result"]),
        "parameters": tuple((name, value) for name, value in data["parameters"]),
    }
    return PlannedOp(**{**data, **fixed})


def load_plan(text: str) -> Plan:
    """A plan from `Plan.to_json`. Raises ValueError for text that is none, or of another version."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.pop("version", None) != FORMAT_VERSION:
        raise ValueError(f"not a plan of format version {FORMAT_VERSION}")
    fixed = {
        "inputs": tuple(data["inputs"]),
        "outputs": tuple(data["outputs"]),
        "buffers": tuple(map(_buffer, data["buffers"])),
        "ops": tuple(map(_op, data["ops"])),
        "host_steps": tuple(HostStep(**{**h, "reads": tuple(h["reads"])}) for h in data["host_steps"]),
        "order": tuple(data["order"]),
        "bundles": tuple(Bundle(tuple(b["ops"]), tuple(b["tensors"])) for b in data["bundles"]),
        "spans": tuple(SpanFinding(**s) for s in data["spans"]),
    }
    return Plan(**{**data, **fixed})


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
    operands = [Operand(a.buffer, v.size, v.coordinates) for a, v in zip(accesses, aligned.views, strict=True)]
    return PlannedOp(
        name=op.name,
        kernel=kernel.name,
        output=op.output,
        loops=aligned.loops,
        inputs=tuple(operands[:-1]),
        result=operands[-1],
        is_reduction=op.is_reduction,
        planned=tuple(Loop(str(s), n, splits[s]) for s, n in op.iteration_space.items()),
        parameters=(*kernel.parameters, *op.attributes),
        node=op.origin.node,
        source=op.origin.source,
    )


def _plan_bundle(graph: LoweredGraph, ops: list[Op], division: Division, profile: Profile) -> tuple[list[PlannedOp], Refusal | None]:
    """The ops of one bundle. An op without a program ends up in it as a stub that raises when run; that release writes the stub
    without a separator, so that a bundle with anything behind it is no program at all."""
    kernels: list[Kernel | None] = []
    stub: Refusal | None = None
    for position, op in enumerate(ops):
        try:
            kernels.append(select_kernel(graph, op, profile))
        except Refusal as refusal:
            if refusal.verdict != "unimplemented":
                raise
            kernels.append(None)
            stub = stub or refusal
            if position < len(ops) - 1:
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


def _not_last(refusal: Refusal) -> Refusal:
    obstacle = refusal.obstacle
    return refuse(
        "codegen_syntax_error_unimplemented_in_fused",
        f"{obstacle.op} has no device program, and the bundle that it is in goes on behind it",
        stage="plan",
        op=obstacle.op,
        node=obstacle.node,
        source=obstacle.source,
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


def build_plan(graph: LoweredGraph, profile: Profile) -> Plan:
    """Divide, place, bundle and align a graph whose layouts are decided.

    Raises Refusal where a pass gives up, or, with verdict "unimplemented", where an op has no device program.
    """
    division = divide(graph, profile)
    placement = place(graph, division, profile)
    pool = plan_pool(graph, placement, profile)
    bundles = bundle(graph, placement, pool, profile)
    by_name = {op.name: op for op in graph.ops}
    ops: list[PlannedOp] = []
    stub: Refusal | None = None
    for group in bundles:
        planned, found = _plan_bundle(graph, [by_name[name] for name in group.ops], division, profile)
        ops += planned
        stub = stub or found
    if stub is not None:
        raise stub
    return Plan(
        profile=profile.name,
        inputs=graph.inputs,
        outputs=graph.outputs,
        buffers=tuple(_planned_buffer(graph, b, placement, pool) for b in graph.buffers),
        ops=tuple(ops),
        host_steps=tuple(HostStep(op.name, op.function, op.output, op.host_reads) for op in graph.ops if not op.on_device),
        order=tuple(op.name for op in graph.ops),
        bundles=bundles,
        pool_bytes=pool.bytes,
        lx_peak=placement.peak,
        spans=division.spans,
    )
