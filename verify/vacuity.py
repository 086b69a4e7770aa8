"""Rung 0: a rule must be able to fail. Its sides differ, its guard can hold, and at least one small change of it is noticed."""

from __future__ import annotations

from dataclasses import replace

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
    # A rule that rounds differently is told from everything by its bits, which would prove nothing.
    bits = not killed(instances(claim, 2, stick_edges=False))
    tried = 0
    for mutant in mutants(claim.right):
        changed = instances(replace(claim, right=mutant.expression), 2, stick_edges=False)
        tried += 1
        if killed(changed, bits):
            return None
        if tried >= MOST_MUTANTS:
            break
    return f"none of {tried} small changes of the right side is noticed, so agreement means nothing" if tried else None


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
