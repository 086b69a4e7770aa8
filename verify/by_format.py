"""The class of a rule in each number format, for the formats that a device computes in: what holds in float32 may overflow in float16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from adapterc.verify.compare import Differences, differences, test_format
from adapterc.verify.formats import FORMATS
from adapterc.verify.instances import Instance
from adapterc.verify.rung_bounds import TARGETS, FormatBound, bounds
from adapterc.verify.rung_exhaustive import Exhaustion
from adapterc.verify.samples import EXTREME, Batch
from adapterc.verify.terms import Term
from adapterc.verify.verdict import Evidence, Number

Run = tuple[Instance, Sequence[tuple[Term, Term]], Batch]  # an instance, the output elements that are run, the samples
MOST_RUNS = 2
MOST_BOUND_TERMS = 300
MOST_ROOTS, MOST_SAMPLES = 6, 128  # of an error's figure, which more of either hardly changes


def formats_of(instance: Instance) -> tuple[str, ...]:
    """The formats that the rule speaks of: one that it declares, else all."""
    declared = {t.dtype for t in instance.inputs.values() if t.dtype in FORMATS}
    return tuple(sorted(declared)) if declared else TARGETS


def all_alike(instance: Instance, klass: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, klass) for name in formats_of(instance))


def classes(runs: Sequence[Run], klass: str, kernels_differ: bool, exhaustion: Sequence[Exhaustion] | None) -> tuple[tuple[str, str], ...]:
    """The class in each format. In the format that the ladder tested it is `klass`, which may rest on more than these samples."""
    first = runs[0][0]
    counted: Mapping[str, Exhaustion] = {e.format: e for e in exhaustion or ()}
    found: list[tuple[str, str]] = []
    for name in formats_of(first):
        if name == test_format(first):
            found.append((name, klass))
            continue
        seen = [differences(i, roots, batch.rounded(i, name), name) for i, roots, batch in runs[:MOST_RUNS]]
        found.append((name, _class(seen, kernels_differ, counted.get(name))))
    return tuple(found)


def _class(seen: Sequence[Differences], kernels_differ: bool, counted: Exhaustion | None) -> str:
    bits = kernels_differ or any(d.bits.any() for d in seen)
    zero = any(d.zero_sign.any() for d in seen)
    if counted is not None:
        bits = bits or counted.different - counted.zero_sign > counted.nonfinite
        zero = zero or counted.zero_sign > 0
    lost = any(d.lost.any() for d in seen)
    spread = any(d.spread.any() for d in seen) if bits else any(d.any_nonfinite.any() for d in seen)
    if lost or spread:
        return "EDGE"
    return "REAL" if bits else "EXACT-Z" if zero else "EXACT"


def error_evidence(runs: Sequence[Run]) -> Evidence | None:
    """Rung 5 for a rule that rounds: what is proved and measured in each format, at the largest of the instances that is still quick."""
    quick = [r for r in runs if len(r[0].arena.nodes) <= MOST_BOUND_TERMS] or list(runs[:1])
    instance, roots, batch = max(quick, key=lambda r: len(r[0].arena.nodes))
    usual = np.flatnonzero(batch.kind < EXTREME)
    kept = batch.only(usual[:: max(1, -(-len(usual) // MOST_SAMPLES))])
    found = bounds(instance, roots[:: max(1, -(-len(roots) // MOST_ROOTS))], kept)
    if not found:
        return None
    detail = "; ".join(str(f) for f in found)
    return Evidence("5 error bounds", f"at {instance.describe()}: {detail}", _numbers(found))


def _numbers(found: Sequence[FormatBound]) -> tuple[tuple[str, Number], ...]:
    rows: list[tuple[str, Number]] = []
    for bound in found:
        if bound.counts is not None:
            rows.append((f"{bound.format}_proved_u", round(sum(bound.counts), 3)))
        rows.append((f"{bound.format}_measured_u", float(f"{bound.measured:.3g}")))
        rows.append((f"{bound.format}_stock_rms_u", float(f"{bound.stock[0]:.3g}")))
        rows.append((f"{bound.format}_ours_rms_u", float(f"{bound.ours[0]:.3g}")))
    rows.append(("worse_than_stock", ", ".join(b.format for b in found if not b.no_worse)))
    return tuple(rows)
