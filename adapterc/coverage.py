"""Which adapter removes an obstacle, and if none does, which one is the nearest template. Both are found by applying the rules, never looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from adapterc.attach import Attached, attach, rules_of
from adapterc.capturing import ModelGraph
from adapterc.codegen.runtime.graph import packet, placeholder_kinds
from adapterc.codegen.runtime.match import Matcher
from adapterc.codegen.runtime.normal import forms
from adapterc.codegen.runtime.pattern import Op, Pattern, walk
from adapterc.codegen.runtime.rewrite import weight_only
from adapterc.codegen.runtime.rules import Rule
from adapterc.dsl.adapter import Adapter
from adapterc.obstacles import Compiler, Place, find
from adapterc.spyre_runtime.profile import Profile
from adapterc.subgraph import part, structure


@dataclass(frozen=True)
class Coverage:
    """`by`: adapters that change the place, when together they remove the obstacle. `template`, `near`: otherwise the nearest adapter and why."""

    by: tuple[str, ...] = ()
    template: str | None = None
    near: str = ""

    @property
    def covered(self) -> bool:
        return bool(self.by)


@dataclass(frozen=True)
class Library:
    """Adapters with their rules, applied to one graph: all together, and each alone."""

    rules: Mapping[str, tuple[Rule, ...]]
    gaps: Mapping[str, str | None]
    together: Attached
    left: tuple[Place, ...]
    alone: Mapping[str, Attached]


def apply_library(graph: ModelGraph, adapters: Sequence[Adapter], profile: Profile, compiler: Compiler) -> Library:
    """Apply the adapters to the graph and ask the compiler what is left."""
    rules = {adapter.name: rules_of(adapter) for adapter in adapters}
    together = attach(graph, [rule for group in rules.values() for rule in group], profile)
    fired = {name.partition(".")[0] for name, sites in together.fired.items() if sites}
    return Library(
        rules,
        {adapter.name: adapter.gap for adapter in adapters},
        together,
        find(together.device, together.layouts, profile, compiler),
        {name: attach(graph, rules[name], profile) for name in rules if name in fired},
    )


def coverage(place: Place, graph: ModelGraph, library: Library) -> Coverage:
    """Who removes this obstacle of the stock graph."""
    if not any(_same(place, other) for other in library.left):
        changed = changed_by(place, graph, library)
        if changed:
            return Coverage(by=changed)
    template, near = _nearest(place, graph, library)
    return Coverage(template=template, near=near)


def changed_by(place: Place, graph: ModelGraph, library: Library) -> tuple[str, ...]:
    """The adapters that each by itself make something else of the place."""
    return tuple(name for name, attached in library.alone.items() if _changes(place, graph, attached))


def _same(place: Place, other: Place) -> bool:
    a, b = place.obstacle, other.obstacle
    return (a.kind, a.source) == (b.kind, b.source)


def _changes(place: Place, graph: ModelGraph, attached: Attached) -> bool:
    """Whether the nodes of the place are gone from the device's part, or are not what they were."""
    now = {node.name: node for node in attached.device.graph.nodes if node.op == "call_function"}
    if not set(place.nodes) <= now.keys():
        return True
    before = [node for node in graph.captured.module.graph.nodes if node.name in place.nodes]
    after = [now[node.name] for node in before]
    return _text(graph.captured.module, before, graph) != _text(attached.device, after, graph)


def _text(module: fx.GraphModule, nodes: Sequence[fx.Node], graph: ModelGraph) -> str:
    return structure(part(module, nodes, [nodes[-1]]), graph.layouts)


def _nearest(place: Place, graph: ModelGraph, library: Library) -> tuple[str | None, str]:
    """The adapter of the same gap, else the one whose pattern gets furthest at the place, else the one that speaks of the same ops."""
    for name, gap in library.gaps.items():
        if gap is not None and gap == place.obstacle.gap:
            return name, f"is for the same gap, {gap}"
    nodes = [node for node in graph.captured.module.graph.nodes if node.name in place.nodes]
    kinds = placeholder_kinds(graph.captured.module.graph, graph.captured.parameters, graph.captured.buffers)
    weights = weight_only(graph.captured.module.graph, kinds)
    best: tuple[int, str | None, str] = (0, None, "")
    for name, rules in library.rules.items():
        for rule in rules:
            pattern = getattr(rule, "pattern", None)
            if isinstance(pattern, Pattern):
                score, why = _reach(pattern, nodes, weights)
                if score > best[0]:
                    best = (score, name, f"{rule.origin.name}: {why}")
    return best[1], best[2]


def _reach(pattern: Pattern, nodes: Sequence[fx.Node], weights: frozenset[fx.Node]) -> tuple[int, str]:
    """How many ops of the pattern match somewhere among the nodes; half a point less than a match for an op that is only shared."""
    best, why = 0, ""
    for node in nodes:
        matcher = Matcher(pattern, weights)
        match = matcher.at(node)
        depth = len(match.interior) if match is not None else matcher.miss.depth if matcher.miss is not None else 0
        if 2 * depth > best:
            best, why = 2 * depth, "matches" if match is not None else str(matcher.miss)
    if not best:
        shared = sorted({op.name for op in walk(pattern) if isinstance(op, Op) and any(next(forms(n, op.name), None) for n in nodes)})
        if shared:
            return 1, f"has the same op, {', '.join(shared)}"
    return best, why


def ops_of(place: Place) -> tuple[str, ...]:
    """The ATen ops of the place, in order, without repetition."""
    names = (packet(node) for node in place.module.graph.nodes)
    return tuple(dict.fromkeys(name for name in names if name))
