"""The ops that only move elements, at symbolic sizes: the shape of the result, and the place of the operand that each of its places reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from adapterc.dsl.poly import ONE, Poly, number
from adapterc.verify.index_facts import MINUS_ONE, ZERO, NoValue, Refine, Undecided, exact_quotient, fractions_of, halves, whole
from adapterc.verify.index_terms import Element, Place, Symbolic

if TYPE_CHECKING:
    from adapterc.verify.index_run import SymbolicRun, Value

Sizes: TypeAlias = tuple[Poly, ...]


def axis(run: SymbolicRun, dim: Value, rank: int) -> int:
    found = run.static(dim)
    if not -max(rank, 1) <= found < max(rank, 1):
        raise NoValue(f"dimension {found} of {rank}")
    return found % rank if rank else 0


def product(items: Sequence[Poly]) -> Poly:
    total = ONE
    for item in items:
        total = total * item
    return total


def broadcast(run: SymbolicRun, shapes: Sequence[Sizes]) -> Sizes:
    rank = max((len(s) for s in shapes), default=0)
    result: list[Poly] = []
    for back in range(rank, 0, -1):
        size = ONE
        for shape in shapes:
            other = shape[-back] if back <= len(shape) else ONE
            if other in (ONE, size):
                continue
            if size == ONE:
                size = other
            else:
                run.same_size(size, other, "shapes that do not broadcast") if run.obliged else _undecided_unless(run, size, other)
        result.append(size)
    return tuple(result)


def _undecided_unless(run: SymbolicRun, a: Poly, b: Poly) -> None:
    # On the left either could be 1 at some sizes, so that nothing may be assumed.
    if not run.facts.zero(a - b):
        raise Undecided(f"{a} and {b} may broadcast in more than one way")


def seen(place: Place, shape: Sizes) -> Place:
    """The place in an operand of `shape` of a place in the broadcast result."""
    tail = place[len(place) - len(shape) :]
    return tuple(ZERO if n == ONE else p for p, n in zip(tail, shape, strict=True))


def like(x: Symbolic, shape: Sizes, at: Callable[[Place], Element]) -> Symbolic:
    return Symbolic(shape, at, x.element)


def permute(run: SymbolicRun, x: Symbolic, dims: Value) -> Symbolic:
    order = [axis(run, d, len(x.shape)) for d in (dims if isinstance(dims, tuple) else (dims,))]
    if sorted(order) != list(range(len(x.shape))):
        raise NoValue("no permutation of the dimensions")
    return like(x, tuple(x.shape[d] for d in order), lambda place: x.at(tuple(place[order.index(d)] for d in range(len(order)))))


def transpose(run: SymbolicRun, x: Symbolic, a: Value, b: Value) -> Symbolic:
    order = list(range(len(x.shape)))
    i, j = axis(run, a, len(order)), axis(run, b, len(order))
    order[i], order[j] = order[j], order[i]
    return permute(run, x, tuple(number(d) for d in order))


def movedim(run: SymbolicRun, x: Symbolic, source: Value, destination: Value) -> Symbolic:
    rank = len(x.shape)
    i, j = axis(run, source, rank), axis(run, destination, rank)
    order = [d for d in range(rank) if d != i]
    order.insert(j, i)
    return permute(run, x, tuple(number(d) for d in order))


def unsqueeze(run: SymbolicRun, x: Value, dim: Value) -> Symbolic:
    operand = run.tensor(x)
    at = axis(run, dim, len(operand.shape) + 1)
    shape = (*operand.shape[:at], ONE, *operand.shape[at:])
    return like(operand, shape, lambda place: operand.at((*place[:at], *place[at + 1 :])))


def squeeze(run: SymbolicRun, x: Symbolic, dim: Value) -> Symbolic:
    for at in sorted({axis(run, d, len(x.shape)) for d in (dim if isinstance(dim, tuple) else (dim,))}, reverse=True):
        if x.shape[at] == ONE:
            x = _dropped(x, at, ZERO)
        elif not run.facts.shown(x.shape[at] - ONE - ONE):
            raise Undecided("a dimension that may be 1 or not")
    return x


def _dropped(x: Symbolic, at: int, index: Poly) -> Symbolic:
    return like(x, (*x.shape[:at], *x.shape[at + 1 :]), lambda place: x.at((*place[:at], index, *place[at:])))


def select(run: SymbolicRun, x: Symbolic, dim: Value, index: Value) -> Symbolic:
    at, i = axis(run, dim, len(x.shape)), run.size(index)
    i = from_end(run, i, x.shape[at])
    run.need(x.shape[at] - ONE - i, "an index beyond the size")
    return _dropped(x, at, i)


def from_end(run: SymbolicRun, bound: Poly, size: Poly) -> Poly:
    """A bound counted from the start: negative ones count from the end."""
    sign = run.facts.sign(bound)
    if sign is None:
        if run.obliged:
            sign = True if run.facts.shown(bound, hard=True) else None
        if sign is None:
            raise Undecided(f"{bound} may count from the start or from the end")
    found = bound if sign else bound + size
    run.need(found, "an index before the start")
    return found


def sliced(run: SymbolicRun, x: Symbolic, at: int, start: Poly | None, stop: Poly | None, step: int = 1) -> Symbolic:
    size = x.shape[at]
    low = ZERO if start is None else from_end(run, start, size)
    high = size if stop is None else from_end(run, stop, size)
    if step < 1:
        raise NoValue("a slice step below 1")
    for bound in (low, high):
        run.need(size - bound, "a slice bound beyond the size")
    if not run.facts.shown(high - low, hard=run.obliged):
        raise Undecided("a slice that may be empty or backwards")
    length = high - low
    if step > 1:
        over = number(step)
        grown = length + number(step - 1)
        try:
            length = run.facts.divide(grown, over)[0]
        except Undecided:
            for name, denominator in fractions_of(exact_quotient(length, over) or ZERO):
                raise Refine(halves(name, denominator)) from None
            raise
    shape = (*x.shape[:at], length, *x.shape[at + 1 :])
    return like(x, shape, lambda place: x.at((*place[:at], place[at] * number(step) + low, *place[at + 1 :])))


def slice_op(run: SymbolicRun, x: Symbolic, dim: Value, start: Value = None, stop: Value = None, step: Value = ONE) -> Symbolic:
    low, high = (None if b is None else run.size(b) for b in (start, stop))
    return sliced(run, x, axis(run, dim, len(x.shape)), low, high, run.static(step))


def narrow(run: SymbolicRun, x: Symbolic, dim: Value, start: Value, length: Value) -> Symbolic:
    low = run.size(start)
    return sliced(run, x, axis(run, dim, len(x.shape)), low, low + run.size(length))


def split_sizes_piece(run: SymbolicRun, x: Symbolic, sizes: Value, index: Value, dim: Value = ZERO) -> Symbolic:
    at, which = axis(run, dim, len(x.shape)), run.static(index)
    parts = [run.size(n) for n in (sizes if isinstance(sizes, tuple) else ())]
    if not 0 <= which < len(parts):
        raise NoValue("no such piece")
    run.same_size(sum(parts, ZERO), x.shape[at], "pieces that do not fill the dimension")
    low = sum(parts[:which], ZERO)
    return sliced(run, x, at, low, low + parts[which])


def cat(run: SymbolicRun, tensors: Value, dim: Value = ZERO) -> Symbolic:
    items = [run.tensor(t) for t in (tensors if isinstance(tensors, tuple) else ())]
    if not items or len({len(t.shape) for t in items}) != 1 or not items[0].shape:
        raise NoValue("tensors of several ranks")
    if len({t.element for t in items}) != 1:
        raise Undecided("a concatenation that converts")
    at = axis(run, dim, len(items[0].shape))
    for other in items[1:]:
        for d, (m, n) in enumerate(zip(items[0].shape, other.shape, strict=True)):
            if d != at:
                run.same_size(m, n, "sizes that differ outside the dimension joined")
    total = sum((t.shape[at] for t in items), ZERO)

    def pick(place: Place, which: int, start: Poly) -> Element:
        item = items[which]

        def here() -> Element:
            return item.at((*place[:at], place[at] - start, *place[at + 1 :]))

        if which == len(items) - 1:
            return here()
        end = start + item.shape[at]
        return run.choose(end - ONE - place[at], here, lambda: pick(place, which + 1, end))

    return like(items[0], (*items[0].shape[:at], total, *items[0].shape[at + 1 :]), lambda place: pick(place, 0, ZERO))


def pad(run: SymbolicRun, x: Symbolic, dim: Value, before: Value, after: Value, value: Value = ZERO) -> Symbolic:
    at = axis(run, dim, len(x.shape))
    fill, size = run.tensor(value), x.shape[at]
    front, back = run.size(before), run.size(after)
    for amount in (front, back):
        sign = run.facts.sign(amount, hard=run.obliged)
        if sign is None:
            raise Undecided(f"{amount} may pad or cut")
        if not sign:
            run.need(size + amount, "a cut beyond the size")
    run.need(size + front + back, "a cut beyond the size")

    def at_place(place: Place) -> Element:
        source = place[at] - front

        def inside() -> Element:
            return x.at((*place[:at], source, *place[at + 1 :]))

        def padding() -> Element:
            return fill.at(())

        return run.choose(source, lambda: run.choose(size - ONE - source, inside, padding), padding)

    return like(x, (*x.shape[:at], size + front + back, *x.shape[at + 1 :]), at_place)


def expand(run: SymbolicRun, x: Symbolic, sizes: Value) -> Symbolic:
    given = [run.size(n) for n in (sizes if isinstance(sizes, tuple) else (sizes,))]
    lead = len(given) - len(x.shape)
    if lead < 0:
        raise NoValue("expanded to fewer dimensions")
    shape = tuple(x.shape[i - lead] if n == number(-1) and i >= lead else n for i, n in enumerate(given))
    for n, m in zip(shape[lead:], x.shape, strict=True):
        if m != ONE:
            run.same_size(n, m, "a size that cannot expand")
    return like(x, shape, lambda place: x.at(seen(place, x.shape)))


def repeat(run: SymbolicRun, x: Symbolic, repeats: Value) -> Symbolic:
    counts = [run.size(n) for n in (repeats if isinstance(repeats, tuple) else (repeats,))]
    lead = len(counts) - len(x.shape)
    if lead < 0:
        raise NoValue("repeated over fewer dimensions")
    sizes = (*(ONE for _ in range(lead)), *x.shape)

    def at(place: Place) -> Element:
        return x.at(tuple(ZERO if n == ONE else run.facts.divide(p, n)[1] for p, n in list(zip(place, sizes, strict=True))[lead:]))

    return like(x, tuple(c * n for c, n in zip(counts, sizes, strict=True)), at)


def repeat_interleave(run: SymbolicRun, x: Symbolic, repeats: Value, dim: Value) -> Symbolic:
    at, count = axis(run, dim, len(x.shape)), run.size(repeats)
    shape = (*x.shape[:at], x.shape[at] * count, *x.shape[at + 1 :])
    return like(x, shape, lambda place: x.at((*place[:at], run.facts.divide(place[at], count)[0], *place[at + 1 :])))


def flip(run: SymbolicRun, x: Symbolic, dims: Value) -> Symbolic:
    turned = {axis(run, d, len(x.shape)) for d in (dims if isinstance(dims, tuple) else (dims,))}
    return like(
        x,
        x.shape,
        lambda place: x.at(tuple(n - ONE - p if d in turned else p for d, (p, n) in enumerate(zip(place, x.shape, strict=True)))),
    )


def roll(run: SymbolicRun, x: Symbolic, shifts: Value, dims: Value) -> Symbolic:
    moves = shifts if isinstance(shifts, tuple) else (shifts,)
    places = dims if isinstance(dims, tuple) else (dims,)
    for move, dim in zip(moves, places, strict=True):
        x = _rolled(run, x, run.size(move), axis(run, dim, len(x.shape)))
    return x


def _rolled(run: SymbolicRun, x: Symbolic, shift: Poly, at: int) -> Symbolic:
    size = x.shape[at]

    def where(place: Place) -> Element:
        def read(index: Poly) -> Element:
            return x.at((*place[:at], index, *place[at + 1 :]))

        source = place[at] - shift
        if run.facts.shown(shift) and run.facts.shown(size - shift):
            return run.choose(source, lambda: read(source), lambda: read(source + size))
        if run.facts.shown(-shift) and run.facts.shown(size + shift):
            return run.choose(size - ONE - source, lambda: read(source), lambda: read(source - size))
        return read(run.facts.divide(source, size)[1])

    return like(x, x.shape, where)


def unfold(run: SymbolicRun, x: Symbolic, dim: Value, size: Value, step: Value) -> Symbolic:
    at, width, stride = axis(run, dim, len(x.shape)), run.size(size), run.size(step)
    run.need(width - ONE, "an empty window")
    run.need(stride - ONE, "a step below 1")
    run.need(x.shape[at] - width, "a window beyond the size")
    windows = run.facts.divide(x.shape[at] - width, stride)[0] + ONE
    shape = (*x.shape[:at], windows, *x.shape[at + 1 :], width)
    return like(x, shape, lambda place: x.at((*place[:at], place[at] * stride + place[-1], *place[at + 1 : -1])))


def diagonal(run: SymbolicRun, x: Symbolic, offset: Value = ZERO, a: Value = ZERO, b: Value = ONE) -> Symbolic:
    i, j = axis(run, a, len(x.shape)), axis(run, b, len(x.shape))
    if run.size(offset) != ZERO or i == j:
        raise Undecided("a diagonal beside the middle")
    run.same_size(x.shape[i], x.shape[j], "a diagonal of no square") if not run.facts.zero(x.shape[i] - x.shape[j]) else None
    kept = [d for d in range(len(x.shape)) if d not in (i, j)]

    def at(place: Place) -> Element:
        return x.at(tuple(place[-1] if d in (i, j) else place[kept.index(d)] for d in range(len(x.shape))))

    return like(x, (*(x.shape[d] for d in kept), x.shape[i]), at)


def reshape(run: SymbolicRun, x: Symbolic, sizes: Value) -> Symbolic:
    given = [run.size(n) for n in (sizes if isinstance(sizes, tuple) else (sizes,))]
    total = product(x.shape)
    if number(-1) in given:
        if given.count(number(-1)) > 1:
            raise NoValue("more than one size left open")
        known = product([n for n in given if n != number(-1)])
        rest = exact_quotient(total, known)
        if rest is None or (not whole(rest) and run.obliged):
            raise Undecided(f"{total} may not divide by {known}")
        given[given.index(number(-1))] = run.size(rest)
    shape = tuple(given)
    for n in shape:
        run.need(n, "a negative size")
    run.same_size(product(shape), total, "another number of elements")

    def at(place: Place) -> Element:
        for n in x.shape:
            run.facts.at_least_one(n)  # a place exists, so no size is 0
        return x.at(_moved(run, place, shape, x.shape))

    return like(x, shape, at)


def _moved(run: SymbolicRun, place: Place, shape: Sizes, source: Sizes) -> Place:
    """The place in `source` of a place in `shape`, the same elements in row-major order; equal groups of sizes keep to themselves."""
    found: list[Poly] = []
    i, j = len(shape), len(source)
    while i or j:
        first, second = i, j
        here, there = ONE, ONE
        while first == i or second == j or here != there:
            if first == 0 and second == 0:
                break
            if second and (first == 0 or (second == j and first != i) or _divides(here, there, first, i)):
                second -= 1
                there = there * source[second]
            else:
                first -= 1
                here = here * shape[first]
        offset = ZERO
        for p, n in zip(place[first:i], shape[first:i], strict=True):
            offset = offset * n + p
        group: list[Poly] = []
        for d in range(j - 1, second - 1, -1):
            if d == second:
                group.append(offset)
            else:
                offset, digit = run.facts.divide(offset, source[d])
                group.append(digit)
        found = [*reversed(group), *found]
        i, j = first, second
    return tuple(found)


def _divides(here: Poly, there: Poly, first: int, i: int) -> bool:
    """Whether the source side has fallen behind: it is a divisor of what the output side has gathered."""
    return first != i and here != there and exact_quotient(here, there) is not None


def flatten(run: SymbolicRun, x: Symbolic, start: Value = ZERO, end: Value = MINUS_ONE) -> Symbolic:
    first, last = axis(run, start, len(x.shape)), axis(run, end, len(x.shape))
    if first > last:
        raise NoValue("flatten ends before it starts")
    return reshape(run, x, (*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def unflatten(run: SymbolicRun, x: Symbolic, dim: Value, sizes: Value) -> Symbolic:
    at = axis(run, dim, len(x.shape))
    parts = [run.size(n) for n in (sizes if isinstance(sizes, tuple) else (sizes,))]
    if number(-1) in parts:
        known = product([n for n in parts if n != number(-1)])
        rest = exact_quotient(x.shape[at], known)
        if rest is None or (not whole(rest) and run.obliged):
            raise Undecided(f"{x.shape[at]} may not divide by {known}")
        parts[parts.index(number(-1))] = run.size(rest)
    run.same_size(product(parts), x.shape[at], "sizes that do not fill the dimension")
    return reshape(run, x, (*x.shape[:at], *parts, *x.shape[at + 1 :]))


def channel(run: SymbolicRun, v: Symbolic, like: Symbolic) -> Symbolic:
    return reshape(run, v, (*v.shape, *(ONE for _ in range(len(like.shape) - 2))))
