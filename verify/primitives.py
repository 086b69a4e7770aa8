"""The primitives of the op table on tensors of terms: one function an op, with the table's parameter names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from adapterc.verify import tensors as T
from adapterc.verify.build import convert, number, truth
from adapterc.verify.tensors import ShapeError, Tensor, axes, axis, elementwise, promote, require
from adapterc.verify.terms import INTEGER_DTYPES, Term
from numpy.typing import NDArray

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
        case "pow" if Fraction(b).denominator == 1 and abs(b) <= 64 and not (a == 0 and b < 0):
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
    return abs(x) if isinstance(x, int | Fraction) else run.map("abs", x)


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


# Reductions -------------------------------------------------------------------------------------------------------------------------------


def _reduce(
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


def _reduction(op: str, empty: object, rounds: bool) -> Primitive:
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

        return Tensor(_reduce(run, operand, dims, bool(keepdim), combine), kind)

    return apply


def _argmax(run: Interpreter, x: Value, dim: Value = None, keepdim: Value = False) -> Tensor:
    operand = run.tensor(x)
    dims = axes(dim, len(operand.shape))
    tag = run.kernel or f"argmax{list(operand.shape)}{list(dims)}"

    def combine(row: tuple[Term, ...]) -> Term:
        require(len(row) > 0, "argmax of nothing")
        return run.arena.make("argmax", row, None, "int64", tag)

    return Tensor(_reduce(run, operand, dims, bool(keepdim), combine), "int64")


def _along(run: Interpreter, x: Value, dim: Value, function: Callable[[tuple[Term, ...]], list[Term]], dtype: str | None = None) -> Tensor:
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


def _scan(op: str) -> Primitive:
    def apply(run: Interpreter, x: Value, dim: Value) -> Tensor:
        tag = run.kernel or f"cum{op}{list(run.tensor(x).shape)}"

        def prefixes(row: tuple[Term, ...]) -> list[Term]:
            return [row[0] if i == 0 else run.arena.make(op, row[: i + 1], None, row[0].dtype, tag) for i in range(len(row))]

        return _along(run, x, dim, prefixes)

    return apply


def _sort(op: str) -> Primitive:
    def apply(run: Interpreter, x: Value, dim: Value = -1, descending: Value = False) -> Tensor:
        dtype = "int64" if op == "argkth" else run.tensor(x).dtype

        def pick(row: tuple[Term, ...]) -> list[Term]:
            return [run.arena.make(op, row, (i, bool(descending)), dtype, run.kernel) for i in range(len(row))]

        return _along(run, x, dim, pick, dtype)

    return apply


def _softmax(run: Interpreter, x: Value, dim: Value, dtype: Value = None) -> Tensor:
    """The table defines it without the shift by the maximum; with it, wide floats have the range for every input."""
    operand = run.tensor(x) if not isinstance(dtype, str) else run.cast(run.tensor(x), dtype)
    kind = promote(operand.dtype, "weak")
    inside = run.inside("softmax")

    def weights(row: tuple[Term, ...]) -> list[Term]:
        powers = _shifted_powers(inside, row, row[0] if len(row) == 1 else inside.arena.make("amax", row, None, kind, inside.kernel))
        total = powers[0] if len(powers) == 1 else inside.arena.make("sum", tuple(powers), None, kind, inside.kernel)
        return [inside.make("div", p, total) for p in powers]

    return run.rounded("softmax", (operand,), _along(run, operand, dim, weights, kind))


def _shifted_powers(inside: Interpreter, row: tuple[Term, ...], top: Term) -> list[Term]:
    return [inside.make("exp", inside.make("sub", t, top)) for t in row]


def _logsumexp(run: Interpreter, x: Value, dim: Value, keepdim: Value = False) -> Tensor:
    operand = run.tensor(x)
    kind = promote(operand.dtype, "weak")
    inside = run.inside("logsumexp")

    def combine(row: tuple[Term, ...]) -> Term:
        require(len(row) > 0, "logsumexp of nothing")
        top = row[0] if len(row) == 1 else inside.arena.make("amax", row, None, kind, inside.kernel)
        infinite = inside.make("eq", inside.make("abs", top), T.constant(run.arena, "inf", "weak"))
        shift = inside.make("where", infinite, T.constant(run.arena, Fraction(0), kind), top)
        powers = _shifted_powers(inside, row, shift)
        total = powers[0] if len(powers) == 1 else inside.arena.make("sum", tuple(powers), None, kind, inside.kernel)
        return inside.make("add", shift, inside.make("log", total))

    cells = _reduce(run, operand, axes(dim, len(operand.shape)), bool(keepdim), combine)
    return run.rounded("logsumexp", (operand,), Tensor(cells, kind))


def _matmul(run: Interpreter, a: Value, b: Value) -> Tensor:
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
    x = np.broadcast_to(x, (*batch, m, k)).reshape((-1, m, k))
    y = np.broadcast_to(y, (*batch, k, n)).reshape((-1, k, n))
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


# Layout -----------------------------------------------------------------------------------------------------------------------------------


def _flatten(run: Interpreter, x: Tensor, start: Value = 0, end: Value = -1) -> Tensor:
    first, last = axis(start, len(x.shape)), axis(end, len(x.shape))
    require(first <= last, "flatten ends before it starts")
    return T.reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def _unflatten(run: Interpreter, x: Tensor, dim: Value, sizes: Value) -> Tensor:
    at, parts = axis(dim, len(x.shape)), T.sizes(sizes)
    if -1 in parts:
        known = math.prod(p for p in parts if p != -1)
        require(known > 0 and x.shape[at] % known == 0, f"{x.shape[at]} does not split into {list(parts)}")
        parts = tuple(x.shape[at] // known if p == -1 else p for p in parts)
    require(math.prod(parts) == x.shape[at], f"{x.shape[at]} does not split into {list(parts)}")
    return T.reshape(x, (*x.shape[:at], *parts, *x.shape[at + 1 :]))


def _movedim(run: Interpreter, x: Tensor, source: Value, destination: Value) -> Tensor:
    rank = len(x.shape)
    return Tensor(np.moveaxis(x.cells, axis(source, rank), axis(destination, rank)), x.dtype)


def _repeat_interleave(run: Interpreter, x: Tensor, repeats: Value, dim: Value) -> Tensor:
    return Tensor(np.repeat(x.cells, run.static(repeats), axis=axis(dim, len(x.shape))), x.dtype)


def _unsqueeze(run: Interpreter, x: Value, dim: Value) -> Tensor:
    operand = run.tensor(x)
    return Tensor(np.expand_dims(operand.cells, axis(dim, len(operand.shape) + 1)), operand.dtype)


def _slice(run: Interpreter, x: Tensor, dim: Value, start: Value = None, stop: Value = None, step: Value = 1) -> Tensor:
    return Tensor(x.cells[_index(run, x, dim, start, stop, step)], x.dtype)


def _index(run: Interpreter, x: Tensor, dim: Value, start: Value, stop: Value, step: Value) -> tuple[slice, ...]:
    bounds = [None if b is None else run.static(b) for b in (start, stop)]
    stride = run.static(step)
    require(stride > 0, "a slice step must be positive")
    return (*(slice(None),) * axis(dim, len(x.shape)), slice(bounds[0], bounds[1], stride))


def _narrow(run: Interpreter, x: Tensor, dim: Value, start: Value, length: Value) -> Tensor:
    first, count = run.static(start), run.static(length)
    at = axis(dim, len(x.shape))
    first = first + x.shape[at] if first < 0 else first
    require(first >= 0 and count >= 0 and first + count <= x.shape[at], f"{first}+{count} is out of range for {x.shape[at]}")
    return _slice(run, x, dim, first, first + count)


def _select(run: Interpreter, x: Tensor, dim: Value, index: Value) -> Tensor:
    at, i = axis(dim, len(x.shape)), run.static(index)
    require(-x.shape[at] <= i < x.shape[at], f"index {i} is out of range for {x.shape[at]}")
    return Tensor(T.as_cells(x.cells[(*(slice(None),) * at, i)]), x.dtype)


def _flip(run: Interpreter, x: Tensor, dims: Value) -> Tensor:
    return Tensor(np.flip(x.cells, axes(dims, len(x.shape))), x.dtype)


def _roll(run: Interpreter, x: Tensor, shifts: Value, dims: Value) -> Tensor:
    moves = shifts if isinstance(shifts, tuple) else (shifts,)
    places = dims if isinstance(dims, tuple) else (dims,)
    cells = x.cells
    for move, place in zip(moves, places, strict=True):
        cells = np.roll(cells, run.static(move), axis(place, len(x.shape)))
    return Tensor(cells, x.dtype)


def _unfold(run: Interpreter, x: Tensor, dim: Value, size: Value, step: Value) -> Tensor:
    at, width, stride = axis(dim, len(x.shape)), run.static(size), run.static(step)
    require(0 < width <= x.shape[at] and stride > 0, f"windows of {width} do not fit {x.shape[at]}")
    pieces = []
    for start in range(0, x.shape[at] - width + 1, stride):
        window = x.cells[(*(slice(None),) * at, slice(start, start + width))]
        pieces.append(np.moveaxis(window, at, -1))
    return Tensor(np.stack(pieces, axis=at), x.dtype)


def _diagonal(run: Interpreter, x: Tensor, offset: Value = 0, a: Value = 0, b: Value = 1) -> Tensor:
    rank = len(x.shape)
    return Tensor(np.diagonal(x.cells, run.static(offset), axis(a, rank), axis(b, rank)), x.dtype)


def _split_sizes_piece(run: Interpreter, x: Tensor, sizes: Value, index: Value, dim: Value = 0) -> Tensor:
    parts, i = T.sizes(sizes), run.static(index)
    require(0 <= i < len(parts) and sum(parts) == x.shape[axis(dim, len(x.shape))], f"pieces {list(parts)} do not fit")
    return _slice(run, x, dim, sum(parts[:i]), sum(parts[: i + 1]))


def _pad(run: Interpreter, x: Tensor, dim: Value, before: Value, after: Value, value: Value = 0) -> Tensor:
    fill = run.tensor(value)
    require(fill.shape == (), "the fill of a pad is one number")
    back = len(x.shape) - 1 - axis(dim, len(x.shape))
    widths = (0, 0) * back + (run.static(before), run.static(after))
    return T.pad(x, widths, convert(run.arena, fill.only, x.dtype))


def _channel(run: Interpreter, v: Tensor, like: Tensor) -> Tensor:
    return T.reshape(v, (*v.shape, *(1,) * (len(like.shape) - 2)))


# Indexing by data -------------------------------------------------------------------------------------------------------------------------


def pick(run: Interpreter, index: Term, items: list[Term]) -> Term:
    """items[index], negative numbers from the end."""
    known = number(index)
    if known is not None:
        i = int(known)
        require(-len(items) <= i < len(items), f"index {i} is out of range for {len(items)}")
        return items[i]
    return run.arena.make("select", (index, *items), None, items[0].dtype if items else "float", run.kernel)


def _index_select(run: Interpreter, x: Tensor, dim: Value, index: Value) -> Tensor:
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


def _gather(run: Interpreter, x: Tensor, dim: Value, index: Value) -> Tensor:
    at, ids = axis(dim, len(x.shape)), run.tensor(index)
    require(len(ids.shape) == len(x.shape), "gather needs an index of the same rank")
    out = np.empty(ids.shape, dtype=object)
    for place in np.ndindex(ids.shape):
        row = x.cells[(*place[:at], slice(None), *place[at + 1 :])]
        out[place] = pick(run, ids.cells[place], list(row))
    return Tensor(out, x.dtype)


def _index_copy(run: Interpreter, x: Tensor, dim: Value, index: Value, source: Value) -> Tensor:
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


def _scatter(run: Interpreter, x: Tensor, dim: Value, index: Value, source: Value) -> Tensor:
    at, ids, new = axis(dim, len(x.shape)), run.tensor(index), run.tensor(source)
    cells = x.cells.copy()
    for place in np.ndindex(ids.shape):
        for j in range(x.shape[at]):
            target = (*place[:at], j, *place[at + 1 :])
            hit = run.make("eq", ids.cells[place], T.constant(run.arena, j, "int64"))
            cells[target] = run.make("where", hit, new.cells[place], cells[target])
    return Tensor(cells, x.dtype)


def _select_scatter(run: Interpreter, x: Tensor, source: Value, dim: Value, index: Value) -> Tensor:
    cells = x.cells.copy()
    cells[(*(slice(None),) * axis(dim, len(x.shape)), run.static(index))] = run.tensor(source).cells
    return Tensor(cells, x.dtype)


def _slice_scatter(
    run: Interpreter, x: Tensor, source: Value, dim: Value = 0, start: Value = None, stop: Value = None, step: Value = 1
) -> Tensor:
    cells = x.cells.copy()
    where = _index(run, x, dim, start, stop, step)
    require(cells[where].shape == run.tensor(source).shape, "the source does not fit the slice")
    cells[where] = run.tensor(source).cells
    return Tensor(cells, x.dtype)


# Sources and static values ----------------------------------------------------------------------------------------------------------------


def _arange(run: Interpreter, stop: Value, start: Value = 0, step: Value = 1, dtype: Value = None) -> Tensor:
    values = range(run.static(start), run.static(stop), run.static(step))
    return _listed(run, tuple(values), dtype)


def _listed(run: Interpreter, values: Value, dtype: Value = None) -> Tensor:
    require(isinstance(values, tuple), "a list of numbers is needed")
    assert isinstance(values, tuple)
    whole = all(isinstance(v, int) for v in values)
    kind = dtype if isinstance(dtype, str) else "int64" if whole else "float"
    cells = np.empty(len(values), dtype=object)
    for i, v in enumerate(values):
        cells[i] = convert(run.arena, run.tensor(v).only, kind)
    return Tensor(cells, kind)


def _full(run: Interpreter, sizes: Value, value: Value, dtype: Value = None) -> Tensor:
    shape = T.sizes(sizes if isinstance(sizes, tuple) else (sizes,))
    require(all(n >= 0 for n in shape), f"the shape {list(shape)} has a negative size")
    T.fits(math.prod(shape), f"the shape {list(shape)}")
    cell = run.tensor(value).only
    kind = dtype if isinstance(dtype, str) else "float" if cell.dtype == "weak" else "int64" if cell.dtype == "weakint" else cell.dtype
    cells = np.empty(shape, dtype=object)
    cells[...] = convert(run.arena, cell, kind)
    return Tensor(cells, kind)


def _full_like(run: Interpreter, x: Value, value: Value) -> Tensor:
    like = run.tensor(x)
    return _full(run, like.shape, value, like.dtype)


def _length(run: Interpreter, values: Value) -> int:
    require(isinstance(values, tuple), "a list is needed")
    assert isinstance(values, tuple)
    return len(values)


def _dtype_of(run: Interpreter, x: Value) -> str:
    return run.tensor(x).dtype


def _finfo(which: str) -> Primitive:
    def apply(run: Interpreter, dtype: Value) -> Tensor:
        require(isinstance(dtype, str) and dtype not in INTEGER_DTYPES, "a float format is needed")
        cells = np.empty((), dtype=object)
        cells[()] = run.arena.make("const", (), ("finfo", which, dtype), "weak")
        return Tensor(cells, "weak")

    return apply


def _largest_prime(n: int) -> int:
    found, divisor = 1, 2
    while divisor * divisor <= n:
        while n % divisor == 0:
            found, n = divisor, n // divisor
        divisor += 1
    return max(found, n)


def _smooth(run: Interpreter, n: Value, limit: Value) -> int:
    value, bound = run.static(n), run.static(limit)
    require(value > 0 and bound > 1, "smooth needs positive sizes")
    while _largest_prime(value) > bound:
        value += 1
    return value


def _is_integer(run: Interpreter, n: Value) -> bool:
    return isinstance(n, int | Fraction) and Fraction(n).denominator == 1


def _is_power_of_two(run: Interpreter, n: Value) -> bool:
    value = run.static(n)
    return value > 0 and value & (value - 1) == 0


STICK_BYTES = 128  # torch-spyre docs, tensor layouts: a stick is 128 bytes
_BYTES: Mapping[str, int] = {"float64": 8, "float32": 4, "int32": 4, "int64": 4, "int8": 1, "uint8": 1}


def _stick(run: Interpreter, dtype: Value) -> int:
    return STICK_BYTES // _BYTES.get(str(dtype), 2)


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
    "sum": _reduction("sum", 0, True),
    "prod": _reduction("prod", 1, True),
    "amax": _reduction("amax", None, False),
    "amin": _reduction("amin", None, False),
    "argmax": _argmax,
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    "sort_values": _sort("kth"),
    "sort_indices": _sort("argkth"),
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "matmul": _matmul,
    "reshape": lambda run, x, sizes: T.reshape(run.tensor(x), T.sizes(sizes if isinstance(sizes, tuple) else (sizes,))),
    "reshape_as": lambda run, x, like: T.reshape(x, like.shape),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "permute": lambda run, x, dims: T.permute(x, T.sizes(dims)),
    "transpose": lambda run, x, a, b: T.transpose(x, a, b),
    "movedim": _movedim,
    "expand": lambda run, x, sizes: T.expand(run.tensor(x), T.sizes(sizes)),
    "expand_as": lambda run, x, like: T.expand(run.tensor(x), like.shape),
    "repeat": lambda run, x, repeats: T.repeat(x, T.sizes(repeats)),
    "repeat_interleave": _repeat_interleave,
    "squeeze": lambda run, x, dim: T.squeeze(x, dim),
    "unsqueeze": _unsqueeze,
    "select": _select,
    "narrow": _narrow,
    "slice": _slice,
    "flip": _flip,
    "roll": _roll,
    "unfold": _unfold,
    "diagonal": _diagonal,
    "cat": lambda run, tensors, dim=0: T.cat([run.tensor(t) for t in tensors], dim),
    "split_sizes_piece": _split_sizes_piece,
    "pad": _pad,
    "channel": _channel,
    "take": lambda run, x, index: _index_select(run, x, 0, index),
    "index_select": _index_select,
    "gather": _gather,
    "index_copy": _index_copy,
    "scatter": _scatter,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "arange": _arange,
    "tensor": _listed,
    "full": _full,
    "full_like": _full_like,
    "size": lambda run, x, dim: run.tensor(x).shape[axis(dim, len(run.tensor(x).shape))],
    "numel": lambda run, x: run.tensor(x).cells.size,
    "rank": lambda run, x: len(run.tensor(x).shape),
    "length": _length,
    "dtype_of": _dtype_of,
    "is_bool": lambda run, x: run.tensor(x).dtype == "bool",
    **{f"finfo_{which}": _finfo(which) for which in ("min", "max", "eps", "tiny")},
    "stick": _stick,
    "gcd": lambda run, a, b: math.gcd(run.static(a), run.static(b)),
    "lcm": lambda run, a, b: math.lcm(run.static(a), run.static(b)),
    "lpf": lambda run, n: _largest_prime(run.static(n)),
    "smooth": _smooth,
    "is_integer": _is_integer,
    "is_power_of_two": _is_power_of_two,
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
POINTWISE = (ROUNDING - frozenset(["sum", "prod", "cumsum", "cumprod", "softmax", "logsumexp", "matmul"])) | _ELEMENTWISE_EXACT
