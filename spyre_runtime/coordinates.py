"""From flat indices to coordinates: which position along each dimension of a tensor a loop nest touches.

`coordinates` inverts an index expression against sizes and strides: for each loop symbol it finds the dimensions that the symbol's
steps walk, host dimensions (size, stride) and device dimensions (device_size, stride_map) alike. The last device coordinate is
the *stick expression*: where inside a stick the loop works. The device reads sticks whole, so that only few forms of it exist.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import sympy
from torch._inductor.sizevars import SizeVarAllocator
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from .ir import Access, Buffer, DeviceLayout, Ranges
from .refusal import refuse

Coordinates = tuple[sympy.Expr, ...]
ZERO = sympy.S.Zero
_STAGE = "propagate"


def as_mod(index: sympy.Expr) -> sympy.Expr:
    """(a // b) % c in sympy's own terms."""
    if isinstance(index, ModularIndexing):
        base, divisor, modulus = index.args
        return sympy.Mod(base if divisor == 1 else FloorDiv(base, divisor), modulus)
    if isinstance(index, sympy.Add | sympy.Mul):
        return index.func(*(as_mod(arg) for arg in index.args))
    return index


def _alone(index: sympy.Expr, symbol: sympy.Symbol) -> sympy.Expr:
    """The part of an index that one symbol moves."""
    return index.xreplace(dict.fromkeys(index.free_symbols - {symbol}, ZERO))


def wrapping(index: sympy.Expr, extents: Mapping[sympy.Symbol, int]) -> dict[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]]:
    """Symbols that run round a smaller range (repeat): symbol → (the Mod term, its factor). `index` has no ModularIndexing left."""
    found = {}
    for symbol, extent in extents.items():
        terms = [term for term in index.find(sympy.Mod) if term.has(symbol)]
        if len(terms) != 1 or not sympy.simplify(terms[0].args[1] < extent):
            continue
        part = _alone(index, symbol)
        factors = list(part.args) if isinstance(part, sympy.Mul) else [part]
        if part == terms[0]:
            found[symbol] = (terms[0], sympy.S.One)
        elif isinstance(part, sympy.Mul) and terms[0] in factors:
            factors.remove(terms[0])
            found[symbol] = (terms[0], sympy.Mul(*factors))
    return found


def _number(expr: sympy.Expr) -> float:
    return math.inf if expr == sympy.oo else int(expr)


class _Dimensions:
    """Sizes and strides of a tensor, and the coordinates collected so far."""

    def __init__(self, size: Sequence[int], stride: Sequence[int]) -> None:
        self.size, self.stride = size, stride
        self.found: list[sympy.Expr] = [ZERO] * len(size)
        self.next = [
            min((other for other, n in zip(stride, size, strict=True) if n > 1 and other > own), default=math.inf) for own in stride
        ]

    def add(self, moving: sympy.Expr, step: sympy.Expr, limit: sympy.Expr) -> None:
        """`moving` (a symbol, or a constant) advances the flat index by `step` and stays below `limit`."""
        first, last = _number(step), _number(limit)
        home, home_stride = -1, 0
        for dim, (size, stride) in enumerate(zip(self.size, self.stride, strict=True)):
            if size == 1:
                continue
            if home_stride < stride <= first:
                home, home_stride = dim, stride
            elif first < stride < last:
                self._walk(dim, moving * step, stride, last)
        if home >= 0:
            self._walk(home, moving * step, home_stride, last)

    def _walk(self, dim: int, moved: sympy.Expr, stride: int, last: float) -> None:
        overflows = self.next[dim] < last
        self.found[dim] += (moved % self.next[dim] if overflows else moved) // stride


def _extent_of_data(symbol: sympy.Symbol, index: sympy.Expr, size: Sequence[int], stride: Sequence[int]) -> int | None:
    """Extent of a data-dependent symbol: the dimension whose stride is the symbol's factor; None when it has no plain factor."""
    part = _alone(index, symbol).xreplace({symbol: sympy.S.One})
    if not part.is_Integer:
        return None
    for own, n in zip(stride, size, strict=True):
        if own == int(part) and n > 1:
            return n
    raise refuse(
        "Unsupported@_inductor/views.py:compute_coordinates",
        f"index data that steps by {part} fits no dimension of sizes {list(size)} and strides {list(stride)}",
        stage=_STAGE,
        sizes=tuple(size),
    )


@lru_cache(maxsize=65536)
def coordinates(size: tuple[int, ...], stride: tuple[int, ...], index: sympy.Expr, ranges: Ranges) -> Coordinates:
    """Position along each dimension as an expression of the loop symbols. Strides below 1 and dimensions of size 1 stay at 0.

    Raises Refusal for index data that no dimension can hold.
    """
    extents = dict(ranges)
    index = as_mod(sympy.sympify(index))
    wrapped = wrapping(index, extents)
    dims = _Dimensions(size, stride)
    symbols = index.free_symbols
    offset = index.xreplace(dict.fromkeys(symbols, ZERO))
    if offset > 0:
        index = index - offset
        dims.add(offset, sympy.S.One, sympy.oo)
    for symbol in sorted(symbols, key=str):
        extent = extents[symbol] if symbol in extents else _extent_of_data(symbol, index, size, stride)
        if extent is None or extent <= 1:
            continue
        if symbol in wrapped:
            term, factor = wrapped[symbol]
            dims.add(term, factor, factor * term.args[1])
            continue
        part = _alone(index, symbol)
        dims.add(symbol, part.xreplace({symbol: sympy.S.One}), part.xreplace({symbol: sympy.Integer(extent)}))
    return tuple(dims.found)


def host_coordinates(buffer: Buffer, access: Access) -> Coordinates:
    return coordinates(buffer.size, buffer.stride, access.index, access.ranges)


def raw_device_coordinates(layout: DeviceLayout, access: Access) -> Coordinates:
    """Device coordinates without the check of the stick expression."""
    return coordinates(layout.device_size, layout.stride_map, access.index, access.ranges)


def device_coordinates(layout: DeviceLayout, access: Access) -> Coordinates:
    """Device coordinates. Raises Refusal ("stick_expr_unsupported") for a stick expression that the device has no form for."""
    found = raw_device_coordinates(layout, access)
    stick = found[-1]
    if not (is_whole_stick(stick, layout.stick) or _is_shifted_stick(stick, layout.stick)):
        raise refuse(
            "stick_expr_unsupported",
            f"the elements along a stick of {access.buffer} (device size {list(layout.device_size)}) are walked as {stick}; "
            f"only whole runs of {layout.stick}, a single lane or a constant shift of those can be read",
            stage=_STAGE,
            sizes=layout.device_size,
        )
    return found


def is_whole_stick(stick: sympy.Expr, elements: int) -> bool:
    """Mod(symbol, elements), a bare symbol, or 0: the forms without an offset."""
    if isinstance(stick, sympy.Mod):
        return len(stick.args[0].free_symbols) == 1 and stick.args[1] == elements
    return bool(stick.is_symbol) or stick == 0


def _is_shifted_stick(stick: sympy.Expr, elements: int) -> bool:
    moving = [arg for arg in stick.args if arg.free_symbols] if isinstance(stick, sympy.Add) else []
    return len(moving) == 1 and is_whole_stick(moving[0], elements)


def _covers(whole: sympy.Expr, part: sympy.Expr, symbol: sympy.Symbol) -> bool:
    """Whether `whole` takes every value that `part` takes while `symbol` runs (both over `symbol` alone)."""
    if part.free_symbols == {symbol} and whole.free_symbols == {symbol}:
        start = part.subs(symbol, 0)
        if start != whole.subs(symbol, 0):
            return False
        part, whole = part - start, whole - start
    if whole == symbol:
        return True
    both = isinstance(whole, sympy.Mod) and isinstance(part, sympy.Mod)
    return both and whole.args[0] == symbol == part.args[0] and bool(sympy.Le(part.args[1], whole.args[1]))


@lru_cache(maxsize=65536)
def matching_dim(coords: Coordinates, expr: sympy.Expr) -> int | None:
    """The one dimension whose coordinate covers `expr`; None when there is none, several, or `expr` has not exactly one symbol."""
    if len(expr.free_symbols) != 1:
        return None
    symbol = next(iter(expr.free_symbols))
    dims = [dim for dim, coord in enumerate(coords) if _covers(coord, expr, symbol)]
    return dims[0] if len(dims) == 1 else None


@lru_cache(maxsize=1)
def _sizes() -> SizeVarAllocator:
    return SizeVarAllocator(ShapeEnv())


@lru_cache(maxsize=16384)
def simplified(index: sympy.Expr, ranges: Ranges) -> sympy.Expr:
    """The index as generated kernels have it: divisions and remainders that the loop extents make trivial are gone."""
    if not index.has(FloorDiv, ModularIndexing, sympy.Mod):
        return index
    return _sizes().simplify_with_ranges(index, dict(ranges))
