"""The table of ops that index algebra knows at symbolic sizes, with tensors made of numbers and indexing by numbers that places decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from adapterc.dsl.poly import ONE, Poly, number
from adapterc.verify import index_layout as L
from adapterc.verify.index_facts import ZERO, Undecided, whole
from adapterc.verify.index_terms import Choice, Const, Element, Place, Symbolic, Whole, position

if TYPE_CHECKING:
    from adapterc.verify.index_run import SymbolicRun, Value


def arange(run: SymbolicRun, stop: Value, start: Value = ZERO, step: Value = ONE, dtype: Value = None) -> Symbolic:
    low, stride = run.size(start), run.size(step)
    span = run.size(stop) - low
    run.need(span, "a range that ends before it starts")
    count = span if stride == ONE else run.facts.divide(span + stride - ONE, stride)[0]
    return Symbolic((count,), lambda place: Whole(low + place[0] * stride), "int64" if dtype is None else str(dtype))


def listed(run: SymbolicRun, values: Value, dtype: Value = None) -> Symbolic:
    items = [run.tensor(v) for v in (values if isinstance(values, tuple) else ())]

    def pick(place: Poly, which: int) -> Element:
        if which == len(items) - 1:
            return items[which].at(())
        return run.choose(number(which) - place, lambda: items[which].at(()), lambda: pick(place, which + 1))

    return Symbolic((number(len(items)),), lambda place: pick(place[0], 0), "int64" if dtype is None else str(dtype))


def full(run: SymbolicRun, sizes: Value, value: Value, dtype: Value = None) -> Symbolic:
    shape = tuple(run.size(n) for n in (sizes if isinstance(sizes, tuple) else (sizes,)))
    for n in shape:
        run.need(n, "a negative size")
    fill = run.tensor(value)
    return Symbolic(shape, lambda _: fill.at(()), "float" if dtype is None else str(dtype))


def index_select(run: SymbolicRun, x: Symbolic, dim: Value, index: Value) -> Symbolic:
    """Rows by numbers that positions decide; numbers that are data are Undecided."""
    at, ids = L.axis(run, dim, len(x.shape)), run.tensor(index)
    count = len(ids.shape)

    def read(place: Place, chosen: Element) -> Element:
        if isinstance(chosen, Choice):
            return run.choose(chosen.condition, lambda: read(place, chosen.then), lambda: read(place, chosen.other))
        where = position(chosen)
        if where is None or not whole(where):
            raise Undecided("an index that is data")
        where = L.from_end(run, where, x.shape[at])
        run.need(x.shape[at] - ONE - where, "an index beyond the size")
        return x.at((*place[:at], where, *place[at + count :]))

    shape = (*x.shape[:at], *ids.shape, *x.shape[at + 1 :])
    return L.like(x, shape, lambda place: read(place, ids.at(place[at : at + count])))


def _is_bool(x: Symbolic) -> bool:
    if x.element == "any":
        raise Undecided("a tensor that may hold truth values or numbers")
    return x.element == "bool"


def _finfo(which: str) -> Layout:
    return lambda run, dtype: Symbolic((), lambda _: Const(f"finfo {which} {dtype}"), "weak")


Layout: TypeAlias = Callable[..., Any]
LAYOUT: Mapping[str, Layout] = {
    "reshape": L.reshape,
    "flatten": L.flatten,
    "unflatten": L.unflatten,
    "permute": L.permute,
    "transpose": L.transpose,
    "movedim": L.movedim,
    "expand": L.expand,
    "expand_as": lambda run, x, like: L.expand(run, x, run.tensor(like).shape),
    "reshape_as": lambda run, x, like: L.reshape(run, x, run.tensor(like).shape),
    "repeat": L.repeat,
    "repeat_interleave": L.repeat_interleave,
    "squeeze": L.squeeze,
    "unsqueeze": L.unsqueeze,
    "select": L.select,
    "narrow": L.narrow,
    "slice": L.slice_op,
    "flip": L.flip,
    "roll": L.roll,
    "unfold": L.unfold,
    "diagonal": L.diagonal,
    "cat": L.cat,
    "split_sizes_piece": L.split_sizes_piece,
    "pad": L.pad,
    "channel": L.channel,
    "arange": arange,
    "tensor": listed,
    "full": full,
    "full_like": lambda run, x, value: full(run, run.tensor(x).shape, value, run.tensor(x).element),
    "take": lambda run, x, index: index_select(run, x, ZERO, index),
    "index_select": index_select,
    "size": lambda run, x, dim: run.tensor(x).shape[L.axis(run, dim, len(run.tensor(x).shape))],
    "numel": lambda run, x: L.product(run.tensor(x).shape),
    "rank": lambda run, x: number(len(run.tensor(x).shape)),
    "length": lambda run, values: number(len(values)),
    "is_bool": lambda run, x: _is_bool(run.tensor(x)),
    **{f"finfo_{which}": _finfo(which) for which in ("min", "max", "eps", "tiny")},
    "dtype_of": lambda run, x: run.tensor(x).element,
}
