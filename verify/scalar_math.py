"""Scalar functions on long double arrays that numpy lacks or that need care, shared by the machines that run terms on samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.verify.formats import FORMATS, Wide
from adapterc.verify.terms import Payload

LD = np.longdouble
Binary = Callable[[Wide, Wide], Wide]
Unary = Callable[[Wide], Wide]


def _vectorised(function: Callable[[float], float]) -> Unary:
    table = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(table(np.asarray(x, dtype=np.float64)), dtype=LD)


def sigmoid(x: Wide) -> Wide:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def maximum(a: Wide, b: Wide) -> Wide:
    """IEEE 754-2019 maximum: NaN spreads, and -0 < +0, so that the order of operands never shows."""
    larger = np.where((a > b) | ((a == b) & np.signbit(b)), a, b)
    return np.where(np.isnan(a) | np.isnan(b), np.nan, larger)


def minimum(a: Wide, b: Wide) -> Wide:
    return -maximum(-a, -b)


def power(a: Wide, b: Wide) -> Wide:
    """C's pow; small whole exponents by products in wide precision, as correctly rounded as the rest."""
    return np.power(a, b)


def _on_integers(function: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]) -> Binary:
    return lambda a, b: function(a.astype(np.int64), b.astype(np.int64)).astype(LD)


UNARY: dict[str, Unary] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "erf": _vectorised(math.erf),
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
    "floor": np.floor,
    "round": np.rint,
}
BINARY: dict[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": power,
    "maximum": maximum,
    "minimum": minimum,
    "floor_div": np.floor_divide,
    "remainder": np.remainder,
    "bits_and": _on_integers(np.bitwise_and),
    "bits_or": _on_integers(np.bitwise_or),
    "bits_xor": _on_integers(np.bitwise_xor),
}
COMPARE: dict[str, Callable[[Wide, Wide], NDArray[Any]]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
NAMED = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan, "-0": -0.0}


def constant_value(payload: Payload, format_name: str) -> np.longdouble:
    """The long double nearest to a constant. `finfo` constants of dtype "float" are those of `format_name`."""
    if isinstance(payload, str):
        return LD("3.14159265358979323846264338327950288") if payload == "pi" else LD(NAMED[payload])
    if isinstance(payload, tuple):
        _, which, dtype = payload
        target = FORMATS[format_name if dtype in ("float", "weak") else str(dtype)]
        return LD({"min": -target.largest, "max": target.largest, "eps": target.epsilon, "tiny": target.tiny}[str(which)])
    exact = Fraction(payload) if payload is not None else Fraction(0)
    try:
        return LD(exact.numerator) / LD(exact.denominator)
    except OverflowError:
        return LD(float(exact))


def stacked(rows: Sequence[Wide], count: int) -> Wide:
    return np.stack([np.broadcast_to(r, (count,)) for r in rows])


def argmax_first(rows: Wide) -> NDArray[np.intp]:
    """First position of the largest, NaN counting as largest (torch's rule)."""
    return np.asarray(np.argmax(_nan_first(rows) if np.isnan(rows).any() else rows, axis=0))


def _nan_first(rows: Wide) -> Wide:
    # Ranks: NaN above +inf; the ranks of one column are comparable among themselves only, which is all that argmax needs.
    order = np.where(np.isnan(rows), 2, np.where(np.isposinf(rows), 1, 0)).astype(LD)
    top = order.max(axis=0)
    return np.where(order == top, np.where(order > 0, 0, rows), -np.inf)


def sort_rows(rows: Wide, descending: bool) -> tuple[Wide, NDArray[np.intp]]:
    """Sorted values and stable positions along axis 0; NaN counts as largest."""
    key = -rows if descending else rows
    lifted = np.where(np.isnan(rows), -np.inf if descending else np.inf, key)
    positions = np.argsort(lifted, axis=0, kind="stable")
    return np.take_along_axis(rows, positions, axis=0), positions
