"""Symbolic sizes inside a pattern: `d`, `d / 2`, `3 * h * d`, evaluated exactly once the matcher has bound their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Number: TypeAlias = int | Fraction


class Unbound(Exception):
    """A size that reads a name which the match has not bound yet."""


def _floor_div(a: Number, b: Number) -> Number:
    return a // b


def _true_div(a: Number, b: Number) -> Number:
    return Fraction(a) / Fraction(b)


OPERATORS: dict[str, Callable[[Number, Number], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _true_div,
    "//": _floor_div,
    "%": lambda a, b: a % b,
}


@dataclass(frozen=True)
class Dim:
    """A named size, or an arithmetic expression over sizes. `Dim("d") / 2` is exact: it matches nothing where d is odd."""

    name: str | None = None
    operator: str | None = None
    operands: tuple[Dim | int, ...] = ()

    def _binary(self, operator: str, other: Dim | int, *, swap: bool = False) -> Dim:
        return Dim(None, operator, (other, self) if swap else (self, other))

    def __add__(self, other: Dim | int) -> Dim:
        return self._binary("+", other)

    def __radd__(self, other: int) -> Dim:
        return self._binary("+", other, swap=True)

    def __sub__(self, other: Dim | int) -> Dim:
        return self._binary("-", other)

    def __rsub__(self, other: int) -> Dim:
        return self._binary("-", other, swap=True)

    def __mul__(self, other: Dim | int) -> Dim:
        return self._binary("*", other)

    def __rmul__(self, other: int) -> Dim:
        return self._binary("*", other, swap=True)

    def __truediv__(self, other: Dim | int) -> Dim:
        return self._binary("/", other)

    def __floordiv__(self, other: Dim | int) -> Dim:
        return self._binary("//", other)

    def __mod__(self, other: Dim | int) -> Dim:
        return self._binary("%", other)

    def __neg__(self) -> Dim:
        return Dim(None, "-", (0, self))

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        left, right = (f"({o})" if isinstance(o, Dim) and o.name is None else str(o) for o in self.operands)
        return f"{left} {self.operator} {right}"

    def exact(self, sizes: Mapping[str, int]) -> Number:
        if self.name is not None:
            if self.name not in sizes:
                raise Unbound(self.name)
            return sizes[self.name]
        assert self.operator is not None
        left, right = (o.exact(sizes) if isinstance(o, Dim) else o for o in self.operands)
        return OPERATORS[self.operator](left, right)


def evaluate(size: Dim | int, sizes: Mapping[str, int]) -> int | None:
    """The integer that `size` stands for, or None where it is no integer (an odd d halved, a division by zero). Raises Unbound."""
    try:
        value = size.exact(sizes) if isinstance(size, Dim) else size
    except ZeroDivisionError:
        return None
    return int(value) if Fraction(value).denominator == 1 else None


def solve(size: Dim | int, found: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one unbound name of `size` and the value that makes it `found`: `n * p` at 12 with p = 4 gives n = 3.

    None where more than one name is unbound, or where no whole number fits.
    """
    if not isinstance(size, Dim):
        return None
    if size.name is not None:
        return None if size.name in sizes else (size.name, found)
    left, right = size.operands
    try:
        known, unknown, behind = (right.exact(sizes) if isinstance(right, Dim) else right), left, False
    except Unbound:
        try:
            known, unknown, behind = (left.exact(sizes) if isinstance(left, Dim) else left), right, True
        except Unbound:
            return None
    match size.operator:
        case "+":
            rest = found - known
        case "-":
            rest = known - found if behind else found + known
        case "*" if known != 0:
            rest = Fraction(found) / Fraction(known)
        case "/" if not behind:
            rest = found * known
        case _:
            return None
    return solve(unknown, int(rest), sizes) if Fraction(rest).denominator == 1 else None
