"""Apply a `pad` rule at every place where it matches, or say why it cannot be applied there."""

from __future__ import annotations

from collections.abc import Mapping

from torch.fx import Graph, Node

from .context import Context
from .graph import source_line
from .grow import plan_growth
from .growth import CannotGrow
from .match import Matcher, Miss
from .pattern import Tensor, walk
from .regrow import carry_out
from .rewrite import local_context, weight_only
from .rules import Pad
from .trace import Tracer


def apply_pad(graph: Graph, rule: Pad, kinds: Mapping[Node, str], context: Context, tracer: Tracer) -> tuple[int, list[Miss]]:
    """Grow the rule's dimension at each match where `when` holds. Returns the sites done and why others were left alone."""
    done = 0
    misses: list[Miss] = []
    weights = weight_only(graph, kinds) if _needs_weights(rule) else frozenset()
    for node in list(graph.nodes):
        if node.op != "call_function" or not node.users:
            continue
        matcher = Matcher(rule.pattern, weights)
        match = matcher.at(node)
        if match is None:
            if matcher.miss is not None:
                misses.append(matcher.miss)
            continue
        here = local_context(context, match)
        bound = ", ".join(f"{k}={v}" for k, v in sorted(match.sizes.items()))
        if rule.origin.when is not None and not rule.origin.when(here):
            misses.append(Miss(len(match.interior) + 1, node.name, f"all of it matched, but `when` does not hold ({bound})"))
            continue
        new = rule.size(here)
        if new <= match.sizes[rule.dim]:
            misses.append(Miss(len(match.interior) + 1, node.name, f"`{rule.dim}` = {match.sizes[rule.dim]} is large enough ({new})"))
            continue
        try:
            plan = plan_growth(graph, match, rule.dim, new, rule.fills, rule.consumers == "crop", kinds)
        except CannotGrow as reason:
            misses.append(Miss(len(match.interior) + 2, node.name, f"{bound}, but it cannot grow: {reason}", source_line(node)))
            continue
        carry_out(plan, tracer, rule.origin.name)
        done += 1
    return done, misses


def _needs_weights(rule: Pad) -> bool:
    return any(isinstance(p, Tensor) and p.weight for p in walk(rule.pattern))
