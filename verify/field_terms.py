"""Terms in the finite field: what each op is at one random point, and whether two lists of terms agree at several."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from adapterc.verify.field import Point
from adapterc.verify.field_elements import PRIMES, BadPoint, Element, Undecided
from adapterc.verify.terms import Payload, Term, ordered


def evaluate(point: Point, roots: Sequence[Term]) -> list[Element]:
    """The roots at this point; raises BadPoint or Undecided."""
    values: dict[int, Element | BadPoint | Undecided] = {}
    for term in ordered(roots):
        args = [values[a.serial] for a in term.args]
        if term.op == "where" and isinstance(args[0], Element):
            # Only the chosen branch has to have a value.
            values[term.serial] = args[1 if args[0].residue else 2]
            continue
        missing = next((a for a in args if not isinstance(a, Element)), None)
        try:
            values[term.serial] = missing or _term(point, term, [a for a in args if isinstance(a, Element)])
        except (BadPoint, Undecided) as reason:
            values[term.serial] = reason
    results = []
    for root in roots:
        value = values[root.serial]
        if not isinstance(value, Element):
            raise value
        results.append(value)
    return results


def _term(point: Point, term: Term, x: list[Element]) -> Element:
    op = term.op
    if op in ("eq", "ne", "lt", "le", "gt", "ge"):
        return _bit(point, _compare(point, op, x[0], x[1]))
    if op in ("and", "or", "xor", "not"):
        flags = [bool(v.residue) for v in x]
        table = {"not": not flags[0], "and": all(flags), "or": any(flags), "xor": sum(flags) == 1}
        return _bit(point, table[op])
    match op:
        case "const":
            return _constant(point, term.payload)
        case "var":
            return _variable(point, term)
        case "add":
            return point.add(x[0], x[1])
        case "sub":
            return point.add(x[0], point.neg(x[1]))
        case "mul":
            return point.mul(x[0], x[1])
        case "div":
            return point.div(x[0], x[1])
        case "neg":
            return point.neg(x[0])
        case "sum":
            return _sum(point, x)
        case "dot":
            return _sum(point, [point.mul(a, b) for a, b in zip(x[::2], x[1::2], strict=True)])
        case "prod":
            product = point.number(Fraction(1))
            for item in x:
                product = point.mul(product, item)
            return product
        case "round":
            return x[0] if term.kernel else _opaque(point, "round", x[0])
        case "cast":
            return _cast(point, str(term.payload), x[0])
        case "maximum" | "amax":
            return point.maximum(x)
        case "minimum" | "amin":
            return point.neg(point.maximum([point.neg(v) for v in x]))
        case "isnan":
            return _bit(point, False)
        case "argmax":
            return point.number(Fraction(point.order(x)[0]))
        case "kth" | "argkth":
            assert isinstance(term.payload, tuple)
            k, descending = term.payload
            ranking = point.order(x) if descending else point.order(x)[::-1]
            place = ranking[int(str(k))]
            return x[place] if op == "kth" else point.number(Fraction(place))
        case "select":
            return _select(point, x)
    return _function(point, op, x)


def _function(point: Point, op: str, x: list[Element]) -> Element:
    one = point.number(Fraction(1))
    match op:
        case "exp":
            return point.exp(x[0])
        case "expm1":
            return point.add(point.exp(x[0]), point.neg(one))
        case "log":
            return point.log(x[0])
        case "log1p":
            return point.log(point.add(one, x[0]))
        case "sqrt":
            return point.sqrt(x[0])
        case "pow":
            return point.power(x[0], x[1])
        case "sigmoid":
            return point.reciprocal(point.add(one, point.exp(point.neg(x[0]))))
        case "tanh":
            twice = point.exp(point.mul(point.number(Fraction(2)), x[0]))
            return point.div(point.add(twice, point.neg(one)), point.add(twice, one))
        case "abs":
            return _abs(point, x[0])
        case "sin" | "cos":
            return _circle(point, op, x[0])
        case "erf" | "atan":
            return _odd(point, op, x[0])
        case "floor":
            constant = point.constant(x[0])
            return point.number(Fraction(math.floor(constant))) if constant is not None else _opaque(point, "floor", x[0])
        case "floor_div" | "remainder" | "bits_and" | "bits_or" | "bits_xor":
            return point.symbol((op, x[0].residue, x[1].residue))
    raise Undecided(f"{op} is not algebra")


def _compare(point: Point, op: str, a: Element, b: Element) -> bool:
    if op in ("eq", "ne"):
        return point.equal(a, b) == (op == "eq")
    if not a.infinite and not b.infinite and (a.residue - b.residue) % point.prime == 0:
        return op in ("le", "ge")
    if a.infinite and a.infinite == b.infinite:
        return op in ("le", "ge")
    return point.less(a, b) == (op in ("lt", "le"))


def _bit(point: Point, value: bool) -> Element:
    return point.number(Fraction(int(value)))


def _sum(point: Point, items: Sequence[Element]) -> Element:
    total = point.number(Fraction(0))
    for item in items:
        total = point.add(total, item)
    return (
        total
        if not all(i.positive for i in items) or not items
        else Element(total.residue, total.poly, total.exps, True, total.infinite, total.degree)
    )


def _constant(point: Point, payload: Payload) -> Element:
    if isinstance(payload, str):
        if payload == "pi":
            return point.symbol("pi", True)
        if payload == "nan":
            raise Undecided("NaN")
        return point.number(Fraction(0)) if payload == "-0" else point.infinity(1 if payload == "inf" else -1)
    if isinstance(payload, tuple):
        return point.symbol(payload)
    return point.number(Fraction(payload if payload is not None else 0))


def _variable(point: Point, term: Term) -> Element:
    key = ("var", term.payload)
    if term.dtype == "bool":
        point.branches += 1
        return _bit(point, bool(point.choice(key, lambda: point.rng.random() < 0.6)))
    name = term.payload[0] if isinstance(term.payload, tuple) else term.payload
    if name in point.positive and key not in point.symbols:
        logarithm = point.symbol(("log of", key))
        grown = point.exp(logarithm)
        point.symbols[key] = Element(grown.residue, {((point.atom(key), 1),): Fraction(1)}, grown.exps, True, degree=grown.degree)
    return point.symbol(key)


def _abs(point: Point, a: Element) -> Element:
    if a.infinite:
        return point.infinity(1)
    constant = point.constant(a)
    if constant is not None:
        return point.number(abs(constant))
    if a.positive or point.sign(a.residue) > 0:
        return a
    return point.neg(a)


def _opaque(point: Point, op: str, a: Element) -> Element:
    if a.infinite:
        raise Undecided(f"{op} of infinity")
    return point.symbol((op, a.residue))


def _odd(point: Point, op: str, a: Element) -> Element:
    if a.infinite:
        raise Undecided(f"{op} of infinity")
    if a.residue == 0:
        return a
    canonical = min(a.residue, point.prime - a.residue)
    found = point.symbol((op, canonical))
    return found if canonical == a.residue else point.neg(found)


def _circle(point: Point, op: str, a: Element) -> Element:
    if a.infinite:
        raise Undecided(f"{op} of infinity")
    if a.residue == 0:
        return point.number(Fraction(0 if op == "sin" else 1))
    cosine, sine, degree = point.turn(a)
    return Element(cosine if op == "cos" else sine, degree=degree)


def _cast(point: Point, dtype: str, a: Element) -> Element:
    if dtype == "bool":
        return _bit(point, not point.equal(a, point.number(Fraction(0))))
    if dtype.startswith(("int", "uint")):
        constant = point.constant(a)
        return point.number(Fraction(math.trunc(constant))) if constant is not None else _opaque(point, f"to {dtype}", a)
    return a if point.keeps(dtype) or a.infinite else _opaque(point, f"to {dtype}", a)


def _select(point: Point, x: list[Element]) -> Element:
    index = point.constant(x[0])
    if index is not None and index.denominator == 1 and -len(x) < index < len(x):
        return x[1:][int(index)]
    point.branches += 1
    place = point.choice(("select", x[0].residue, len(x)), lambda: point.rng.randrange(len(x) - 1))
    assert isinstance(place, int)
    return x[1 + place]


@dataclass(frozen=True, slots=True)
class Identity:
    """The outcome: `holds` is None when the field cannot say. `failure` bounds the probability that an accepted identity is false."""

    holds: bool | None
    points: int
    failure: float
    reason: str = ""
    branches: bool = False


def identical(
    left: Sequence[Term],
    right: Sequence[Term],
    keeps: Callable[[str], bool],
    positive: frozenset[str] = frozenset(),
    seed: int = 1,
    points: int = 5,
) -> Identity:
    """Whether the two lists of terms are equal, element by element, at random points."""
    done, attempts, failure = 0, 0, 1.0
    wanted, reason, branching = points, "", False
    rng = random.Random(seed)
    while done < wanted and attempts < 60 + 4 * wanted:
        point = Point(PRIMES[attempts % len(PRIMES)], random.Random(rng.random()), keeps, positive)
        attempts += 1
        try:
            values = evaluate(point, [*left, *right])
        except BadPoint as unlucky:
            reason = str(unlucky)
            continue
        except Undecided as why:
            reason = str(why)
            if point.branches == 0:
                break
            continue
        for a, b in zip(values[: len(left)], values[len(left) :], strict=True):
            same = a.infinite == b.infinite and (bool(a.infinite) or a.residue == b.residue)
            if not same:
                return Identity(False, done, 1.0, "the sides differ at a random point", branching)
        if point.branches:
            branching, wanted = True, max(wanted, 16)
        degree = max((max(a.degree, b.degree) for a, b in zip(values[: len(left)], values[len(left) :], strict=True)), default=0)
        failure *= min(1.0, (0.5 if point.branches else 0.0) + max(degree, 1) / point.prime)
        done += 1
    if done < min(wanted, points):
        return Identity(None, done, 1.0, reason, branching)
    return Identity(True, done, failure, "", branching)
