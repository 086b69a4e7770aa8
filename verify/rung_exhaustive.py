"""Rung 2: every value of a 16-bit format, for the places where the sides differ in one variable. Exhaustion is a proof for that format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapterc.verify import floats
from adapterc.verify.compare import signature
from adapterc.verify.formats import FORMATS, all_values
from adapterc.verify.terms import Term, variables

SIXTEEN_BIT = ("float16", "bfloat16", "dlfloat16")
MOST_SHAPES = 6


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """One format: how many of its values give different bits, of these how many only in the sign of zero or at non-finite inputs;
    `lost` counts finite inputs where one side overflows or is undefined and the other is not; `example` is the first that differs."""

    format: str
    values: int
    different: int
    zero_sign: int
    nonfinite: int
    lost: int
    example: float | None


def exhaust(pairs: Sequence[tuple[Term, Term]], formats: Sequence[str] = SIXTEEN_BIT) -> tuple[Exhaustion, ...] | None:
    """Every value of each format through every differing pair; None where a pair has several variables or none of a float dtype."""
    shapes: dict[tuple[object, ...], tuple[Term, Term]] = {}
    for pair in pairs:
        shapes.setdefault(signature(pair), pair)
        if len(shapes) > MOST_SHAPES:
            return None
    for pair in shapes.values():
        found = variables(pair)
        if len(found) != 1 or found[0].dtype not in ("float", *formats):
            return None
    return tuple(_in_format(list(shapes.values()), name) for name in formats)


def _in_format(pairs: Sequence[tuple[Term, Term]], name: str) -> Exhaustion:
    points = all_values(FORMATS[name])
    finite = np.isfinite(points)
    different = np.zeros(len(points), dtype=bool)
    unequal_anywhere = np.zeros(len(points), dtype=bool)
    lost = np.zeros(len(points), dtype=bool)
    for left, right in pairs:
        (variable,) = variables((left, right))
        run = floats.run((left, right), {variable.serial: points}, len(points), name)
        a, b = np.asarray(run.of(left), dtype=np.longdouble), np.asarray(run.of(right), dtype=np.longdouble)
        both_nan = np.isnan(a) & np.isnan(b)
        unequal = (a != b) & ~both_nan
        signs = (np.signbit(a) != np.signbit(b)) & ~np.isnan(a) & ~unequal
        different |= unequal | signs
        unequal_anywhere |= unequal
        lost |= unequal & finite & (np.isfinite(a) != np.isfinite(b))
    where = np.flatnonzero(different)
    return Exhaustion(
        name,
        len(points),
        int(different.sum()),
        int((different & ~unequal_anywhere).sum()),
        int((unequal_anywhere & ~finite).sum()),
        int(lost.sum()),
        float(points[where[0]]) if len(where) else None,
    )
