"""Apply rewrites until nothing matches any more. Rules that undo each other, or feed themselves, are found and named."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from ..patch_error import ENDLESS_RULES, FIGHTING_RULES, SUBSTITUTE, PatchError
from .context import Context
from .graph import BUFFER, WEIGHT, dependences, dtype, mutated_inputs, mutates, packet, remove_dead, shape, value
from .match import Match, Matcher, Miss
from .normal import identity_source
from .rules import Rewrite
from .trace import Tracer, wanted_names

MAX_ROUNDS = 16
aten = torch.ops.aten


@dataclass(frozen=True)
class Site:
    """One application of a rule: where, and what it bound."""

    rule: str
    node: str
    line: str
    sizes: Mapping[str, int]


def weight_only(graph: Graph, kinds: Mapping[Node, str]) -> frozenset[Node]:
    """Nodes that depend on weights, buffers and constants only, so that they can be computed once when the model is loaded."""
    return frozenset(node for node, found in dependences(graph, kinds).items() if found <= {WEIGHT, BUFFER} and node.op != "output")


def scalars_of(match: Match) -> dict[str, Any]:
    return {name: found for name, found in match.captures.items() if not isinstance(found, Node) and not name.startswith("*")}


def local_context(context: Context, match: Match) -> Context:
    val = value(match.root)
    floating = val is not None and val.is_floating_point()
    return context.at(match.sizes, scalars_of(match), val.dtype if floating and val is not None else None)


def apply_once(graph: Graph, rule: Rewrite, kinds: Mapping[Node, str], context: Context, tracer: Tracer) -> tuple[list[Node], Miss | None]:
    """Apply the rule at every node where it matches now. Returns the roots that it replaced and the nearest miss."""
    replaced: list[Node] = []
    nearest: Miss | None = None
    weights = weight_only(graph, kinds)
    loaded: dict[tuple[object, ...], Mapping[str, Any]] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not (node.users or mutates(node)):
            continue
        matcher = Matcher(rule.pattern, weights)
        match = matcher.at(node)
        if match is None:
            if matcher.miss is not None and (nearest is None or matcher.miss.depth > nearest.depth):
                nearest = matcher.miss
            continue
        here = local_context(context, match)
        if rule.origin.when is not None and not rule.origin.when(here):
            bound = ", ".join(f"{k}={v}" for k, v in sorted({**match.sizes, **scalars_of(match)}.items()))
            nearest = Miss(len(match.interior) + 1, node.name, f"all of it matched, but `when` does not hold ({bound})")
            continue
        _substitute(graph, rule, match, here, tracer, loaded)
        replaced.append(node)
    if replaced:
        tidy(graph)
    return replaced, nearest


def _substitute(
    graph: Graph, rule: Rewrite, match: Match, here: Context, tracer: Tracer, loaded: dict[tuple[object, ...], Mapping[str, Any]]
) -> None:
    root = match.root
    name = rule.origin.name
    names = {**match.sizes, **match.captures, "dtype": dtype(root), "device": device_of(root), "stick": here.stick, "cores": here.cores}
    if rule.load is not None:
        operands = {key: names[key] for key in wanted_names(rule.load)}
        signature = (name, *sorted((key, str(found)) for key, found in operands.items()))
        if signature not in loaded:
            with graph.inserting_before(_behind_inputs(graph, [n for n in operands.values() if isinstance(n, Node)])):
                loaded[signature] = tracer.insert(rule.load, operands, root, rule=name, stage="load")
        names = {**names, **loaded[signature]}
    with graph.inserting_before(root):
        new = tracer.insert(rule.substitute, {key: names[key] for key in wanted_names(rule.substitute)}, root, rule=name)
    if not isinstance(new, Node) or shape(new) != shape(root) or dtype(new) != dtype(root):
        made = f"{dtype(new)}{list(shape(new))}" if isinstance(new, Node) else repr(new)
        raise PatchError(
            SUBSTITUTE,
            f"{name} replaces {dtype(root)}{list(shape(root))} by {made}.",
            rule.origin.place,
            "Add a cast or a reshape to its substitute.",
        )
    with graph.inserting_before(root):
        for written in mutated_inputs(root):
            copy = tracer.call(aten.copy_.default, (written, new), {}, root, rule=name)
            copy.meta["val"] = written.meta["val"]
    root.replace_all_uses_with(new)
    graph.erase_node(root)


def device_of(node: Node) -> Any:
    val = value(node)
    assert val is not None
    return val.device


def _behind_inputs(graph: Graph, inputs: Sequence[Node]) -> Node:
    """The first node that comes after all placeholders and all `inputs`."""
    waiting = set(inputs)
    for node in list[Node](graph.nodes):
        if not waiting and node.op != "placeholder":
            return node
        waiting.discard(node)
    raise LookupError("the graph has no output")


def tidy(graph: Graph) -> None:
    """Drop casts without effect and empty parts of a cat (the first write to a growing cache): the device has no tensor of no elements."""
    for node in list(graph.nodes):
        if packet(node) in ("cat", "to", "_to_copy", "type_as"):
            source = identity_source(node)
            if source is not None and device_of(source) == device_of(node):
                node.replace_all_uses_with(source)
    remove_dead(graph)


def fingerprint(graph: Graph) -> str:
    """The graph without its node names: two graphs of one fingerprint compute the same."""
    number = {node: index for index, node in enumerate(graph.nodes)}

    def plain(argument: object) -> object:
        if isinstance(argument, Node):
            return f"%{number[argument]}"
        if isinstance(argument, (list, tuple)):
            return [plain(a) for a in argument]
        if isinstance(argument, dict):
            return {k: plain(v) for k, v in argument.items()}
        return argument

    text = "\n".join(f"{node.op} {node.target} {plain(node.args)} {plain(dict(node.kwargs))}" for node in graph.nodes)
    return hashlib.sha256(text.encode()).hexdigest()


def apply_rewrites(
    graph: Graph, rules: Sequence[Rewrite], kinds: Mapping[Node, str], context: Context, tracer: Tracer
) -> tuple[Counter[str], dict[str, Miss]]:
    """Apply the rules in order, round after round, until a round changes nothing.

    Returns how often each fired and, for those that never did, the nearest miss. Raises PatchError ADC411 when a round brings back an earlier graph
    and ADC412 when rounds go on for ever.
    """
    fired: Counter[str] = Counter()
    misses: dict[str, Miss] = {}
    seen: dict[str, int] = {fingerprint(graph): 0}
    history: list[Counter[str]] = []
    for _ in range(MAX_ROUNDS):
        this_round: Counter[str] = Counter()
        for rule in rules:
            replaced, miss = apply_once(graph, rule, kinds, context, tracer)
            if replaced:
                this_round[rule.origin.name] += len(replaced)
            elif miss is not None:
                misses[rule.origin.name] = miss
        if not this_round:
            return fired, {name: miss for name, miss in misses.items() if name not in fired}
        fired.update(this_round)
        history.append(this_round)
        state = fingerprint(graph)
        if state in seen:
            _report_fight(rules, history[seen[state] :])
        seen[state] = len(history)
    feeding = sorted(history[-1])
    place = next(rule.origin.place for rule in rules if rule.origin.name == feeding[0])
    raise PatchError(
        ENDLESS_RULES,
        f"{', '.join(feeding)} still fires after {MAX_ROUNDS} rounds: its substitute matches again.",
        place,
        "Narrow its match.",
    )


def _report_fight(rules: Sequence[Rewrite], cycle: Sequence[Counter[str]]) -> None:
    names = sorted(set().union(*cycle))
    places = {rule.origin.name: rule.origin.place for rule in rules}
    who = " and ".join(f"{name} ({places[name]})" for name in names)
    verb = "undo each other" if len(names) > 1 else "undoes itself"
    raise PatchError(
        FIGHTING_RULES, f"{who} {verb}: the graph is what it was {len(cycle)} rounds ago.", places[names[0]], "Give one of them a `when:`."
    )
