"""The primitives of the op table on tensors of terms: one function an op, with the table's parameter names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from adapterc.verify import tensors as T
from adapterc.verify.primitive_indexing import gather, index_copy, index_select, scatter, select_scatter, slice_scatter
from adapterc.verify.primitive_layout import (
    channel,
    diagonal,
    flatten,
    flip,
    movedim,
    narrow,
    pad_op,
    repeat_interleave,
    roll,
    select_op,
    slice_op,
    split_sizes_piece,
    unflatten,
    unfold,
    unsqueeze,
)
from adapterc.verify.primitive_reductions import argmax, log_sigmoid, log_softmax, logsumexp, matmul, reduction, scan, softmax, sort_op
from adapterc.verify.primitive_sources import (
    arange,
    dtype_of,
    finfo,
    full_like,
    full_op,
    is_integer,
    is_power_of_two,
    largest_prime,
    length_op,
    listed,
    smooth,
    stick,
)
from adapterc.verify.tensors import Tensor, axis, require
from adapterc.verify.terms import Term

if TYPE_CHECKING:
    from adapterc.verify.interpret import Interpreter, Value

Primitive: TypeAlias = Callable[..., Any]
Reducer: TypeAlias = Callable[["Interpreter", tuple[Term, ...], str], Term]

_UNARY = ["exp", "expm1", "log", "log1p", "sqrt", "sigmoid", "tanh", "erf", "sin", "cos", "atan", "abs", "floor", "round", "isnan"]
_BINARY = {
    **{op: op for op in ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]},
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}


def _unary(op: str) -> Primitive:
    return lambda run, x: run.map(op, x)


def _binary(op: str) -> Primitive:
    def apply(run: Interpreter, a: Value, b: Value) -> Value:
        scalar = _scalar_binary(op, a, b)
        return run.map(op, a, b) if scalar is None else scalar

    return apply


def _scalar_binary(op: str, a: Value, b: Value) -> Value:
    """Sizes and literals combine exactly; None when a tensor is needed."""
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None or isinstance(a, tuple) or isinstance(b, tuple):
        if op in ("eq", "ne") and not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return (a == b) == (op == "eq")
        return (op == "ne") if op in ("eq", "ne") else None
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return None
    if isinstance(a, bool) or isinstance(b, bool):
        table: dict[str, bool] = {"and": bool(a and b), "or": bool(a or b), "eq": a == b, "ne": a != b, "xor": a != b}
        return table.get(op)
    return _exact_binary(op, a, b)


def _exact_binary(op: str, a: int | Fraction, b: int | Fraction) -> Value:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            require(b != 0, "division by zero")
            return Fraction(a) / Fraction(b)
        case "pow" if Fraction(b).denominator == 1 and -64 <= b <= 64 and not (a == 0 and b < 0):
            power = Fraction(a) ** int(b)
            return int(power) if isinstance(a, int) and power.denominator == 1 else power
        case "maximum":
            return max(a, b)
        case "minimum":
            return min(a, b)
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op]
    return None


def _neg(run: Interpreter, x: Value) -> Value:
    if isinstance(x, int) and not isinstance(x, bool):
        return -x
    if isinstance(x, Fraction) and x != 0:
        return -x
    return run.map("neg", x)


def _floor(run: Interpreter, x: Value) -> Value:
    return math.floor(x) if isinstance(x, int | Fraction) else run.map("floor", x)


def _abs(run: Interpreter, x: Value) -> Value:
    if isinstance(x, int | Fraction):
        return x if x >= 0 else -x
    return run.map("abs", x)


def _sqrt(run: Interpreter, x: Value) -> Value:
    if isinstance(x, int | Fraction) and not isinstance(x, bool) and x >= 0:
        exact = Fraction(x)
        top, bottom = math.isqrt(exact.numerator), math.isqrt(exact.denominator)
        if top * top == exact.numerator and bottom * bottom == exact.denominator:
            return Fraction(top, bottom)
    return run.map("sqrt", x)


def _where(run: Interpreter, condition: Value, a: Value, b: Value) -> Value:
    if isinstance(condition, bool):
        condition = run.tensor(condition)
    return run.map("where", _as_bool(run, condition), a, b)


def _as_bool(run: Interpreter, value: Value) -> Tensor:
    x = run.tensor(value)
    return x if x.dtype == "bool" else run.map("ne", x, 0)


def _logical(op: str) -> Primitive:
    def apply(run: Interpreter, a: Value, b: Value) -> Value:
        if isinstance(a, bool) and isinstance(b, bool):
            return (a and b) if op == "and" else (a or b)
        return run.map(op, _as_bool(run, a), _as_bool(run, b))

    return apply


def _logical_not(run: Interpreter, x: Value) -> Value:
    return (not x) if isinstance(x, bool) else run.map("not", _as_bool(run, x))


def _bitwise_not(run: Interpreter, x: Value) -> Value:
    found = run.tensor(x)
    return run.map("not", found) if found.dtype == "bool" else run.map("sub", run.map("neg", found), 1)


def _to(run: Interpreter, x: Value, dtype: Value) -> Value:
    require(isinstance(dtype, str), "a number format is needed")
    assert isinstance(dtype, str)
    return run.cast(run.tensor(x), dtype)


PRIMITIVES: Mapping[str, Primitive] = {
    **{op: _unary(op) for op in _UNARY},
    **{op: _binary(term) for op, term in _BINARY.items()},
    "neg": _neg,
    "floor": _floor,
    "abs": _abs,
    "sqrt": _sqrt,
    "where": _where,
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_not": _logical_not,
    "bitwise_not": _bitwise_not,
    "to": _to,
    "sum": reduction("sum", 0, True),
    "prod": reduction("prod", 1, True),
    "amax": reduction("amax", None, False),
    "amin": reduction("amin", None, False),
    "argmax": argmax,
    "cumsum": scan("sum"),
    "cumprod": scan("prod"),
    "sort_values": sort_op("kth"),
    "sort_indices": sort_op("argkth"),
    "softmax": softmax,
    "logsumexp": logsumexp,
    "log_softmax": log_softmax,
    "log_sigmoid": log_sigmoid,
    "matmul": matmul,
    "reshape": lambda run, x, sizes: T.reshape(run.tensor(x), T.sizes(sizes if isinstance(sizes, tuple) else (sizes,))),
    "reshape_as": lambda run, x, like: T.reshape(x, like.shape),
    "flatten": flatten,
    "unflatten": unflatten,
    "permute": lambda run, x, dims: T.permute(x, T.sizes(dims)),
    "transpose": lambda run, x, a, b: T.transpose(x, a, b),
    "movedim": movedim,
    "expand": lambda run, x, sizes: T.expand(run.tensor(x), T.sizes(sizes)),
    "expand_as": lambda run, x, like: T.expand(run.tensor(x), like.shape),
    "repeat": lambda run, x, repeats: T.repeat(x, T.sizes(repeats)),
    "repeat_interleave": repeat_interleave,
    "squeeze": lambda run, x, dim: T.squeeze(x, dim),
    "unsqueeze": unsqueeze,
    "select": select_op,
    "narrow": narrow,
    "slice": slice_op,
    "flip": flip,
    "roll": roll,
    "unfold": unfold,
    "diagonal": diagonal,
    "cat": lambda run, tensors, dim=0: T.cat([run.tensor(t) for t in tensors], dim),
    "split_sizes_piece": split_sizes_piece,
    "pad": pad_op,
    "channel": channel,
    "take": lambda run, x, index: index_select(run, x, 0, index),
    "index_select": index_select,
    "gather": gather,
    "index_copy": index_copy,
    "scatter": scatter,
    "select_scatter": select_scatter,
    "slice_scatter": slice_scatter,
    "arange": arange,
    "tensor": listed,
    "full": full_op,
    "full_like": full_like,
    "size": lambda run, x, dim: run.tensor(x).shape[axis(dim, len(run.tensor(x).shape))],
    "numel": lambda run, x: run.tensor(x).cells.size,
    "rank": lambda run, x: len(run.tensor(x).shape),
    "length": length_op,
    "dtype_of": dtype_of,
    "is_bool": lambda run, x: run.tensor(x).dtype == "bool",
    **{f"finfo_{which}": finfo(which) for which in ("min", "max", "eps", "tiny")},
    "stick": stick,
    "gcd": lambda run, a, b: math.gcd(run.static(a), run.static(b)),
    "lcm": lambda run, a, b: math.lcm(run.static(a), run.static(b)),
    "lpf": lambda run, n: largest_prime(run.static(n)),
    "smooth": smooth,
    "is_integer": is_integer,
    "is_power_of_two": is_power_of_two,
    "contains": lambda run, item, values: item in values,
}

ROUNDING = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "sigmoid",
        "tanh",
        "erf",
        "sin",
        "cos",
        "atan",
        "sum",
        "prod",
        "cumsum",
        "cumprod",
        "softmax",
        "logsumexp",
        "log_softmax",
        "log_sigmoid",
        "matmul",
        "to",
    ]
)
_ELEMENTWISE_EXACT = frozenset(
    [
        "neg",
        "abs",
        "floor",
        "round",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "where",
        "logical_and",
        "logical_or",
        "logical_not",
        "isnan",
    ]
)
# Ops on sizes and constants, which say nothing about how elements are computed.
PLAIN = frozenset(
    [
        "size",
        "numel",
        "rank",
        "length",
        "dtype_of",
        "is_bool",
        "finfo_min",
        "finfo_max",
        "finfo_eps",
        "finfo_tiny",
        "stick",
        "gcd",
        "lcm",
        "lpf",
        "smooth",
        "is_integer",
        "is_power_of_two",
        "contains",
        "choose",
    ]
)
POINTWISE = (
    ROUNDING - frozenset(["sum", "prod", "cumsum", "cumprod", "softmax", "log_softmax", "logsumexp", "matmul"])
) | _ELEMENTWISE_EXACT
