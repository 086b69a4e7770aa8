"""The `pad` rules: a named dimension grows through the graph, back to the weights that make it and forward to what absorbs it.

Three steps, and only the last edits the graph: the growth spreads (transfer.py) until every operand and every user agrees; the new lanes are
followed to show that none of them can reach a real element; then weights get padded copies at load, sizes are updated and what depended on the old
size (attention's default scale, the count of a mean) is pinned to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, Node

from .graph import BUFFER, INDEX, WEIGHT, dependences, mutates, shape, value
from .growth import CannotGrow, Growth
from .lanes import check_lanes
from .match import Match
from .transfer import consume, produce

MAX_NODES = 4096


@dataclass
class GrowthPlan:
    """What one growth would change. Nothing in the graph is touched while it is made."""

    graph: Graph
    depends: Mapping[Node, frozenset[str]]
    fills: Mapping[Node, float]
    crop: Node | None = None
    grown: dict[Node, Growth] = field(default_factory=dict)
    copies: dict[tuple[Node, Node], dict[int, Growth]] = field(
        default_factory=dict
    )  # (user, operand) -> growths of the operand's padded copy
    contracted: list[tuple[Node, Node, Node]] = field(default_factory=list)
    summed: list[tuple[Node, Node]] = field(default_factory=list)
    compensated: dict[Node, Growth] = field(default_factory=dict)
    cuts: list[tuple[Node, Node]] = field(default_factory=list)  # (reader outside the graph, grown value)
    _queue: list[Node] = field(default_factory=list)

    def operand(self, user: Node, node: Any, growth: Growth) -> None:
        if not isinstance(node, Node) or value(node) is None:
            raise CannotGrow(f"{user.name} has no tensor where the dimension should grow")
        if shape(node)[growth.axis] != growth.before:
            raise CannotGrow(f"{node.name} has {shape(node)[growth.axis]} elements where {user.name} needs {growth.before}")
        if node in self.grown or not self._copied(node):
            self.grow(node, growth)
            return
        axes = self.copies.setdefault((user, node), {})
        if axes.setdefault(growth.axis, growth) != growth:
            raise CannotGrow(f"{node.name} would grow in two ways along dimension {growth.axis}")

    def grow(self, node: Node, growth: Growth) -> None:
        known = self.grown.get(node)
        if known is None:
            if len(self.grown) >= MAX_NODES:
                raise CannotGrow(f"the growth reaches more than {MAX_NODES} nodes")
            if value(node) is None or shape(node)[growth.axis] != growth.before:
                raise CannotGrow(f"{node.name} does not have the dimension that grows")
            self.grown[node] = growth
            self._queue.append(node)
        elif known != growth:
            raise CannotGrow(f"{node.name} would grow along dimension {known.axis} and along dimension {growth.axis}")

    def contract(self, user: Node, *operands: Node) -> None:
        self.contracted.append((user, operands[0], operands[1]))

    def sum_of_zeros(self, user: Node, operand: Node) -> None:
        self.summed.append((user, operand))

    def compensate(self, user: Node, growth: Growth) -> None:
        self.compensated[user] = growth

    def cut(self, user: Node, node: Node) -> None:
        self.cuts.append((user, node))

    def _copied(self, node: Node) -> bool:
        """Inputs, weights, fresh memory, and what the host makes of positions and masks, grow as padded copies; everything else in place."""
        found = self.depends[node]
        return not node.all_input_nodes or found <= {BUFFER, INDEX} or found <= {WEIGHT, BUFFER}

    def spread(self) -> None:
        while self._queue:
            node = self._queue.pop()
            growth = self.grown[node]
            produce(self, node, growth)
            if node is self.crop:
                continue
            for user in list(node.users):
                if user.users or user.op == "output" or mutates(user) or value(user) is None:
                    consume(self, user, node, growth)


def plan_growth(
    graph: Graph, match: Match, dim: str, new: int, fills: Mapping[str, float], crop: bool, kinds: Mapping[Node, str]
) -> GrowthPlan:
    """Plan that the dimension `dim` of the match becomes `new`. Raises CannotGrow with the reason, and then nothing has changed."""
    old = match.sizes[dim]
    seeds = _seeds(match, dim, old, new)
    by_node = {match.captures[name]: fill for name, fill in fills.items() if isinstance(match.captures.get(name), Node)}
    plan = GrowthPlan(graph, dependences(graph, kinds), by_node, match.root if crop else None)
    for node, growth in seeds:
        if not plan._copied(node):
            plan.grow(node, growth)
    if crop:
        axis = _axis_of(match.root, old)
        plan.grow(match.root, Growth(axis, 1, old, new))
    for node, growth in seeds:
        if plan._copied(node):
            for user in [u for u in node.users if u in match.interior]:
                consume_copy(plan, user, node, growth)
    plan.spread()
    if not plan.grown and not plan.copies:
        raise CannotGrow(f"no captured tensor has the dimension `{dim}`")
    check_lanes(plan)
    return plan


def consume_copy(plan: GrowthPlan, user: Node, node: Node, growth: Growth) -> None:
    """A captured input or weight grows as a copy. A weight's reader must ask for just that, or read it along a contraction that grows too;
    of an input the reader may know nothing yet, so it is told as it is of any operand that grows."""
    plan.operand(user, node, growth)
    if WEIGHT not in plan.depends[node]:
        consume(plan, user, node, growth)


def _seeds(match: Match, dim: str, old: int, new: int) -> list[tuple[Node, Growth]]:
    found = []
    for name, captured in match.captures.items():
        axis = match.axes.get((name, dim))
        if isinstance(captured, Node) and axis is not None:
            found.append((captured, Growth(axis, 1, old, new)))
    return found


def _axis_of(node: Node, old: int) -> int:
    axes = [axis for axis, size in enumerate(shape(node)) if size == old]
    if not axes:
        raise CannotGrow(f"{node.name} does not have the dimension of {old}, so there is nothing to crop")
    return axes[-1]


__all__ = ["CannotGrow", "GrowthPlan", "plan_growth"]
