"""The compiler from a captured ATen graph to a plan, and everything that it would refuse on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.fx

from .decompose import decompose
from .ir import DeviceLayout, LoweredGraph, OpKind
from .lower import lower
from .padding import pad_matmuls, share_constants
from .plan import Plan, build_plan
from .profile import Profile
from .propagate import Propagation, check_arrangements, check_index_data, check_sticks, propagate
from .refusal import refuse
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

    def stages(self) -> dict[str, object]:
        """Stage name → printable result."""
        return {
            "decompose": self.functional.code,
            "lower": self.lowered,
            "restickify": self.laid_out,
            "pad": self.padded,
            "plan": self.plan,
        }


def host_fallbacks(graph: LoweredGraph) -> tuple[str, ...]:
    return tuple(op.function for op in graph.ops if op.kind is OpKind.FALLBACK)


def _input_layouts(graph: torch.fx.GraphModule, lowered: LoweredGraph, given: Mapping[str, DeviceLayout] | None) -> dict[str, DeviceLayout]:
    """Layouts by name of the lowered graph's inputs, from names of the captured graph's placeholders (both are in the same order)."""
    if not given:
        return {}
    tensors = [n.name for n in graph.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    return {ours: given[theirs] for ours, theirs in zip(lowered.inputs, tensors, strict=False) if theirs in given}


def _without_kernel(graph: LoweredGraph, profile: Profile) -> None:
    """A host step for which there is no CPU kernel compiles, and raises when it runs."""
    for op in graph.ops:
        if op.kind is OpKind.FALLBACK and not profile.runs_on_host(op.function):
            raise refuse(
                f"fallback_without_kernel:{op.function}",
                f"{op.function} would run on the host, where it has no kernel for tensors of the device",
                verdict="fallback_no_kernel",
                stage="run",
                op=op.function,
                node=op.origin.node,
                source=op.origin.source,
            )


def _lowered(functional: torch.fx.GraphModule, profile: Profile) -> LoweredGraph:
    """Lowering takes bodies apart by adding nodes to the graph that it is given; the graph that runs must not have them."""
    before = set(functional.graph.nodes)
    lowered = lower(functional, profile)
    for node in reversed(functional.graph.nodes):
        if node not in before:
            functional.graph.erase_node(node)
    return lowered


def compile_graph(graph: torch.fx.GraphModule, profile: Profile, input_layouts: Mapping[str, DeviceLayout] | None = None) -> Compilation:
    """Compile an ATen graph whose placeholders carry fake tensors of the device in meta["val"].

    input_layouts: device layouts of inputs that do not have the default one, by placeholder name. Raises Refusal at the first obstacle.
    """
    functional = decompose(graph, profile)
    lowered = _lowered(functional, profile)
    propagation = propagate(lowered, _input_layouts(graph, lowered, input_layouts))
    check_arrangements(propagation)
    laid_out = insert_moves(propagation, choose_layouts(propagation, profile))
    padded = share_constants(pad_matmuls(laid_out, profile))
    check_sticks(padded)
    plan = build_plan(padded, profile)
    check_index_data(padded)
    _without_kernel(padded, profile)
    return Compilation(functional, lowered, propagation, laid_out, padded, plan)
