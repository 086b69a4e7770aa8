"""Whole-number arithmetic: division that rounds, remainders, shifts and bits of integers never pass through a float.

Integers are unbounded here: a rule that relies on an overflow of int64 is not one that a model has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeAlias

from adapterc.verify.build import number
from adapterc.verify.tensors import Scalar, Tensor, require
from adapterc.verify.terms import INTEGER_DTYPES

if TYPE_CHECKING:
    from adapterc.verify.interpret import Interpreter, Value

Whole: TypeAlias = Callable[["Interpreter", Tensor, Tensor], "Value"]


def whole_operands(values: Collection[Value]) -> bool:
    """Whether an op acts on integers: all operands are, and one at least is a tensor (sizes among themselves are exact anyway)."""
    if not all(isinstance(v, Tensor | int) and not isinstance(v, bool) for v in values):
        return False
    dtypes = [v.dtype for v in values if isinstance(v, Tensor)]
    return any(d in INTEGER_DTYPES for d in dtypes) and all(d in INTEGER_DTYPES or d == "weakint" for d in dtypes)


def _floor_div(run: Interpreter, a: Tensor, b: Tensor) -> Tensor:
    return run.map("floor_div", a, b)


def _trunc_div(run: Interpreter, a: Tensor, b: Tensor) -> Tensor:
    """Rounded down where the signs agree, else the negative of the quotient of opposite numbers rounded down."""
    down, opposite = _floor_div(run, a, b), run.map("neg", _floor_div(run, run.map("neg", a), b))
    left_negative = run.map("lt", a, 0)
    return run.map(
        "where", run.map("lt", b, 0), run.map("where", left_negative, down, opposite), run.map("where", left_negative, opposite, down)
    )


def _remainder(run: Interpreter, a: Tensor, b: Tensor) -> Tensor:
    return run.map("remainder", a, b)


def _fmod(run: Interpreter, a: Tensor, b: Tensor) -> Tensor:
    return run.map("sub", a, run.map("mul", b, _trunc_div(run, a, b)))


def _shift(op: str) -> Whole:
    def apply(run: Interpreter, a: Tensor, b: Tensor) -> Tensor:
        return run.map(op, a, _power_of_two(run, b))

    return apply


def _power_of_two(run: Interpreter, b: Tensor) -> Scalar | Tensor:
    known = number(b.only) if b.shape == () else None
    if known is None:
        return run.map("pow", 2, b)
    require(0 <= known < 64, f"a shift by {known}")
    return int(2 ** int(known))


def _bits(op: str) -> Whole:
    return lambda run, a, b: run.map(op, a, b)


INTEGER_PRIMITIVES: Mapping[str, Whole] = {
    "floor_div": _floor_div,
    "trunc_div": _trunc_div,
    "remainder": _remainder,
    "fmod": _fmod,
    "lshift": _shift("mul"),
    "rshift": _shift("floor_div"),
    "bitwise_and": _bits("bits_and"),
    "bitwise_or": _bits("bits_or"),
    "bitwise_xor": _bits("bits_xor"),
}
