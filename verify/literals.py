"""Literals that are rounded constants: 0.7071067811865476 is written where 1/√2 is meant, for a program has no other way to write it.

A literal counts as such a constant when it is that number rounded to float64 (15 significant digits at least), or to float32 (8 at least).
Four digits of √2 are another number: rules that use them are approximations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

from adapterc.dsl.ast import Expr, Literal
from adapterc.dsl.ops import map_children
from adapterc.dsl.parser import parse_expression
from adapterc.dsl.printer import to_text
from adapterc.verify.claim import Claim

CONSTANTS: Mapping[str, float] = {
    "pi": math.pi,
    "2 * pi": 2 * math.pi,
    "pi / 2": math.pi / 2,
    "pi / 180": math.pi / 180,
    "1 / pi": 1 / math.pi,
    "2 / pi": 2 / math.pi,
    "sqrt(pi)": math.sqrt(math.pi),
    "2 / sqrt(pi)": 2 / math.sqrt(math.pi),
    "1 / sqrt(pi)": 1 / math.sqrt(math.pi),
    "sqrt(2 / pi)": math.sqrt(2 / math.pi),
    "2 * sqrt(2 / pi)": 2 * math.sqrt(2 / math.pi),
    "sqrt(2 * pi)": math.sqrt(2 * math.pi),
    "1 / sqrt(2 * pi)": 1 / math.sqrt(2 * math.pi),
    "exp(1)": math.e,
    "log(2)": math.log(2),
    "1 / log(2)": 1 / math.log(2),
    "log(10)": math.log(10),
    "1 / log(10)": 1 / math.log(10),
}
ROUNDINGS = ((15, 2.0**-51, 1 << 14, 1000), (8, 2.0**-24, 512, 60))  # digits, relative error, largest radicand, largest denominator


def exact(claim: Claim) -> tuple[Claim, tuple[str, ...]]:
    """The claim with rounded constants read as what they round, and the readings made: "0.7071067811865476 is read as 1 / sqrt(2)"."""
    readings: dict[str, None] = {}

    def visit(node: Expr) -> Expr:
        if isinstance(node, Literal) and isinstance(node.value, Fraction):
            meant = constant_of(node.value)
            if meant is not None:
                readings[f"{to_text(node)} is read as {meant}, which it rounds"] = None
                return parse_expression(meant)
        return map_children(node, visit)

    return replace(claim, left=visit(claim.left), right=visit(claim.right)), tuple(readings)


@cache
def constant_of(value: Fraction) -> str | None:
    """The constant that a literal rounds, as text of the language; None for a number that stands for itself."""
    size = abs(value)
    digits = len(str(size.numerator * 10**40 // size.denominator).strip("0")) if size else 0
    for least, relative, radicand, denominator in ROUNDINGS:
        if digits >= least:
            found = _named(float(size), relative) or _root(size, relative, radicand) or _ratio(size, relative, denominator)
            if found is not None:
                return found if value > 0 else f"-({found})"
    return None


def _named(size: float, relative: float) -> str | None:
    return next((text for text, number in CONSTANTS.items() if abs(size - number) <= relative * number), None)


def _root(size: Fraction, relative: float, most: int) -> str | None:
    """√n or 1/√n for a whole n that is no square."""
    for text, square in (("sqrt({})", size * size), ("1 / sqrt({})", 1 / (size * size))):
        n = round(square)
        if 2 <= n <= most and math.isqrt(n) ** 2 != n and abs(square - n) <= 2 * relative * n:
            return text.format(n)
    return None


def _ratio(size: Fraction, relative: float, most: int) -> str | None:
    """A ratio of small whole numbers without an end in decimals."""
    near = size.limit_denominator(most)
    ends = all(near.denominator % p for p in (3, 7, 11, 13, 17, 19, 23))
    if near == size or near.numerator == 0 or ends or near.numerator > most or abs(size - near) > relative * near:
        return None
    return f"{near.numerator} / {near.denominator}"
