"""Whose last bits a result has: two sides that run different kernels where they differ cannot be compared bit by bit, whatever samples say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from adapterc.verify.terms import EXACT_OPS, INTEGER_DTYPES, Term, ordered

Pair = tuple[Term, Term]
_WHOLE = INTEGER_DTYPES | {"bool", "weakint"}


def kernels_differ(pairs: Iterable[Pair]) -> bool:
    """Whether a kernel that rounds runs on one side only. Selections (amax, kth) round nothing: of them the shapes reduced must agree,
    for over another number of lanes it is another kernel, with its own order of NaN and of signed zeros."""
    return any(_differ(pair) for pair in pairs)


def _differ(pair: Pair) -> bool:
    selections: tuple[set[str], set[str]] = (set(), set())
    for side, terms in enumerate(_apart(pair)):
        for term in terms:
            if not term.kernel or term.dtype in _WHOLE:
                continue
            if term.op not in EXACT_OPS or term.op == "round":
                return True
            selections[side].add(term.kernel[term.kernel.find("[") :])
    return selections[0] != selections[1]


def _apart(pair: Pair) -> tuple[Iterator[Term], Iterator[Term]]:
    left, right = ({t.serial: t for t in ordered([side])} for side in pair)
    return (t for s, t in left.items() if s not in right), (t for s, t in right.items() if s not in left)


def whole_numbers(pairs: Sequence[Pair]) -> bool:
    """Whether the sides differ in nothing but integers and truth values, whose arithmetic is that of the real numbers."""
    return all(t.dtype in _WHOLE for pair in pairs for terms in _apart(pair) for t in terms)
