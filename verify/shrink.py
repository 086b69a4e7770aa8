"""Makes a counterexample small: the fewest elements, then the plainest values on which the sides still part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.verify.compare import over_reals
from adapterc.verify.instances import Instance
from adapterc.verify.samples import NONFINITE, ORDINARY, Batch
from adapterc.verify.tensors import Tensor
from adapterc.verify.terms import Term, variables
from adapterc.verify.verdict import Counterexample

Mask = NDArray[Any]
Test = Callable[[Batch], Mask]  # per sample: do the sides still part?
PLAIN = (0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5)
MOST_ELEMENTS = 48


def shrunk(instance: Instance, batch: Batch, index: int, test: Test) -> Batch:
    """The one sample `index` with its values made plain one at a time, as long as `test` keeps finding a difference."""
    current = {serial: values[index] for serial, values in batch.values.items()}
    roots = list(instance.left.cells.reshape(-1)) + (list(instance.right.cells.reshape(-1)) if instance.right else [])
    used = {t.serial for t in variables(roots)}
    kind = int(batch.kind[index])
    whole = {
        t.serial for x in instance.inputs.values() for t in x.cells.reshape(-1) if t.dtype == "bool" or t.dtype.startswith(("int", "uint"))
    }
    for serial in list(current)[:MOST_ELEMENTS]:
        options = [v for v in _options(current[serial]) if serial not in whole or v == int(v)]
        if serial not in used:
            current[serial] = np.longdouble(0)
            continue
        trial = {s: np.full(len(options), v, dtype=np.longdouble) for s, v in current.items()}
        trial[serial] = np.array(options, dtype=np.longdouble)
        parted = test(Batch(trial, np.full(len(options), kind, dtype=np.int8)))
        if parted.any():
            current[serial] = np.longdouble(options[int(np.argmax(parted))])
    return Batch({s: np.array([v], dtype=np.longdouble) for s, v in current.items()}, np.array([kind], dtype=np.int8))


def _options(value: np.longdouble) -> Sequence[float]:
    number = float(value)
    if not np.isfinite(number):
        return (0.0, 1.0, number)
    rounded = [round(number, digits) for digits in (0, 1, 3)]
    return (*PLAIN, *rounded, number)


def counterexample(
    instance: Instance, sample: Batch, left: Sequence[object], right: Sequence[object], apart: Mask, format_name: str
) -> Counterexample:
    """Describe one sample: `left`, `right` and `apart` per output element."""
    place = int(np.argmax(apart))
    shape = instance.left.shape
    return Counterexample(
        tuple(sorted((k, v) for k, v in instance.sizes.items())),
        tuple((name, _written(tensor, sample.values)) for name, tensor in instance.inputs.items()),
        tuple(int(i) for i in np.unravel_index(place, shape)) if shape else (),
        number_text(left[place]),
        number_text(right[place]),
        format_name,
        instance.rest,
    )


def _written(tensor: Tensor, values: Mapping[int, NDArray[Any]]) -> str:
    """A tensor as nested lists, as it would be written in Python."""

    def write(cells: NDArray[Any]) -> str:
        if cells.ndim == 0:
            term: Term = cells.reshape(-1)[0]
            value = values[term.serial][0]
            return ("True" if value else "False") if term.dtype == "bool" else exact_text(value)
        return "[" + ", ".join(write(c if isinstance(c, np.ndarray) else _boxed(c)) for c in cells) + "]"

    return write(tensor.cells)


def _boxed(term: object) -> NDArray[Any]:
    box = np.empty((), dtype=object)
    box[()] = term
    return box


def number_text(value: object) -> str:
    number = float(value) if isinstance(value, int | float | np.longdouble | Fraction | np.generic) else float("nan")
    return f"{number:.6g}" if np.isfinite(number) else str(number)


def exact_text(value: object) -> str:
    """The shortest text that reads back as the same double, so that a certificate's counterexample can be run again."""
    short = number_text(value)
    if isinstance(value, int | float | np.longdouble | np.generic):
        number = float(value)
        return short if float(short) == number or not np.isfinite(number) else repr(number)
    return short


def real_test(instance: Instance) -> Test:
    """Sides that part over the reals (root by root)."""

    def test(batch: Batch) -> Mask:
        return np.asarray(over_reals(instance, instance.pairs, batch).apart.any(axis=0))

    return test


def best_sample(instance: Instance, batch: Batch, bad: Mask) -> int:
    """The plainest bad sample: ordinary before special before extreme."""
    where = np.flatnonzero(bad)
    order = np.where(batch.kind[where] == NONFINITE, 9, batch.kind[where])
    weight = [sum(abs(float(v[i])) if np.isfinite(float(v[i])) else 1e9 for v in batch.values.values()) for i in where[:200]]
    return int(where[min(range(len(where[:200])), key=lambda k: (order[k] if order[k] != ORDINARY else 0, weight[k]))])
