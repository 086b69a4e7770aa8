"""Rules whose sides differ: by shape, over the reals, or by more than rounding. How small the difference is, and what would make them hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from adapterc.dsl.ast import Expr
from adapterc.verify import guards as G
from adapterc.verify import rung_approx
from adapterc.verify.cases import Case, Decision, Mask, Pair
from adapterc.verify.claim import Claim
from adapterc.verify.compare import admitted, in_format, over_reals, test_format
from adapterc.verify.instances import Catalogue, Instance, instances
from adapterc.verify.mends import fill_mend, pads, size_mend
from adapterc.verify.samples import EXTREME, KIND_NAMES, NONFINITE, ORDINARY, Batch
from adapterc.verify.shrink import Test, best_sample, counterexample, shrunk
from adapterc.verify.ties import Failing, only_ties
from adapterc.verify.verdict import PROVED, REFUTED, TESTED, Counterexample, Evidence

HOLDS = ("EXACT", "EXACT-Z", "REAL", "EDGE")


class Again(Protocol):
    """The ladder, for variants of a claim that are tried on the way."""

    def __call__(
        self, claim: Claim, seed: int = 0, effort: int = 1, guess: bool = True, brief: bool = False, figures: bool = True
    ) -> Decision: ...


@dataclass(frozen=True, slots=True)
class Question:
    """A claim, and how hard to look. `guess`: a guard is wanted; `figures`: the answer is for people, so its counterexample is made plain."""

    claim: Claim
    again: Again
    seed: int = 0
    effort: int = 1
    guess: bool = True
    figures: bool = True

    def tried(self, claim: Claim, brief: bool = False) -> Decision:
        return self.again(claim, self.seed + 1, self.effort, guess=False, brief=brief, figures=False)


def misfit(question: Question, catalogue: Catalogue) -> Decision | None:
    """The right side has no value, or another shape, where the left one has one."""
    faulty = [i for i in catalogue.found if i.right is None]
    if not faulty:
        return None
    first = faulty[0]
    example = Counterexample(
        tuple(sorted(first.sizes.items())), (), (), f"shape {list(first.left.shape)}", first.fault, "shapes", first.rest
    )
    evidence = (Evidence("0 shapes", first.fault),)
    how = f"the right side does not fit at {first.describe()}: {first.fault}"
    for condition in G.size_candidates(question.claim, equal=True) if question.guess else ():
        guarded = question.claim.guarded(condition)
        found = instances(guarded).found
        if len(found) >= 2 and all(i.right is not None for i in found) and any(max(i.sizes.values()) > 1 for i in found):
            inner = question.tried(guarded)
            if inner.status in (PROVED, TESTED):
                return Decision("COND", REFUTED, how, (*evidence, *inner.evidence), example, (condition,), inner.klass)
    return Decision("WRONG", REFUTED, how, evidence, example)


def real_failures(cases: Sequence[Case], enough: int = 3) -> list[Mask]:
    """Per case, the finite samples on which the sides differ over the reals; no more cases than `enough` once one has failed."""
    found: list[Mask] = []
    for case in cases:
        parted = over_reals(case.instance, case.roots, case.batch).apart.any(axis=0)
        found.append(parted & (case.batch.kind != NONFINITE) & case.allowed)
        if len(found) >= enough and any(bad.any() for bad in found):
            break
    return found


def format_failures(cases: Sequence[Case]) -> list[Mask]:
    """Without a proof, large differences in the format itself count: they are what tests can see."""
    return [_large(c.instance, c.roots, c.batch) & (c.batch.kind < EXTREME) & c.allowed for c in cases]


def _large(instance: Instance, roots: Sequence[Pair], batch: Batch) -> Mask:
    """Where both sides are finite, nothing overflowed, and they differ by more than rounding may explain."""
    parted = in_format(roots, batch, test_format(instance))
    with np.errstate(all="ignore"):
        scale = np.maximum(np.maximum(np.abs(parted.left), np.abs(parted.right)).max(axis=0, initial=0), 1.0)
        large = np.abs(parted.left - parted.right) > scale[None, :] / 16
    usual = np.isfinite(parted.left) & np.isfinite(parted.right) & ~parted.overflow
    return np.asarray((large & usual & parted.apart).any(axis=0))


def _apart(instance: Instance, roots: Sequence[Pair], batch: Batch) -> Mask:
    return np.asarray(over_reals(instance, roots, batch).apart.any(axis=0))


def unequal(question: Question, cases: list[Case], bad: list[Mask], sizes: Evidence) -> Decision:
    """The decision on a claim whose sides differ over the reals."""
    claim, tested = question.claim, cases[: len(bad)]
    example = _example(tested, bad, question.figures)
    ordinary = any((b & (c.batch.kind == ORDINARY)).any() for b, c in zip(bad, tested, strict=True))
    where = KIND_NAMES[min(int(c.batch.kind[b].min()) for b, c in zip(bad, tested, strict=True) if b.any())]
    share = sum(int(b.sum()) for b in bad), sum(c.batch.count for c in tested)
    refutation = Evidence(
        "6 values", f"{share[0]} of {share[1]} samples part over the reals, first among {where}", (("different", share[0]),)
    )
    close = rung_approx.enclose([c.instance for c in tested], [c.pairs for c in tested])
    if close is not None:
        status = PROVED if close.proved else TESTED
        return Decision("APPROX", status, close.how, (Evidence("5 error bounds", close.how), refutation, sizes), example, bound=close.bound)
    if _tied(tested, bad, _apart):
        return _ties(example, (refutation, sizes))
    if not question.guess:
        return Decision("WRONG", REFUTED, _sentence(example), (refutation, sizes), example)
    mend = fill_mend(claim, question.tried) if ordinary else None
    # The fill of a pad is the author's to choose: signs of the data are no mend of a wrong one.
    introduces_pad = pads(claim.right) and not pads(claim.left)
    if not (ordinary and introduces_pad):
        found = _guarded(question, tested, bad, signs=not introduces_pad)
        if found is not None:
            return _conditional(example, found, (refutation,), sizes)
    everywhere = real_failures(cases, len(cases))
    by_size = _guarded_by_size(question, cases, everywhere)
    if by_size is not None:
        return _conditional(example, by_size, (refutation,), sizes)
    return Decision("WRONG", REFUTED, _sentence(example), (refutation, sizes), example, mend=mend or size_mend(claim, cases, everywhere))


def unequal_in_format(question: Question, cases: list[Case], bad: list[Mask], sizes: Evidence) -> Decision:
    """The decision on a claim whose sides nobody could tell apart over the reals, and that differ by far in the format under test."""
    case, mask = next((c, b) for c, b in zip(cases, bad, strict=True) if b.any())
    name = test_format(case.instance)
    index = best_sample(case.instance, case.batch, mask)
    sample = case.batch.only(np.arange(case.batch.count) == index)
    parted = in_format(case.instance.pairs, sample, name)
    with np.errstate(all="ignore"):
        gap = np.nan_to_num(np.abs(parted.left - parted.right)[:, 0])
    example = counterexample(case.instance, sample, list(parted.left[:, 0]), list(parted.right[:, 0]), gap == gap.max(), name)
    evidence = Evidence("6 values", f"the sides part in {name}", (("different", int(sum(b.sum() for b in bad))),))
    if _tied(cases, bad, _large):
        return _ties(example, (evidence, sizes))
    claim = question.claim
    found = _guarded(question, cases, bad, signs=pads(claim.left) or not pads(claim.right)) if question.guess else None
    if found is not None:
        return _conditional(example, found, (evidence,), sizes)
    return Decision("WRONG", REFUTED, _sentence(example), (evidence, sizes), example)


def _tied(cases: Sequence[Case], bad: Sequence[Mask], failing: Failing) -> bool:
    return only_ties([c.instance for c in cases], [c.roots for c in cases], [c.batch for c in cases], bad, failing)


def _ties(example: Counterexample, evidence: tuple[Evidence, ...]) -> Decision:
    return Decision("EDGE", TESTED, f"differs at ties only: {_sentence(example)}", evidence, example, edges=("ties",))


def _conditional(
    example: Counterexample, found: tuple[tuple[Expr, ...], Decision], evidence: tuple[Evidence, ...], sizes: Evidence
) -> Decision:
    guard, inner = found
    how = f"{_sentence(example)}; it holds when {G.guard_text(guard)}"
    return Decision("COND", REFUTED, how, (*evidence, *inner.evidence, sizes), example, guard, inner.klass)


def _sentence(example: Counterexample) -> str:
    given = ", ".join(f"{name} = {value}" for name, value in example.values if len(value) <= 60)
    return f"the left side gives {example.left}, the right side {example.right}" + (f" at {given}" if given else "")


def _example(cases: Sequence[Case], bad: Sequence[Mask], plain: bool) -> Counterexample:
    """The smallest instance that fails; `plain` also makes its values so."""
    ranked = sorted(
        (c for c in zip(cases, bad, strict=True) if c[1].any()), key=lambda cb: sum(t.cells.size for t in cb[0].instance.inputs.values())
    )
    case, mask = ranked[0]
    instance = case.instance
    index = best_sample(instance, case.batch, mask)
    sample = case.batch.only(np.arange(case.batch.count) == index)
    if plain:
        sample = shrunk(instance, case.batch, index, _parted_at(case, sample))
    parted = over_reals(instance, instance.pairs, sample)
    return counterexample(instance, sample, list(parted.left[:, 0]), list(parted.right[:, 0]), parted.apart[:, 0], "real")


def _parted_at(case: Case, sample: Batch) -> Test:
    """Whether the sides part at the output element where they part on this sample: one is enough, and far fewer terms than all."""
    first = int(np.argmax(over_reals(case.instance, case.roots, sample).apart[:, 0]))

    def test(batch: Batch) -> Mask:
        keep: Mask = _apart(case.instance, case.roots[first : first + 1], batch) & admitted(case.instance, batch)
        return keep

    return test


def _guarded(question: Question, cases: Sequence[Case], bad: Sequence[Mask], signs: bool) -> tuple[tuple[Expr, ...], Decision] | None:
    """A guard on values, and what the claim is under it."""
    useful = sorted(
        zip(cases, bad, strict=True), key=lambda cb: (not cb[1].any(), abs(sum(t.cells.size for t in cb[0].instance.inputs.values()) - 6))
    )[:2]
    trials = [
        G.Trial(c.instance, c.batch, b, (c.batch.kind != NONFINITE) & c.allowed, over_reals(c.instance, c.roots, c.batch).left)
        for c, b in useful
    ]
    decisions: dict[str, Decision] = {}

    def holds(guard: Sequence[Expr]) -> bool:
        guarded = question.claim.guarded(*guard)
        if question.tried(guarded, brief=True).status == REFUTED:
            return False
        inner = decisions[G.guard_text(guard)] = question.tried(guarded)
        return _accepted(inner)

    guard = G.synthesise(question.claim, trials, holds, signs)
    return None if guard is None else (guard, decisions[G.guard_text(guard)])


def _accepted(decision: Decision) -> bool:
    return decision.status in (PROVED, TESTED) and decision.klass in HOLDS


def _guarded_by_size(question: Question, cases: Sequence[Case], bad: Sequence[Mask]) -> tuple[tuple[Expr, ...], Decision] | None:
    """A condition on sizes that every failing instance violates and several others meet."""
    for condition in G.size_candidates(question.claim):
        met = [(c, b) for c, b in zip(cases, bad, strict=False) if G.sizes_meet(condition, c.instance)]
        if len(met) >= 2 and not any(b.any() for _, b in met) and any(max(c.instance.sizes.values()) > 1 for c, _ in met):
            inner = question.tried(question.claim.guarded(condition))
            if _accepted(inner):
                return (condition,), inner
    return None
