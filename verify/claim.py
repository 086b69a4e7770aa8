"""What a rule asserts, in one form for all rule kinds: two expressions over typed variables, under a guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adapterc.dsl.adapter import Adapter, Rewrite, Rule, Weights
from adapterc.dsl.ast import Call, Expr, names
from adapterc.dsl.ops import KNOWN_NAMES, substitute
from adapterc.dsl.types import RestDims, TensorType, Type

Bindings = Sequence[tuple[str, Expr]]


@dataclass(frozen=True, slots=True)
class Claim:
    """`left` and `right` are equal for all values that `where` admits and `guard` (a conjunction) allows."""

    name: str
    left: Expr
    right: Expr
    where: tuple[tuple[str, Type], ...]
    guard: tuple[Expr, ...] = ()

    def guarded(self, *more: Expr) -> Claim:
        return Claim(self.name, self.left, self.right, self.where, (*self.guard, *more))


def claim_of(rule: Rule, adapter: Adapter | None = None) -> Claim | None:
    """The claim of a rule that equates two expressions; None for the other kinds."""
    guard = tuple(conjuncts(rule.header.when)) + tuple(conjuncts(adapter.when if adapter else None))
    match rule:
        case Rewrite():
            right = inlined(rule.substitute, (*rule.constants, *rule.lets))
            return Claim(rule.header.name, rule.match, right, rule.where, guard)
        case Weights():
            return Claim(rule.header.name, rule.match, inlined(rule.substitute, rule.program), rule.where, guard)
    return None


def inlined(expression: Expr, bindings: Bindings) -> Expr:
    """The expression with ordered bindings put in place; each may read the ones before it."""
    scope: dict[str, Expr] = {}
    for name, value in bindings:
        scope[name] = substitute(value, scope)
    return substitute(expression, scope)


def conjuncts(condition: Expr | None) -> Iterator[Expr]:
    """The parts of a conjunction."""
    if isinstance(condition, Call) and condition.op == "logical_and":
        for part in condition.args:
            yield from conjuncts(part)
    elif condition is not None:
        yield condition


def size_symbols(where: Sequence[tuple[str, Type]]) -> tuple[str, ...]:
    """The sizes that the types bind, in the order of their first use."""
    found: dict[str, None] = {}
    for name, kind in where:
        if isinstance(kind, TensorType):
            for dim in kind.dims:
                if not isinstance(dim, RestDims):
                    for symbol in sorted(names(dim) - set(KNOWN_NAMES)):
                        found[symbol] = None
        elif kind.element == "size":
            found[name] = None
    return tuple(found)
