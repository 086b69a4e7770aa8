"""The vocabulary of guards: what other parts of a program can establish of the variables of a rule.

Signs, nonzero, two values that differ, order of two bounds, bounds by constants of the rule, whole and representable numbers, moderate magnitude,
centred rows, one unmasked place a row, equal permutations, places written within a range, divisibility and order of sizes. Equality of values
that the rule takes as given is left out, and so is equality of sizes where both sides have a value: it would make most wrong rules
right by making them trivial.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

from adapterc.dsl.ast import Call, Expr, Literal, Name, names, walk
from adapterc.dsl.ops import ALIASES
from adapterc.dsl.types import ScalarType, TensorType, Type
from adapterc.verify.claim import Claim, size_symbols

MODERATE = 4096
MOST_LITERALS = 3
# Functions with a value on a part of the line only: of their operands, and the operands' neighbours, several signs at once are a natural guard.
_DOMAINS = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow", "xlogy", "logit", "acosh", "atanh", "asin", "acos"})
_UNIT_DOMAINS = frozenset({"acosh", "atanh", "asin", "acos", "log1p", "sqrt", "rsqrt", "log", "logit"})
_CENTRING = frozenset({"layer_norm", "group_norm", "instance_norm", "mean", "var", "std"})


def _ops(claim: Claim) -> frozenset[str]:
    calls = (n for side in (claim.left, claim.right) for n in walk(side) if isinstance(n, Call))
    return frozenset(ALIASES.get(call.op, call.op) for call in calls)


def candidates(claim: Claim, signs: bool = True) -> list[Expr]:
    """The vocabulary over the variables of a claim, weakest first within a variable. `signs`: signs of data may be asked for."""
    found: list[Expr] = []
    used = _ops(claim)
    narrowed, exponents, literals = _narrowed(claim), _exponents(claim), _literals(claim)
    sides = names(claim.left) | names(claim.right)
    for name, kind in claim.where:
        if name not in sides:
            continue
        about = [*_about(Name(name), kind, narrowed, name in exponents, used)]
        found.extend(c for c in about if signs or not is_sign(c))
        if isinstance(kind, ScalarType) and is_float(kind):
            found.extend(Call(op, (Name(name), c)) for c in literals for op in ("le", "ge"))
    comparable = [(n, t) for n, t in claim.where if is_float(t) and n in sides]
    scalars = [n for n, t in comparable if isinstance(t, ScalarType)]
    for a, b in itertools.permutations(scalars, 2):
        found.append(Call("le", (Name(a), Name(b))))
    if "div" in used:
        for (a, _), (b, _) in itertools.combinations(comparable, 2):
            found.append(Call("ne", (Name(a), Name(b))))
            found.append(Call("ne", (Name(a), Call("neg", (Name(b),)))))
    found.extend(_whole_tensors(claim))
    return found


def size_candidates(claim: Claim, equal: bool = False) -> list[Expr]:
    """Divisibility, powers of two and order of the sizes; `equal`: also equality, for rules that fit at equal sizes only."""
    found: list[Expr] = []
    symbols = size_symbols(claim.where)
    for n in symbols:
        for divisor in (Literal(2), Literal(4), Name("stick")):
            found.append(_divides(divisor, Name(n)))
        found.append(Call("is_power_of_two", (Name(n),)))
    for n, m in itertools.permutations(symbols, 2):
        found.append(_divides(Name(m), Name(n)))
    for n, m in itertools.permutations(symbols, 2):
        found.append(Call("le", (Name(n), Name(m))))
    if equal:
        found = [Call("eq", (Name(n), Name(m))) for n, m in itertools.combinations(symbols, 2)] + found
    return found


def sensible(claim: Claim, chosen: Sequence[Expr]) -> bool:
    """At most one sign a variable (two would pin it to zero), centred rows only alone, several signs of tensors only where a domain asks."""
    signed = [c.args[0] for c in chosen if isinstance(c, Call) and is_sign(c)]
    if len(signed) != len(set(signed)) or (len(chosen) > 1 and any(_is_centred(c) for c in chosen)):
        return False
    bounds = [c.args for c in chosen if isinstance(c, Call) and c.op in ("le", "ge")]
    if len(bounds) != len(set(bounds)):
        return False  # at least and at most the same: an equality
    tensors = {n for n, t in claim.where if isinstance(t, TensorType) and is_float(t)}
    several = sum(isinstance(s, Name) and s.id in tensors for s in signed) > 1
    return not several or bool(_ops(claim) & _DOMAINS)


def _divides(divisor: Expr, n: Expr) -> Expr:
    return Call("eq", (Call("remainder", (n, divisor)), Literal(0)))


def is_sign(condition: Expr) -> bool:
    return isinstance(condition, Call) and condition.op in ("ne", "ge", "gt", "le", "lt") and condition.args[1] == Literal(0)


def _is_centred(condition: Expr) -> bool:
    return isinstance(condition, Call) and bool(condition.args) and isinstance(condition.args[0], Call) and condition.args[0].op == "sum"


def _exponents(claim: Claim) -> frozenset[str]:
    """Variables in the exponent of a power: there, whole numbers are a guard that programs meet."""
    powers = (n for side in (claim.left, claim.right) for n in walk(side) if isinstance(n, Call) and n.op == "pow" and len(n.args) == 2)
    return frozenset().union(*(names(n.args[1]) for n in powers))


def _literals(claim: Claim) -> list[Literal]:
    """The numbers that the rule compares or bounds with, and 1."""
    found: dict[Literal, None] = {Literal(1): None}
    for side in (claim.left, claim.right):
        for node in walk(side):
            if isinstance(node, Call) and ALIASES.get(node.op, node.op) in ("clamp", "maximum", "minimum", "lt", "le", "gt", "ge"):
                for argument in node.args:
                    if (
                        isinstance(argument, Literal)
                        and isinstance(argument.value, int | Fraction)
                        and argument.value not in (0, True, False)
                    ):
                        found[Literal(argument.value)] = None
    return list(found)[:MOST_LITERALS]


def _about(x: Expr, kind: Type, narrowed: Sequence[str], exponent: bool, used: frozenset[str]) -> Iterator[Expr]:
    zero, one = Literal(0), Literal(1)
    if isinstance(kind, TensorType) and kind.element == "bool":
        if kind.dims:
            yield Call("any", (x, Literal(-1)))
        return
    if isinstance(kind, ScalarType) and kind.element == "size":
        return
    for op in ("ne", "ge", "gt", "le", "lt"):
        yield Call(op, (x, zero))
    if exponent and is_float(kind):
        yield Call("eq", (Call("floor", (x,)), x))
    if used & _UNIT_DOMAINS and is_float(kind):
        yield Call("gt", (x, Literal(-1)))
        yield Call("ge", (x, one))
        yield Call("le", (Call("abs", (x,)), one))
    yield Call("le", (Call("abs", (x,)), Literal(MODERATE)))
    if not is_float(kind):
        return
    yield Call("gt", (x, Call("div", (Call("finfo_min", (Name("float32"),)), Literal(2)))))
    for dtype in narrowed:
        yield Call("eq", (Call("to", (x, Name(dtype))), x))
    if isinstance(kind, TensorType) and kind.dims and used & _CENTRING:
        yield Call("eq", (Call("sum", (x, Literal(-1))), zero))


def _whole_tensors(claim: Claim) -> Iterator[Expr]:
    """Of integer tensors: equal permutations; of places that are written: that they lie within sizes of the rule."""
    whole = [(n, t) for n, t in claim.where if isinstance(t, TensorType) and t.element in ("int", "int32", "int64")]
    for (a, ta), (b, tb) in itertools.combinations(whole, 2):
        if ta.dims == tb.dims:
            yield Call("eq", (Name(a), Name(b)))
    if not _ops(claim) & {"index_copy", "scatter", "scatter_add", "index_add"}:
        return
    symbols = [Name(s) for s in size_symbols(claim.where)]
    bounds: list[Expr] = [*symbols, *(Call("add", pair) for pair in itertools.combinations(symbols, 2))]
    for name, _ in whole:
        for bound in bounds:
            yield Call("ge", (Name(name), bound))
            yield Call("lt", (Name(name), bound))


def is_float(kind: Type) -> bool:
    return kind.element not in ("bool", "int", "int32", "int64", "size")


def _narrowed(claim: Claim) -> list[str]:
    used = (n for side in (claim.left, claim.right) for n in walk(side) if isinstance(n, Call) and n.op in ("to", "cast"))
    formats = {a.id for call in used for a in (*call.args, *(v for _, v in call.kwargs)) if isinstance(a, Name)}
    return sorted(formats & {"float16", "bfloat16", "float32"})
