"""How one dimension of a tensor grows, and where that dimension goes through views.

A dimension of heads keeps its groups: of `h * d` elements, each of the h groups grows from d to D, and the new lanes stand at the end of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod


class CannotGrow(Exception):
    """The dimension cannot grow here; the text says why, in the words of the graph. Nothing has been changed."""


@dataclass(frozen=True)
class Growth:
    """Axis `axis` holds outer x old x inner elements, and will hold outer x new x inner."""

    axis: int
    outer: int
    old: int
    new: int
    inner: int = 1

    @property
    def before(self) -> int:
        return self.outer * self.old * self.inner

    @property
    def after(self) -> int:
        return self.outer * self.new * self.inner

    @property
    def unit(self) -> int:
        """Elements of one group before it grows."""
        return self.old * self.inner

    def at(self, axis: int, size: int | None = None) -> Growth:
        """The same growth on another axis, which has `size` elements. Raises CannotGrow where that is no whole number of groups."""
        if size is None or size == self.before:
            return replace(self, axis=axis)
        if size % self.unit:
            raise CannotGrow(f"{size} elements are no whole number of groups of {self.unit}")
        return replace(self, axis=axis, outer=size // self.unit)


def resized(shape: Sequence[int], growth: Growth) -> tuple[int, ...]:
    """The shape after the growth."""
    if shape[growth.axis] != growth.before:
        raise CannotGrow(f"dimension {growth.axis} of {list(shape)} is not the {growth.before} that grows")
    return (*shape[: growth.axis], growth.after, *shape[growth.axis + 1 :])


def through_view(source: Sequence[int], growth: Growth, target: Sequence[int]) -> Growth:
    """Where the grown dimension of `source` is after a view as `target`. Raises CannotGrow where the view takes a group apart."""
    before = prod(source[: growth.axis]) * growth.outer
    behind = growth.inner * prod(source[growth.axis + 1 :])
    found = []
    for axis, size in enumerate(target):
        leading, trailing = prod(target[:axis]), prod(target[axis + 1 :])
        if leading == 0 or trailing == 0 or before % leading or behind % trailing:
            continue
        outer, inner = before // leading, behind // trailing
        if outer * growth.old * inner == size:
            found.append(Growth(axis, outer, growth.old, growth.new, inner))
    if not found:
        raise CannotGrow(f"the view {list(source)} -> {list(target)} takes groups of {growth.old} apart")
    return found[0]


def through_permute(growth: Growth, order: Sequence[int]) -> Growth:
    return replace(growth, axis=list(order).index(growth.axis))


def broadcast_axis(rank: int, growth: Growth, other: Sequence[int]) -> int | None:
    """The axis of an operand that meets the grown axis of a broadcast result; None where the operand has size 1 there or no such axis."""
    axis = growth.axis - (rank - len(other))
    return None if axis < 0 or other[axis] != growth.before else axis
