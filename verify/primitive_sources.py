"""Constants, ranges and what is known of a tensor without its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from adapterc.verify import tensors as T
from adapterc.verify.build import convert
from adapterc.verify.tensors import Tensor, require
from adapterc.verify.terms import INTEGER_DTYPES

if TYPE_CHECKING:
    from adapterc.verify.interpret import Interpreter, Value

Primitive: TypeAlias = Callable[..., Any]


def arange(run: Interpreter, stop: Value, start: Value = 0, step: Value = 1, dtype: Value = None) -> Tensor:
    values = range(run.static(start), run.static(stop), run.static(step))
    return listed(run, tuple(values), dtype)


def listed(run: Interpreter, values: Value, dtype: Value = None) -> Tensor:
    require(isinstance(values, tuple), "a list of numbers is needed")
    assert isinstance(values, tuple)
    whole = all(isinstance(v, int) for v in values)
    kind = dtype if isinstance(dtype, str) else "int64" if whole else "float"
    cells = np.empty(len(values), dtype=object)
    for i, v in enumerate(values):
        cells[i] = convert(run.arena, run.tensor(v).only, kind)
    return Tensor(cells, kind)


def full_op(run: Interpreter, sizes: Value, value: Value, dtype: Value = None) -> Tensor:
    shape = T.sizes(sizes if isinstance(sizes, tuple) else (sizes,))
    require(all(n >= 0 for n in shape), f"the shape {list(shape)} has a negative size")
    T.fits(math.prod(shape), f"the shape {list(shape)}")
    cell = run.tensor(value).only
    kind = dtype if isinstance(dtype, str) else "float" if cell.dtype == "weak" else "int64" if cell.dtype == "weakint" else cell.dtype
    cells = np.empty(shape, dtype=object)
    cells[...] = convert(run.arena, cell, kind)
    return Tensor(cells, kind)


def full_like(run: Interpreter, x: Value, value: Value) -> Tensor:
    like = run.tensor(x)
    return full_op(run, like.shape, value, like.dtype)


def length_op(run: Interpreter, values: Value) -> int:
    require(isinstance(values, tuple), "a list is needed")
    assert isinstance(values, tuple)
    return len(values)


def dtype_of(run: Interpreter, x: Value) -> str:
    return run.tensor(x).dtype


def finfo(which: str) -> Primitive:
    def apply(run: Interpreter, dtype: Value) -> Tensor:
        require(isinstance(dtype, str) and dtype not in INTEGER_DTYPES, "a float format is needed")
        cells = np.empty((), dtype=object)
        cells[()] = run.arena.make("const", (), ("finfo", which, dtype), "weak")
        return Tensor(cells, "weak")

    return apply


def largest_prime(n: int) -> int:
    found, divisor = 1, 2
    while divisor * divisor <= n:
        while n % divisor == 0:
            found, n = divisor, n // divisor
        divisor += 1
    return max(found, n)


def smooth(run: Interpreter, n: Value, limit: Value) -> int:
    value, bound = run.static(n), run.static(limit)
    require(value > 0 and bound > 1, "smooth needs positive sizes")
    while largest_prime(value) > bound:
        value += 1
    return value


def is_integer(run: Interpreter, n: Value) -> bool:
    return isinstance(n, int | Fraction) and Fraction(n).denominator == 1


def is_power_of_two(run: Interpreter, n: Value) -> bool:
    value = run.static(n)
    return value > 0 and value & (value - 1) == 0


STICK_BYTES = 128  # torch-spyre docs, tensor layouts: a stick is 128 bytes
_BYTES: Mapping[str, int] = {"float64": 8, "float32": 4, "int32": 4, "int64": 4, "int8": 1, "uint8": 1}


def stick(run: Interpreter, dtype: Value) -> int:
    return STICK_BYTES // _BYTES.get(str(dtype), 2)
