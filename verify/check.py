"""A verdict for every kind of rule."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from adapterc.dsl.adapter import Adapter, Boundary, Pad, Place, Replace, Require, Rule
from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, walk
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.printer import to_text
from adapterc.dsl.sizes import evaluate_condition
from adapterc.dsl.types import TensorType
from adapterc.verify import repairs, rung_hypothesis, rung_padding
from adapterc.verify.cases import Decision
from adapterc.verify.claim import Claim, attribute_choices, claim_of, conjuncts
from adapterc.verify.guards import guard_text
from adapterc.verify.ladder import decide
from adapterc.verify.vacuity import vacuous
from adapterc.verify.verdict import ALL_SIZES, PROVED, REFUTED, TESTED, UNDECIDED, Counterexample, Evidence, Verdict, rank

FULLY_MASKED = "fully_masked_rows"


def check_adapter(adapter: Adapter, *, effort: int = 1, examples: int | None = None) -> tuple[Verdict, ...]:
    """One verdict a rule, in order. `effort` multiplies the number of samples, `examples` is how many Hypothesis draws (see verify/rung_hypothesis.py)."""
    return tuple(check_rule(rule, adapter, effort=effort, examples=examples) for rule in adapter.rules)


def check_rule(rule: Rule, adapter: Adapter, *, effort: int = 1, examples: int | None = None) -> Verdict:
    """The strongest class that holds for a rule, with evidence. Never raises for a rule that passed dsl's checks."""
    start = time.perf_counter()
    try:
        verdict = _verdict(rule, adapter, effort, examples)
    except SpecError as error:
        verdict = _plain(rule, adapter, "WRONG", UNDECIDED, error.diagnostics[0].message)
    except RecursionError:
        verdict = _plain(rule, adapter, "WRONG", UNDECIDED, "the expression nests too deep to evaluate")
    return replace(verdict, seconds=time.perf_counter() - start)


def _verdict(rule: Rule, adapter: Adapter, effort: int, examples: int | None) -> Verdict:
    match rule:
        case Pad():
            return _pad(rule, adapter, effort, examples)
        case Place():
            return _plain(rule, adapter, "EXACT", PROVED, "the same ops on the host: nothing but the place changes")
        case Boundary():
            return _plain(rule, adapter, "EXACT", PROVED, "a copy, or an end of the compile unit: the identity on values")
        case Require():
            return _require(rule, adapter)
        case Replace():
            return _plain(rule, adapter, "WRONG", UNDECIDED, "the stock module is needed: `check_replace` runs it")
    claim = claim_of(rule, adapter)
    assert claim is not None
    return _claim(rule, adapter, claim, effort, examples)


def _plain(rule: Rule, adapter: Adapter, klass: str, status: str, how: str) -> Verdict:
    return Verdict(rule.header.name, adapter.name, klass, status, how)


def _claim(rule: Rule, adapter: Adapter, claim: Claim, effort: int, examples: int | None) -> Verdict:
    reason = vacuous(attribute_choices(claim)[0])
    if reason is not None:
        return _plain(rule, adapter, "WRONG", UNDECIDED, reason)
    accepted = {edge for edge, _ in rule.header.accepts}
    choices = attribute_choices(claim)
    decision = rung_hypothesis.searched(_visible(choices[0], accepted), decide_all(choices, effort, accepted), examples)
    if decision.status == REFUTED and decision.klass == "WRONG":
        mend = repairs.nearest(choices[0], lambda mended: decide(mended, guess=False, brief=True, figures=False))
        decision = replace(decision, mend=mend or decision.mend)
    return of_decision(rule, adapter, claim, decision)


def decide_all(claims: Sequence[Claim], effort: int = 1, accepted: set[str] | frozenset[str] = frozenset(), guess: bool = True) -> Decision:
    """The weakest decision over the choices of untyped attributes; rows without a visible key are left out where the rule accepts them."""
    decisions = [_with_masks(c, effort, accepted, guess, brief=i > 0) for i, c in enumerate(claims)]
    decided = [d for d in decisions if not (d.status == UNDECIDED and d.how.startswith("no sizes"))]
    if not decided:
        return decisions[0]
    weakest = max(decided, key=lambda d: (d.status == UNDECIDED, rank(d.klass), -_strength(d)))
    return weakest if all(_at_all_sizes(d) for d in decided) else _at_sizes_tried(weakest)


def _at_all_sizes(decision: Decision) -> bool:
    return any(name == ALL_SIZES for e in decision.evidence for name, _ in e.numbers)


def _at_sizes_tried(decision: Decision) -> Decision:
    """The decision where another choice of attributes was not shown at all sizes: what this one rests on speaks for it alone."""
    kept = tuple(replace(e, numbers=tuple(n for n in e.numbers if n[0] != ALL_SIZES)) for e in decision.evidence)
    return replace(decision, evidence=kept)


def _strength(decision: Decision) -> int:
    return {PROVED: 2, TESTED: 1}.get(decision.status, 0)


def _with_masks(claim: Claim, effort: int, accepted: set[str] | frozenset[str], guess: bool, brief: bool) -> Decision:
    visible = _row_conditions(claim)
    if FULLY_MASKED not in accepted or not visible:
        return decide(claim, effort=effort, guess=guess, brief=brief)
    inner = decide(claim.guarded(*visible), effort=effort, guess=guess, brief=brief)
    if inner.klass in ("EXACT", "EXACT-Z", "REAL", "EDGE") and inner.status in (PROVED, TESTED):
        how = f"{inner.how}; rows without a visible key are left out, as the spec accepts" if inner.klass != "EDGE" else inner.how
        return replace(inner, klass="EDGE", how=how, edges=(FULLY_MASKED, *inner.edges))
    return inner


def _visible(claim: Claim, accepted: set[str] | frozenset[str]) -> Claim:
    """The claim without rows that have no visible key, where the rule accepts these."""
    return claim.guarded(*_row_conditions(claim)) if FULLY_MASKED in accepted else claim


def _row_conditions(claim: Claim) -> tuple[Expr, ...]:
    masks = [name for name, kind in claim.where if isinstance(kind, TensorType) and kind.element == "bool" and kind.dims]
    return tuple(Call("any", (Name(name), Literal(-1))) for name in masks)


def of_decision(rule: Rule, adapter: Adapter, claim: Claim, decision: Decision) -> Verdict:
    """The verdict of a rule whose claim was decided."""
    return Verdict(
        rule.header.name,
        adapter.name,
        decision.klass,
        decision.status,
        decision.how,
        decision.evidence,
        decision.counterexample,
        guard_text(decision.guard) if decision.guard else None,
        decision.guarded_class,
        decision.mend,
        decision.edges,
        decision.bound,
        decision.formats,
        (to_text(claim.left), to_text(claim.right)),
    )


# Padding ----------------------------------------------------------------------------------------------------------------------------------


def _pad(rule: Pad, adapter: Adapter, effort: int, examples: int | None) -> Verdict:
    claims = rung_padding.pad_claims(rule, adapter)
    claim = claims[0]
    if not any(rung_padding.grows(kind, rule.dim) for _, kind in rule.where):
        return _plain(rule, adapter, "WRONG", UNDECIDED, f"no variable of the pattern has the dimension {rule.dim}")
    chosen = rung_padding.vocabulary_claim(rule, claim)
    if chosen is not None:
        seen = decide_all([chosen], effort, guess=False)
        if seen.status == REFUTED:
            how = f"nothing cuts the new logits off, and the token chosen changes: {seen.how}"
            decision = replace(seen, klass="WRONG", how=how, guard=(), guarded_class=None, mend=rung_padding.mend(rule, adapter))
            return of_decision(rule, adapter, chosen, decision)
    accepted = {edge for edge, _ in rule.header.accepts}
    decision = decide_all(claims, effort, accepted, guess=False)
    decision = rung_hypothesis.searched(_visible(claim, accepted), decision, examples)
    found = rung_padding.tolerances(rule, adapter)
    noninterference = Evidence(
        "7 padding", rung_padding.describe(found), tuple((f"{t.tensor}_ignores", ", ".join(t.ignored)) for t in found)
    )
    decision = replace(decision, evidence=(*decision.evidence, noninterference))
    if decision.status == REFUTED:
        # The fill is the author's to choose, so a guard on the data is not the mend.
        how = f"the new lanes reach real elements: {decision.how.split('; it holds when')[0]}"
        decision = replace(decision, klass="WRONG", how=how, guard=(), guarded_class=None, mend=rung_padding.mend(rule, adapter))
    elif decision.klass in ("EXACT", "EXACT-Z"):
        decision = replace(decision, klass="REAL", how=f"{decision.how}; a sum over more lanes may round in another order")
    return of_decision(rule, adapter, claim, decision)


# Requirements -----------------------------------------------------------------------------------------------------------------------------


def _require(rule: Require, adapter: Adapter) -> Verdict:
    """The examples say what they should: every accepted config meets the condition, every refused one does not."""
    for side, examples, wanted in (("accepted", rule.accepted, True), ("refused", rule.refused, False)):
        if not examples:
            return _plain(
                rule, adapter, "WRONG", REFUTED, f"no {side} example shows that the condition can be {'met' if wanted else 'violated'}"
            )
        for fields in examples:
            config = _record(dict(fields))
            holds = all(evaluate_condition(part, _names(config)) for part in conjuncts(rule.condition))
            if holds != wanted:
                shown = ", ".join(f"{key}: {value}" for key, value in fields)
                how = f"the {side} example {{{shown}}} {'violates' if wanted else 'meets'} the condition `{to_text(rule.condition)}`"
                example = Counterexample((), (("config", f"{{{shown}}}"),), (), str(holds), str(wanted), "condition")
                return replace(_plain(rule, adapter, "WRONG", REFUTED, how), counterexample=example)
    count = len(rule.accepted) + len(rule.refused)
    fields_read = sorted({n.name for n in walk(rule.condition) if isinstance(n, Attribute)})
    how = f"{count} example configs fall on the sides they are listed under"
    return replace(
        _plain(rule, adapter, "EXACT", PROVED, how), evidence=(Evidence("0 examples", f"reads {', '.join(fields_read) or 'nothing'}"),)
    )


def _record(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Keys such as `rope_scaling.rope_type` make nested records."""
    config: dict[str, object] = {}
    for key, value in fields.items():
        *path, last = key.removeprefix("config.").split(".")
        level = config
        for part in path:
            inner = level.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = level[part] = {}
            level = inner
        level[last] = value
    return config


def _names(config: Mapping[str, object]) -> Mapping[str, object]:
    return {"config": config, "dtype": "float16", "device": "spyre", "stick": 64, "cores": 32, "gaps": ()}
