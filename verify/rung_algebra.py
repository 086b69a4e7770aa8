"""Rung 3: equality over the reals by exact algebra in an exp-ring over large primes (verify/field.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapterc.verify.compare import keeps
from adapterc.verify.field_terms import Identity, identical
from adapterc.verify.instances import Instance
from adapterc.verify.terms import Term, ordered

MOST_TERMS = 1_500
MOST_OUTPUTS = 24


@dataclass(frozen=True, slots=True)
class Algebra:
    """`holds`: shown at every instance tried. `failure` bounds the probability of a wrong acceptance, over all instances."""

    holds: bool
    sizes: tuple[str, ...]
    points: int
    failure: float
    reason: str
    branches: bool


def prove(instances: Sequence[Instance], pairs: Sequence[Sequence[tuple[Term, Term]]], positive: frozenset[str] = frozenset()) -> Algebra:
    """Whether all differing pairs of all instances are identities. Never accepts a false one but with probability `failure`."""
    sizes: list[str] = []
    failure, points, branches = 0.0, 0, False
    for instance, differing in zip(instances, pairs, strict=True):
        chosen = list(differing)[: MOST_OUTPUTS if len(instance.arena.nodes) < 300 else MOST_OUTPUTS // 3]
        left, right = [a for a, _ in chosen], [b for _, b in chosen]
        if len(ordered([*left, *right])) > MOST_TERMS:
            continue
        found: Identity = identical(left, right, keeps(instance), positive)
        if found.holds is not True:
            return Algebra(False, tuple(sizes), points, 1.0, found.reason or "the field cannot say", found.branches)
        sizes.append(instance.describe())
        failure += found.failure
        points += found.points
        branches = branches or found.branches
    return Algebra(bool(sizes), tuple(sizes), points, min(failure, 1.0), "" if sizes else "every instance is too large", branches)
