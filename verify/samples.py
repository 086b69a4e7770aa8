"""Values to try: many samples of every input element at once, each sample of a known kind.

Drawn with a fixed seed, so that every verdict can be reproduced. Besides ordinary numbers they have what real models have and random
numbers lack: near-constant rows, one outlier of 1e4, rows all masked, zeros of both signs, tiny values, the ends of the format, NaN, ±inf.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.verify.formats import FORMATS, Wide, round_to
from adapterc.verify.instances import Instance
from adapterc.verify.terms import Term, ordered

ORDINARY, SPECIAL, EXTREME, NONFINITE = 0, 1, 2, 3
KIND_NAMES = ("ordinary values", "special values", "the ends of the format", "non-finite values")
SPECIALS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1.5,
    -1.5,
    2.5,
    8.0,
    -8.0,
    100.0,
    -100.0,
    1e4,
    -1e4,
    1e-3,
    -1e-3,
    1e-9,
    -1e-9,
)
# Numbers bound from a graph are exponents, scales, bounds and slopes: small, often whole.
NUMBERS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 4.0, 0.25, 1.5, 100.0, 1e-3)
BUDGET = 60_000  # samples times terms beyond which samples are thinned out
MODES = ("mixed", "positive", "negative")


@dataclass(frozen=True, slots=True)
class Batch:
    """`values` by variable serial; `kind` per sample."""

    values: Mapping[int, Wide]
    kind: NDArray[np.int8]

    @property
    def count(self) -> int:
        return len(self.kind)

    def only(self, mask: NDArray[Any]) -> Batch:
        return Batch({s: v[mask] for s, v in self.values.items()}, self.kind[mask])

    def rounded(self, instance: Instance, format_name: str) -> Batch:
        """The same samples in the format under test (inputs of a fixed dtype keep it)."""
        result: dict[int, Wide] = {}
        for tensor in instance.inputs.values():
            for term in tensor.cells.reshape(-1):
                values = self.values[term.serial]
                result[term.serial] = _representable(values, term.dtype, format_name)
        return Batch(result, self.kind)


def _representable(values: Wide, dtype: str, format_name: str) -> Wide:
    if dtype == "bool" or dtype.startswith(("int", "uint")):
        return values
    return round_to(values, FORMATS[{"float": format_name, "weak": "float64"}.get(dtype, dtype)])


def draw(instance: Instance, seed: int = 0, rounds: int = 6, format_name: str = "float32") -> Batch:
    """Samples for every input of `instance`, representable in `format_name`."""
    rng = np.random.default_rng(seed)
    limits = index_limits(instance)
    groups = {name: list(tensor.cells.reshape(-1)) for name, tensor in instance.inputs.items()}
    shapes = {name: tensor.shape for name, tensor in instance.inputs.items()}
    columns: list[tuple[int, dict[str, Wide]]] = []
    floats = [n for n, ts in groups.items() if ts and _is_float(ts[0])]
    combos = (
        list(itertools.product(MODES, repeat=len(floats)))
        if len(floats) <= 3 and len(instance.arena.nodes) < 400
        else [(m,) * len(floats) for m in MODES]
    )
    for repeat in range(rounds):
        for combo in combos:
            mode = dict(zip(floats, combo, strict=True))
            columns.append((ORDINARY, {n: _ordinary(rng, ts, shapes[n], mode.get(n, "mixed"), repeat, limits) for n, ts in groups.items()}))
    plans = [(SPECIAL, _special), (EXTREME, _extreme), (NONFINITE, _nonfinite)]
    for kind, function in plans:
        for repeat in range(rounds * (8 if kind == NONFINITE else 6)):
            columns.append((kind, {n: function(rng, ts, shapes[n], repeat, limits) for n, ts in groups.items()}))
    stride = max(1, len(columns) * len(instance.arena.nodes) // BUDGET)
    columns = [c for kind in range(4) for c in [c for c in columns if c[0] == kind][:: min(stride, 6)]]
    values: dict[int, Wide] = {}
    for name, terms in groups.items():
        stacked = np.stack([c[name] for _, c in columns], axis=-1) if terms else np.zeros((0, len(columns)))
        for i, term in enumerate(terms):
            values[term.serial] = _representable(stacked[i].astype(np.longdouble), term.dtype, format_name)
    return Batch(values, np.array([k for k, _ in columns], dtype=np.int8))


def grid(instance: Instance, points: Wide) -> Batch:
    """One-variable claims: every input element takes the same value, one sample a point."""
    kind = np.where(np.isfinite(points), ORDINARY, NONFINITE).astype(np.int8)
    return Batch({t.serial: points for tensor in instance.inputs.values() for t in tensor.cells.reshape(-1)}, kind)


def _is_float(term: Term) -> bool:
    return term.dtype != "bool" and not term.dtype.startswith(("int", "uint"))


def index_limits(instance: Instance) -> Mapping[int, int]:
    """How many items an integer input selects from, so that drawn indices are in range; negative where it names places to write."""
    limits: dict[int, int] = {}
    roots = [
        t for pair in ([*instance.left.cells.reshape(-1)], [*(instance.right.cells.reshape(-1) if instance.right else [])]) for t in pair
    ]
    for term in ordered(roots):
        if term.op == "select":
            for inner in _sources(term.args[0]):
                limits[inner.serial] = min(abs(limits.get(inner.serial, 10**9)), len(term.args) - 1)
        elif term.op == "eq" and term.dtype == "bool":
            # One-hot and scattered writes compare an index with every position.
            for index, place in (term.args, term.args[::-1]):
                if index.op == "var" and index.dtype.startswith("int") and place.op == "const" and isinstance(place.payload, int):
                    limits[index.serial] = -max(abs(limits.get(index.serial, 1)), place.payload + 1)
    return limits


def _sources(term: Term) -> Iterable[Term]:
    return (t for t in ordered([term]) if t.op == "var" and t.dtype.startswith("int"))


def _discrete(rng: np.random.Generator, terms: list[Term], repeat: int, limits: Mapping[int, int]) -> Wide:
    if terms[0].dtype == "bool":
        if repeat % 5 == 3:
            return np.zeros(len(terms), dtype=np.longdouble)
        if repeat % 5 == 4:
            return np.ones(len(terms), dtype=np.longdouble)
        return np.asarray(rng.random(len(terms)) < rng.choice([0.3, 0.7]), dtype=np.longdouble)
    tops = np.array([abs(limits.get(t.serial, 0)) for t in terms])
    if tops.all():
        # Negative limits mark places that are written: these are distinct, as index_copy and scatter ask.
        written = any(limits.get(t.serial, 0) < 0 for t in terms)
        room = int(tops.max()) - len(terms)
        if written and repeat % 3 == 2 and room >= 0:
            # A run of neighbouring places, as a cache is written.
            return np.asarray(rng.integers(room + 1) + np.arange(len(terms)), dtype=np.longdouble)
        if (written or repeat % 2) and len(set(tops)) == 1 and len(terms) <= tops[0]:
            return np.asarray(rng.permutation(int(tops[0]))[: len(terms)], dtype=np.longdouble)
        return np.asarray((rng.random(len(terms)) * tops).astype(np.int64), dtype=np.longdouble)
    if repeat % 7 == 5:
        # Beyond the whole numbers that float32 holds, and odd.
        return rng.choice([2.0**24 + 1, -(2.0**24) - 1, 2.0**25 + 3, 7.0, -7.0], size=len(terms)).astype(np.longdouble)
    low, high = ((-9, 10), (0, 10), (1, 100), (-100, 0))[repeat % 4]
    return rng.integers(low, high, len(terms)).astype(np.longdouble)


def _ordinary(
    rng: np.random.Generator, terms: list[Term], shape: tuple[int, ...], mode: str, repeat: int, limits: Mapping[int, int]
) -> Wide:
    if not terms:
        return np.zeros(0, dtype=np.longdouble)
    if not _is_float(terms[0]):
        found = _discrete(rng, terms, repeat, limits)
        if terms[0].dtype != "bool" and not any(t.serial in limits for t in terms) and mode != "mixed":
            found = np.abs(found) + 1 if mode == "positive" else -np.abs(found) - 1
        return found
    values = rng.standard_normal(len(terms)) * (1.0, 3.0, 0.3, 1.0, 10.0, 1.0)[repeat % 6]
    if terms[0].dtype == "weak" and repeat % 2:
        values = rng.choice(NUMBERS[1:], size=len(terms))
        return {"mixed": values, "positive": np.abs(values), "negative": -np.abs(values)}[mode].astype(np.longdouble)
    if repeat % 6 == 3:
        values = np.rint(values * 3)
    elif repeat % 6 in (1, 4) and shape and len(terms) > 1:
        # Rows whose sum is exactly zero: what a subtracted mean leaves.
        rows = values.reshape((-1, shape[-1]))
        values = (rows - rows[:, ::-1]).reshape(-1)
    elif repeat % 6 == 5 and shape:
        # A near-constant row far from zero: where variances cancel.
        values = 100.0 + values * 1e-2
    return {"mixed": values, "positive": np.abs(values) + 1e-2, "negative": -np.abs(values) - 1e-2}[mode].astype(np.longdouble)


def _special(rng: np.random.Generator, terms: list[Term], shape: tuple[int, ...], repeat: int, limits: Mapping[int, int]) -> Wide:
    if not terms or not _is_float(terms[0]):
        return _discrete(rng, terms, repeat + 3, limits) if terms else np.zeros(0, dtype=np.longdouble)
    if terms[0].dtype == "weak":
        return rng.choice(NUMBERS, size=len(terms)).astype(np.longdouble)
    match repeat % 6:
        case 0:
            values = np.full(len(terms), rng.choice(SPECIALS))
        case 1:
            values = rng.standard_normal(len(terms))
            values[rng.integers(len(terms))] = rng.choice([1e4, -1e4])
        case 2:
            values = rng.standard_normal(len(terms)) * rng.choice([50.0, 150.0])
        case 3:
            values = rng.choice([-1e4, -2e4, 2e4, 3.0], size=len(terms))
        case _:
            values = rng.choice(SPECIALS, size=len(terms))
    return values.astype(np.longdouble)


def _extreme(rng: np.random.Generator, terms: list[Term], shape: tuple[int, ...], repeat: int, limits: Mapping[int, int]) -> Wide:
    if not terms or not _is_float(terms[0]) or terms[0].dtype == "weak":
        return _special(rng, terms, shape, repeat, limits)
    target = FORMATS.get(terms[0].dtype, FORMATS["float32"])
    ends = np.array([target.largest, -target.largest, target.tiny, -target.tiny, target.tiny * target.epsilon, 1.0, 0.0])
    if repeat % 3 == 0:
        return np.full(len(terms), ends[repeat // 3 % 2], dtype=np.longdouble)
    if repeat % 3 == 1:
        row = rng.standard_normal(len(terms))
        row[rng.random(len(terms)) < 0.6] = -target.largest
        return row.astype(np.longdouble)
    return rng.choice(ends, size=len(terms)).astype(np.longdouble)


def _nonfinite(rng: np.random.Generator, terms: list[Term], shape: tuple[int, ...], repeat: int, limits: Mapping[int, int]) -> Wide:
    if not terms or not _is_float(terms[0]) or terms[0].dtype == "weak":
        return _ordinary(rng, terms, shape, "mixed", repeat, limits)
    values = rng.choice([0.0, 1.0, -1.0, 2.0, -0.5], size=len(terms))
    match repeat % 8:
        case 0:
            values[:] = -np.inf
        case 1:
            values[rng.random(len(terms)) < 0.6] = -np.inf
        case 2:
            values[rng.integers(len(terms))] = np.nan
        case 3:
            values[rng.integers(len(terms))] = np.inf
        case 4:
            # One whole leading slice: a row all masked.
            lead = max(1, len(terms) // (shape[0] if shape else 1))
            values[:lead] = -np.inf
        case 5:
            values = rng.choice([np.inf, -np.inf, np.nan, 0.0, 1.0, -1.0], size=len(terms))
        case 6:
            values[:] = np.inf if repeat % 16 < 8 else np.nan
        case _:
            if rng.random() < 0.5:
                values[rng.integers(len(terms))] = rng.choice([np.inf, -np.inf, np.nan])
    return values.astype(np.longdouble)
