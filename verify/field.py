"""Exact algebra: terms evaluated in a finite field, with exp as a homomorphism (an exp-ring).

A polynomial identity that fails holds at a random point of F_p with probability at most degree / p (Schwartz–Zippel), so agreement at several
points proves the identity up to the probability stated, and disagreement proves nothing (the answer is then "not shown"). What is not algebra:
- exp(t): t is kept as a polynomial over atoms with rational coefficients; each monomial has a random generator, sums become products.
- log peels exponentials off; a variable known to be positive is written e^(its logarithm), so that log, pow and sqrt obey their laws there
  and only there.
- sqrt: a root in F_p of random sign per argument, so that √(xy) = √x·√y is not assumed.
- max: a free symbol per set of operands; order (comparison, sorting): a random choice per difference or row, the same for shifted or
  exponentiated rows. sin and cos share a rational parameter. erf and the rest are free symbols keyed by their argument.
Known incompleteness: exponents with denominators that do not divide DENOMINATOR, and order facts that need transitivity.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from adapterc.verify.terms import Payload, Term, ordered

# 61-bit primes that are 3 modulo 4: a square root is one power.
PRIMES = ((1 << 61) - 1, 2305843009213693907, 2305843009213693723)
DENOMINATOR = 2**7 * 3**2 * 5**7 * 7
MOST_MONOMIALS = 48

Monomial: TypeAlias = tuple[tuple[int, int], ...]  # (atom, power), sorted
Poly: TypeAlias = Mapping[Monomial, Fraction]
Vector: TypeAlias = tuple[tuple[Monomial, Fraction], ...]  # an exponent, sorted

ONE: Poly = {(): Fraction(1)}


class Undecided(Exception):
    """The field has no value for this term; `args[0]` says why."""


class BadPoint(Exception):
    """An unlucky point: a division by zero, a root that does not exist. Another one may do."""


@dataclass(frozen=True, slots=True)
class Element:
    """A residue, with what is known of its form: a polynomial over atoms, and a sum of exponentials (exponent -> coefficient)."""

    residue: int
    poly: Poly | None = None
    exps: Mapping[Vector, int] | None = None
    positive: bool = False
    infinite: int = 0  # -1 or 1 for the infinities
    degree: int = 1


@dataclass(slots=True)
class Point:
    """One random point: the prime, the atoms met so far, and every random choice, so that equal questions get equal answers."""

    prime: int
    rng: random.Random
    keeps: Callable[[str], bool]
    positive: frozenset[str] = frozenset()
    atoms: dict[object, int] = field(default_factory=dict)
    keys: list[object] = field(default_factory=list)
    generators: dict[object, int] = field(default_factory=dict)
    symbols: dict[object, Element] = field(default_factory=dict)
    choices: dict[object, object] = field(default_factory=dict)
    branches: int = 0

    # Building blocks ---------------------------------------------------------------------------------------------------------------------

    def draw(self) -> int:
        return self.rng.randrange(2, self.prime)

    def atom(self, key: object) -> int:
        if key not in self.atoms:
            self.atoms[key] = len(self.keys)
            self.keys.append(key)
        return self.atoms[key]

    def symbol(self, key: object, positive: bool = False) -> Element:
        """A free symbol: one random residue a key."""
        found = self.symbols.get(key)
        if found is None:
            number = self.atom(key)
            found = self.symbols[key] = Element(self.draw(), {((number, 1),): Fraction(1)}, positive=positive)
        return found

    def number(self, value: Fraction) -> Element:
        residue = value.numerator * pow(value.denominator, -1, self.prime) % self.prime
        poly: Poly = {(): value} if value else {}
        return Element(residue, poly, {(): residue} if value else {}, value > 0, degree=0)

    def inverse(self, residue: int) -> int:
        if residue == 0:
            raise BadPoint("division by zero")
        return pow(residue, -1, self.prime)

    def poly(self, x: Element) -> Poly:
        """The polynomial of x; a value of unknown form is an atom of its own."""
        if x.poly is not None:
            return x.poly
        return {((self.atom(("value", x.residue)), 1),): Fraction(1)}

    def exps(self, x: Element) -> Mapping[Vector, int]:
        return x.exps if x.exps is not None else {(): x.residue}

    # Arithmetic --------------------------------------------------------------------------------------------------------------------------

    def add(self, a: Element, b: Element) -> Element:
        if a.infinite or b.infinite:
            if a.infinite * b.infinite < 0:
                raise Undecided("inf - inf")
            return a if a.infinite else b
        poly = self._merged(self.poly(a), self.poly(b))
        exps: dict[Vector, int] | None = dict(self.exps(a))
        assert exps is not None
        for vector, coefficient in self.exps(b).items():
            total = (exps.get(vector, 0) + coefficient) % self.prime
            if total:
                exps[vector] = total
            else:
                exps.pop(vector, None)
        return Element(
            (a.residue + b.residue) % self.prime,
            poly,
            exps if len(exps) <= MOST_MONOMIALS else None,
            a.positive and b.positive,
            degree=max(a.degree, b.degree),
        )

    def _merged(self, a: Poly, b: Poly) -> Poly | None:
        total = dict(a)
        for monomial, coefficient in b.items():
            value = total.get(monomial, Fraction(0)) + coefficient
            if value:
                total[monomial] = value
            else:
                total.pop(monomial, None)
        return total if len(total) <= MOST_MONOMIALS else None

    def neg(self, a: Element) -> Element:
        return self.mul(self.number(Fraction(-1)), a)

    def mul(self, a: Element, b: Element) -> Element:
        if a.infinite or b.infinite:
            return self._infinite_product(a, b)
        pa, pb = self.poly(a), self.poly(b)
        poly: Poly | None = None
        if len(pa) * len(pb) <= MOST_MONOMIALS:
            product: dict[Monomial, Fraction] = {}
            for ma, ca in pa.items():
                for mb, cb in pb.items():
                    monomial = _joined(ma, mb)
                    product[monomial] = product.get(monomial, Fraction(0)) + ca * cb
            poly = {m: c for m, c in product.items() if c}
        ea, eb = self.exps(a), self.exps(b)
        exps: dict[Vector, int] | None = None
        if len(ea) * len(eb) <= MOST_MONOMIALS:
            exps = {}
            for va, ra in ea.items():
                for vb, rb in eb.items():
                    vector = _shifted(va, vb, 1)
                    exps[vector] = (exps.get(vector, 0) + ra * rb) % self.prime
            exps = {v: r for v, r in exps.items() if r}
        residue = a.residue * b.residue % self.prime
        return Element(residue, poly, exps, a.positive and b.positive, degree=a.degree + b.degree)

    def _infinite_product(self, a: Element, b: Element) -> Element:
        other = b if a.infinite else a
        sign = a.infinite or b.infinite
        if other.infinite:
            return self.infinity(a.infinite * b.infinite)
        constant = self.constant(other)
        if constant is not None and constant != 0:
            return self.infinity(sign if constant > 0 else -sign)
        if other.positive:
            return self.infinity(sign)
        raise Undecided("infinity times something of unknown sign")

    def infinity(self, sign: int) -> Element:
        return Element(self.symbol("infinity").residue, infinite=sign)

    def constant(self, x: Element) -> Fraction | None:
        """The rational number that x is, if it is one."""
        if x.infinite or x.poly is None or any(m != () for m in x.poly):
            return None
        return x.poly.get((), Fraction(0))

    def reciprocal(self, a: Element) -> Element:
        if a.infinite:
            return self.number(Fraction(0))
        constant = self.constant(a)
        if constant is not None:
            if constant == 0:
                raise Undecided("division by zero")
            return self.number(1 / constant)
        residue = self.inverse(a.residue)
        exps = self.exps(a)
        turned: dict[Vector, int] | None = None
        if len(exps) == 1:
            ((vector, coefficient),) = exps.items()
            turned = {_shifted((), vector, -1): self.inverse(coefficient)}
        return Element(residue, None, turned, a.positive, degree=a.degree)

    def div(self, a: Element, b: Element) -> Element:
        if b.infinite and a.infinite:
            raise Undecided("inf / inf")
        return self.mul(a, self.reciprocal(b))

    def whole_power(self, a: Element, n: int) -> Element:
        if n < 0:
            return self.reciprocal(self.whole_power(a, -n))
        result = self.number(Fraction(1))
        for _ in range(n):
            result = self.mul(result, a)
        return result if n % 2 else Element(result.residue, result.poly, result.exps, a.positive, degree=result.degree)

    # Functions ---------------------------------------------------------------------------------------------------------------------------

    def exponential(self, vector: Vector) -> Element:
        """e to a vector of monomials."""
        residue, degree = 1, 0
        for monomial, coefficient in vector:
            scaled = coefficient * DENOMINATOR
            if scaled.denominator == 1:
                base, power = self._generator(monomial), int(scaled)
            else:
                base, power = self._generator((monomial, abs(coefficient))), 1 if coefficient > 0 else -1
            residue = residue * pow(base, power % (self.prime - 1), self.prime) % self.prime
            degree += abs(power)
        return Element(residue, None, {vector: 1}, True, degree=degree)

    def _generator(self, key: object) -> int:
        if key not in self.generators:
            self.generators[key] = self.draw()
        return self.generators[key]

    def exp(self, a: Element) -> Element:
        if a.infinite:
            if a.infinite < 0:
                return self.number(Fraction(0))
            raise Undecided("exp of infinity")
        return self.exponential(_vector(self.poly(a)))

    def log(self, a: Element) -> Element:
        if a.infinite:
            raise Undecided("log of infinity")
        exps = self.exps(a)
        if not exps:
            return self.infinity(-1)
        # The order of vectors is preserved by shifts, so a common factor e^v always comes out of a sum as v.
        lead = min(exps, key=_lexicographic)
        rest = a.residue * self.inverse(self.exponential(lead).residue) % self.prime
        shift = Element(self._evaluate(lead), dict(lead), {(): self._evaluate(lead)})
        if rest == 1:
            return shift
        return self.add(shift, self.symbol(("log", rest)))

    def _evaluate(self, vector: Vector) -> int:
        total = 0
        for monomial, coefficient in vector:
            value = coefficient.numerator * pow(coefficient.denominator, -1, self.prime)
            for atom, power in monomial:
                value = value * pow(self._atom_residue(atom), power, self.prime) % self.prime
            total += value
        return total % self.prime

    def _atom_residue(self, atom: int) -> int:
        key = self.keys[atom]
        if isinstance(key, tuple) and key and key[0] == "value":
            return int(key[1])
        return self.symbols[key].residue

    def sqrt(self, a: Element) -> Element:
        if a.infinite:
            raise Undecided("sqrt of infinity")
        constant = self.constant(a)
        if constant is not None and constant >= 0:
            top, bottom = math.isqrt(constant.numerator), math.isqrt(constant.denominator)
            if top * top == constant.numerator and bottom * bottom == constant.denominator:
                return self.number(Fraction(top, bottom))
        exps = self.exps(a)
        if len(exps) == 1 and a.positive:
            ((vector, coefficient),) = exps.items()
            if coefficient == 1:
                return self.exponential(tuple((m, c / 2) for m, c in vector))
        key = ("sqrt", a.residue)
        if key not in self.symbols:
            root = pow(a.residue, (self.prime + 1) // 4, self.prime)
            if root * root % self.prime != a.residue:
                raise BadPoint("no square root")
            number = self.atom(key)
            residue = root if self._root_sign(a) else self.prime - root
            self.symbols[key] = Element(residue, {((number, 1),): Fraction(1)}, positive=True, degree=a.degree)
        return self.symbols[key]

    def _root_sign(self, a: Element) -> bool:
        """A random sign a value, shared by its positive rational multiples: √(c·x) = √c · √x for c > 0."""
        constant = self.constant(a)
        if constant is not None and constant > 0:
            return True
        residue = a.residue
        if a.poly:
            lead = a.poly[min(a.poly)]
            residue = residue * self.inverse(self.number(abs(lead)).residue) % self.prime
        return bool(self._choice(("root", residue), lambda: self.rng.random() < 0.5))

    def power(self, a: Element, b: Element) -> Element:
        exponent = self.constant(b)
        if exponent is not None and exponent.denominator == 1 and abs(exponent) <= 64:
            return self.whole_power(a, int(exponent))
        if exponent is not None and exponent.denominator == 2 and abs(exponent) <= 64:
            return self.whole_power(self.sqrt(a), int(2 * exponent))
        if a.positive:
            return self.exp(self.mul(b, self.log(a)))
        return self.symbol(("pow", a.residue, b.residue))

    def maximum(self, operands: Sequence[Element]) -> Element:
        """A free symbol per set of operands; a maximum of maxima is one maximum."""
        flat: dict[int, Element] = {}
        for x in operands:
            if x.infinite > 0:
                return x
            if x.infinite < 0:
                continue
            inner = self.choices.get(("max of", x.residue))
            for part in inner if isinstance(inner, tuple) else (x,):
                flat[part.residue] = part
        if not flat:
            return self.infinity(-1)
        if len(flat) == 1:
            return next(iter(flat.values()))
        constants = [c for c in (self.constant(x) for x in flat.values()) if c is not None]
        if len(constants) > 1:
            best = self.number(max(constants))
            flat = {r: x for r, x in flat.items() if self.constant(x) is None} | {best.residue: best}
            if len(flat) == 1:
                return best
        found = self.symbol(("max", frozenset(flat)), all(x.positive for x in flat.values()))
        self.choices[("max of", found.residue)] = tuple(flat.values())
        return found

    def less(self, a: Element, b: Element) -> bool:
        """Whether a < b: a random choice per difference, opposite for the opposite difference."""
        if a.infinite or b.infinite:
            return a.infinite < b.infinite
        difference = self.add(a, self.neg(b))
        constant = self.constant(difference)
        if constant is not None:
            return constant < 0
        return self._sign(difference.residue) < 0

    def _sign(self, residue: int) -> int:
        self.branches += 1
        canonical = min(residue, self.prime - residue)
        sign = 1 if self._choice(("sign", canonical), lambda: self.rng.random() < 0.5) else -1
        return sign if canonical == residue else -sign

    def _choice(self, key: object, draw: Callable[[], object]) -> object:
        if key not in self.choices:
            self.choices[key] = draw()
        return self.choices[key]

    def equal(self, a: Element, b: Element) -> bool:
        if a.infinite or b.infinite:
            return a.infinite == b.infinite
        difference = self.add(a, self.neg(b))
        constant = self.constant(difference)
        if constant is not None or difference.residue == 0:
            return not constant
        self.branches += 1
        canonical = min(difference.residue, self.prime - difference.residue)
        return bool(self._choice(("equal", canonical), lambda: self.rng.random() < 0.3))

    def order(self, row: Sequence[Element]) -> list[int]:
        """Positions from largest to smallest: one random order per row, whatever common shift, positive factor or exp it carries."""
        self.branches += 1
        finite = [i for i, x in enumerate(row) if not x.infinite]
        last = [i for i, x in enumerate(row) if x.infinite < 0]
        first = [i for i, x in enumerate(row) if x.infinite > 0]
        key = tuple(self._rank_key([row[i] for i in finite]))
        values = sorted(set(key))
        ranks = self._choice(("order", tuple(values)), lambda: self.rng.sample(range(len(values)), len(values)))
        assert isinstance(ranks, list)
        rank = dict(zip(values, ranks, strict=True))
        finite_order = sorted(range(len(finite)), key=lambda i: (-rank[key[i]], finite[i]))
        return [*first, *(finite[i] for i in finite_order), *last]

    def _rank_key(self, row: list[Element]) -> list[int]:
        if not row:
            return []
        forms = [self.exps(x) for x in row]
        if all(len(f) == 1 and x.positive for f, x in zip(forms, row, strict=True)):
            parts = [next(iter(f.items())) for f in forms]
            if len({coefficient for _, coefficient in parts}) == 1 and any(vector for vector, _ in parts):
                inner = [Element(self._evaluate(v), dict(v)) for v, _ in parts]
                return self._rank_key(inner)
        return [(x.residue - row[0].residue) % self.prime for x in row]

    # Terms -------------------------------------------------------------------------------------------------------------------------------

    def evaluate(self, roots: Sequence[Term]) -> list[Element]:
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
                values[term.serial] = missing or self._term(term, [a for a in args if isinstance(a, Element)])
            except (BadPoint, Undecided) as reason:
                values[term.serial] = reason
        results = []
        for root in roots:
            value = values[root.serial]
            if not isinstance(value, Element):
                raise value
            results.append(value)
        return results

    def _term(self, term: Term, x: list[Element]) -> Element:
        op = term.op
        if op in ("eq", "ne", "lt", "le", "gt", "ge"):
            return self._bit(self._compare(op, x[0], x[1]))
        if op in ("and", "or", "xor", "not"):
            flags = [bool(v.residue) for v in x]
            table = {"not": not flags[0], "and": all(flags), "or": any(flags), "xor": sum(flags) == 1}
            return self._bit(table[op])
        match op:
            case "const":
                return self._constant(term.payload)
            case "var":
                return self._variable(term)
            case "add":
                return self.add(x[0], x[1])
            case "sub":
                return self.add(x[0], self.neg(x[1]))
            case "mul":
                return self.mul(x[0], x[1])
            case "div":
                return self.div(x[0], x[1])
            case "neg":
                return self.neg(x[0])
            case "sum":
                return self._sum(x)
            case "dot":
                return self._sum([self.mul(a, b) for a, b in zip(x[::2], x[1::2], strict=True)])
            case "prod":
                product = self.number(Fraction(1))
                for item in x:
                    product = self.mul(product, item)
                return product
            case "round":
                return x[0] if term.kernel else self._opaque("round", x[0])
            case "cast":
                return self._cast(str(term.payload), x[0])
            case "maximum" | "amax":
                return self.maximum(x)
            case "minimum" | "amin":
                return self.neg(self.maximum([self.neg(v) for v in x]))
            case "isnan":
                return self._bit(False)
            case "argmax":
                return self.number(Fraction(self.order(x)[0]))
            case "kth" | "argkth":
                assert isinstance(term.payload, tuple)
                k, descending = term.payload
                ranking = self.order(x) if descending else self.order(x)[::-1]
                place = ranking[int(str(k))]
                return x[place] if op == "kth" else self.number(Fraction(place))
            case "select":
                return self._select(x)
        return self._function(op, x)

    def _function(self, op: str, x: list[Element]) -> Element:
        one = self.number(Fraction(1))
        match op:
            case "exp":
                return self.exp(x[0])
            case "expm1":
                return self.add(self.exp(x[0]), self.neg(one))
            case "log":
                return self.log(x[0])
            case "log1p":
                return self.log(self.add(one, x[0]))
            case "sqrt":
                return self.sqrt(x[0])
            case "pow":
                return self.power(x[0], x[1])
            case "sigmoid":
                return self.reciprocal(self.add(one, self.exp(self.neg(x[0]))))
            case "tanh":
                twice = self.exp(self.mul(self.number(Fraction(2)), x[0]))
                return self.div(self.add(twice, self.neg(one)), self.add(twice, one))
            case "abs":
                return self._abs(x[0])
            case "sin" | "cos":
                return self._circle(op, x[0])
            case "erf" | "atan":
                return self._odd(op, x[0])
            case "floor":
                constant = self.constant(x[0])
                return self.number(Fraction(math.floor(constant))) if constant is not None else self._opaque("floor", x[0])
            case "floor_div" | "remainder":
                return self.symbol((op, x[0].residue, x[1].residue))
        raise Undecided(f"{op} is not algebra")

    def _compare(self, op: str, a: Element, b: Element) -> bool:
        if op in ("eq", "ne"):
            return self.equal(a, b) == (op == "eq")
        if not a.infinite and not b.infinite and (a.residue - b.residue) % self.prime == 0:
            return op in ("le", "ge")
        if a.infinite and a.infinite == b.infinite:
            return op in ("le", "ge")
        return self.less(a, b) == (op in ("lt", "le"))

    def _bit(self, value: bool) -> Element:
        return self.number(Fraction(int(value)))

    def _sum(self, items: Sequence[Element]) -> Element:
        total = self.number(Fraction(0))
        for item in items:
            total = self.add(total, item)
        return (
            total
            if not all(i.positive for i in items) or not items
            else Element(total.residue, total.poly, total.exps, True, total.infinite, total.degree)
        )

    def _constant(self, payload: Payload) -> Element:
        if isinstance(payload, str):
            if payload == "pi":
                return self.symbol("pi", True)
            if payload == "nan":
                raise Undecided("NaN")
            return self.number(Fraction(0)) if payload == "-0" else self.infinity(1 if payload == "inf" else -1)
        if isinstance(payload, tuple):
            return self.symbol(payload)
        return self.number(Fraction(payload if payload is not None else 0))

    def _variable(self, term: Term) -> Element:
        key = ("var", term.payload)
        if term.dtype == "bool":
            self.branches += 1
            return self._bit(bool(self._choice(key, lambda: self.rng.random() < 0.6)))
        name = term.payload[0] if isinstance(term.payload, tuple) else term.payload
        if name in self.positive and key not in self.symbols:
            logarithm = self.symbol(("log of", key))
            grown = self.exp(logarithm)
            self.symbols[key] = Element(grown.residue, {((self.atom(key), 1),): Fraction(1)}, grown.exps, True, degree=grown.degree)
        return self.symbol(key)

    def _abs(self, a: Element) -> Element:
        if a.infinite:
            return self.infinity(1)
        constant = self.constant(a)
        if constant is not None:
            return self.number(abs(constant))
        if a.positive or self._sign(a.residue) > 0:
            return a
        return self.neg(a)

    def _opaque(self, op: str, a: Element) -> Element:
        if a.infinite:
            raise Undecided(f"{op} of infinity")
        return self.symbol((op, a.residue))

    def _odd(self, op: str, a: Element) -> Element:
        if a.infinite:
            raise Undecided(f"{op} of infinity")
        if a.residue == 0:
            return a
        canonical = min(a.residue, self.prime - a.residue)
        found = self.symbol((op, canonical))
        return found if canonical == a.residue else self.neg(found)

    def _circle(self, op: str, a: Element) -> Element:
        if a.infinite:
            raise Undecided(f"{op} of infinity")
        if a.residue == 0:
            return self.number(Fraction(0 if op == "sin" else 1))
        t = self._odd("half-angle tangent", a)
        square = self.mul(t, t)
        one = self.number(Fraction(1))
        top = self.mul(self.number(Fraction(2)), t) if op == "sin" else self.add(one, self.neg(square))
        return self.div(top, self.add(one, square))

    def _cast(self, dtype: str, a: Element) -> Element:
        if dtype == "bool":
            return self._bit(not self.equal(a, self.number(Fraction(0))))
        if dtype.startswith(("int", "uint")):
            constant = self.constant(a)
            return self.number(Fraction(math.trunc(constant))) if constant is not None else self._opaque(f"to {dtype}", a)
        return a if self.keeps(dtype) or a.infinite else self._opaque(f"to {dtype}", a)

    def _select(self, x: list[Element]) -> Element:
        index = self.constant(x[0])
        if index is not None and index.denominator == 1 and -len(x) < index < len(x):
            return x[1:][int(index)]
        self.branches += 1
        place = self._choice(("select", x[0].residue, len(x)), lambda: self.rng.randrange(len(x) - 1))
        assert isinstance(place, int)
        return x[1 + place]


def _joined(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items()))


def _vector(poly: Poly) -> Vector:
    return tuple(sorted((m, c) for m, c in poly.items() if c))


def _shifted(a: Vector, b: Vector, sign: int) -> Vector:
    total = dict(a)
    for monomial, coefficient in b:
        total[monomial] = total.get(monomial, Fraction(0)) + sign * coefficient
    return _vector(total)


class _Lexicographic:
    """A translation-invariant order of exponents: by the first monomial in which they differ."""

    __slots__ = ("vector",)

    def __init__(self, vector: Vector) -> None:
        self.vector = vector

    def __lt__(self, other: _Lexicographic) -> bool:
        difference = _shifted(self.vector, other.vector, -1)
        return bool(difference) and difference[0][1] < 0


def _lexicographic(vector: Vector) -> _Lexicographic:
    return _Lexicographic(vector)


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
            values = point.evaluate([*left, *right])
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


def prime_check(candidates: Sequence[int] = PRIMES) -> bool:
    """Whether the moduli are primes that are 3 modulo 4 (deterministic Miller–Rabin below 2^64)."""
    return all(n % 4 == 3 and _is_prime(n) for n in candidates)


def _is_prime(n: int) -> bool:
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        if not any(pow(base, odd << i, n) == n - 1 for i in range(1, twos)):
            return False
    return True
