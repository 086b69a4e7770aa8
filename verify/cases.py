"""What the ladder works on, and what it gives: instances with their samples in, one decision out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from adapterc.dsl.ast import Expr
from adapterc.verify.compare import admitted, test_format
from adapterc.verify.instances import Instance
from adapterc.verify.samples import Batch, draw
from adapterc.verify.terms import Term
from adapterc.verify.verdict import Counterexample, Evidence

Mask = NDArray[Any]
Pair = tuple[Term, Term]


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


def case_of(instance: Instance, pairs: list[Pair], seed: int, effort: int) -> Case:
    size = len(instance.arena.nodes)
    rounds = (24 if size < 60 else 6 if size < 600 else 2 if size < 2_000 else 1) * effort
    return Case(instance, pairs, draw(instance, seed, rounds, test_format(instance)), spaced(instance.pairs, 48 if size < 600 else 16))


def spaced(pairs: list[Pair], most: int) -> list[Pair]:
    """At most `most` of the output elements whose sides are not one term, evenly spaced, the first and the last among them."""
    open_pairs = [p for p in pairs if p[0] is not p[1]] or pairs
    if len(open_pairs) <= most:
        return open_pairs
    return [open_pairs[i * (len(open_pairs) - 1) // (most - 1)] for i in range(most)]
