"""Coordinates taken apart: a device coordinate as a sum of simple terms, one a loop symbol and digit, plus a constant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import sympy
from sympy import Symbol
from torch.utils._sympy.functions import FloorDiv

from .refusal import refuse


@dataclass(frozen=True, slots=True)
class Term:
    """`floor(scale · ((factor · (symbol // divisor)) mod modulus))`; without a modulus, `factor` and `divisor` are 1."""

    symbol: Symbol
    scale: Fraction = Fraction(1)
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
    """Sum of terms plus `offset`."""

    terms: tuple[Term, ...] = ()
    offset: int = 0

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Each symbol once, data-dependent ones included, in order of appearance."""
        return tuple(dict.fromkeys(t.symbol for t in self.terms))

    @property
    def expr(self) -> sympy.Expr:
        return sympy.Add(*(t.expr for t in self.terms), sympy.Integer(self.offset))

    def __str__(self) -> str:
        return str(self.expr)


def _wrapped(inner: sympy.Expr) -> tuple[int | None, int, int]:
    """(modulus, factor, divisor) of `(factor · (symbol // divisor)) mod modulus`."""
    if inner.is_Symbol:
        return None, 1, 1
    if isinstance(inner, sympy.Mod):
        base, modulus = inner.args
        factor, rest = base.as_coeff_Mul()
        divisor = int(rest.args[1]) if isinstance(rest, FloorDiv) else 1
        return int(modulus), int(factor), divisor
    raise ValueError(str(inner))


def _term(part: sympy.Expr, symbol: Symbol) -> Term:
    unfloored = part.args[0] if isinstance(part, sympy.floor) else part
    scale, inner = unfloored.as_coeff_Mul()
    modulus, factor, divisor = _wrapped(inner)
    return Term(symbol, Fraction(int(scale.p), int(scale.q)), modulus, factor, divisor)


@lru_cache(maxsize=65536)
def coordinate_of(expr: sympy.Expr) -> Coordinate:
    """Take a coordinate expression apart. Raises Refusal for one that is not a sum of such terms."""
    expr = sympy.sympify(expr)
    constant, moving = expr.as_coeff_Add()
    terms = []
    for part in sympy.Add.make_args(moving):
        symbols = sorted(part.free_symbols, key=str)
        if not symbols:
            continue
        try:
            if len(symbols) != 1:
                raise ValueError(str(part))
            terms.append(_term(part, symbols[0]))
        except (ValueError, IndexError, AttributeError):
            raise refuse(
                "AssertionError@_inductor/views.py:normalize_coordinates",
                f"a view makes the device coordinate {expr}, which is not a sum of loop digits",
                stage="divide",
            ) from None
    return Coordinate(tuple(terms), int(constant))


def coordinates_of(exprs: Iterable[sympy.Expr]) -> tuple[Coordinate, ...]:
    return tuple(coordinate_of(e) for e in exprs)
