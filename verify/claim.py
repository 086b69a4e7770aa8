"""What a rule asserts, in one form for all rule kinds: two expressions over typed variables, under a guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from adapterc.dsl.adapter import Adapter, Rewrite, Rule, Weights
from adapterc.dsl.ast import Call, Expr, Literal, Name, names, walk
from adapterc.dsl.ops import ALIASES, KNOWN_NAMES, OPS, substitute
from adapterc.dsl.opspec import Param
from adapterc.dsl.types import RestDims, ScalarType, TensorType, Type

Bindings = Sequence[tuple[str, Expr]]


@dataclass(frozen=True, slots=True)
class Claim:
    """`left` and `right` are equal for all values that `where` admits and `guard` (a conjunction) allows.

    `crop`: only the leading part of the right side is compared, as much as the left side has (what a pad rule keeps of its result).
    """

    name: str
    left: Expr
    right: Expr
    where: tuple[tuple[str, Type], ...]
    guard: tuple[Expr, ...] = ()
    crop: bool = False

    def guarded(self, *more: Expr) -> Claim:
        return replace(self, guard=(*self.guard, *more))


def claim_of(rule: Rule, adapter: Adapter | None = None) -> Claim | None:
    """The claim of a rule that equates two expressions; None for the other kinds."""
    guard = (*conjuncts(rule.header.when), *conjuncts(adapter.when if adapter else None))
    match rule:
        case Rewrite():
            right = inlined(rule.substitute, (*rule.constants, *rule.lets))
            return Claim(rule.header.name, rule.match, right, rule.where, guard)
        case Weights():
            return Claim(rule.header.name, rule.match, inlined(rule.substitute, rule.program), rule.where, guard)
    return None


def attribute_choices(claim: Claim) -> tuple[Claim, ...]:
    """One claim per choice of the attributes that a pattern binds without a type (`causal=c`, `scale=s`).

    A truth value is both; a number is its absence, where the op has one, and any number.
    """
    options_by_name: dict[str, list[Expr | None]] = {}
    for name, param in _attributes(claim).items():
        options: list[Expr | None] = [None]  # None: an unknown number
        if param.kind == "bool":
            options = [Literal(False), Literal(True)]
        elif param.kind in ("dim", "dims", "size", "sizes", "dtype", "string", "static"):
            options = [param.default if param.default is not None else Literal(-1)]
        elif param.default == Literal(None):
            options = [Literal(None), None]
        options_by_name[name] = options
    # Not every combination: all first options, all last ones, and the alternating mix.
    rows = [[0] * len(options_by_name), [-1] * len(options_by_name), [i % 2 - 1 for i in range(len(options_by_name))]]
    claims: list[Claim] = []
    for row in rows:
        found = claim
        for (name, options), which in zip(options_by_name.items(), row, strict=True):
            found = _with_attribute(found, name, options[which])
        if found not in claims:
            claims.append(found)
    return tuple(claims)


def _attributes(claim: Claim) -> dict[str, Param]:
    typed = {name for name, _ in claim.where} | set(size_symbols(claim.where)) | set(KNOWN_NAMES)
    found: dict[str, Param] = {}
    for call in (n for n in walk(claim.left) if isinstance(n, Call) and ALIASES.get(n.op, n.op) in OPS):
        spec = OPS[ALIASES.get(call.op, call.op)]
        given = [*zip((p.name for p in spec.params), call.args, strict=False), *call.kwargs]
        for parameter, value in given:
            kind = spec.param(parameter)
            if isinstance(value, Name) and value.id not in typed and kind is not None:
                found.setdefault(value.id, kind)
    return found


def _with_attribute(claim: Claim, name: str, value: Expr | None) -> Claim:
    if value is None:
        return replace(claim, where=(*claim.where, (name, ScalarType("scalar"))))
    scope = {name: value}
    return replace(
        claim,
        left=substitute(claim.left, scope),
        right=substitute(claim.right, scope),
        guard=tuple(substitute(g, scope) for g in claim.guard),
    )


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
