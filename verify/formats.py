"""Number formats by their definition: a value is rounded from a wider one, to nearest with ties to even.

DLFloat16 as in the public torch-spyre sources (DLFLOAT16_MAX) and IBM's ARITH 2019 paper: 1 sign, 6 exponent (bias 31), 9 fraction bits; no
subnormals; one merged NaN/infinity code; conversion saturates at the largest finite value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Wide: TypeAlias = NDArray[Any]  # long doubles


@dataclass(frozen=True, slots=True)
class Format:
    """`precision` counts the hidden bit; `least` is the exponent of the smallest normal value, `largest` the largest finite value."""

    name: str
    precision: int
    least: int
    largest: float
    subnormals: bool = True
    merged_infinity: bool = False

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next value."""
        return 2.0 ** (1 - self.precision)

    @property
    def tiny(self) -> float:
        """The smallest normal value."""
        return (1 + self.epsilon if self.merged_infinity else 1.0) * 2.0**self.least


FORMATS: Mapping[str, Format] = {
    f.name: f
    for f in (
        Format("float16", 11, -14, 65504.0),
        Format("bfloat16", 8, -126, (2 - 2**-7) * 2.0**127),
        Format("float32", 24, -126, (2 - 2**-23) * 2.0**127),
        Format("float64", 53, -1022, float(np.finfo(np.float64).max)),
        Format("dlfloat16", 10, -31, (1 + 510 / 512) * 2.0**32, subnormals=False, merged_infinity=True),
    )
}


def round_to(values: NDArray[Any], target: Format) -> Wide:
    """`values` rounded to `target`, as long doubles; overflow gives infinity (DLFloat16: the largest value), NaN stays."""
    wide = np.asarray(values, dtype=np.longdouble)
    if target.name == "float32":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return wide.astype(np.float32).astype(np.longdouble)
    if target.name == "float64":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return wide.astype(np.float64).astype(np.longdouble)
    # A double holds every sum, product, quotient and root of 16-bit values far beyond a tie, so rounding to it first is harmless.
    with np.errstate(all="ignore"):
        double = wide.astype(np.float64)
        if target.name == "float16":
            return double.astype(np.float16).astype(np.longdouble)
        return _round_double(double, target).astype(np.longdouble)


def _round_double(double: NDArray[np.float64], target: Format) -> NDArray[np.float64]:
    """To nearest, ties to even, by adding half a unit to the bits; below the normal range by scaling."""
    drop = np.uint64(53 - target.precision)
    one = np.uint64(1)
    bits = double.view(np.uint64)
    odd = (bits >> drop) & one
    rounded = ((bits + (one << (drop - one)) - one + odd) >> drop << drop).view(np.float64)
    size = np.abs(double)
    small = size < 2.0**target.least
    if small.any():
        if target.subnormals:
            step = 2.0 ** (target.least - target.precision + 1)
            rounded = np.where(small, np.copysign(np.rint(size / step) * step, double), rounded)
        else:
            rounded = np.where(size < target.tiny, np.copysign(np.where(size * 2 > target.tiny, target.tiny, 0), double), rounded)
    limit = target.largest if target.merged_infinity else np.inf
    rounded = np.where((np.abs(rounded) > target.largest) & np.isfinite(double), np.copysign(limit, double), rounded)
    return np.where(np.isfinite(double), rounded, np.nan if target.merged_infinity else double)


def all_values(target: Format) -> Wide:
    """Every value of a 16-bit format, each NaN once per code."""
    codes = np.arange(65536, dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        return _decoded(codes, target)


def _decoded(codes: NDArray[np.uint32], target: Format) -> Wide:
    if target.name == "float16":
        return codes.astype(np.uint16).view(np.float16).astype(np.longdouble)
    if target.name == "bfloat16":
        return (codes << 16).view(np.float32).astype(np.longdouble)
    if target.name == "dlfloat16":
        exponent, fraction = (codes >> 9) & 63, codes & 511
        magnitude = np.ldexp(1 + fraction / np.longdouble(512), exponent.astype(np.int64) - 31)
        magnitude = np.where((exponent == 0) & (fraction == 0), 0, magnitude)
        magnitude = np.where((exponent == 63) & (fraction == 511), np.nan, magnitude)
        return np.where(codes >> 15 == 1, -magnitude, magnitude).astype(np.longdouble)
    raise ValueError(f"{target.name} has too many values to list")
