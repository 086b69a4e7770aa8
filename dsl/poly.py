"""Symbolic sizes: polynomials with exact coefficients over names, so that `2 * (d / 2)` is `d` and equality is decided by normal form.

What is no polynomial (`ceil_to(d, 64)`, `d // 3`, `n / k`) is an atom named by its canonical text; two such are equal when their texts are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

Monomial: TypeAlias = tuple[tuple[str, int], ...]  # atoms with positive exponents, in order of name


@dataclass(frozen=True)
class Poly:
    """A sum of terms: monomial -> coefficient, none of them zero, in order."""

    terms: tuple[tuple[Monomial, Fraction], ...]

    def __add__(self, other: Poly) -> Poly:
        return _collect([*self.terms, *other.terms])

    def __neg__(self) -> Poly:
        return Poly(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        return _collect([(_times(m, n), c * d) for m, c in self.terms for n, d in other.terms])

    @cached_property
    def constant(self) -> Fraction | None:
        """The value when it names nothing, else None."""
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == () else None

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in self.terms:
            factors = [a if e == 1 else f"{a} ** {e}" for a, e in monomial]
            size = abs(coefficient)
            if size.numerator != 1 or not factors:
                factors.insert(0, str(size.numerator))
            part = " * ".join(factors) + (f" / {size.denominator}" if size.denominator != 1 else "")
            sign = "-" if coefficient < 0 else "+"
            text = f"{text} {sign} {part}" if text else (f"-{part}" if coefficient < 0 else part)
        return text


def number(value: int | Fraction) -> Poly:
    return Poly((((), Fraction(value)),)) if value else Poly(())


def symbol(name: str) -> Poly:
    return Poly(((((name, 1),), Fraction(1)),))


def atom(text: str) -> Poly:
    """Something that is no polynomial, named by its canonical text."""
    return symbol(text)


ONE = number(1)


def divide(a: Poly, b: Poly) -> Poly:
    """The exact quotient: a polynomial where b divides a, else an atom. `b` must not be zero."""
    if b.constant is not None:
        return Poly(tuple((m, c / b.constant) for m, c in a.terms))
    quotient = _exact_quotient(a, b)
    return quotient if quotient is not None else atom(f"({a}) / ({b})")


def _exact_quotient(a: Poly, b: Poly) -> Poly | None:
    """Long division by the leading term (lexicographic); None when something remains."""
    lead_monomial, lead_coefficient = b.terms[-1]
    rest, quotient = a, number(0)
    for _ in range(200):
        if not rest.terms:
            return quotient
        monomial, coefficient = rest.terms[-1]
        factor = _without(monomial, lead_monomial)
        if factor is None:
            return None
        term = Poly(((factor, coefficient / lead_coefficient),))
        quotient, rest = quotient + term, rest - term * b
    return None


def substitute_atoms(poly: Poly, values: Mapping[str, Poly]) -> Poly:
    """The polynomial with names replaced."""
    total = number(0)
    for monomial, coefficient in poly.terms:
        product = number(coefficient)
        for name, exponent in monomial:
            for _ in range(exponent):
                product = product * values.get(name, symbol(name))
        total = total + product
    return total


def _collect(terms: list[tuple[Monomial, Fraction]]) -> Poly:
    sums: dict[Monomial, Fraction] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, Fraction(0)) + coefficient
    # By degree, then name: the last term leads, and constants come first in long division but last in no text that matters.
    kept = sorted(((m, c) for m, c in sums.items() if c), key=lambda t: (sum(e for _, e in t[0]), t[0]))
    return Poly(tuple(kept))


def _times(a: Monomial, b: Monomial) -> Monomial:
    exponents = dict(a)
    for name, exponent in b:
        exponents[name] = exponents.get(name, 0) + exponent
    return tuple(sorted(exponents.items()))


def _without(a: Monomial, b: Monomial) -> Monomial | None:
    exponents = dict(a)
    for name, exponent in b:
        left = exponents.get(name, 0) - exponent
        if left < 0:
            return None
        exponents[name] = left
    return tuple((name, exponent) for name, exponent in exponents.items() if exponent)
