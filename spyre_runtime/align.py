"""Final loops of a device op: views resolved into device dimensions that every operand agrees on.

Operands may see the same loop through different views (`x.view(...)`, slices, repeats). The loop is cut wherever one of them changes dimension, and
each piece becomes a loop of its own. A planned split survives on the pieces as far as it divides them: the greatest common divisor with the
piece's size in *elements*, so a split planned in sticks is lost where it does not divide the element count (4304 elements are 68 sticks;
17 cores divide the sticks, none of them the elements).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import sympy
from sympy import Symbol

from .refusal import Refusal, refuse
from .terms import Coordinate, Term


@dataclass(frozen=True, slots=True)
class Loop:
    """A final loop: extent in elements, and the cores that share it."""

    name: str
    size: int
    cores: int


@dataclass(frozen=True, slots=True)
class View:
    """An operand's device dimensions (outermost first, stick last) and its coordinate along each."""

    size: tuple[int, ...]
    coordinates: tuple[Coordinate, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    loops: tuple[Loop, ...]
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """`num · (symbol mod mod) // den + offset` along a dimension of `size`; no symbol: constant, or data in `opaque`."""

    size: int
    symbol: Symbol | None = None
    num: int = 1
    den: int = 1
    mod: int = 1
    offset: int = 0
    opaque: Coordinate | None = None


def _unsupported(where: str, what: str) -> Refusal:
    return refuse(where, what, stage="plan")


def _piece(term: Term, size: int, loops: Mapping[Symbol, int]) -> _Piece:
    if term.scale.numerator != 1 and term.scale.denominator != 1:
        raise _unsupported(
            "AssertionError@_inductor/views.py:normalize_coordinates",
            f"a view makes the device coordinate {term.expr}, and the device has no loop that steps by a broken fraction",
        )
    modulus = loops[term.symbol] if term.modulus is None else term.modulus
    return _Piece(size, term.symbol, term.scale.numerator, term.scale.denominator, modulus)


def _pieces(coordinate: Coordinate, size: int, last: bool, loops: dict[Symbol, int], fresh: _Fresh) -> list[_Piece]:
    """The terms of one dimension, outermost first, each with its share of the dimension's size and offset."""
    if not coordinate.terms:
        if size > 1 and not last:  # a dimension that a slice pins to one place
            symbol = fresh.next()
            loops[symbol] = 1
            return [_Piece(size, symbol, offset=coordinate.offset)]
        if coordinate.offset:
            raise _unsupported(
                "AssertionError@_inductor/views.py:normalize_coordinates",
                f"a view starts at element {coordinate.offset} of a dimension that no loop walks",
            )
        return [_Piece(size)]
    if any(t.symbol not in loops for t in coordinate.terms):
        return [_Piece(size, opaque=coordinate)]
    pieces = sorted((_piece(t, size, loops) for t in coordinate.terms), key=lambda p: (p.num, p.mod))
    rest = coordinate.offset
    for i in reversed(range(len(pieces))):
        pieces[i], rest = replace(pieces[i], offset=rest // pieces[i].num), rest % pieces[i].num
    whole = size
    taken = 1
    for i in range(len(pieces) - 1):
        share = pieces[i + 1].num
        pieces[i] = replace(pieces[i], size=share)
        pieces[i + 1] = replace(pieces[i + 1], num=1)
        taken *= share
    pieces[-1] = replace(pieces[-1], size=whole // taken)
    return pieces[::-1]


def _fuse(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Neighbouring pieces of one loop that continue each other, joined; the stick stays by itself."""
    joined: list[_Piece] = []
    current = pieces[0]
    for piece in pieces[1:-1]:
        if current.symbol is not None and current.symbol == piece.symbol and current.num == 1 and current.den == piece.mod:
            current = replace(current, num=piece.num, den=piece.den, size=current.size * piece.size, offset=current.offset + piece.offset)
            continue
        joined.append(current)
        current = piece
    joined.append(current)
    kept = [p for p in joined if p.size > 1 or p.symbol is not None]
    return [*kept, pieces[-1]]


class _Fresh:
    """Names for loops that the op did not have; those for pinned dimensions are shared between operands."""

    def __init__(self) -> None:
        self.made: list[Symbol] = []
        self.used = 0

    def next(self) -> Symbol:
        if self.used == len(self.made):
            self.made.append(sympy.Symbol(f"z{len(self.made)}"))
        self.used += 1
        return self.made[self.used - 1]


def _bounds(operands: Sequence[Sequence[_Piece]], loops: Mapping[Symbol, int], repeated: frozenset[Symbol]) -> dict[Symbol, list[int]]:
    """Where each loop changes dimension in some operand; the cut between a stick and its tiles is no such place."""
    bounds: dict[Symbol, set[int]] = {s: set() for s in loops}
    for pieces in operands:
        stick = pieces[-1]
        for piece in pieces:
            if piece.symbol is None:
                continue
            along_stick = piece.symbol == stick.symbol
            if not (along_stick and piece.den == stick.size):
                bounds[piece.symbol].add(piece.den)
            if not (along_stick and piece.mod == stick.size) or piece.symbol in repeated:
                bounds[piece.symbol].add(piece.mod)
    return {s: sorted(b) for s, b in bounds.items()}


def _cut(
    loops: Mapping[Symbol, int], cores: Mapping[Symbol, int], bounds: Mapping[Symbol, Sequence[int]], fresh: _Fresh
) -> tuple[dict[Symbol, list[Symbol]], tuple[Loop, ...]]:
    """The pieces of each loop (innermost first), and all final loops with what is left of the planned splits."""
    parts: dict[Symbol, list[Symbol]] = {}
    final: dict[Symbol, tuple[int, int]] = {}
    for symbol, cuts in bounds.items():
        wanted = cores.get(symbol, 1)
        if len(cuts) < 2:
            final[symbol] = (loops[symbol], wanted)
            continue
        parts[symbol] = [symbol] + [fresh.next() for _ in cuts[2:]]
        sizes = [above // below for below, above in itertools.pairwise(cuts)]
        shares: dict[Symbol, int] = {}
        for part, size in reversed(list(zip(parts[symbol], sizes, strict=True))):
            shares[part] = math.gcd(wanted, size)
            wanted //= shares[part]
        final.update({part: (size, shares[part]) for part, size in zip(parts[symbol], sizes, strict=True)})
    return parts, tuple(Loop(str(s), size, share) for s, (size, share) in final.items())


def _along(symbol: Symbol, offset: int, den: int = 1) -> Coordinate:
    return Coordinate((Term(symbol, Fraction(1, den)),), offset)


def _view(pieces: Sequence[_Piece], bounds: Mapping[Symbol, Sequence[int]], parts: Mapping[Symbol, Sequence[Symbol]]) -> View:
    stick = pieces[-1]
    size: list[int] = []
    where: list[Coordinate] = []
    for piece in pieces[:-1]:
        if piece.symbol is None:
            size.append(piece.size)
            where.append(piece.opaque or Coordinate((), piece.offset))
            continue
        cuts = bounds[piece.symbol]
        tiles = piece.symbol == stick.symbol and piece.den == stick.size and piece.den not in cuts
        low, high = 0 if tiles else cuts.index(piece.den), cuts.index(piece.mod)
        offset = piece.offset
        if low == high:
            size.append(piece.size)
            where.append(_along(piece.symbol, offset))
        for i in reversed(range(low, high)):
            size.append(piece.size * piece.den // cuts[i] if i == high - 1 else cuts[i + 1] // cuts[i])
            where.append(_along(parts[piece.symbol][i], offset // cuts[i]))
            offset %= cuts[i]
        if tiles:
            size[-1] //= piece.den
            term = where[-1].terms[0]
            where[-1] = _along(term.symbol, where[-1].offset, piece.den)
        if piece.num > 1:  # the loop skips places: the gap is a dimension that stands still
            size.append(piece.num)
            where.append(Coordinate())
    within = () if stick.symbol is None else (Term(stick.symbol, Fraction(1), stick.size),)
    return View((*size, stick.size), (*where, Coordinate(within, stick.offset)))


def _free(view: View, position: int) -> bool:
    return view.size[position] == 1 and not view.coordinates[position].terms and view.coordinates[position].offset == 0


def _level(views: Sequence[View]) -> tuple[View, ...]:
    """All views at one rank, with room for a tile dimension beside every stick."""

    def has_room(view: View) -> bool:
        stick = view.coordinates[-1].symbols
        return any(_free(view, i) or (stick and stick[0] in view.coordinates[i].symbols) for i in range(len(view.size) - 1))

    rank = max(len(v.size) + (0 if has_room(v) else 1) for v in views)
    return tuple(
        _with_tile(View((1,) * (rank - len(v.size)) + v.size, (Coordinate(),) * (rank - len(v.size)) + v.coordinates)) for v in views
    )


def _with_tile(view: View) -> View:
    """A stick's loop has a tile dimension too, even where one stick holds all of it."""
    symbols = view.coordinates[-1].symbols
    outer = range(len(view.size) - 1)
    if len(symbols) != 1 or any(symbols[0] in view.coordinates[i].symbols for i in outer):
        return view
    slot = next((i for i in outer if _free(view, i)), None)
    if slot is None:
        return view
    coordinates = list(view.coordinates)
    coordinates[slot] = _along(symbols[0], 0, view.size[-1])
    return View(view.size, tuple(coordinates))


def align(
    loops: Mapping[Symbol, int], cores: Mapping[Symbol, int], views: Sequence[View], repeated: frozenset[Symbol] = frozenset()
) -> Aligned:
    """Final loops and operand views of an op with the given loops (extents in elements), planned splits, and views (output last).

    `repeated`: loops that wrap around inside an operand (`repeat`). Raises Refusal for a view that the device has no loops for.
    """
    extents = dict(loops)
    fresh = _Fresh()
    operands: list[list[_Piece]] = []
    for view in views:
        fresh.used = 0
        last = len(view.size) - 1
        pieces = [
            p for i, (c, n) in enumerate(zip(view.coordinates, view.size, strict=True)) for p in _pieces(c, n, i == last, extents, fresh)
        ]
        operands.append(_fuse(pieces))
    pinned = list(fresh.made)
    fresh.used = len(fresh.made)
    bounds = _bounds(operands, extents, repeated)
    for symbol in pinned:
        operands = [p if any(q.symbol == symbol for q in p) else [_Piece(1, symbol), *p] for p in operands]
    parts, final = _cut(extents, cores, bounds, fresh)
    try:
        resolved = [_view(pieces, bounds, parts) for pieces in operands]
    except ValueError:
        raise _unsupported("ValueError@_inductor/views.py:align_tensors", "two operands cut a loop at places that do not nest") from None
    return Aligned(final, _level(resolved))
