"""Rules that differ only at ties: two equal largest values, two equal values in a sort, a number half-way between two integers.

Such places are an edge: the sides choose differently there and agree everywhere around. Any other exception at single points (x != 0) is a
condition of the rule, which a guard says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.verify import reals
from adapterc.verify.compare import Pairs, keeps, test_format
from adapterc.verify.instances import Instance
from adapterc.verify.samples import Batch
from adapterc.verify.terms import Term, ordered

Mask = NDArray[Any]
TRIALS = 4


Failing = Callable[[Instance, Pairs, Batch], Mask]  # the samples on which the sides part


def only_ties(
    instances: Sequence[Instance], pairs: Sequence[Pairs], batches: Sequence[Batch], bad: Sequence[Mask], failing: Failing
) -> bool:
    """Whether every bad sample has a tie, and none is failing after its values are moved a little apart."""
    if not any(b.any() for b in bad):
        return False
    return all(
        not mask.any() or _ties(instance, roots, batch.only(mask), failing)
        for instance, roots, batch, mask in zip(instances, pairs, batches, bad, strict=False)
    )


def _ties(instance: Instance, roots: Pairs, batch: Batch, failing: Failing) -> bool:
    if not _tied(instance, roots, batch).all():
        return False
    rng = np.random.default_rng(5)
    floats = {t.serial for tensor in instance.inputs.values() for t in tensor.cells.reshape(-1) if _is_float(t)}
    for _ in range(TRIALS):
        moved = {
            s: v * (1 + 1e-3 * rng.standard_normal(v.shape)) + 1e-6 * rng.standard_normal(v.shape) if s in floats else v
            for s, v in batch.values.items()
        }
        if failing(instance, roots, Batch(moved, batch.kind)).any():
            return False
    return True


def _tied(instance: Instance, roots: Pairs, batch: Batch) -> Mask:
    """The samples in which an op that breaks ties meets one."""
    terms = ordered([t for pair in roots for t in pair])
    values = reals.run([t for pair in roots for t in pair], batch.values, batch.count, test_format(instance), keeps(instance))
    found = np.zeros(batch.count, dtype=bool)
    for term in terms:
        if term.op in ("argmax", "argkth"):
            rows = np.sort(np.stack([np.broadcast_to(values[a.serial].value, (batch.count,)) for a in term.args]), axis=0)
            equal = rows[1:] == rows[:-1]
            found |= equal.any(axis=0) if term.op == "argkth" else (equal[-1] if len(equal) else False)
        elif term.op == "round" and not term.kernel:
            inner = values[term.args[0].serial].value
            found |= np.abs(inner - np.trunc(inner)) == 0.5
    return found


def _is_float(term: Term) -> bool:
    return term.dtype != "bool" and not term.dtype.startswith(("int", "uint"))
