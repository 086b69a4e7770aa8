"""Reductions over the reals at symbolic sizes: folds over an index, without the part of its range where the body changes nothing.

A sum of a padded operand is a sum over a longer range whose body is zero beyond the old size; a product with a permutation matrix is a sum whose
body is zero but at one place. Cutting such ranges is what makes both sides of a padding or a permutation rule the same fold.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from adapterc.dsl.poly import ONE, Poly, number, symbol
from adapterc.verify import index_layout as L
from adapterc.verify.index_facts import ZERO, Undecided, atoms, linear
from adapterc.verify.index_terms import Apply, Choice, Const, Element, Fold, Place, Symbolic, renamed

if TYPE_CHECKING:
    from adapterc.verify.index_run import SymbolicRun, Value

IDENTITIES = {"sum": Const(Fraction(0)), "prod": Const(Fraction(1)), "amax": Const("-inf"), "amin": Const("inf")}
MOST_PIECES = 12


def reduce(run: SymbolicRun, op: str, values: dict[str, Value]) -> Symbolic:
    x = run.tensor(values["x"])
    if values.get("dtype") is not None:
        raise Undecided("a sum in another format")
    rank, dim = len(x.shape), values.get("dim")
    dims = range(rank) if dim in (None, ()) else [L.axis(run, d, rank) for d in (dim if isinstance(dim, tuple) else (dim,))]
    axes = sorted(set(dims))
    keep = values.get("keepdim") is True
    shape = tuple(ONE if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes)

    def at(place: Place) -> Element:
        return _folded(run, op, x, axes, [] if keep else axes, list(place))

    return Symbolic(shape, at, x.element)


def _folded(run: SymbolicRun, op: str, x: Symbolic, axes: list[int], missing: list[int], place: list[Poly]) -> Element:
    if not axes:
        return x.at(tuple(place))
    axis, rest = axes[0], axes[1:]
    run.depth += 1
    bound = x.shape[axis]
    variable = f"k{run.depth}<{bound}"
    with run.scope():
        at = run.facts.index(variable, bound)
        grown = [*place[:axis], at, *(place[axis:] if axis in missing else place[axis + 1 :])]
        body = _folded(run, op, x, rest, missing, grown)
        body = _trimmed(run, op, variable, bound, body)
    run.depth -= 1
    return body


def matmul(run: SymbolicRun, a: Symbolic, b: Symbolic) -> Symbolic:
    if not a.shape or len(b.shape) < 2:
        raise Undecided("a product with a vector on the right")
    if len(a.shape) == 1:
        rows = matmul(run, L.unsqueeze(run, a, ZERO), b)
        return L.select(run, rows, number(-2), ZERO)
    run.same_size(a.shape[-1], b.shape[-2], "the inner sizes of a product")
    lead = L.broadcast(run, [a.shape[:-2], b.shape[:-2]])
    bound = a.shape[-1]

    def at(place: Place) -> Element:
        run.depth += 1
        variable = f"k{run.depth}<{bound}"
        with run.scope():
            k = run.facts.index(variable, bound)
            x = a.at((*L.seen(place[:-2], a.shape[:-2]), place[-2], k))
            y = b.at((*L.seen(place[:-2], b.shape[:-2]), k, place[-1]))
            body = _trimmed(run, "sum", variable, bound, run.applied("mul", (), [x, y]))
        run.depth -= 1
        return body

    return Symbolic((*lead, a.shape[-2], b.shape[-1]), at, a.element)


def _trimmed(run: SymbolicRun, op: str, variable: str, bound: Poly, body: Element) -> Element:
    """The fold by cases that do not depend on its variable, each without the part of its range where the body is the op's identity."""
    if bound == ONE:
        return renamed(body, variable, ZERO) or Fold(op, variable, bound, body)
    pieces = pieces_of(body)
    if pieces is None:
        return Fold(op, variable, bound, body)
    free = next((c for conditions, _ in pieces for c in conditions if variable not in atoms(c)), None)
    if free is not None:
        return run.choose(
            free,
            lambda: _trimmed(run, op, variable, bound, resolved(body, free, True)),
            lambda: _trimmed(run, op, variable, bound, resolved(body, free, False)),
        )
    live = [p for p in pieces if p[1] != IDENTITIES[op]]
    if not live:
        return IDENTITIES[op]
    if len(pieces) == 1 or (len(live) > 1 and op != "sum"):
        return Fold(op, variable, bound, body)
    parts = [_part(run, op, variable, bound, conditions, leaf) for conditions, leaf in live]
    total = parts[0]
    for part in parts[1:]:
        total = None if total is None or part is None else Apply("add", (), (total, part))
    return total if total is not None else Fold(op, variable, bound, body)


def _part(run: SymbolicRun, op: str, variable: str, bound: Poly, conditions: tuple[Poly, ...], leaf: Element) -> Element | None:
    """The fold over the places that the conditions leave, if these are one range; None where they are not shown to be."""
    low, high = ZERO, bound
    for condition in conditions:
        split = linear(condition, variable)
        if split is None or split[0].constant not in (1, -1):
            return None
        end = split[1] + ONE if split[0].constant == -1 else -split[1]
        if split[0].constant == -1:
            if run.facts.shown(high - end):
                high = end
            elif not run.facts.shown(end - high):
                return None
        elif run.facts.shown(end - low):
            low = end
        elif not run.facts.shown(low - end):
            return None
    if not run.facts.shown(low) or not run.facts.shown(bound - high) or not run.facts.shown(high - low):
        return None
    if high - low == ONE:
        return renamed(leaf, variable, low)
    short = f"{variable.split('<')[0]}<{high - low}"
    run.facts.below(short, high - low)
    moved = renamed(leaf, variable, symbol(short) + low)
    return None if moved is None else Fold(op, short, high - low, moved)


def simplified(op: str, args: list[Element]) -> Element | None:
    """Over the reals: zero times anything is zero, and zero, one and -inf are the identities that they are."""
    zero, one = Const(Fraction(0)), Const(Fraction(1))
    if op == "mul" and zero in args:
        return zero
    for unit, name in ((one, "mul"), (zero, "add")):
        if op == name and unit in args:
            return args[1] if args[0] == unit else args[0]
    if op in ("sub", "div") and args[1] == (zero if op == "sub" else one):
        return args[0]
    if op == "exp" and args[0] == Const("-inf"):
        return zero
    if op == "neg" and isinstance(args[0], Const) and isinstance(args[0].payload, Fraction):
        return Const(-args[0].payload)
    if op == "to" and isinstance(args[0], Const) and not isinstance(args[0].payload, str):
        return Const(Fraction(args[0].payload))
    if op == "mul" and Const(Fraction(-1)) in args:
        return Apply("neg", (), (args[1] if args[0] == Const(Fraction(-1)) else args[0],))
    return None


Piece: TypeAlias = "tuple[tuple[Poly, ...], Element]"


def resolved(element: Element, condition: Poly, holds: bool) -> Element:
    """The element where the condition is known."""
    match element:
        case Choice(condition=own, then=then, other=other):
            if own == condition or own == -condition - ONE:
                return resolved(then if (own == condition) == holds else other, condition, holds)
            return Choice(own, resolved(then, condition, holds), resolved(other, condition, holds))
        case Apply(op=op, statics=statics, args=args):
            inner = [resolved(a, condition, holds) for a in args]
            return simplified(op, inner) or Apply(op, statics, tuple(inner))
    return element


def pieces_of(element: Element) -> list[Piece] | None:
    """The element by cases, every choice in it moved outwards; None where there are too many."""
    match element:
        case Choice(condition=condition, then=then, other=other):
            a, b = pieces_of(then), pieces_of(other)
            if a is None or b is None or len(a) + len(b) > MOST_PIECES:
                return None
            return [((condition, *c), e) for c, e in a] + [((-condition - ONE, *c), e) for c, e in b]
        case Apply(op=op, statics=statics, args=args):
            found: list[tuple[tuple[Poly, ...], list[Element]]] = [((), [])]
            for arg in args:
                inner = pieces_of(arg)
                if inner is None or len(found) * len(inner) > MOST_PIECES:
                    return None
                found = [
                    ((*c, *(n for n in d if n not in c)), [*xs, x])
                    for c, xs in found
                    for d, x in inner
                    if not any(-n - ONE in c for n in d)
                ]
            return [(c, simplified(op, xs) or Apply(op, statics, tuple(xs))) for c, xs in found]
    return [((), element)]
