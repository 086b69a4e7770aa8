"""The compiler from a captured ATen graph to a plan, and everything that it would refuse on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.fx

from .copy_back import compute_into_inputs
from .decompose import decompose
from .ir import DeviceLayout, LoweredGraph, OpKind
from .kernels import select_kernel
from .layout_checks import check_arrangements, check_index_data, check_sticks
from .lower import lower
from .padding import pad_matmuls, share_constants
from .plan import Plan
from .planner import build_plan
from .profile import Profile
from .propagate import Propagation, propagate
from .refusal import Found, Obstacle, Refusal, meet, refuse
from .restickify import choose_layouts, insert_moves


@dataclass(frozen=True)
class Compilation:
    """Every stage's result. `functional` is the graph that the fast executor runs; the rest is our IR and the plan."""

    functional: torch.fx.GraphModule
    lowered: LoweredGraph
    propagation: Propagation
    laid_out: LoweredGraph
    padded: LoweredGraph
    plan: Plan

    @property
    def restickifies(self) -> int:
        """Moves of a stick that the layout search inserted."""
        return sum(op.kind is OpKind.RESTICKIFY for op in self.laid_out.ops)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """ATen names of the steps that run on the host, in order."""
        return host_fallbacks(self.padded)

    @property
    def splits(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Final loops by op: name → (extent, cores)."""
        return {op.name: {loop.name: (loop.size, loop.cores) for loop in op.loops} for op in self.plan.ops}


def host_fallbacks(graph: LoweredGraph) -> tuple[str, ...]:
    return tuple(op.function for op in graph.ops if op.kind is OpKind.FALLBACK)


def _input_layouts(graph: torch.fx.GraphModule, lowered: LoweredGraph, given: Mapping[str, DeviceLayout] | None) -> dict[str, DeviceLayout]:
    """Layouts by name of the lowered graph's inputs, from names of the captured graph's placeholders (both are in the same order)."""
    if not given:
        return {}
    tensors = [n.name for n in graph.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    return {ours: given[theirs] for ours, theirs in zip(lowered.inputs, tensors, strict=False) if theirs in given}


def _without_kernel(graph: LoweredGraph, profile: Profile, found: Found = None) -> None:
    """A host step for which there is no CPU kernel compiles, and raises when it runs."""
    refused = {f"aten.{obstacle.op}" for obstacle in found or ()}
    for op in graph.ops:
        if op.kind is OpKind.FALLBACK and not profile.runs_on_host(op.function) and op.function.rsplit(".", 1)[0] not in refused:
            refusal = refuse(
                f"fallback_without_kernel:{op.function}",
                f"{op.function} would run on the host, where it has no kernel for tensors of the device",
                verdict="fallback_no_kernel",
                stage="run",
            )
            meet(refusal, found, op=op.function, node=op.origin.node, source=op.origin.source)


def compile_graph(graph: torch.fx.GraphModule, profile: Profile, input_layouts: Mapping[str, DeviceLayout] | None = None) -> Compilation:
    """Compile an ATen graph whose placeholders carry fake tensors of the device in meta["val"].

    input_layouts: device layouts of inputs that do not have the default one, by placeholder name. Raises Refusal at the first obstacle.
    """
    functional = decompose(graph, profile)
    lowered = lower(functional, profile)
    propagation = compute_into_inputs(propagate(lowered, _input_layouts(graph, lowered, input_layouts)))
    check_arrangements(propagation)
    laid_out = insert_moves(propagation, choose_layouts(propagation, profile), profile)
    padded = share_constants(pad_matmuls(laid_out, profile))
    check_sticks(padded)
    plan = build_plan(padded, profile, functional)
    check_index_data(padded, profile)
    _without_kernel(padded, profile)
    return Compilation(functional, lowered, propagation, laid_out, padded, plan)


def _kernels(graph: LoweredGraph, profile: Profile, found: list[Obstacle]) -> None:
    """Ask every op for its device program, refused layouts or not."""
    for op in graph.device_ops():
        if op.obstacle is None:
            try:
                select_kernel(graph, op, profile)
            except Refusal as refusal:
                meet(refusal, found, op=op.function, node=op.origin.node, source=op.origin.source)


def refusals(
    graph: torch.fx.GraphModule, profile: Profile, input_layouts: Mapping[str, DeviceLayout] | None = None
) -> tuple[Obstacle, ...]:
    """Everything that would have to change before this graph compiles and runs, in the order of the passes.

    Each pass goes on behind an obstacle as if it were mended (an op that does not lower runs on the host, an op without a layout gets
    the default one), so that later obstacles show as well. Arguments as for `compile_graph`.
    """
    found: list[Obstacle] = []
    functional = decompose(graph, profile, found)
    lowered = lower(functional, profile, found)
    propagation = compute_into_inputs(propagate(lowered, _input_layouts(graph, lowered, input_layouts), found))
    check_arrangements(propagation, found)
    laid_out = insert_moves(propagation, choose_layouts(propagation, profile, found), profile, found)
    padded = share_constants(pad_matmuls(laid_out, profile, found))
    before = len(found)
    check_sticks(padded, found)
    _kernels(padded, profile, found)
    check_index_data(padded, profile, found)
    _without_kernel(padded, profile, found)
    if before == len(found) == 0:
        try:
            build_plan(padded, profile)
        except Refusal as refusal:
            found.append(refusal.obstacle)
    return tuple(profile.with_gap(obstacle) for obstacle in found)
