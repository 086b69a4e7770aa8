"""Ops that only move elements, with the parameter names of the op table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from adapterc.verify import tensors as T
from adapterc.verify.build import convert
from adapterc.verify.tensors import Tensor, axes, axis, require

if TYPE_CHECKING:
    from adapterc.verify.interpret import Interpreter, Value

Primitive: TypeAlias = Callable[..., Any]


def flatten(run: Interpreter, x: Tensor, start: Value = 0, end: Value = -1) -> Tensor:
    first, last = axis(start, len(x.shape)), axis(end, len(x.shape))
    require(first <= last, "flatten ends before it starts")
    return T.reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def unflatten(run: Interpreter, x: Tensor, dim: Value, sizes: Value) -> Tensor:
    at, parts = axis(dim, len(x.shape)), T.sizes(sizes)
    if -1 in parts:
        known = math.prod(p for p in parts if p != -1)
        require(known > 0 and x.shape[at] % known == 0, f"{x.shape[at]} does not split into {list(parts)}")
        parts = tuple(x.shape[at] // known if p == -1 else p for p in parts)
    require(math.prod(parts) == x.shape[at], f"{x.shape[at]} does not split into {list(parts)}")
    return T.reshape(x, (*x.shape[:at], *parts, *x.shape[at + 1 :]))


def movedim(run: Interpreter, x: Tensor, source: Value, destination: Value) -> Tensor:
    rank = len(x.shape)
    return Tensor(np.moveaxis(x.cells, axis(source, rank), axis(destination, rank)), x.dtype)


def repeat_interleave(run: Interpreter, x: Tensor, repeats: Value, dim: Value) -> Tensor:
    return Tensor(np.repeat(x.cells, run.static(repeats), axis=axis(dim, len(x.shape))), x.dtype)


def unsqueeze(run: Interpreter, x: Value, dim: Value) -> Tensor:
    operand = run.tensor(x)
    return Tensor(np.expand_dims(operand.cells, axis(dim, len(operand.shape) + 1)), operand.dtype)


def slice_op(run: Interpreter, x: Tensor, dim: Value, start: Value = None, stop: Value = None, step: Value = 1) -> Tensor:
    return Tensor(x.cells[index_op(run, x, dim, start, stop, step)], x.dtype)


def index_op(run: Interpreter, x: Tensor, dim: Value, start: Value, stop: Value, step: Value) -> tuple[slice, ...]:
    bounds = [None if b is None else run.static(b) for b in (start, stop)]
    stride = run.static(step)
    require(stride > 0, "a slice step must be positive")
    return (*(slice(None),) * axis(dim, len(x.shape)), slice(bounds[0], bounds[1], stride))


def narrow(run: Interpreter, x: Tensor, dim: Value, start: Value, length: Value) -> Tensor:
    first, count = run.static(start), run.static(length)
    at = axis(dim, len(x.shape))
    first = first + x.shape[at] if first < 0 else first
    require(first >= 0 and count >= 0 and first + count <= x.shape[at], f"{first}+{count} is out of range for {x.shape[at]}")
    return slice_op(run, x, dim, first, first + count)


def select_op(run: Interpreter, x: Tensor, dim: Value, index: Value) -> Tensor:
    at, i = axis(dim, len(x.shape)), run.static(index)
    require(-x.shape[at] <= i < x.shape[at], f"index {i} is out of range for {x.shape[at]}")
    return Tensor(T.as_cells(x.cells[(*(slice(None),) * at, i)]), x.dtype)


def flip(run: Interpreter, x: Tensor, dims: Value) -> Tensor:
    return Tensor(np.flip(x.cells, axes(dims, len(x.shape))), x.dtype)


def roll(run: Interpreter, x: Tensor, shifts: Value, dims: Value) -> Tensor:
    moves = shifts if isinstance(shifts, tuple) else (shifts,)
    places = dims if isinstance(dims, tuple) else (dims,)
    cells = x.cells
    for move, place in zip(moves, places, strict=True):
        cells = np.roll(cells, run.static(move), axis(place, len(x.shape)))
    return Tensor(cells, x.dtype)


def unfold(run: Interpreter, x: Tensor, dim: Value, size: Value, step: Value) -> Tensor:
    at, width, stride = axis(dim, len(x.shape)), run.static(size), run.static(step)
    require(0 < width <= x.shape[at] and stride > 0, f"windows of {width} do not fit {x.shape[at]}")
    pieces = []
    for start in range(0, x.shape[at] - width + 1, stride):
        window = x.cells[(*(slice(None),) * at, slice(start, start + width))]
        pieces.append(np.moveaxis(window, at, -1))
    return Tensor(np.stack(pieces, axis=at), x.dtype)


def diagonal(run: Interpreter, x: Tensor, offset: Value = 0, a: Value = 0, b: Value = 1) -> Tensor:
    rank = len(x.shape)
    return Tensor(np.diagonal(x.cells, run.static(offset), axis(a, rank), axis(b, rank)), x.dtype)


def split_sizes_piece(run: Interpreter, x: Tensor, sizes: Value, index: Value, dim: Value = 0) -> Tensor:
    parts, i = T.sizes(sizes), run.static(index)
    require(0 <= i < len(parts) and sum(parts) == x.shape[axis(dim, len(x.shape))], f"pieces {list(parts)} do not fit")
    return slice_op(run, x, dim, sum(parts[:i]), sum(parts[: i + 1]))


def pad_op(run: Interpreter, x: Tensor, dim: Value, before: Value, after: Value, value: Value = 0) -> Tensor:
    fill = run.tensor(value)
    require(fill.shape == (), "the fill of a pad is one number")
    back = len(x.shape) - 1 - axis(dim, len(x.shape))
    widths = (0, 0) * back + (run.static(before), run.static(after))
    return T.pad(x, widths, convert(run.arena, fill.only, x.dtype))


def channel(run: Interpreter, v: Tensor, like: Tensor) -> Tensor:
    return T.reshape(v, (*v.shape, *(1,) * (len(like.shape) - 2)))
