"""Ops that read or write at places given by data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from adapterc.verify import tensors as T
from adapterc.verify.build import number, truth
from adapterc.verify.primitive_layout import index_op
from adapterc.verify.tensors import ShapeError, Tensor, axis, elementwise, require
from adapterc.verify.terms import Term

if TYPE_CHECKING:
    from adapterc.verify.interpret import Interpreter, Value

Primitive: TypeAlias = Callable[..., Any]


def pick(run: Interpreter, index: Term, items: list[Term]) -> Term:
    """items[index], negative numbers from the end."""
    known = number(index)
    if known is not None:
        i = int(known)
        require(-len(items) <= i < len(items), f"index {i} is out of range for {len(items)}")
        return items[i]
    return run.arena.make("select", (index, *items), None, items[0].dtype if items else "float", run.kernel)


def index_select(run: Interpreter, x: Tensor, dim: Value, index: Value) -> Tensor:
    at = axis(dim, len(x.shape))
    ids = run.tensor(index)
    if ids.dtype == "bool":
        raise ShapeError("a mask cannot select: the shape would depend on data")
    moved = np.moveaxis(x.cells, at, 0)
    out = np.empty((ids.cells.size, *moved.shape[1:]), dtype=object)
    for i, identifier in enumerate(ids.cells.reshape(-1)):
        for place in np.ndindex(moved.shape[1:]):
            out[(i, *place)] = pick(run, identifier, list(moved[(slice(None), *place)]))
    shaped = out.reshape((*ids.shape, *moved.shape[1:]))
    for _ in range(len(ids.shape)):
        shaped = np.moveaxis(shaped, 0, at + len(ids.shape) - 1)
    return Tensor(shaped, x.dtype)


def gather(run: Interpreter, x: Tensor, dim: Value, index: Value) -> Tensor:
    at, ids = axis(dim, len(x.shape)), run.tensor(index)
    require(len(ids.shape) == len(x.shape), "gather needs an index of the same rank")
    out = np.empty(ids.shape, dtype=object)
    for place in np.ndindex(ids.shape):
        row = x.cells[(*place[:at], slice(None), *place[at + 1 :])]
        out[place] = pick(run, ids.cells[place], list(row))
    return Tensor(out, x.dtype)


def index_copy(run: Interpreter, x: Tensor, dim: Value, index: Value, source: Value) -> Tensor:
    at, ids, new = axis(dim, len(x.shape)), run.tensor(index), run.tensor(source)
    require(ids.cells.size <= x.shape[at], "more places are written than there are, but they are distinct")
    cells = np.moveaxis(x.cells, at, 0).copy()
    rows = np.moveaxis(np.broadcast_to(new.cells, (*x.shape[:at], ids.cells.size, *x.shape[at + 1 :])), at, 0)
    for i, identifier in enumerate(ids.cells.reshape(-1)):
        for j in range(len(cells)):
            hit = run.make("eq", identifier, T.constant(run.arena, j, "int64"))
            if truth(hit) is False:
                continue
            cells[j] = elementwise(lambda a, b, h=hit: run.make("where", h, a, b), T.as_cells(rows[i]), T.as_cells(cells[j]))
    return Tensor(np.moveaxis(cells, 0, at), x.dtype)


def scatter(run: Interpreter, x: Tensor, dim: Value, index: Value, source: Value) -> Tensor:
    at, ids, new = axis(dim, len(x.shape)), run.tensor(index), run.tensor(source)
    cells = x.cells.copy()
    for place in np.ndindex(ids.shape):
        for j in range(x.shape[at]):
            target = (*place[:at], j, *place[at + 1 :])
            hit = run.make("eq", ids.cells[place], T.constant(run.arena, j, "int64"))
            cells[target] = run.make("where", hit, new.cells[place], cells[target])
    return Tensor(cells, x.dtype)


def select_scatter(run: Interpreter, x: Tensor, source: Value, dim: Value, index: Value) -> Tensor:
    cells = x.cells.copy()
    cells[(*(slice(None),) * axis(dim, len(x.shape)), run.static(index))] = run.tensor(source).cells
    return Tensor(cells, x.dtype)


def slice_scatter(
    run: Interpreter, x: Tensor, source: Value, dim: Value = 0, start: Value = None, stop: Value = None, step: Value = 1
) -> Tensor:
    cells = x.cells.copy()
    where = index_op(run, x, dim, start, stop, step)
    require(cells[where].shape == run.tensor(source).shape, "the source does not fit the slice")
    cells[where] = run.tensor(source).cells
    return Tensor(cells, x.dtype)
