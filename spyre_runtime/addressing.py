"""Device addresses of an access, as one table a loop symbol, and the strided copies that follow from them.

The address of an element is separable: a base plus, for each loop symbol, a number that depends on that symbol alone. A table that is a
mixed-radix number of its symbol (`d1` walks 64 lanes, then jumps to the next tile) is a few strided digits; a ragged extent (100 elements in
sticks of 64) is a few boxes of digits. So moving a tile between dense form and padded sticks takes a handful of strided copies, however many
sticks or cores there are. What has no digits is moved by a table of addresses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import sympy
import torch
from sympy import Symbol
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing, PythonMod

from .coordinates import raw_device_coordinates
from .ir import Access, DeviceLayout


def evaluate(expr: sympy.Expr, symbol: Symbol, values: Tensor) -> Tensor:
    """`expr` with `symbol` at each of `values` (int64, any shape) and every other symbol at 0. Raises TypeError for an unknown function."""
    if isinstance(expr, sympy.Symbol):
        return values if expr == symbol else torch.zeros_like(values)
    if isinstance(expr, sympy.Integer):
        return torch.full_like(values, int(expr))
    if isinstance(expr, sympy.Add):
        return torch.stack([evaluate(a, symbol, values) for a in expr.args]).sum(0)
    if isinstance(expr, sympy.Mul):
        top, bottom = sympy.fraction(expr)
        if bottom != 1:
            raise TypeError(f"an address holds the broken fraction {expr}")
        product = torch.ones_like(values)
        for factor in top.args:
            product = product * evaluate(factor, symbol, values)
        return product
    if isinstance(expr, sympy.Mod | Mod | PythonMod):
        left, right = (evaluate(a, symbol, values) for a in expr.args)
        return torch.remainder(left, right)
    if isinstance(expr, FloorDiv):
        left, right = (evaluate(a, symbol, values) for a in expr.args)
        return torch.div(left, right, rounding_mode="floor")
    if isinstance(expr, ModularIndexing):
        base, divisor, modulus = (evaluate(a, symbol, values) for a in expr.args)
        return torch.remainder(torch.div(base, divisor, rounding_mode="floor"), modulus)
    if isinstance(expr, sympy.floor):
        top, bottom = sympy.fraction(sympy.together(expr.args[0]))
        return torch.div(evaluate(top, symbol, values), int(bottom), rounding_mode="floor")
    raise TypeError(f"an address holds {expr}, which is no sum, product, quotient or remainder")


@dataclass(frozen=True)
class Digit:
    """`size` steps of `unit` values of a symbol."""

    unit: int
    size: int


def digits_of(table: Tensor) -> tuple[Digit, ...] | None:
    """Mixed-radix digits, innermost first, in which `table` (int64, starts at 0) is linear; None when there are none within four levels."""
    n = len(table)
    found: list[Digit] = []
    unit, level = 1, table
    while len(found) < 4:
        count = len(level)
        if count == 1:
            return (*found, Digit(unit, 1)) if not found else tuple(found)
        linear = level == torch.arange(count) * level[1]
        run = count if bool(linear.all()) else int((~linear).nonzero()[0])
        found.append(Digit(unit, run))
        if run == count:
            return tuple(found)
        jumps = level[::run]
        expected = (jumps[:, None] + level[:run]).reshape(-1)[:count]
        if not torch.equal(expected, level):
            return None
        unit, level = unit * run, jumps
    return None if unit < n else tuple(found)


def refine(cuts: Sequence[int], extent: int) -> tuple[Digit, ...] | None:
    """Digits, innermost first, with a boundary at every one of `cuts` below `extent`; None when the cuts do not divide one another."""
    units = sorted({1, *(c for c in cuts if 1 < c < extent)})
    if any(above % below for below, above in itertools.pairwise(units)):
        return None
    sizes = [above // below for below, above in itertools.pairwise(units)]
    return tuple(Digit(u, s) for u, s in zip(units, [*sizes, -(-extent // units[-1])], strict=True))


@dataclass(frozen=True)
class Box:
    """A block of values of one symbol: those from `start` on that full digits span. sizes: of the digits, innermost first."""

    start: int
    sizes: tuple[int, ...]


def boxes_of(digits: Sequence[Digit], extent: int) -> tuple[Box, ...]:
    """The values below `extent`, as boxes of whole digits: one when the digits fit the extent, at most one more for each digit."""
    found = []
    start = 0
    for level in reversed(range(len(digits))):
        unit = digits[level].unit
        count = (extent - start) // unit
        if count:
            inner = tuple(d.size for d in digits[:level])
            found.append(Box(start, (*inner, count, *[1] * (len(digits) - level - 1))))
            start += count * unit
    return tuple(found)


@dataclass(frozen=True)
class Block:
    """One strided copy between a dense tensor and device memory: strides and offsets in elements of each."""

    sizes: tuple[int, ...]
    device_strides: tuple[int, ...]
    device_offset: int
    dense_strides: tuple[int, ...]
    dense_offset: int


@dataclass(frozen=True, eq=False)
class Addresses:
    """Where an access lies in the flat device memory of its buffer.

    tables: for each loop symbol its share of the address (int64 [extent]); data-dependent symbols are among them, with a table over all
    values that the data may take. coordinates: the same before flattening, one mapping a device dimension, with `bases` the constants.
    """

    buffer: str
    device_size: tuple[int, ...]
    base: int
    bases: tuple[int, ...]
    tables: Mapping[Symbol, Tensor]
    coordinates: tuple[Mapping[Symbol, Tensor], ...]

    @cached_property
    def digits(self) -> Mapping[Symbol, tuple[Digit, ...] | None]:
        return {s: digits_of(t) for s, t in self.tables.items()}

    @property
    def elements(self) -> int:
        return math.prod(self.device_size)

    def shifted(self, lanes: int) -> Addresses:
        """The same walk, `lanes` elements further on."""
        return Addresses(self.buffer, self.device_size, self.base + lanes, self.bases, self.tables, self.coordinates)


def device_strides(device_size: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(device_size[j + 1 :]) for j in range(len(device_size)))


def addresses_of(layout: DeviceLayout, access: Access) -> Addresses:
    """Address tables of an access without data-dependent symbols."""
    return walk(access.buffer, layout.device_size, raw_device_coordinates(layout, access), access.ranges)


@lru_cache(maxsize=4096)
def walk(buffer: str, device_size: tuple[int, ...], exprs: tuple[sympy.Expr, ...], extents: tuple[tuple[Symbol, int], ...]) -> Addresses:
    """Address tables of a walk with coordinates `exprs` along dense dimensions `device_size`; `extents` has every symbol in them.

    Raises TypeError for a coordinate that is no sum of functions of one symbol each.
    """
    strides = device_strides(device_size)
    sizes = dict(extents)
    zero = torch.zeros(1, dtype=torch.int64)
    nothing = sympy.Symbol("nothing")
    bases = tuple(int(evaluate(sympy.sympify(e), nothing, zero)) for e in exprs)
    found: list[dict[Symbol, Tensor]] = []
    tables: dict[Symbol, Tensor] = {}
    for expr, stride, base in zip(exprs, strides, bases, strict=True):
        own: dict[Symbol, Tensor] = {}
        for symbol in sorted(sympy.sympify(expr).free_symbols, key=str):
            table = evaluate(expr, symbol, torch.arange(sizes[symbol])) - base
            if bool(table.any()):
                own[symbol] = table
                tables[symbol] = tables.get(symbol, 0) + table * stride
        found.append(own)
    base = sum(b * s for b, s in zip(bases, strides, strict=True))
    return Addresses(buffer, device_size, base, bases, tables, tuple(found))


def blocks(where: Addresses, loops: Sequence[tuple[Symbol, int]], dense_strides: Sequence[int]) -> tuple[Block, ...] | None:
    """Strided copies between memory and a dense tensor whose dimensions are `loops` (symbol, extent) with the given strides.

    None when some table has no digits.
    """
    parts: list[list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int]]] = []
    for (symbol, extent), dense in zip(loops, dense_strides, strict=True):
        table = where.tables.get(symbol)
        if table is None:
            parts.append([((extent,), (0,), (dense,), 0, 0)])
            continue
        digits = where.digits[symbol]
        if digits is None:
            return None
        steps = tuple(int(table[d.unit]) if d.unit < extent else 0 for d in digits)
        units = tuple(d.unit * dense for d in digits)
        parts.append(
            [(box.sizes[::-1], steps[::-1], units[::-1], int(table[box.start]), box.start * dense) for box in boxes_of(digits, extent)]
        )
    result = []
    for combination in itertools.product(*parts):
        sizes = tuple(itertools.chain.from_iterable(part[0] for part in combination))
        device = tuple(itertools.chain.from_iterable(part[1] for part in combination))
        dense_steps = tuple(itertools.chain.from_iterable(part[2] for part in combination))
        kept = [i for i, n in enumerate(sizes) if n != 1]
        result.append(
            Block(
                tuple(sizes[i] for i in kept),
                tuple(device[i] for i in kept),
                where.base + sum(part[3] for part in combination),
                tuple(dense_steps[i] for i in kept),
                sum(part[4] for part in combination),
            )
        )
    return tuple(result)


def address_table(where: Addresses, loops: Sequence[tuple[Symbol, int]], values: Mapping[Symbol, Tensor] | None = None) -> Tensor:
    """Address of every element over `loops`, int64 of their shape.

    `values`: for data-dependent symbols, their values in a shape that broadcasts to the loops; each must lie within its table.
    """
    rank = len(loops)
    total = torch.full((1,) * rank, where.base, dtype=torch.int64)
    for position, (symbol, extent) in enumerate(loops):
        table = where.tables.get(symbol)
        if table is not None:
            total = total + table[:extent].view([-1 if i == position else 1 for i in range(rank)])
    for symbol, data in (values or {}).items():
        table = where.tables.get(symbol)
        if table is not None:
            total = total + table[data]
    return total.expand([n for _, n in loops])
