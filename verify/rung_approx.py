"""Rung 5a: rules that are nearly equal. The largest difference of one-variable rules, and differences that a named cast explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapterc.verify.compare import Differences, differences, keeps, over_reals
from adapterc.verify.formats import FORMATS, Wide, round_to
from adapterc.verify.instances import Instance
from adapterc.verify.samples import Batch, draw, grid
from adapterc.verify.terms import Term, ordered, variables

Pair = tuple[Term, Term]
LARGEST_USEFUL = 2.0**-5  # beyond this a bounded difference is another function, not an approximation


@dataclass(frozen=True, slots=True)
class Enclosure:
    """`bound` is a number as text, absolute for functions of one variable, relative for casts."""

    how: str
    bound: str
    proved: bool


def enclose(instances: Sequence[Instance], pairs: Sequence[Sequence[Pair]]) -> Enclosure | None:
    """The size of the difference where it is small for all values; None where it is not."""
    return _by_cast(instances, pairs) or _one_variable(instances[0])


def core_points() -> Wide:
    near = np.linspace(-24, 24, 9601)
    far = np.concatenate([s * 10.0 ** np.linspace(-6, 6, 241) for s in (1.0, -1.0)])
    return np.unique(np.concatenate([near, far])).astype(np.longdouble)


def _one_variable(instance: Instance) -> Enclosure | None:
    """The largest absolute difference over a dense grid, when it does not grow with the argument."""
    for pair in instance.pairs:
        found = variables(pair)
        if len(found) != 1 or found[0].dtype != "float":
            return None
    points = core_points()
    parted = over_reals(instance, instance.pairs[:1], grid(instance, points))
    with np.errstate(all="ignore"):
        gap = np.abs(parted.left - parted.right)[0]
    if not np.isfinite(gap).all():
        return None
    largest = float(gap.max())
    tail = float(gap[np.abs(points) > 1e3].max())
    if largest > LARGEST_USEFUL or tail > largest * 0.999:
        return None
    at = float(points[int(gap.argmax())])
    from adapterc.verify.enclosure import sup_difference

    rigorous = sup_difference(instance.pairs[0])
    if rigorous is not None:
        how = f"the difference is at most {rigorous:.4g} on [-8, 8] (rigorous enclosure) and at most {largest:.4g} on a grid to ±1e6, largest near {at:.4g}"
        return Enclosure(how, f"{max(rigorous, largest):.4g}", True)
    return Enclosure(f"the largest difference on {len(points)} points to ±1e6 is {largest:.4g}, near {at:.4g}", f"{largest:.4g}", False)


def _by_cast(instances: Sequence[Instance], pairs: Sequence[Sequence[Pair]]) -> Enclosure | None:
    """A named cast to a coarser format explains the difference when it stays within a few of its roundings at every magnitude."""
    worst, unit, name = 0.0, 0.0, ""
    for instance, differing in zip(instances, pairs, strict=True):
        kept = keeps(instance)
        coarse = {
            str(t.payload)
            for t in ordered([t for p in differing for t in p])
            if t.op == "cast" and t.payload in FORMATS and not kept(str(t.payload))
        }
        if not coarse:
            continue
        name = min(coarse, key=lambda c: FORMATS[c].precision)
        unit = FORMATS[name].epsilon
        batch: Batch = draw(instance, 3)
        finite = batch.kind < 3
        parted = over_reals(instance, instance.pairs, batch)
        with np.errstate(all="ignore"):
            scale = np.maximum(np.abs(parted.left), np.abs(parted.right))
            relative = np.where(scale > 0, np.abs(parted.left - parted.right) / scale, 0)[:, finite]
        if not np.isfinite(relative).all():
            return None
        worst = max(worst, float(relative.max(initial=0)))
    if not name or worst > 4 * unit:
        return None
    how = f"the cast to {name} changes the result by at most {worst:.3g} relative, within {4 * unit:.3g} for its roundings"
    return Enclosure(how, f"{4 * unit:.3g}", False)


def dense_edges(instance: Instance, pairs: Sequence[Pair]) -> Differences | None:
    """One-variable rules in float32 on a grid that reaches every overflow of exp and its products."""
    if any(len(variables(pair)) > 1 for pair in instance.pairs):
        return None
    points = np.concatenate([np.linspace(-128, 128, 2049), [s * v for s in (1, -1) for v in (200.0, 1e3, 1e4)]])
    return differences(instance, instance.pairs[:1], grid(instance, round_to(points, FORMATS["float32"])), "float32")
