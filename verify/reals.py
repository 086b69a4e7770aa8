"""Runs terms over the real numbers: long doubles (64-bit significand, exponents to ±4932) with a running bound of their error.

Two sides that differ by more than their bounds differ over the reals: a refutation, not a guess. Two that differ by less may be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.verify import scalar_math as M
from adapterc.verify.floats import apply_wide
from adapterc.verify.formats import FORMATS, Wide, round_to
from adapterc.verify.terms import INTEGER_DTYPES, Term, ordered

UNIT = float(2.0**-63)
TINY = 2.0**-126  # below the smallest normal float32 no format that a rule runs in keeps relative accuracy
UNDERFLOW = np.finfo(np.longdouble).tiny
# Where a finite computation leaves the range of long doubles nothing is known. A product's zero may be exact, an exponential's never is.
OVERFLOWS = frozenset({"exp"})
UNDERFLOWS = frozenset({"sigmoid", "mul", "div", "pow", "prod"})  # zero from operands that are not
DOUBLE_DIGITS = 10**14  # a literal written with more digits than this denotes a double, not an exact fraction


@dataclass(frozen=True, slots=True)
class Real:
    """`value` per sample and a bound of its absolute error (infinite: nothing is known).

    `undefined` marks where the real function has no value, such as 1/0 or log(-1); infinities that the rule writes itself are values.
    None: nowhere.
    """

    value: Wide
    error: Wide
    undefined: NDArray[Any] | None = None


def run(
    roots: Iterable[Term], samples: Mapping[int, Wide], count: int, format_name: str, keeps: Callable[[str], bool]
) -> Mapping[int, Real]:
    """Evaluate `roots`; `keeps(dtype)` says that a cast to dtype is only the rounding that every format does, so none over the reals."""
    values: dict[int, Real] = {}
    zero = np.zeros(count, dtype=M.LD)
    with np.errstate(all="ignore"):
        for term in ordered(roots):
            if term.op == "var":
                # There is one zero among the reals: adding +0 drops the sign of -0.
                values[term.serial] = Real(samples[term.serial].astype(M.LD) + 0, zero)
                continue
            args = [values[a.serial] for a in term.args]
            found = _apply(term, args, count, format_name, keeps)
            error = np.where(np.isnan(found.error), np.inf, found.error)
            if term.op in OVERFLOWS:
                finite = np.all([np.isfinite(a.value) for a in args], axis=0)
                lost = np.isinf(found.value) & finite
                error = np.where((found.value == 0) & finite, np.maximum(error, UNDERFLOW), error)
            else:
                lost = np.zeros(count, dtype=bool)
            if term.op in UNDERFLOWS and (found.value == 0).any():
                nonzero = np.all([(a.value != 0) & np.isfinite(a.value) for a in args], axis=0) | (term.op == "sigmoid")
                error = np.where((found.value == 0) & nonzero & np.isfinite(args[0].value), np.maximum(error, UNDERFLOW), error)
            # Infinity and NaN are exact where an operand is, or all are known exactly; 1 / (0 ± e) is not infinite.
            bounded = np.all([np.isfinite(a.error) for a in args], axis=0) if args else np.ones(count, dtype=bool)
            inherited = np.any([~np.isfinite(a.value) for a in args], axis=0) if args else bounded
            known = bounded & (inherited | np.all([a.error == 0 for a in args], axis=0))
            error = np.where(~np.isfinite(found.value) & known, 0, error)
            error = np.where(lost, np.inf, error)
            values[term.serial] = Real(found.value + 0, error, _undefined(term, found.value, args))
    return values


def _undefined(term: Term, value: Wide, args: list[Real]) -> NDArray[Any] | None:
    if not args or np.isfinite(value).all():
        return None
    inherited = [np.zeros(len(value), dtype=bool) if a.undefined is None else a.undefined for a in args]
    if term.op == "where":
        return np.where(args[0].value != 0, inherited[1], inherited[2])
    fresh = np.all([np.isfinite(a.value) for a in args], axis=0)
    return np.asarray(~np.isfinite(value) & (fresh | np.any(inherited, axis=0)))


def agree(left: Real, right: Real) -> NDArray[Any]:
    """Where the two may be the same real number (or are undefined alike)."""
    with np.errstate(all="ignore"):
        a, b = left.value, right.value
        near = np.abs(a - b) <= left.error + right.error + TINY
        unknown = np.isinf(left.error) | np.isinf(right.error)
        if left.undefined is not None and right.undefined is not None:
            unknown = unknown | (left.undefined & right.undefined)
        return np.asarray((a == b) | near | unknown | (np.isnan(a) & np.isnan(b)))


def _apply(term: Term, args: list[Real], count: int, format_name: str, keeps: Callable[[str], bool]) -> Real:
    op = term.op
    v = [a.value for a in args]
    e = [a.error for a in args]
    zero = np.zeros(count, dtype=M.LD)
    if op == "const":
        return _constant(term, count, format_name)
    if op in M.COMPARE:
        unsure = (np.abs(v[0] - v[1]) <= e[0] + e[1]) & (e[0] + e[1] > 0)
        return Real(M.COMPARE[op](v[0], v[1]).astype(M.LD), np.where(unsure, 1, zero))
    if op in ("and", "or", "xor", "not"):
        flags = [x != 0 for x in v]
        result = ~flags[0] if op == "not" else {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[op](*flags)
        return Real(result.astype(M.LD), np.minimum(np.sum(M.stacked(e, count), axis=0), 1))
    if op == "where":
        chosen = v[0] != 0
        sure = np.where(chosen, e[1], e[2])
        either = np.maximum(e[1], e[2]) + np.abs(v[1] - v[2])
        return Real(np.where(chosen, v[1], v[2]), np.where(e[0] > 0, either, sure))
    if op == "cast":
        return _cast(term, args[0], keeps)
    if op in ("floor", "round") and not (op == "round" and term.kernel):
        low, high = M.UNARY[op](v[0] - e[0]), M.UNARY[op](v[0] + e[0])
        return Real(M.UNARY[op](v[0]), high - low)
    if op == "round":
        return args[0]
    if op in ("log", "log1p", "sqrt"):
        return _on_half_line(op, v[0], e[0])
    value = np.asarray(apply_wide(term, v, count), dtype=M.LD)
    return Real(value, _error(term, value, v, e, count))


def _constant(term: Term, count: int, format_name: str) -> Real:
    value = np.full(count, M.constant_value(term.payload, format_name), dtype=M.LD)
    long = isinstance(term.payload, Fraction) and term.payload.denominator > DOUBLE_DIGITS
    whole = isinstance(term.payload, int | bool | tuple) or (
        isinstance(term.payload, Fraction) and term.payload.denominator & (term.payload.denominator - 1) == 0
    )
    relative = 2.0**-52 if long else 0.0 if whole else UNIT
    return Real(value, np.where(np.isfinite(value), np.abs(value) * M.LD(relative), 0))


def _cast(term: Term, arg: Real, keeps: Callable[[str], bool]) -> Real:
    dtype = str(term.payload)
    if dtype == "bool":
        return Real((arg.value != 0).astype(M.LD), np.where((np.abs(arg.value) <= arg.error) & (arg.error > 0), M.LD(1), M.LD(0)))
    if dtype.startswith(("int", "uint")):
        low, high = np.trunc(arg.value - arg.error), np.trunc(arg.value + arg.error)
        return Real(np.trunc(arg.value), high - low)
    from_whole = term.args[0].dtype in INTEGER_DTYPES and dtype in FORMATS  # a change of kind, whatever the precision of the rest
    if keeps(dtype) and not from_whole:
        return arg
    target = FORMATS[dtype]
    low, high = round_to(arg.value - arg.error, target), round_to(arg.value + arg.error, target)
    return Real(round_to(arg.value, target), np.where(low == high, 0, high - low))


def _on_half_line(op: str, x: Wide, error: Wide) -> Real:
    edge = -1.0 if op == "log1p" else 0.0
    value = M.UNARY[op](x)
    low = np.maximum(x - error, edge)
    spread = np.maximum(M.UNARY[op](x + error) - value, value - M.UNARY[op](low))
    outside = (x < edge) & (x + error >= edge) & (error > 0)
    exact_edge = (error == 0) & (x == edge)
    bound = np.where(exact_edge, 0, np.where(np.isnan(spread), np.inf, spread) + 4 * UNIT * np.abs(value))
    # sqrt of a difference that should be 0 may come out just below 0: nothing is known there, it is not undefined.
    return Real(np.where(outside, 0, value), np.where(outside, np.inf, np.where(np.isnan(value), 0, bound)))


def _error(term: Term, value: Wide, v: list[Wide], e: list[Wide], count: int) -> Wide:
    op, size = term.op, np.abs(value)
    own = 2 * UNIT * np.where(np.isfinite(size), size, 0)
    match op:
        case "neg" | "abs":
            return e[0]
        case "add" | "sub":
            return e[0] + e[1] + own
        case "mul":
            return _product_error(v[0], v[1], e[0], e[1]) + own
        case "div":
            room = np.abs(v[1]) - e[1]
            spread = np.where(room > 0, (e[0] + size * e[1]) / room, np.inf)
            return np.where((e[0] == 0) & (e[1] == 0), 0, spread) + own
        case "exp" | "expm1":
            grown = np.exp(v[0] + e[0]) - np.exp(v[0])
            return np.where(e[0] == 0, 0, grown) + 4 * own
        case "sigmoid":
            return size * np.expm1(np.minimum(e[0], 60)) + 8 * own
        case "tanh" | "sin" | "cos" | "atan":
            return e[0] + 8 * own
        case "erf":
            return e[0] * M.LD(1.2) + M.LD(2.0**-51) * size
        case "maximum" | "minimum":
            return np.maximum(e[0], e[1])
        case "amax" | "amin" | "kth":
            return np.asarray(np.max(M.stacked(e, count), axis=0))
        case "sum":
            return np.asarray(np.sum(M.stacked(e, count), axis=0) + len(v) * 2 * UNIT * np.sum(np.abs(M.stacked(v, count)), axis=0))
        case "dot":
            total = np.zeros(count, dtype=M.LD)
            for i in range(0, len(v), 2):
                total = total + _product_error(v[i], v[i + 1], e[i], e[i + 1]) + len(v) * 2 * UNIT * np.abs(v[i] * v[i + 1])
            return total
        case "prod":
            relative = sum((np.where(x == 0, 0, err / np.abs(x)) for x, err in zip(v, e, strict=True)), start=np.zeros(count, dtype=M.LD))
            return np.asarray(size * (np.expm1(relative) + 4 * len(v) * UNIT))
        case "pow":
            exponent_part = np.where(e[1] == 0, 0, np.abs(np.log(np.abs(v[0]))) * e[1])
            base_part = np.where(e[0] == 0, 0, np.abs(v[1]) * e[0] / np.abs(v[0]))
            return np.asarray(size * np.expm1(exponent_part + base_part) + 16 * own)
        case "argmax":
            rows, errors = M.stacked(v, count), M.stacked(e, count)
            best = value.astype(np.int64)
            top, slack = rows[best, np.arange(count)], errors[best, np.arange(count)]
            rival = (rows + errors >= top - slack) & (errors + slack > 0) & (np.arange(len(v))[:, None] != best)
            return np.where(rival.any(axis=0), np.inf, M.LD(0))
        case "argkth":
            rows, errors = M.stacked(v, count), M.stacked(e, count)
            order = np.sort(rows, axis=0)
            gaps = np.min(np.diff(order, axis=0), axis=0) if len(v) > 1 else np.full(count, np.inf)
            worst = np.max(errors, axis=0)
            return np.where((worst > 0) & (gaps <= 2 * worst), np.inf, M.LD(0))
        case "select":
            return np.where(e[0] > 0, np.inf, np.max(M.stacked(e[1:], count), axis=0))
        case "isnan":
            return np.zeros(count, dtype=M.LD)
        case "floor_div" | "remainder" | "bits_and" | "bits_or" | "bits_xor":
            return np.where(e[0] + e[1] > 0, np.inf, M.LD(0))
    raise ValueError(f"no error bound is known for {op}")


def _product_error(a: Wide, b: Wide, ea: Wide, eb: Wide) -> Wide:
    # 0 · inf in a bound means an exact zero times something unbounded but exact: no error.
    first = np.where(eb == 0, 0, np.abs(a) * eb)
    second = np.where(ea == 0, 0, np.abs(b) * ea)
    return first + second + np.where((ea == 0) | (eb == 0), 0, ea * eb)
