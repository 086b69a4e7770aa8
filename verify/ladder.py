"""The ladder: cheapest rung first, until one decides. One claim in, one decision out; the rungs are the `rung_*` modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adapterc.verify import by_format, literals, nan_sign, refute, rung_algebra, rung_approx, rung_exhaustive, rung_index, rung_smt
from adapterc.verify import guards as G
from adapterc.verify.cases import Case, Decision, case_of
from adapterc.verify.claim import Claim
from adapterc.verify.compare import Differences, differences, differing, in_format, test_format
from adapterc.verify.instances import Catalogue, Instance, instances
from adapterc.verify.kernels import kernels_differ, whole_numbers
from adapterc.verify.samples import ORDINARY
from adapterc.verify.shrink import counterexample
from adapterc.verify.verdict import PROVED, TESTED, UNDECIDED, Counterexample, Evidence

BIG = 20_000  # terms beyond which an instance is only looked at structurally


def decide(claim: Claim, seed: int = 0, effort: int = 1, guess: bool = True, brief: bool = False, figures: bool = True) -> Decision:
    """Find the strongest class that holds.

    `effort` multiplies the samples, `guess` allows the search for a guard, `brief` looks at fewer sizes, `figures` wants the class and the error
    in every format (which a claim that is only tried on the way does not need).
    """
    claim, readings = literals.exact(claim)
    decision = _decide(claim, seed, effort, guess, brief, figures)
    if not readings:
        return decision
    return replace(decision, evidence=(Evidence("0 literals", "; ".join(readings)), *decision.evidence))


def _decide(claim: Claim, seed: int, effort: int, guess: bool, brief: bool, figures: bool) -> Decision:
    catalogue = instances(claim, 2, stick_edges=False) if brief else instances(claim)
    if not catalogue.found:
        return Decision("WRONG", UNDECIDED, _no_instance(catalogue))
    question = refute.Question(claim, decide, seed, effort, guess, figures)
    misfit = refute.misfit(question, catalogue)
    if misfit is not None:
        return misfit
    usable = [i for i in catalogue.found if i.right is not None]
    all_pairs = [differing(i.pairs) for i in usable]
    sizes = Evidence("sizes", "; ".join(i.describe() for i in usable), (("instances", len(usable)),))
    if not any(all_pairs):
        kind = (
            "index algebra: every element of both sides is the same element of the inputs"
            if _layout_only(usable)
            else "both sides are the same computation, element by element"
        )
        everywhere = rung_index.evidence(claim, real=False)
        shown = Evidence("1 index algebra", f"at the sizes tried, {kind}") if everywhere is None else everywhere
        how = f"{kind}{'' if everywhere is None else ', at all sizes'}"
        return Decision("EXACT", PROVED, how, (shown, sizes), formats=by_format.all_alike(usable[0], "EXACT"))
    cases = [
        case_of(i, p, seed, effort) for i, p in zip(usable, all_pairs, strict=True) if p and len(i.arena.nodes) <= BIG and i.left.cells.size
    ]
    if not cases:
        return Decision("WRONG", UNDECIDED, "every instance is too large to run", (sizes,))
    if claim.guard and sum(int((c.allowed & (c.batch.kind == ORDINARY)).sum()) for c in cases) < G.LEAST_ADMITTED:
        return Decision("WRONG", UNDECIDED, "hardly any of the values tried meet the guard", (sizes,))
    refuted = refute.real_failures(cases)
    if any(bad.any() for bad in refuted):
        return refute.unequal(question, cases, refuted, sizes)
    return _equal(question, cases, sizes)


def _no_instance(catalogue: Catalogue) -> str:
    reason = catalogue.refusals[0] if catalogue.refusals else "the guard admits none of the sizes tried"
    return f"no sizes were found at which the left side has a value ({reason})"


def _layout_only(found: Sequence[Instance]) -> bool:
    return all(t.op in ("var", "const") for i in found for t in i.left.cells.reshape(-1))


# Equal over the reals ---------------------------------------------------------------------------------------------------------------------


def _equal(question: refute.Question, cases: list[Case], sizes: Evidence) -> Decision:
    claim = question.claim
    exhaustion = _exhaust(cases)
    found = [(c, differences(c.instance, c.roots, c.batch, test_format(c.instance))) for c in cases]
    bitwise = None if any(d.bits.any() or d.any_nonfinite.any() for _, d in found) else _bitwise(cases, exhaustion)
    lifted = rung_index.lifted(claim)
    if bitwise is not None and bitwise.klass == "EXACT":
        if nan_sign.differs(p for c in cases[:2] for p in c.roots):
            bitwise = replace(bitwise, klass="EXACT-Z", how=f"{bitwise.how}; NaN comes out with another sign")
        formats = by_format.classes(_runs(cases), bitwise.klass, False, exhaustion)
        return replace(bitwise, evidence=(*lifted, *bitwise.evidence, sizes), formats=formats)
    proof = rung_index.evidence(claim, real=True) or _proof(claim, cases)
    if proof is None:
        parted = refute.format_failures(cases)
        if any(b.any() for b in parted):
            return refute.unequal_in_format(question, cases, parted, sizes)
    decision = _classified(cases, found, exhaustion, proof, bitwise, sizes)
    if not question.figures:
        return replace(decision, evidence=(*lifted, *decision.evidence))
    rounds = by_format.error_evidence(_runs(cases)) if decision.klass in ("REAL", "EDGE") else None
    formats = by_format.classes(_runs(cases), decision.klass, _kernels_differ(cases), exhaustion)
    return replace(decision, evidence=(*lifted, *decision.evidence, *([rounds] if rounds else [])), formats=formats)


def _runs(cases: Sequence[Case]) -> list[by_format.Run]:
    return [(c.instance, c.roots, c.batch) for c in sorted(cases, key=lambda c: len(c.instance.arena.nodes))]


def _exhaust(cases: Sequence[Case]) -> tuple[rung_exhaustive.Exhaustion, ...] | None:
    explicit = {t.dtype for c in cases for t in c.instance.inputs.values() if t.dtype not in ("float", "bool", "weak")}
    if explicit and (len(explicit) > 1 or not explicit <= set(rung_exhaustive.SIXTEEN_BIT)):
        return None
    formats = tuple(explicit) or rung_exhaustive.SIXTEEN_BIT
    whole = rung_exhaustive.exhaust([pair for case in cases[:3] for pair in case.roots], formats)
    if whole is not None:
        return whole
    # Subterms that differ in bits may still make equal results: of them only full agreement says something.
    parts = rung_exhaustive.exhaust([pair for case in cases[:3] for pair in case.pairs], formats)
    return parts if parts is not None and all(e.different == 0 for e in _ieee(parts)) else None


def _proof(claim: Claim, cases: Sequence[Case]) -> Evidence | None:
    """A proof of equality over the reals, by algebra or by SMT, at every instance that is small enough."""
    small = [c for c in cases if len(c.instance.arena.nodes) <= rung_algebra.MOST_TERMS][:5] or cases[:1]
    positive = G.positive_names(claim.guard)
    for pairs in ([c.pairs for c in small], [c.roots for c in small]):
        algebra = rung_algebra.prove([c.instance for c in small], pairs, positive)
        if algebra.holds:
            how = f"exact algebra at {algebra.points} random points of 61-bit prime fields, at {len(algebra.sizes)} choices of sizes"
            numbers = (("points", algebra.points), ("failure_probability", algebra.failure), ("branches", algebra.branches))
            return Evidence("3 exact algebra", f"{how}; wrong with probability below {algebra.failure:.1e}", numbers)
    for pairs in ([c.pairs for c in small[:3]], [c.roots for c in small[:3]]):
        smt = rung_smt.prove_reals([c.instance for c in small[:3]], pairs)
        if smt is not None and smt.holds:
            return Evidence("4 SMT", smt.how)
    return None


def _bitwise(cases: Sequence[Case], exhaustion: tuple[rung_exhaustive.Exhaustion, ...] | None) -> Decision | None:
    """EXACT or EXACT-Z by proof: exhaustion of 16-bit formats, or SMT over IEEE numbers."""
    if _kernels_differ(cases):
        return None
    if exhaustion is not None:
        if all(e.different == 0 for e in _ieee(exhaustion)):
            same = " and ".join(e.format for e in exhaustion if e.different == 0)
            return Decision("EXACT", PROVED, f"every value of {same} gives the same bits", (_exhaustive_evidence(exhaustion),))
        return None
    # Subterms that differ may still make equal results, so the whole is asked about where its parts cannot be shown equal.
    for pairs in ([c.pairs for c in cases[:2]], [c.roots for c in cases[:2]]):
        smt = rung_smt.prove_ieee([c.instance for c in cases[:2]], pairs)
        if smt is not None and smt.klass is not None:
            return Decision(smt.klass, PROVED, smt.how, (Evidence("4 SMT", smt.how),))
    return None


def _kernels_differ(cases: Sequence[Case]) -> bool:
    return kernels_differ(pair for c in cases for pair in c.pairs)


def _ieee(found: Sequence[rung_exhaustive.Exhaustion]) -> list[rung_exhaustive.Exhaustion]:
    """The class is that of the IEEE formats. DLFloat16, which has no infinity and no subnormals, is reported next to it."""
    return [e for e in found if e.format != "dlfloat16"]


def _exhaustive_evidence(found: tuple[rung_exhaustive.Exhaustion, ...]) -> Evidence:
    text = "; ".join(
        f"{e.format}: {e.different} of {e.values} differ ({e.zero_sign} in the sign of zero, {e.nonfinite} at non-finite inputs)"
        for e in found
    )
    return Evidence("2 exhaustive 16-bit", text, tuple((f"{e.format}_different", e.different) for e in found))


def _classified(
    cases: Sequence[Case],
    found: Sequence[tuple[Case, Differences]],
    exhaustion: tuple[rung_exhaustive.Exhaustion, ...] | None,
    proof: Evidence | None,
    bitwise: Decision | None,
    sizes: Evidence,
) -> Decision:
    unary = rung_approx.dense_edges(cases[0].instance, cases[0].pairs) if exhaustion is not None else None
    lost = any(d.lost.any() for _, d in found) or (unary is not None and bool(unary.lost.any()))
    spread = any(d.spread.any() for _, d in found)
    finite_bits = any(d.bits.any() for _, d in found) or _kernels_differ(cases)
    if exhaustion is not None:
        # Fewer finite differences than values that are zero signs or non-finite means none at all on ordinary numbers.
        finite_bits = finite_bits or any(e.different - e.zero_sign > e.nonfinite for e in _ieee(exhaustion))
    any_nonfinite = any(d.any_nonfinite.any() for _, d in found)
    zero = any(d.zero_sign.any() for _, d in found) or any(e.zero_sign > 0 for e in _ieee(exhaustion or ()))
    evidence = [e for e in (proof, _exhaustive_evidence(exhaustion) if exhaustion else None) if e is not None]
    relative = max((d.relative for _, d in found), default=0.0)
    samples = sum(c.batch.count for c in cases)
    evidence.append(
        Evidence(
            "6 values", f"{samples} samples; largest relative difference {relative:.2g}", (("samples", samples), ("relative", relative))
        )
    )
    evidence.append(sizes)
    status = PROVED if proof is not None else TESTED
    basis = proof.detail if proof else f"{samples} samples over {len(cases)} choices of sizes agree over the reals"
    if lost or (spread if finite_bits else any_nonfinite):
        edges = _edges(found, lost)
        example = _edge_example(found, lost, finite_bits)
        return Decision("EDGE", status, f"differs at {', '.join(edges)}", tuple(evidence), example, edges=edges)
    if finite_bits:
        return Decision("REAL", status, basis, tuple(evidence))
    if zero:
        exactness = PROVED if exhaustion is not None or (bitwise is not None and bitwise.klass == "EXACT-Z") else TESTED
        return Decision("EXACT-Z", exactness, "only the sign of zero differs", tuple(evidence))
    if proof is not None and all(whole_numbers(c.pairs) for c in cases):
        return Decision("EXACT", PROVED, f"{basis}; integers and truth values do not round", tuple(evidence))
    return Decision("EXACT", TESTED, f"no bit differs in {samples} samples", tuple(evidence))


def _edges(found: Sequence[tuple[Case, Differences]], lost: bool) -> tuple[str, ...]:
    edges: dict[str, None] = {}
    if lost:
        edges["overflow"] = None
    for case, difference in found:
        for index in np.flatnonzero(difference.any_nonfinite):
            values = np.array([v[index] for v in case.batch.values.values()])
            if np.isnan(values).any():
                edges["nan"] = None
            if np.isposinf(values).any():
                edges["inf"] = None
            if np.isneginf(values).any() and not np.isnan(values).any():
                edges["-inf"] = None
    return tuple(edges) or ("nonfinite",)


def _edge_example(found: Sequence[tuple[Case, Differences]], lost: bool, finite_bits: bool) -> Counterexample | None:
    for case, difference in found:
        mask = difference.lost if lost else difference.spread if finite_bits else difference.any_nonfinite
        if mask.any():
            name = test_format(case.instance)
            index = int(np.flatnonzero(mask)[0])
            sample = case.batch.only(np.arange(case.batch.count) == index)
            parted = in_format(case.instance.pairs, sample, name)
            apart = parted.apart[:, 0] & ~((parted.left[:, 0] == 0) & (parted.right[:, 0] == 0))
            return counterexample(case.instance, sample, list(parted.left[:, 0]), list(parted.right[:, 0]), apart, name)
    return None
