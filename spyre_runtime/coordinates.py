"""Where a loop nest touches device memory: one coordinate per device dimension, as sums of simple terms over loop symbols.

The flat host index of an access is a mixed-radix number whose digits are the device dimensions: a dimension with host stride `s`, below the next
larger stride `n`, holds the digit `index mod n // s`. Splitting every term of the index that way gives the coordinates
(public description: torch-spyre docs, tensors_and_layouts.md, stride_map).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from .ir import Access, DeviceLayout

Symbol = sympy.Symbol


@dataclass(frozen=True, slots=True)
class Term:
    """`floor(scale · ((factor · (symbol // divisor)) mod modulus))`; without a modulus, `factor` and `divisor` are 1."""

    symbol: Symbol
    scale: Fraction
    modulus: int | None = None
    factor: int = 1
    divisor: int = 1

    def at(self, value: int) -> int:
        inner = self.factor * (value // self.divisor)
        return math.floor(self.scale * (inner if self.modulus is None else inner % self.modulus))

    @property
    def expr(self) -> sympy.Expr:
        inner = self.symbol if self.divisor == 1 else FloorDiv(self.symbol, self.divisor)
        if self.modulus is not None:
            inner = sympy.Mod(self.factor * inner, self.modulus)
        if self.scale.denominator == 1:
            return self.scale.numerator * inner
        return sympy.floor(sympy.Rational(self.scale.numerator, self.scale.denominator) * inner)


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Sum of terms plus `offset`. `indirect` names symbols whose value is data (a gathered row)."""

    terms: tuple[Term, ...] = ()
    offset: int = 0
    indirect: frozenset[Symbol] = frozenset()

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Each symbol once, data-dependent ones included, in order of appearance."""
        return tuple(dict.fromkeys(t.symbol for t in self.terms))

    @property
    def expr(self) -> sympy.Expr:
        return sympy.Add(*(t.expr for t in self.terms), sympy.Integer(self.offset))

    def __str__(self) -> str:
        return str(self.expr)


@dataclass(frozen=True, slots=True)
class _Digit:
    """One device dimension that a host stride walks, and the next larger stride of the layout (None: there is none)."""

    dimension: int
    stride: int
    above: int | None


def _digits(size: Sequence[int], stride: Sequence[int]) -> list[_Digit]:
    walked = sorted({s for s, n in zip(stride, size, strict=True) if n > 1 and s > 0})
    return [
        _Digit(dim, s, next((w for w in walked if w > s), None))
        for dim, (s, n) in enumerate(zip(stride, size, strict=True))
        if n > 1 and s > 0
    ]


def _touched(digits: Sequence[_Digit], step: int, limit: float) -> list[_Digit]:
    """The digits that a value moves when it goes up to `limit` in steps of `step`: those in between, and the one that the step lands in."""
    between = [d for d in digits if step < d.stride < limit]
    below = [d for d in digits if d.stride <= step]
    return between + ([max(below, key=lambda d: (d.stride, -d.dimension))] if below else [])


@dataclass(frozen=True, slots=True)
class _Walk:
    """`step · ((symbol // divisor) mod wrap)` in a flat index; `limit` is one past what it can reach."""

    symbol: Symbol
    step: int
    limit: int
    wrap: int | None = None
    divisor: int = 1


def _walks(access: Access, layout_size: Sequence[int], layout_stride: Sequence[int]) -> tuple[list[_Walk], int, frozenset[Symbol]]:
    """The terms of an index, its constant, and the symbols in it that are data. Symbols of extent 1 or less drop out."""
    extents = access.extents
    walks: list[_Walk] = []
    offset = 0
    data: set[Symbol] = set()
    for term, coefficient in sympy.expand(access.index).as_coefficients_dict().items():
        if term == 1:
            offset = int(coefficient)
            continue
        symbol, divisor, wrap = _atom(term)
        step = int(coefficient)
        extent = extents.get(symbol)
        if extent is None:
            data.add(symbol)
            extent = next((n for n, s in zip(layout_size, layout_stride, strict=True) if s == step and n > 1), 1)
        if extent <= 1:
            continue
        if wrap is not None and wrap < extent:
            walks.append(_Walk(symbol, step, step * wrap, wrap, divisor))
        elif divisor == 1:
            walks.append(_Walk(symbol, step, step * extent))
        # A bare quotient moves nothing in its first step, so the public compiler gives it no coordinate.
    return walks, offset, frozenset(data)


def _atom(term: sympy.Expr) -> tuple[Symbol, int, int | None]:
    """(symbol, divisor, modulus) of `(symbol // divisor) mod modulus`. Raises TypeError for anything else."""
    if isinstance(term, sympy.Symbol):
        return term, 1, None
    if isinstance(term, ModularIndexing):
        base, divisor, modulus = term.args
        return base, int(divisor), int(modulus)
    if isinstance(term, sympy.Mod):
        base, modulus = term.args
        inner, divisor, _ = _atom(base)
        return inner, divisor, int(modulus)
    if isinstance(term, FloorDiv):
        base, divisor = term.args
        inner, _, modulus = _atom(base)
        return inner, int(divisor), modulus
    raise TypeError(f"an index holds {term}")


def _digit_of(walk: _Walk, digit: _Digit) -> Term:
    if digit.above is None or digit.above >= walk.limit:
        return Term(walk.symbol, Fraction(walk.step, digit.stride), walk.wrap, 1, walk.divisor)
    common = math.gcd(walk.step, digit.above)
    factor, modulus = walk.step // common, digit.above // common
    if walk.wrap is not None:
        modulus = math.gcd(modulus, walk.wrap)
    return Term(walk.symbol, Fraction(common, digit.stride), modulus, factor, walk.divisor)


def coordinates(size: Sequence[int], stride: Sequence[int], access: Access) -> tuple[Coordinate, ...]:
    """Coordinates of `access` along dimensions of the given sizes and host strides; strides of -1 are walked by nothing.

    Raises TypeError for an index that is not a sum of multiples of symbols, quotients and remainders.
    """
    digits = _digits(size, stride)
    walks, offset, data = _walks(access, size, stride)
    terms: dict[int, list[Term]] = {}
    for walk in walks:
        for digit in _touched(digits, walk.step, walk.limit):
            terms.setdefault(digit.dimension, []).append(_digit_of(walk, digit))
    offsets: dict[int, int] = {}
    if offset > 0:
        for digit in _touched(digits, 1, math.inf):
            offsets[digit.dimension] = (offset if digit.above is None else offset % digit.above) // digit.stride
    return tuple(
        Coordinate(own := tuple(terms.get(dim, ())), offsets.get(dim, 0), frozenset(t.symbol for t in own) & data)
        for dim in range(len(size))
    )


def device_coordinates(layout: DeviceLayout, access: Access) -> tuple[Coordinate, ...]:
    """Coordinates of `access` in device memory laid out as `layout`; the last one is the place within the stick."""
    return coordinates(layout.device_size, layout.stride_map, access)
