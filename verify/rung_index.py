"""Rung 1: index algebra with symbolic sizes. Both sides as functions from a place of the output to an element of an input, a fill, or the
same computation of such; equal for all sizes when the places are equal polynomials over digits (verify/index_facts.py).

Rules that only move elements are proved EXACT at all sizes. With `real`, composites are opened and sums are compared as sums over an index, so
that rules that move elements in and out of sums, products and norms, or pad a sum with zeros, are proved equal over the reals at all sizes.
What the argument cannot follow is Undecided, never refuted: the sizes tried then have to do, and the verdict says which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adapterc.dsl.ast import Attribute, Call, Name, Sequence, Subscript, walk
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.ops import KNOWN_NAMES, lookup
from adapterc.dsl.poly import ONE, Poly, number
from adapterc.dsl.types import RestDims, ScalarType, TensorType
from adapterc.verify.claim import Claim, size_symbols
from adapterc.verify.index_facts import Facts, NoValue, Refine, Undecided
from adapterc.verify.index_run import SymbolicRun
from adapterc.verify.index_smt import Questions
from adapterc.verify.index_terms import Apply, Choice, Const, Element, Fold, Opaque, Read, Symbolic, Whole
from adapterc.verify.tensors import ShapeError
from adapterc.verify.verdict import ALL_SIZES as ALL
from adapterc.verify.verdict import Evidence

RUNG = "1 index algebra"
RANKS = (1, 0, 2)  # dimensions that `...` stands for
MOST_CASES = 48
MOST_NODES = 6_000
COMMUTES = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or"})


@dataclass(frozen=True, slots=True)
class AllSizes:
    """The sides are equal at all sizes that the types and the guard admit. `ranks`: how many dimensions `...` was, if it is used."""

    cases: int
    ranks: tuple[int, ...]
    smt: bool

    @property
    def how(self) -> str:
        rest = f", `...` of {', '.join(str(r) for r in sorted(self.ranks))} dimensions" if self.ranks else ""
        by = "z3 and affine index algebra" if self.smt else "affine index algebra"
        return f"{by} with symbolic sizes ({self.cases} case{'s' if self.cases != 1 else ''}{rest})"


def all_sizes(claim: Claim, real: bool = False, ranks: int = len(RANKS)) -> AllSizes | None:
    """A proof for all sizes, or None where the argument stops. `real`: equality over the reals, instead of the same bits. `ranks`: how many of the
    lengths that `...` may have are looked at."""
    uses_rest = any(isinstance(d, RestDims) for _, t in claim.where if isinstance(t, TensorType) for d in t.dims)
    cases, held, smt = 0, [], False
    for rank in RANKS[:ranks] if uses_rest else (0,):
        try:
            found, used = _proved(claim, rank, real)
        except (Undecided, ShapeError, SpecError, RecursionError):
            return None
        if found:
            held.append(rank)
        cases, smt = cases + found, smt or used
    return AllSizes(cases, tuple(held) if uses_rest else (), smt) if cases else None


def sizes_play_no_part(claim: Claim) -> bool:
    """Whether both sides are elementwise over operands of one shape: what holds of one element holds at every size."""
    shapes = {kind.dims for _, kind in claim.where if isinstance(kind, TensorType)}
    if len(shapes) > 1 or any(isinstance(t, ScalarType) and t.element == "size" for _, t in claim.where):
        return False
    variables = {name for name, _ in claim.where}
    for node in (n for side in (claim.left, claim.right, *claim.guard) for n in walk(side)):
        match node:
            case Call() if not lookup(node).elementwise:
                return False
            case Name(id=name) if name not in variables and name not in KNOWN_NAMES:
                return False
            case Subscript() | Attribute() | Sequence() | Name(id="stick" | "cores"):
                return False
    return True


def evidence(claim: Claim, real: bool) -> Evidence | None:
    """A proof of a claim whose sides agree at the sizes tried, for all sizes; None where the argument stops."""
    found = all_sizes(claim, real)
    if found is None:
        return None
    what = "the same number over the reals" if real else "the same element, fill or computation"
    return Evidence(
        "1 index algebra", f"for all sizes, each place of both sides is {what}: {found.how}", ((ALL, "all"), ("cases", found.cases))
    )


def lifted(claim: Claim) -> tuple[Evidence, ...]:
    """Why what was shown at the sizes tried holds at all of them, where it does: no proof by itself."""
    if not sizes_play_no_part(claim):
        return ()
    return (Evidence(RUNG, "elementwise over one shape: what holds of an element holds at all sizes", ((ALL, "all"),)),)


def _proved(claim: Claim, rank: int, real: bool) -> tuple[int, bool]:
    """The number of cases in which both sides have a value and are equal. Raises Undecided for the first that is not shown."""
    questions, done = Questions(), 0
    open_cases = [Facts(questions=questions)]
    tried = 0
    while open_cases:
        facts = open_cases.pop()
        tried += 1
        if tried > MOST_CASES:
            raise Undecided("too many cases")
        try:
            done += _case(claim, rank, real, facts)
        except Refine as refinement:
            open_cases += [Facts((*facts.taken, digits), questions) for digits in refinement.alternatives]
    return done, questions.used


def _case(claim: Claim, rank: int, real: bool, facts: Facts) -> int:
    run = SymbolicRun(facts, real)
    try:
        _declare(run, claim, rank)
        for condition in claim.guard:
            run.assume(condition)
        left = run.tensor(run.evaluate(claim.left))
        count = len(left.shape)
        place = tuple(facts.index(f"i{j}<{n}", n) for j, n in enumerate(left.shape))
        here = left.at(place)
    except NoValue:
        return 0  # the left side has no value here, so there is nothing to show
    run.obliged = True
    try:
        right = run.tensor(run.evaluate(claim.right))
        if len(right.shape) != count:
            raise Undecided("the ranks differ")
        for a, b in zip(left.shape, right.shape, strict=True):
            fits = facts.shown(b - a, hard=True) if claim.crop else facts.zero(a - b, hard=True)
            if not fits:
                raise Undecided(f"the sizes {a} and {b} are not shown to be equal")
        there = right.at(place)
    except NoValue:
        if facts.contradictory():
            return 0
        raise Undecided("the right side has no value in some case") from None
    if not Comparison(run).same(here, there):
        raise Undecided("the places are not shown to be equal")
    return 1


def _declare(run: SymbolicRun, claim: Claim, rank: int) -> None:
    """Bind the sizes and the inputs."""
    run.facts.positive.update(("stick", "cores"))
    for name in ("stick", "cores"):
        run.env[name] = run.facts.size(name)
    for name in size_symbols(claim.where):
        run.env[name] = run.facts.size(name)
    rest = tuple(run.facts.size(f"...{i}") for i in range(rank))
    for name, kind in claim.where:
        if isinstance(kind, ScalarType):
            if kind.element != "size":
                run.env[name] = Symbolic((), _reader(name), "weak")
            continue
        shape: list[Poly] = []
        for dim in kind.dims:
            if isinstance(dim, RestDims):
                shape.extend(rest)
            else:
                size = run.size(run.evaluate(dim))
                if not isinstance(dim, Name) and not run.facts.shown(size):
                    run.facts.learn(size)
                shape.append(size)
        run.env[name] = Symbolic(tuple(shape), _reader(name), kind.element)


def _reader(name: str) -> Callable[[tuple[Poly, ...]], Element]:
    return lambda place: Read(name, place)


@dataclass(slots=True)
class Comparison:
    """Equality of two elements under the facts of a case."""

    run: SymbolicRun
    nodes: int = 0
    depth: int = 0

    def same(self, a: Element, b: Element) -> bool:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise Undecided("too many pairs of elements")
        if isinstance(a, Choice):
            return self._either(a, lambda branch: self.same(branch, b))
        if isinstance(b, Choice):
            return self._either(b, lambda branch: self.same(a, branch))
        return self._alike(a, b) or self.run.facts.contradictory()

    def _either(self, choice: Choice, holds: Callable[[Element], bool]) -> bool:
        facts = self.run.facts
        sign = facts.sign(choice.condition)
        if sign is not None:
            return holds(choice.then if sign else choice.other)
        for condition, branch in ((choice.condition, choice.then), (-choice.condition - ONE, choice.other)):
            with self.run.under(condition):
                if not holds(branch):
                    return False
        return True

    def _alike(self, a: Element, b: Element) -> bool:
        facts = self.run.facts
        match a, b:
            case Read(name=x, place=p), Read(name=y, place=q):
                return x == y and len(p) == len(q) and all(facts.zero(i - j, hard=True) for i, j in zip(p, q, strict=True))
            case Whole(value=p), Whole(value=q):
                return facts.zero(p - q, hard=True)
            case (Whole(value=p), Const(payload=c)) | (Const(payload=c), Whole(value=p)):
                return not isinstance(c, bool | str) and facts.zero(p - number(c), hard=True)
            case Const(payload=x), Const(payload=y):
                return type(x) is type(y) and x == y
            case Apply(op=f, statics=s, args=xs), Apply(op=g, statics=t, args=ys):
                if f != g or s != t or len(xs) != len(ys):
                    return False
                if all(self.same(x, y) for x, y in zip(xs, ys, strict=True)):
                    return True
                return f in COMMUTES and len(xs) == 2 and self.same(xs[0], ys[1]) and self.same(xs[1], ys[0])
            case Fold(op=f, variable=v, bound=m, body=x), Fold(op=g, variable=w, bound=n, body=y):
                if f != g or not facts.zero(m - n, hard=True):
                    return False
                return self.run.same_variable(v, m, w, y, lambda other: self.same(x, other))
            case Opaque(op=f, statics=s, tensors=xs, place=p), Opaque(op=g, statics=t, tensors=ys, place=q):
                if f != g or s != t or len(xs) != len(ys) or len(p) != len(q):
                    return False
                return all(facts.zero(i - j, hard=True) for i, j in zip(p, q, strict=True)) and all(
                    self._same_tensor(x, y) for x, y in zip(xs, ys, strict=True)
                )
        return False

    def _same_tensor(self, x: Symbolic, y: Symbolic) -> bool:
        facts = self.run.facts
        if x is y:
            return True
        if len(x.shape) != len(y.shape) or not all(facts.zero(m - n, hard=True) for m, n in zip(x.shape, y.shape, strict=True)):
            return False
        self.depth += 1
        with self.run.scope():
            place = tuple(facts.index(f"w{self.depth}.{j}<{n}", n) for j, n in enumerate(x.shape))
            found = self.same(x.at(place), y.at(place))
        self.depth -= 1
        return found
