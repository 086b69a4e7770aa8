"""The ladder: cheapest rung first, until one decides. One claim in, one decision out; the rungs are the `rung_*` modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.dsl.ast import Call, Expr, Literal, walk
from adapterc.dsl.printer import to_text
from adapterc.verify import by_format, rung_algebra, rung_approx, rung_exhaustive, rung_index, rung_smt
from adapterc.verify import guards as G
from adapterc.verify.claim import Claim
from adapterc.verify.compare import Differences, admitted, differences, differing, in_format, over_reals, test_format
from adapterc.verify.instances import Catalogue, Instance, instances
from adapterc.verify.samples import EXTREME, KIND_NAMES, NONFINITE, ORDINARY, Batch, draw
from adapterc.verify.shrink import best_sample, counterexample, real_test, shrunk
from adapterc.verify.terms import Term
from adapterc.verify.verdict import PROVED, REFUTED, TESTED, UNDECIDED, Counterexample, Evidence

Mask = NDArray[Any]
Pair = tuple[Term, Term]
BIG = 20_000  # terms beyond which an instance is only looked at structurally


@dataclass(frozen=True, slots=True)
class Decision:
    """What the ladder found of a claim (see Verdict for the fields)."""

    klass: str
    status: str
    how: str
    evidence: tuple[Evidence, ...] = ()
    counterexample: Counterexample | None = None
    guard: tuple[Expr, ...] = ()
    guarded_class: str | None = None
    mend: str | None = None
    edges: tuple[str, ...] = ()
    bound: str | None = None
    formats: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """An instance, the smallest pairs in which its sides differ, its samples, and the output elements that are run (`roots`)."""

    instance: Instance
    pairs: list[Pair]
    batch: Batch
    roots: list[Pair]

    @property
    def allowed(self) -> Mask:
        return admitted(self.instance, self.batch)


def decide(claim: Claim, seed: int = 0, effort: int = 1, guess: bool = True, brief: bool = False, figures: bool = True) -> Decision:
    """Find the strongest class that holds.

    `effort` multiplies the samples, `guess` allows the search for a guard, `brief` looks at fewer sizes, `figures` wants the class and the error
    in every format (which a claim that is only tried on the way does not need).
    """
    catalogue = instances(claim, 2, stick_edges=False) if brief else instances(claim)
    if not catalogue.found:
        return Decision("WRONG", UNDECIDED, _no_instance(catalogue))
    misfit = _misfit(claim, catalogue, guess)
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
        _case(i, p, seed, effort) for i, p in zip(usable, all_pairs, strict=True) if p and len(i.arena.nodes) <= BIG and i.left.cells.size
    ]
    if not cases:
        return Decision("WRONG", UNDECIDED, "every instance is too large to run", (sizes,))
    if claim.guard and sum(int((c.allowed & (c.batch.kind == ORDINARY)).sum()) for c in cases) < G.LEAST_ADMITTED:
        return Decision("WRONG", UNDECIDED, "hardly any of the values tried meet the guard", (sizes,))
    refuted = _real_failures(cases)
    if any(bad.any() for bad in refuted):
        return _unequal(claim, cases[: len(refuted)], refuted, seed, effort, guess, sizes)
    return _equal(claim, cases, seed, effort, guess, sizes, figures)


def _no_instance(catalogue: Catalogue) -> str:
    reason = catalogue.refusals[0] if catalogue.refusals else "the guard admits none of the sizes tried"
    return f"no sizes were found at which the left side has a value ({reason})"


def _layout_only(found: Sequence[Instance]) -> bool:
    return all(t.op in ("var", "const") for i in found for t in i.left.cells.reshape(-1))


def _case(instance: Instance, pairs: list[Pair], seed: int, effort: int) -> Case:
    size = len(instance.arena.nodes)
    rounds = (24 if size < 60 else 6 if size < 600 else 2 if size < 2_000 else 1) * effort
    return Case(instance, pairs, draw(instance, seed, rounds, test_format(instance)), spaced(instance.pairs, 48 if size < 600 else 16))


def spaced(pairs: list[Pair], most: int) -> list[Pair]:
    """At most `most` of the output elements whose sides are not one term, evenly spaced, the first and the last among them."""
    open_pairs = [p for p in pairs if p[0] is not p[1]] or pairs
    if len(open_pairs) <= most:
        return open_pairs
    return [open_pairs[i * (len(open_pairs) - 1) // (most - 1)] for i in range(most)]


def _misfit(claim: Claim, catalogue: Catalogue, guess: bool) -> Decision | None:
    """The right side has no value, or another shape, where the left one has one."""
    faulty = [i for i in catalogue.found if i.right is None]
    if not faulty:
        return None
    first = faulty[0]
    example = Counterexample(
        tuple(sorted(first.sizes.items())), (), (), f"shape {list(first.left.shape)}", first.fault, "shapes", first.rest
    )
    evidence = (Evidence("0 shapes", first.fault),)
    if guess:
        for condition in G.size_candidates(claim):
            guarded = instances(claim.guarded(condition))
            fits = guarded.found and all(i.right is not None for i in guarded.found)
            if fits and len(guarded.found) >= 2 and any(len(set(i.sizes.values())) > 1 for i in guarded.found):
                inner = decide(claim.guarded(condition), guess=False, figures=False)
                if inner.status in (PROVED, TESTED):
                    how = f"the right side does not fit at {first.describe()}: {first.fault}"
                    return Decision("COND", REFUTED, how, (*evidence, *inner.evidence), example, (condition,), inner.klass)
    return Decision("WRONG", REFUTED, f"the right side does not fit at {first.describe()}: {first.fault}", evidence, example)


def _real_failures(cases: Sequence[Case]) -> list[Mask]:
    """Per case, the finite samples on which the sides differ over the reals."""
    found: list[Mask] = []
    for case in cases:
        parted = over_reals(case.instance, case.roots, case.batch).apart.any(axis=0)
        found.append(parted & (case.batch.kind != NONFINITE) & case.allowed)
        if len(found) >= 3 and any(bad.any() for bad in found):
            break
    return found


# Not equal over the reals -----------------------------------------------------------------------------------------------------------------


def _unequal(claim: Claim, cases: list[Case], bad: list[Mask], seed: int, effort: int, guess: bool, sizes: Evidence) -> Decision:
    example = _example(cases, bad)
    ordinary = any((b & (c.batch.kind == ORDINARY)).any() for b, c in zip(bad, cases, strict=True))
    where = KIND_NAMES[min(int(c.batch.kind[b].min()) for b, c in zip(bad, cases, strict=True) if b.any())]
    share = sum(int(b.sum()) for b in bad), sum(c.batch.count for c in cases)
    refutation = Evidence(
        "6 values", f"{share[0]} of {share[1]} samples part over the reals, first among {where}", (("different", share[0]),)
    )
    close = rung_approx.enclose([c.instance for c in cases], [c.pairs for c in cases])
    if close is not None:
        status = PROVED if close.proved else TESTED
        rounds = by_format.error_evidence(_runs(cases))
        evidence = (Evidence("5 enclosure", close.how), *([rounds] if rounds else []), refutation, sizes)
        formats = by_format.all_alike(cases[0].instance, "APPROX")
        return Decision("APPROX", status, close.how, evidence, example, bound=close.bound, formats=formats)
    mend = _fill_mend(claim) if ordinary and guess else None
    # The fill of a pad is the author's to choose: signs of the data are no mend of a wrong one.
    introduces_pad = _pads(claim.right) and not _pads(claim.left)
    if guess and not (ordinary and introduces_pad):
        found = _guarded(claim, cases, bad, seed, effort, signs=not introduces_pad)
        if found is not None:
            guard, inner = found
            how = f"{_sentence(example)}; it holds when {G.guard_text(guard)}"
            return Decision("COND", REFUTED, how, (refutation, *inner.evidence, sizes), example, guard, inner.klass)
    return Decision("WRONG", REFUTED, _sentence(example), (refutation, sizes), example, mend=mend)


def _sentence(example: Counterexample) -> str:
    given = ", ".join(f"{name} = {value}" for name, value in example.values if len(value) <= 60)
    return f"the left side gives {example.left}, the right side {example.right}" + (f" at {given}" if given else "")


def _example(cases: Sequence[Case], bad: Sequence[Mask]) -> Counterexample:
    """The smallest instance that fails, with its values made plain."""
    ranked = sorted(
        (c for c in zip(cases, bad, strict=True) if c[1].any()), key=lambda cb: sum(t.cells.size for t in cb[0].instance.inputs.values())
    )
    case, mask = ranked[0]
    instance = case.instance
    allowed_test = real_test(instance)

    def test(batch: Batch) -> Mask:
        keep: Mask = allowed_test(batch) & admitted(instance, batch)
        return keep

    sample = shrunk(instance, case.batch, best_sample(instance, case.batch, mask), test)
    parted = over_reals(instance, instance.pairs, sample)
    return counterexample(instance, sample, list(parted.left[:, 0]), list(parted.right[:, 0]), parted.apart[:, 0], "real")


def _guarded(
    claim: Claim, cases: list[Case], bad: list[Mask], seed: int, effort: int, signs: bool
) -> tuple[tuple[Expr, ...], Decision] | None:
    useful = sorted(
        zip(cases, bad, strict=True), key=lambda cb: (not cb[1].any(), abs(sum(t.cells.size for t in cb[0].instance.inputs.values()) - 6))
    )[:2]
    trials = [G.Trial(c.instance, c.batch, b, (c.batch.kind != NONFINITE) & c.allowed) for c, b in useful]
    decisions: dict[str, Decision] = {}

    def holds(guard: Sequence[Expr]) -> bool:
        inner = decide(claim.guarded(*guard), seed + 1, effort, guess=False, figures=False)
        decisions[G.guard_text(guard)] = inner
        return inner.status in (PROVED, TESTED) and inner.klass in ("EXACT", "EXACT-Z", "REAL", "EDGE")

    guard = G.synthesise(claim, trials, holds, signs)
    return None if guard is None else (guard, decisions[G.guard_text(guard)])


def _pads(expression: Expr) -> bool:
    return any(isinstance(n, Call) and n.op in ("pad", "constant_pad") for n in walk(expression))


def _fill_mend(claim: Claim) -> str | None:
    """Another fill under which the rule would hold: the mend of a wrong pad is its fill, not a guard on the data."""
    pads = [n for n in walk(claim.right) if isinstance(n, Call) and n.op in ("pad", "constant_pad")]
    if not pads or _pads(claim.left):
        return None
    from adapterc.dsl.ops import bind, map_children

    for fill in (Literal(0), Literal(1), Call("neg", (_inf(),)), _inf()):

        def refill(node: Expr, fill: Expr = fill) -> Expr:
            inner = map_children(node, refill)
            if isinstance(inner, Call) and inner.op in ("pad", "constant_pad"):
                bound = {**bind(inner), "value": fill}
                return Call(inner.op, (), tuple(sorted(bound.items())), inner.span)
            return inner

        other = replace(claim, right=refill(claim.right))
        decision = decide(other, guess=False, figures=False)
        if decision.klass in ("EXACT", "EXACT-Z", "REAL"):
            return f"Fill with {to_text(fill)} instead: that is what its consumer ignores."
    return "No fill is ignored here: crop the padded lanes off, or mask them, before this op."


def _inf() -> Expr:
    from adapterc.dsl.ast import Name

    return Name("inf")


# Equal over the reals ---------------------------------------------------------------------------------------------------------------------


def _equal(claim: Claim, cases: list[Case], seed: int, effort: int, guess: bool, sizes: Evidence, figures: bool) -> Decision:
    exhaustion = _exhaust(cases)
    found = [(c, differences(c.instance, c.roots, c.batch, test_format(c.instance))) for c in cases]
    bitwise = None if any(d.bits.any() or d.any_nonfinite.any() for _, d in found) else _bitwise(cases, exhaustion)
    lifted = rung_index.lifted(claim)
    if bitwise is not None and bitwise.klass == "EXACT":
        formats = by_format.classes(_runs(cases), "EXACT", False, exhaustion)
        return replace(bitwise, evidence=(*lifted, *bitwise.evidence, sizes), formats=formats)
    proof = rung_index.evidence(claim, real=True) or _proof(claim, cases)
    if proof is None:
        parted = _format_failures(cases)
        if any(b.any() for b in parted):
            return _unequal_in_format(claim, cases, parted, seed, effort, guess, sizes)
    decision = _classified(cases, found, exhaustion, proof, bitwise, sizes)
    if not figures:
        return replace(decision, evidence=(*lifted, *decision.evidence))
    rounds = by_format.error_evidence(_runs(cases)) if decision.klass in ("REAL", "EDGE") else None
    formats = by_format.classes(_runs(cases), decision.klass, _kernels_differ(cases), exhaustion)
    return replace(decision, evidence=(*lifted, *decision.evidence, *([rounds] if rounds else [])), formats=formats)


def _runs(cases: Sequence[Case]) -> list[by_format.Run]:
    return [(c.instance, c.roots, c.batch) for c in sorted(cases, key=lambda c: len(c.instance.arena.nodes))]


def _exhaust(cases: Sequence[Case]) -> tuple[rung_exhaustive.Exhaustion, ...] | None:
    explicit = {t.dtype for c in cases for t in c.instance.inputs.values() if t.dtype not in ("float", "bool", "weak")}
    if explicit:
        return None
    whole = rung_exhaustive.exhaust([pair for case in cases[:3] for pair in case.roots])
    if whole is not None:
        return whole
    # Subterms that differ in bits may still make equal results: of them only full agreement says something.
    parts = rung_exhaustive.exhaust([pair for case in cases[:3] for pair in case.pairs])
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
    smt = rung_smt.prove_ieee([c.instance for c in cases[:2]], [c.pairs for c in cases[:2]])
    if smt is not None and smt.klass is not None:
        return Decision(smt.klass, PROVED, smt.how, (Evidence("4 SMT", smt.how),))
    return None


def _kernels_differ(cases: Sequence[Case]) -> bool:
    """Whether the sides run different kernels where they differ: then their last bits are not comparable, whatever samples say."""
    return any(t.kernel for c in cases for pair in c.pairs for t in _below_pair(pair))


def _below_pair(pair: Pair) -> list[Term]:
    from adapterc.verify.terms import ordered

    left, right = {t.serial: t for t in ordered([pair[0]])}, {t.serial: t for t in ordered([pair[1]])}
    return [t for s, t in (*left.items(), *right.items()) if not (s in left and s in right)]


def _ieee(found: Sequence[rung_exhaustive.Exhaustion]) -> list[rung_exhaustive.Exhaustion]:
    """The class is that of the IEEE formats. DLFloat16, which has no infinity and no subnormals, is reported next to it."""
    return [e for e in found if e.format != "dlfloat16"]


def _exhaustive_evidence(found: tuple[rung_exhaustive.Exhaustion, ...]) -> Evidence:
    text = "; ".join(
        f"{e.format}: {e.different} of {e.values} differ ({e.zero_sign} in the sign of zero, {e.nonfinite} at non-finite inputs)"
        for e in found
    )
    return Evidence("2 exhaustive 16-bit", text, tuple((f"{e.format}_different", e.different) for e in found))


def _format_failures(cases: Sequence[Case]) -> list[Mask]:
    """Without a proof, large differences in the format itself count: they are what tests can see."""
    found = []
    for case in cases:
        parted = in_format(case.roots, case.batch, test_format(case.instance))
        with np.errstate(all="ignore"):
            scale = np.maximum(np.maximum(np.abs(parted.left), np.abs(parted.right)).max(axis=0, initial=0), 1.0)
            large = np.abs(parted.left - parted.right) > scale[None, :] / 16
        usual = np.isfinite(parted.left) & np.isfinite(parted.right) & ~parted.overflow
        found.append(
            (large & usual & parted.apart).any(axis=0) & (case.batch.kind != NONFINITE) & (case.batch.kind != EXTREME) & case.allowed
        )
    return found


def _unequal_in_format(claim: Claim, cases: list[Case], bad: list[Mask], seed: int, effort: int, guess: bool, sizes: Evidence) -> Decision:
    case, mask = next((c, b) for c, b in zip(cases, bad, strict=True) if b.any())
    name = test_format(case.instance)
    index = best_sample(case.instance, case.batch, mask)
    sample = case.batch.only(np.arange(case.batch.count) == index)
    parted = in_format(case.instance.pairs, sample, name)
    with np.errstate(all="ignore"):
        gap = np.nan_to_num(np.abs(parted.left - parted.right)[:, 0])
    example = counterexample(case.instance, sample, list(parted.left[:, 0]), list(parted.right[:, 0]), gap == gap.max(), name)
    evidence = Evidence("6 values", f"the sides part in {name}", (("different", int(sum(b.sum() for b in bad))),))
    if guess:
        found = _guarded(claim, cases, bad, seed, effort, signs=_pads(claim.left) or not _pads(claim.right))
        if found is not None:
            how = f"{_sentence(example)}; it holds when {G.guard_text(found[0])}"
            return Decision("COND", REFUTED, how, (evidence, *found[1].evidence, sizes), example, found[0], found[1].klass)
    return Decision("WRONG", REFUTED, _sentence(example), (evidence, sizes), example)


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
