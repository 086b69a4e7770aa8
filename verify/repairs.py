"""The nearest rule that would hold: small changes of a wrong substitute, tried one at a time until one makes the sides equal.

The changes are the slips that authors make: a power off by one, a factor left out, another axis, operands swapped, a sum where a product belongs,
another fill, padded lanes that nothing cuts off, a mean over lanes that are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from adapterc.dsl.ast import Call, Expr, Literal, Name, Slice, Subscript, walk
from adapterc.dsl.ast import Rest as Everything
from adapterc.dsl.ops import bind, lookup, map_children
from adapterc.dsl.printer import to_text
from adapterc.dsl.types import TensorType
from adapterc.verify.cases import Decision
from adapterc.verify.claim import Claim, size_symbols
from adapterc.verify.compare import admitted, over_reals
from adapterc.verify.instances import Instance, instances
from adapterc.verify.mutants import at_each, mutants
from adapterc.verify.samples import NONFINITE, draw
from adapterc.verify.verdict import PROVED, TESTED

MOST_TERMS = 60_000  # that the substitutes tried may make, together
MOST_DECIDED = 4  # of those that agree, how many the ladder judges
HOLDS = ("EXACT", "EXACT-Z", "REAL", "EDGE")
INFINITY = Call("neg", (Name("inf"),))


@dataclass(frozen=True, slots=True)
class Repair:
    """A change, in words, and the substitute that it makes."""

    change: str
    substitute: Expr


def nearest(claim: Claim, decide: Callable[[Claim], Decision]) -> str | None:
    """The first small change of the substitute under which the ladder finds the rule to hold, in a sentence; None where there is none."""
    judged, spent = 0, 0
    seen: set[Expr] = {claim.right, claim.left}
    for repair in _repairs(claim):
        if spent >= MOST_TERMS or judged >= MOST_DECIDED:
            return None
        if repair.substitute in seen:
            continue
        seen.add(repair.substitute)
        mended = replace(claim, right=repair.substitute)
        found = instances(mended, 2, stick_edges=False).found[:2]
        spent += 100 + sum(len(i.arena.nodes) for i in found)
        if not found or not all(i.right is not None and _same(i) for i in found):
            continue
        judged += 1
        decision = decide(mended)
        if decision.klass in HOLDS and decision.status in (PROVED, TESTED):
            return f"with {repair.change} it is {decision.klass}: substitute: {to_text(repair.substitute)}"
    return None


def _same(instance: Instance) -> bool:
    """Whether the sides agree over the reals on a few samples: cheap, and never the last word."""
    batch = draw(instance, 17, 1)
    finite = admitted(instance, batch) & (batch.kind != NONFINITE)
    step = max(1, len(instance.pairs) // 6)
    return not (over_reals(instance, instance.pairs[::step], batch).apart.any(axis=0) & finite).any()


def _repairs(claim: Claim) -> Iterator[Repair]:
    """Likeliest first."""
    for rule in (_fills, _crops, _powers, _counts, _scales, _axes):
        yield from rule(claim)
    for mutant in mutants(claim.right):
        yield Repair(mutant.change.split(":")[0], mutant.expression)


def _is_pad(node: Expr) -> bool:
    return isinstance(node, Call) and node.op in ("pad", "constant_pad")


def _with(node: Call, **changed: Expr) -> Call:
    """The call with some arguments changed, all of them by place."""
    values = [*{**bind(node), **changed}.values()]
    while values and values[-1] == lookup(node).params[len(values) - 1].default:
        values.pop()
    return Call(node.op, tuple(values), (), node.span)


def _everywhere(claim: Claim, change: Callable[[Expr], Iterator[tuple[str, Expr]]]) -> Iterator[Repair]:
    for words, substitute in at_each(claim.right, change):
        yield Repair(words, substitute)


def _fills(claim: Claim) -> Iterator[Repair]:
    def change(node: Expr) -> Iterator[tuple[str, Expr]]:
        if isinstance(node, Call) and _is_pad(node):
            for fill in (Literal(0), Literal(1), INFINITY, Name("inf")):
                yield f"the fill {to_text(fill)}", _with(node, value=fill)

    return _everywhere(claim, change)


def _crops(claim: Claim) -> Iterator[Repair]:
    """What was padded cut off again, at the end or before the op that reads it."""
    for size in size_symbols(claim.where):
        cut = (Everything(), Slice(None, Name(size)))
        yield Repair("the new lanes cut off", Subscript(claim.right, cut))

        def change(node: Expr, cut: tuple[Expr, ...] = cut) -> Iterator[tuple[str, Expr]]:
            # A cut right behind the pad would undo it, which is no repair.
            if isinstance(node, Call) and lookup(node).family == "contraction" and any(_is_pad(n) for n in walk(node)):
                yield "the new lanes cut off", Subscript(node, cut)

        yield from _everywhere(claim, change)


def _powers(claim: Claim) -> Iterator[Repair]:
    """x * x for pow(x, 3): one factor more or less."""

    def change(node: Expr) -> Iterator[tuple[str, Expr]]:
        if isinstance(node, Call) and node.op == "mul" and len(node.args) == 2:
            for factor in dict.fromkeys(node.args):
                yield f"one factor {to_text(factor)} more", Call("mul", (node, factor))
        if isinstance(node, Call) and node.op == "pow" and len(node.args) == 2 and isinstance(node.args[1], Literal):
            exponent = node.args[1].value
            if isinstance(exponent, int | Fraction) and not isinstance(exponent, bool):
                for step in (1, -1):
                    yield f"the exponent {exponent + step}", Call("pow", (node.args[0], Literal(exponent + step)))

    return _everywhere(claim, change)


def _axes(claim: Claim) -> Iterator[Repair]:
    """Each dimension that an op names, another one."""

    def change(node: Expr) -> Iterator[tuple[str, Expr]]:
        if not isinstance(node, Call):
            return
        spec = lookup(node)
        for parameter in spec.params:
            given = bind(node)[parameter.name]
            if parameter.kind not in ("dim", "dims") or not isinstance(given, Literal | Call) or given == Literal(None):
                continue
            for dim in (-1, -2, 0, 1, -3):
                if Literal(dim) != given:
                    yield f"the axis {dim}", _with(node, **{parameter.name: Literal(dim)})

    yield from _all_axes(claim)
    yield from _everywhere(claim, change)


def _all_axes(claim: Claim) -> Iterator[Repair]:
    """One axis for another wherever it is named."""

    def turned(node: Expr, old: Expr, new: Expr) -> Expr:
        inner = map_children(node, lambda child: turned(child, old, new))
        if not isinstance(inner, Call):
            return inner
        named = {p.name: new for p in lookup(inner).params if p.kind in ("dim", "dims") and bind(inner)[p.name] == old}
        return _with(inner, **named) if named else inner

    for old, new in ((Literal(0), Literal(-1)), (Literal(-1), Literal(0)), (Literal(1), Literal(-1)), (Literal(-2), Literal(-1))):
        substitute = turned(claim.right, old, new)
        if substitute != claim.right:
            yield Repair(f"the axis {to_text(new)} for {to_text(old)} throughout", substitute)


def _counts(claim: Claim) -> Iterator[Repair]:
    """A norm over padded lanes divides by more than there are: its result is scaled back."""
    padded = [n for n in walk(claim.right) if isinstance(n, Call) and n.op == "pad"]
    for node in padded:
        bound = bind(node)
        for size in size_symbols(claim.where):
            new = [amount for amount in (bound["before"], bound["after"]) if amount != Literal(0)]
            grown: Expr = Name(size)
            for amount in new:
                grown = Call("add", (grown, amount))
            share = Call("div", (Name(size), grown))
            yield Repair("the padded count taken back by sqrt(n / size)", Call("mul", (claim.right, Call("sqrt", (share,)))))
            yield Repair("the padded count taken back by size / n", Call("div", (claim.right, share)))


def _scales(claim: Claim) -> Iterator[Repair]:
    """A factor that only the left side has, or one over the root of a size."""
    missing: dict[Expr, None] = {}
    there = set(walk(claim.right))
    for node in walk(claim.left):
        if isinstance(node, Call) and node.op in ("mul", "div") and len(node.args) == 2:
            for factor in node.args if node.op == "mul" else node.args[1:]:
                small = isinstance(factor, Literal) or not any(isinstance(n, Name) and n.id in _tensors(claim) for n in walk(factor))
                if small and factor not in there:
                    missing[factor if node.op == "mul" else Call("div", (Literal(1), factor))] = None
    for size in size_symbols(claim.where):
        missing[Call("div", (Literal(1), Call("sqrt", (Name(size),))))] = None
        missing[Call("sqrt", (Name(size),))] = None
        missing[Call("div", (Literal(1), Name(size)))] = None
    for factor in missing:
        yield Repair(f"the scale {to_text(factor)}", Call("mul", (claim.right, factor)))

        def change(node: Expr, factor: Expr = factor) -> Iterator[tuple[str, Expr]]:
            if isinstance(node, Call) and lookup(node).family == "contraction":
                yield f"the scale {to_text(factor)}", Call("mul", (node, factor))

        yield from _everywhere(claim, change)


def _tensors(claim: Claim) -> frozenset[str]:
    return frozenset(name for name, kind in claim.where if isinstance(kind, TensorType))
