"""Tensors of terms and the ops that only move elements. Shapes are concrete; every element is a `Term`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adapterc.verify.terms import INTEGER_DTYPES, Arena, Payload, Term, TooLarge

Scalar: TypeAlias = int | Fraction | bool | str | None
MAX_ELEMENTS = 60_000


@dataclass(frozen=True, slots=True)
class Tensor:
    """`cells` is an object array of Terms; `dtype` as Term.dtype, or "weak" for numbers that take the dtype of what they meet."""

    cells: Any  # an ndarray of Terms, which numpy's types cannot say
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self.cells.shape
        return found

    @property
    def only(self) -> Term:
        """The element of a tensor of rank 0."""
        found: Term = self.cells.reshape(-1)[0]
        return found


class ShapeError(Exception):
    """An op cannot be applied to these shapes, sizes or argument kinds."""


def fits(count: int, what: str) -> None:
    """Raises TooLarge beyond what a check may spend: such sizes are passed over, they say nothing about the rule."""
    if count > MAX_ELEMENTS:
        raise TooLarge(f"{what} has {count:,} elements")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ShapeError(message)


def integer(value: object, what: str = "a size") -> int:
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or Fraction(value).denominator != 1:
        raise ShapeError(f"{what} must be an integer, not {value}")
    return int(value)


def axis(dim: object, rank: int) -> int:
    found = integer(dim, "a dimension")
    require(-rank <= found < max(rank, 1) or (rank == 0 and found == -1), f"dimension {found} is out of range for rank {rank}")
    return found % rank if rank else 0


def axes(dim: object, rank: int) -> tuple[int, ...]:
    """One dimension, a sequence of them, or None for all."""
    if dim is None:
        return tuple(range(rank))
    items = dim if isinstance(dim, tuple) else (dim,)
    return tuple(sorted({axis(item, rank) for item in items}))


def sizes(items: object) -> tuple[int, ...]:
    require(isinstance(items, tuple), "a list of sizes is needed")
    assert isinstance(items, tuple)
    return tuple(integer(item) for item in items)


def promote(*dtypes: str) -> str:
    """The dtype that arithmetic on these gives: floats over integers over bool, numbers without dtype last."""
    strong = [d for d in dtypes if d not in ("weak", "weakint")]
    floats = [d for d in strong if d not in INTEGER_DTYPES and d != "bool"]
    if floats:
        order = ("float", "bfloat16", "float16", "float32", "float64")
        distinct = set(floats)
        if distinct == {"bfloat16", "float16"}:
            return "float32"
        return max(distinct, key=order.index) if distinct <= set(order) else floats[0]
    integers = [d for d in strong if d in INTEGER_DTYPES]
    if "weak" in dtypes:
        return "float" if strong else "weak"
    if integers:
        return "int64" if "int64" in integers else "int32"
    if "weakint" in dtypes:
        return "int64" if strong else "weakint"
    return "bool"


def constant(arena: Arena, value: Payload, dtype: str | None = None) -> Term:
    """A number or truth value as a term. Payloads: int, Fraction, bool, or the names "inf", "-inf", "nan", "-0", "pi"."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else "weakint" if isinstance(value, int) else "weak"
    if isinstance(value, Fraction) and value.denominator == 1 and dtype in INTEGER_DTYPES:
        value = int(value)
    return arena.make("const", (), value, dtype)


def scalar_tensor(arena: Arena, value: Payload, dtype: str | None = None) -> Tensor:
    cell = constant(arena, value, dtype)
    cells = np.empty((), dtype=object)
    cells[()] = cell
    return Tensor(cells, cell.dtype)


def elementwise(function: Callable[..., Term], *arrays: NDArray[Any]) -> NDArray[Any]:
    """`function` over broadcast object arrays."""
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        raise ShapeError(f"the shapes {', '.join(str(list(a.shape)) for a in arrays)} do not broadcast") from None
    fits(math.prod(shape), f"the shape {list(shape)}")
    out = np.empty(shape, dtype=object)
    views = [np.broadcast_to(a, shape).reshape(-1) for a in arrays]
    flat = out.reshape(-1)
    for i, cells in enumerate(zip(*views, strict=True)):
        flat[i] = function(*cells)
    return out


def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    require(shape.count(-1) <= 1, "at most one size of a reshape may be -1")
    known = math.prod(n for n in shape if n != -1)
    count = x.cells.size
    if -1 in shape:
        require(known != 0 and count % known == 0, f"{count} elements do not fill {list(shape)}")
        shape = tuple(count // known if n == -1 else n for n in shape)
    require(math.prod(shape) == count and all(n >= 0 for n in shape), f"{list(x.shape)} cannot be reshaped to {list(shape)}")
    return Tensor(x.cells.reshape(shape), x.dtype)


def permute(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    order = tuple(axis(d, len(x.shape)) for d in dims)
    require(sorted(order) == list(range(len(x.shape))), f"{list(dims)} is no permutation of {len(x.shape)} dimensions")
    return Tensor(x.cells.transpose(order), x.dtype)


def transpose(x: Tensor, first: object, second: object) -> Tensor:
    rank = len(x.shape)
    a, b = axis(first, rank), axis(second, rank)
    require(rank > 0, "a number has no dimensions to transpose")
    return Tensor(np.swapaxes(x.cells, a, b), x.dtype)


def expand(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    lead = len(shape) - len(x.shape)
    require(lead >= 0, f"{list(x.shape)} cannot expand to {list(shape)}")
    target = tuple(x.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(shape))
    try:
        return Tensor(np.broadcast_to(x.cells, target), x.dtype)
    except ValueError:
        raise ShapeError(f"{list(x.shape)} cannot expand to {list(target)}") from None


def cat(items: Sequence[Tensor], dim: object) -> Tensor:
    require(len(items) > 0, "nothing to concatenate")
    rank = len(items[0].shape)
    require(all(len(t.shape) == rank for t in items) and rank > 0, "concatenated tensors need one rank")
    at = axis(dim, rank)
    rest = {t.shape[:at] + t.shape[at + 1 :] for t in items}
    require(len(rest) == 1, f"shapes {', '.join(str(list(t.shape)) for t in items)} differ outside dimension {at}")
    return Tensor(np.concatenate([t.cells for t in items], axis=at), promote(*(t.dtype for t in items)))


def stack(items: Sequence[Tensor], dim: object) -> Tensor:
    require(len({t.shape for t in items}) == 1, "stacked tensors need one shape")
    at = axis(dim, len(items[0].shape) + 1)
    return Tensor(np.stack([t.cells for t in items], axis=at), promote(*(t.dtype for t in items)))


def pad(x: Tensor, widths: tuple[int, ...], fill: Term) -> Tensor:
    """torch's order: (left, right) of the last dimension first; negative widths crop."""
    require(len(widths) % 2 == 0 and len(widths) // 2 <= len(x.shape), f"pad widths {list(widths)} do not fit rank {len(x.shape)}")
    cells = x.cells
    for i in range(len(widths) // 2):
        at = cells.ndim - 1 - i
        left, right = widths[2 * i], widths[2 * i + 1]
        size = cells.shape[at]
        require(size + min(left, 0) + min(right, 0) >= 0, "cannot crop more than there is")
        index = [slice(None)] * cells.ndim
        index[at] = slice(max(-left, 0), size - max(-right, 0))
        cells = cells[tuple(index)]
        pieces = []
        for width in (max(left, 0), max(right, 0)):
            shape = list(cells.shape)
            shape[at] = width
            block = np.empty(shape, dtype=object)
            block[...] = fill
            pieces.append(block)
        cells = np.concatenate([pieces[0], cells, pieces[1]], axis=at)
    fits(cells.size, "the padded tensor")
    return Tensor(cells, x.dtype)


def repeat(x: Tensor, counts: tuple[int, ...]) -> Tensor:
    require(len(counts) >= len(x.shape) and all(c >= 0 for c in counts), f"repeat {list(counts)} does not fit rank {len(x.shape)}")
    return Tensor(np.tile(x.cells, counts), x.dtype)


def squeeze(x: Tensor, dim: object) -> Tensor:
    which = axes(dim, len(x.shape))
    drop = tuple(a for a in which if x.shape[a] == 1)
    return Tensor(np.squeeze(x.cells, axis=drop) if drop else x.cells, x.dtype)


def as_cells(array: NDArray[Any]) -> NDArray[Any]:
    """numpy turns one element into the element itself; a tensor of rank 0 must stay an array."""
    if isinstance(array, np.ndarray):
        return array
    out = np.empty((), dtype=object)
    out[()] = array
    return out
