"""Reductions, scans, sorting, softmax and products of matrices on tensors of terms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adapterc.verify import tensors as T
from adapterc.verify.tensors import ShapeError, Tensor, axes, axis, promote, require
from adapterc.verify.terms import Term

if TYPE_CHECKING:
    from adapterc.verify.interpret import Interpreter, Value

Primitive: TypeAlias = Callable[..., Any]


def reduce_op(
    run: Interpreter, x: Tensor, dims: tuple[int, ...], keepdim: bool, function: Callable[[tuple[Term, ...]], Term]
) -> NDArray[Any]:
    keep = [d for d in range(len(x.shape)) if d not in dims]
    require(all(d < len(x.shape) for d in dims), "a number has no dimension to reduce")
    moved = x.cells.transpose([*keep, *dims])
    shape = tuple(x.shape[d] for d in keep)
    flat = moved.reshape((math.prod(shape), math.prod(x.shape[d] for d in dims)))
    out = np.empty(len(flat), dtype=object)
    for i, row in enumerate(flat):
        out[i] = function(tuple(row))
    final = tuple(1 if d in dims else n for d, n in enumerate(x.shape)) if keepdim else shape
    return out.reshape(final)


def reduction(op: str, empty: object, rounds: bool) -> Primitive:
    def apply(run: Interpreter, x: Value, dim: Value = None, keepdim: Value = False, dtype: Value = None) -> Tensor:
        operand = run.tensor(x)
        if isinstance(dtype, str):
            operand = run.cast(operand, dtype)
        dims = axes(None if dim == () else dim, len(operand.shape))
        kind = operand.dtype
        if op in ("sum", "prod") and kind == "bool":
            kind = "int64"
        tag = run.kernel or f"{op}{list(operand.shape)}{list(dims)}"

        def combine(row: tuple[Term, ...]) -> Term:
            if not row:
                require(empty is not None, f"{op} of nothing")
                return T.constant(run.arena, empty, kind if kind != "bool" else None)  # type: ignore[arg-type]
            if kind == "bool":
                value = row[0]
                for term in row[1:]:
                    value = run.make("or" if op == "amax" else "and", value, term)
                return value
            if len(row) == 1:
                return row[0]
            return run.arena.make(op, row, None, kind, tag)

        return Tensor(reduce_op(run, operand, dims, bool(keepdim), combine), kind)

    return apply


def argmax(run: Interpreter, x: Value, dim: Value = None, keepdim: Value = False) -> Tensor:
    operand = run.tensor(x)
    dims = axes(dim, len(operand.shape))
    tag = run.kernel or f"argmax{list(operand.shape)}{list(dims)}"

    def combine(row: tuple[Term, ...]) -> Term:
        require(len(row) > 0, "argmax of nothing")
        return run.arena.make("argmax", row, None, "int64", tag)

    return Tensor(reduce_op(run, operand, dims, bool(keepdim), combine), "int64")


def along(run: Interpreter, x: Value, dim: Value, function: Callable[[tuple[Term, ...]], list[Term]], dtype: str | None = None) -> Tensor:
    """Replaces each row along `dim` by another list of terms of any length."""
    operand = run.tensor(x)
    at = axis(dim, len(operand.shape))
    moved = np.moveaxis(operand.cells, at, -1)
    rows = moved.reshape((math.prod(moved.shape[:-1]), moved.shape[-1]))
    results = [function(tuple(row)) for row in rows]
    length = len(results[0]) if results else operand.shape[at]
    out = np.empty((len(results), length), dtype=object)
    for i, result in enumerate(results):
        out[i, :] = result
    return Tensor(np.moveaxis(out.reshape((*moved.shape[:-1], length)), -1, at), dtype or operand.dtype)


def scan(op: str) -> Primitive:
    def apply(run: Interpreter, x: Value, dim: Value) -> Tensor:
        tag = run.kernel or f"cum{op}{list(run.tensor(x).shape)}"

        def prefixes(row: tuple[Term, ...]) -> list[Term]:
            return [row[0] if i == 0 else run.arena.make(op, row[: i + 1], None, row[0].dtype, tag) for i in range(len(row))]

        return along(run, x, dim, prefixes)

    return apply


def sort_op(op: str) -> Primitive:
    def apply(run: Interpreter, x: Value, dim: Value = -1, descending: Value = False) -> Tensor:
        dtype = "int64" if op == "argkth" else run.tensor(x).dtype

        def pick(row: tuple[Term, ...]) -> list[Term]:
            return [run.arena.make(op, row, (i, bool(descending)), dtype, run.kernel) for i in range(len(row))]

        return along(run, x, dim, pick, dtype)

    return apply


def softmax(run: Interpreter, x: Value, dim: Value, dtype: Value = None) -> Tensor:
    """The table defines it without the shift by the maximum; with it, wide floats have the range for every input."""
    operand = run.tensor(x) if not isinstance(dtype, str) else run.cast(run.tensor(x), dtype)
    kind = promote(operand.dtype, "weak")
    inside = run.inside("softmax")

    def weights(row: tuple[Term, ...]) -> list[Term]:
        powers = shifted_powers(inside, row, row[0] if len(row) == 1 else inside.arena.make("amax", row, None, kind, inside.kernel))
        total = powers[0] if len(powers) == 1 else inside.arena.make("sum", tuple(powers), None, kind, inside.kernel)
        return [inside.make("div", p, total) for p in powers]

    return run.rounded("softmax", (operand,), along(run, operand, dim, weights, kind))


def log_softmax(run: Interpreter, x: Value, dim: Value, dtype: Value = None) -> Tensor:
    """Shifted by the maximum, as `softmax`."""
    operand = run.tensor(x) if not isinstance(dtype, str) else run.cast(run.tensor(x), dtype)
    kind = promote(operand.dtype, "weak")
    inside = run.inside("log_softmax")

    def logarithms(row: tuple[Term, ...]) -> list[Term]:
        top = row[0] if len(row) == 1 else inside.arena.make("amax", row, None, kind, inside.kernel)
        powers = shifted_powers(inside, row, top)
        total = powers[0] if len(powers) == 1 else inside.arena.make("sum", tuple(powers), None, kind, inside.kernel)
        logarithm = inside.make("log", total)
        return [inside.make("sub", inside.make("sub", t, top), logarithm) for t in row]

    return run.rounded("log_softmax", (operand,), along(run, operand, dim, logarithms, kind))


def log_sigmoid(run: Interpreter, x: Value) -> Tensor:
    """-log(1 + e⁻ˣ) with the larger of its two powers taken out, so that none overflows."""
    operand = run.tensor(x)
    inside = run.inside("log_sigmoid")
    opposite = inside.map("neg", operand)
    top = inside.map("maximum", opposite, 0)
    total = inside.map("add", inside.map("exp", inside.map("neg", top)), inside.map("exp", inside.map("sub", opposite, top)))
    return run.rounded("log_sigmoid", (operand,), inside.map("neg", inside.map("add", top, inside.map("log", total))))


def shifted_powers(inside: Interpreter, row: tuple[Term, ...], top: Term) -> list[Term]:
    return [inside.make("exp", inside.make("sub", t, top)) for t in row]


def logsumexp(run: Interpreter, x: Value, dim: Value, keepdim: Value = False) -> Tensor:
    operand = run.tensor(x)
    kind = promote(operand.dtype, "weak")
    inside = run.inside("logsumexp")

    def combine(row: tuple[Term, ...]) -> Term:
        require(len(row) > 0, "logsumexp of nothing")
        top = row[0] if len(row) == 1 else inside.arena.make("amax", row, None, kind, inside.kernel)
        infinite = inside.make("eq", inside.make("abs", top), T.constant(run.arena, "inf", "weak"))
        shift = inside.make("where", infinite, T.constant(run.arena, Fraction(0), kind), top)
        powers = shifted_powers(inside, row, shift)
        total = powers[0] if len(powers) == 1 else inside.arena.make("sum", tuple(powers), None, kind, inside.kernel)
        return inside.make("add", shift, inside.make("log", total))

    cells = reduce_op(run, operand, axes(dim, len(operand.shape)), bool(keepdim), combine)
    return run.rounded("logsumexp", (operand,), Tensor(cells, kind))


def matmul(run: Interpreter, a: Value, b: Value) -> Tensor:
    left, right = run.tensor(a), run.tensor(b)
    require(len(left.shape) > 0 and len(right.shape) > 0, "a number cannot be a factor of @")
    vector_left, vector_right = len(left.shape) == 1, len(right.shape) == 1
    x = left.cells[None, :] if vector_left else left.cells
    y = right.cells[:, None] if vector_right else right.cells
    require(x.shape[-1] == y.shape[-2], f"{list(left.shape)} @ {list(right.shape)}: the inner sizes differ")
    try:
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise ShapeError(f"{list(left.shape)} @ {list(right.shape)}: the batches do not broadcast") from None
    m, k, n = x.shape[-2], x.shape[-1], y.shape[-1]
    T.fits(math.prod(batch) * m * n * max(k, 1) // 4, "the product")
    count = math.prod(batch)
    x = np.broadcast_to(x, (*batch, m, k)).reshape((count, m, k))
    y = np.broadcast_to(y, (*batch, k, n)).reshape((count, k, n))
    kind = promote(left.dtype, right.dtype)
    tag = run.kernel or f"matmul{list(left.shape)}{list(right.shape)}"
    out = np.empty((len(x), m, n), dtype=object)
    for i, r, c in np.ndindex(out.shape):
        terms = tuple(itertools.chain.from_iterable(zip(x[i, r], y[i, :, c], strict=True)))
        out[i, r, c] = run.arena.make("dot", terms, None, kind, tag) if k else T.constant(run.arena, 0, kind)
    cells = out.reshape((*batch, m, n))
    if vector_left:
        cells = cells[..., 0, :]
    if vector_right:
        cells = T.as_cells(cells[..., 0])
    return Tensor(cells, kind)
