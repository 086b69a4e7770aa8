"""Guard synthesis: the weakest predicate of a small vocabulary under which a rule holds (the vocabulary is verify/guard_words.py)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.dsl.ast import Call, Expr, Literal, Name
from adapterc.dsl.printer import to_text
from adapterc.verify import floats
from adapterc.verify.claim import Claim
from adapterc.verify.compare import test_format
from adapterc.verify.guard_words import candidates, sensible, size_candidates
from adapterc.verify.instances import Instance, guard_terms
from adapterc.verify.samples import ORDINARY, Batch

__all__ = ["LEAST_ADMITTED", "Trial", "guard_text", "positive_names", "size_candidates", "sizes_meet", "synthesise"]

Mask = NDArray[Any]
LEAST_ADMITTED = 4  # samples on which a guard must be shown to hold, or it is vacuous
MOST_COMBINATIONS = 12_000


@dataclass(frozen=True, slots=True)
class Trial:
    """One instance with its samples: `bad` marks those where the sides part, `counted` those that matter; `left` is the left side's value
    per output element and sample."""

    instance: Instance
    batch: Batch
    bad: Mask
    counted: Mask
    left: NDArray[Any]


def mask_of(condition: Expr, instance: Instance, batch: Batch) -> Mask | None:
    """The samples on which a condition holds in every element; None when it cannot be evaluated at this instance."""
    found = guard_terms(condition, instance.env, instance.arena)
    if isinstance(found, bool):
        return np.full(batch.count, found)
    if found is None:
        return None
    if not found:
        return np.ones(batch.count, dtype=bool)
    values = floats.run(found, batch.values, batch.count, test_format(instance))
    return np.asarray(np.all([np.asarray(values.of(t), dtype=bool) for t in found], axis=0))


def sizes_meet(condition: Expr, instance: Instance) -> bool:
    return guard_terms(condition, instance.env, instance.arena) is True


def synthesise(
    claim: Claim, trials: Sequence[Trial], holds: Callable[[Sequence[Expr]], bool], signs: bool = True, most: int = 3
) -> tuple[Expr, ...] | None:
    """The conjunction of up to `most` predicates that admits the most samples and no bad one; `holds` confirms it on fresh samples."""
    vocabulary: list[tuple[Expr, list[Mask]]] = []
    for condition in candidates(claim, signs):
        masks = [mask_of(condition, t.instance, t.batch) for t in trials]
        kept = [m for m in masks if m is not None]
        if len(kept) == len(masks) and any((m & t.counted).any() for m, t in zip(kept, trials, strict=True)):
            vocabulary.append((condition, kept))
    refused = 0
    for size in range(1, most + 1):
        ranked: list[tuple[int, int, tuple[Expr, ...]]] = []
        for order, chosen in enumerate(itertools.islice(itertools.combinations(vocabulary, size), MOST_COMBINATIONS)):
            admitted = _admitted(chosen, trials) if sensible(claim, [c for c, _ in chosen]) else None
            if admitted is not None:
                ranked.append((-admitted, order, tuple(c for c, _ in chosen)))
        for _, _, guard in sorted(ranked, key=lambda r: r[:2])[:6]:
            if holds(guard):
                return guard
            refused += 1
            if refused > 10:
                return None
    return None


def _admitted(chosen: Sequence[tuple[Expr, list[Mask]]], trials: Sequence[Trial]) -> int | None:
    """How many samples the conjunction admits; None when it admits a bad one, hardly any, or only such on which nothing varies."""
    total, varies, varied = 0, False, False
    for i, trial in enumerate(trials):
        mask = trial.counted.copy()
        for _, masks in chosen:
            mask &= masks[i]
        if (mask & trial.bad).any():
            return None
        # Where the left side is undefined nothing is shown.
        usual = (trial.batch.kind == ORDINARY) & ~np.isnan(trial.left).any(axis=0)
        total += int((mask & usual).sum())
        varied = varied or _varies(trial.left[:, trial.counted & usual])
        varies = varies or _varies(trial.left[:, mask & usual])
    # A guard that makes a constant of what varies makes the rule trivial.
    return total if total >= LEAST_ADMITTED and (varies or not varied) else None


def _varies(values: NDArray[Any]) -> bool:
    return bool((values != values[:, :1]).any())


def guard_text(guard: Sequence[Expr]) -> str:
    """The guard as the value of `when:`."""
    return " and ".join(to_text(g) for g in guard)


def positive_names(guard: Sequence[Expr]) -> frozenset[str]:
    """Variables that the guard makes positive (zero is the limit, checked by tests)."""
    found: set[str] = set()
    for condition in guard:
        match condition:
            case Call(op="gt" | "ge", args=(Name(id=name), Literal(value=value))) if isinstance(value, int) and value >= 0:
                found.add(name)
            case Call(op="lt" | "le", args=(Literal(value=value), Name(id=name))) if isinstance(value, int) and value >= 0:
                found.add(name)
    return frozenset(found)
