"""The nearest rule that would hold, in words: another fill, or sizes at which the two sides happen to agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from adapterc.dsl.ast import Call, Expr, Literal, Name, walk
from adapterc.dsl.ops import bind, map_children
from adapterc.dsl.printer import to_text
from adapterc.verify.cases import Case, Decision, Mask
from adapterc.verify.claim import Claim, size_symbols

PADS = ("pad", "constant_pad")


def pads(expression: Expr) -> bool:
    return any(isinstance(n, Call) and n.op in PADS for n in walk(expression))


def fill_mend(claim: Claim, tried: Callable[[Claim], Decision]) -> str | None:
    """Another fill under which the rule would hold: the mend of a wrong pad is its fill, not a guard on the data."""
    if not pads(claim.right) or pads(claim.left):
        return None
    for fill in (Literal(0), Literal(1), Call("neg", (Name("inf"),)), Name("inf")):

        def refill(node: Expr, fill: Expr = fill) -> Expr:
            inner = map_children(node, refill)
            if isinstance(inner, Call) and inner.op in PADS:
                bound = {**bind(inner), "value": fill}
                return Call(inner.op, (), tuple(sorted(bound.items())), inner.span)
            return inner

        if tried(replace(claim, right=refill(claim.right))).klass in ("EXACT", "EXACT-Z", "REAL"):
            return f"Fill with {to_text(fill)} instead: that is what its consumer ignores."
    return "No fill is ignored here: crop the padded lanes off, or mask them, before this op."


def size_mend(claim: Claim, cases: Sequence[Case], bad: Sequence[Mask]) -> str | None:
    """Sizes at which the sides agreed on every sample though they part at others: said, but not offered as a guard.

    A rule that is wrong but for equal (or single) sizes is not the rule that its author meant.
    """
    seen = [(dict(c.instance.sizes), bool(b.any())) for c, b in zip(cases, bad, strict=False)]
    symbols = size_symbols(claim.where)
    pairs: list[tuple[str, str | None]] = [*itertools.combinations(symbols, 2), *((n, None) for n in symbols)]
    for first, second in pairs:
        equal = [sizes[first] == (1 if second is None else sizes[second]) for sizes, _ in seen]
        met = [failed for (_, failed), holds in zip(seen, equal, strict=True) if holds]
        if len(met) >= 2 and not any(met) and any(failed for (_, failed), holds in zip(seen, equal, strict=True) if not holds):
            return f"The sides agreed where {first} == {second or 1}; at other sizes they are different functions."
    return None
