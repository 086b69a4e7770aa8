"""Rung 0: a rule must be able to fail. Its sides differ, its guard can hold, and at least one small change of it is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adapterc.dsl.ast import Call, Expr, Literal
from adapterc.verify.claim import Claim
from adapterc.verify.compare import admitted, differing, in_format, over_reals, test_format
from adapterc.verify.instances import Catalogue, Instance, instances
from adapterc.verify.mutants import mutants
from adapterc.verify.samples import NONFINITE, draw

MOST_MUTANTS = 8


def vacuous(claim: Claim) -> str | None:
    """Why the claim says nothing, or None when it says something."""
    if claim.left == claim.right:
        return "both sides are the same expression, so the rule says nothing"
    found = instances(claim, 2, stick_edges=False)
    if killed(found, bits=False):
        return None  # it can fail: it does
    # A rule that rounds differently is told from everything by its bits, which would prove nothing.
    bits = not killed(found)
    tried = 0
    for change in _changes(claim):
        tried += 1
        if killed(instances(change, 2, stick_edges=False), bits):
            return None
        if tried >= MOST_MUTANTS:
            break
    if _doubles(claim, bits):
        return None
    return f"none of {tried} small changes of its sides is noticed, so agreement means nothing" if tried else None


def _changes(claim: Claim) -> Iterator[Claim]:
    """Small changes of the right side, and of the left one where those are few."""
    for mutant in mutants(claim.right):
        yield replace(claim, right=mutant.expression)
    for mutant in mutants(claim.left):
        yield replace(claim, left=mutant.expression)


def _doubles(claim: Claim, bits: bool) -> bool:
    """Whether at least another result altogether is noticed: for rules that have few parts, or only ones whose changes make no difference."""
    return any(killed(instances(replace(claim, right=other), 2, stick_edges=False), bits) for other in _others(claim.right))


def _others(result: Expr) -> tuple[Expr, ...]:
    return Call("add", (result, Literal(1))), Call("logical_not", (result,))


def killed(catalogue: Catalogue, bits: bool = True) -> bool:
    """Whether some instance shows the sides to differ: in shape, over the reals, or (`bits`) in the format's bits."""
    return any(instance.right is None or _parts(instance, bits) for instance in catalogue.found)


def _parts(instance: Instance, bits: bool) -> bool:
    pairs = [p for p in instance.pairs if p[0] is not p[1]]
    if not pairs or not differing(pairs):
        return False
    batch = draw(instance, 11, 2)
    usual = admitted(instance, batch)
    finite = usual & (batch.kind != NONFINITE)
    if (over_reals(instance, pairs, batch).apart.any(axis=0) & finite).any():
        return True
    if not bits:
        return False
    # A sign of zero, a lost infinity or one bit is what tells an exact rule from its mutant.
    return bool((in_format(pairs, batch, test_format(instance)).apart.any(axis=0) & usual).any())
