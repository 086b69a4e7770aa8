"""Exact algebra: terms evaluated in a finite field, with exp as a homomorphism (an exp-ring).

A polynomial identity that fails holds at a random point of F_p with probability at most degree / p (Schwartz–Zippel), so agreement at several
points proves the identity up to the probability stated, and disagreement proves nothing (the answer is then "not shown"). What is not algebra:
- exp(t): t is kept as a polynomial over atoms with rational coefficients; each monomial has a random generator, sums become products.
- log peels exponentials off; a variable known to be positive is written e^(its logarithm), so that log, pow and sqrt obey their laws there
  and only there.
- sqrt: a root in F_p of random sign per argument, so that √(xy) = √x·√y is not assumed.
- max: a free symbol per set of operands; order (comparison, sorting): a random choice per difference or row, the same for shifted or
  exponentiated rows. sin and cos are the parts of a
  random rotation per monomial, so that angles add. erf and the rest are free symbols keyed by their argument.
Known incompleteness: exponents with denominators that do not divide DENOMINATOR, and order facts that need transitivity.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from adapterc.verify.field_elements import (
    DENOMINATOR,
    MOST_MONOMIALS,
    TURNS,
    BadPoint,
    Element,
    Monomial,
    Poly,
    Undecided,
    Vector,
    joined,
    lexicographic,
    shifted,
    vector_of,
)


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
                    monomial = joined(ma, mb)
                    product[monomial] = product.get(monomial, Fraction(0)) + ca * cb
            poly = {m: c for m, c in product.items() if c}
        ea, eb = self.exps(a), self.exps(b)
        exps: dict[Vector, int] | None = None
        if len(ea) * len(eb) <= MOST_MONOMIALS:
            exps = {}
            for va, ra in ea.items():
                for vb, rb in eb.items():
                    vector = shifted(va, vb, 1)
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
            turned = {shifted((), vector, -1): self.inverse(coefficient)}
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
            argument = self._logarithm_of(monomial)
            if argument is not None and coefficient.denominator == 1:
                base, power = argument, int(coefficient)
            elif scaled.denominator == 1:
                base, power = self._generator(monomial), int(scaled)
            else:
                base, power = self._generator((monomial, abs(coefficient))), 1 if coefficient > 0 else -1
            residue = residue * pow(base, power % (self.prime - 1), self.prime) % self.prime
            degree += abs(power)
        return Element(residue, None, {vector: 1}, True, degree=degree)

    def _logarithm_of(self, monomial: Monomial) -> int | None:
        """r, where the monomial is the free symbol log(r): e to it is r again."""
        key = self.keys[monomial[0][0]] if len(monomial) == 1 and monomial[0][1] == 1 else None
        return int(key[1]) if isinstance(key, tuple) and key and key[0] == "log" else None

    def turn(self, a: Element) -> tuple[int, int, int]:
        """(cos a, sin a, degree): a product of one random rotation a monomial, so that angles add; multiples of π/2 are what they are."""
        cosine, sine, degree = 1, 0, 1
        for monomial, coefficient in vector_of(self.poly(a)):
            quarters = coefficient * 2
            if len(monomial) == 1 and monomial[0] == (self.atoms.get("pi"), 1) and quarters.denominator == 1:
                turn, power = (0, 1), int(quarters) % 4
            else:
                scaled = coefficient * TURNS
                whole = scaled.denominator == 1 and abs(scaled) < 10_000
                turn = self._rotation(monomial if whole else (monomial, abs(coefficient)))
                power = int(scaled) if whole else 1 if coefficient > 0 else -1
            if power < 0:
                turn, power = (turn[0], -turn[1]), -power
            degree += 2 * power
            for _ in range(power.bit_length()):
                if power & 1:
                    cosine, sine = self._rotated(cosine, sine, turn)
                turn, power = self._rotated(*turn, turn), power >> 1
        return cosine, sine, degree

    def _rotated(self, cosine: int, sine: int, turn: tuple[int, int]) -> tuple[int, int]:
        return (cosine * turn[0] - sine * turn[1]) % self.prime, (cosine * turn[1] + sine * turn[0]) % self.prime

    def _rotation(self, key: object) -> tuple[int, int]:
        """A random point of the circle: ((1 - t²) / (1 + t²), 2t / (1 + t²)); 1 + t² is never 0, for -1 is no square modulo these primes."""
        t = self._generator(("rotation", key))
        scale = self.inverse(1 + t * t)
        return (1 - t * t) * scale % self.prime, 2 * t * scale % self.prime

    def _generator(self, key: object) -> int:
        if key not in self.generators:
            self.generators[key] = self.draw()
        return self.generators[key]

    def exp(self, a: Element) -> Element:
        if a.infinite:
            if a.infinite < 0:
                return self.number(Fraction(0))
            raise Undecided("exp of infinity")
        return self.exponential(vector_of(self.poly(a)))

    def log(self, a: Element) -> Element:
        if a.infinite:
            raise Undecided("log of infinity")
        exps = self.exps(a)
        if not exps:
            return self.infinity(-1)
        # The order of vectors is preserved by shifts, so a common factor e^v always comes out of a sum as v.
        lead = min(exps, key=lexicographic)
        rest = a.residue * self.inverse(self.exponential(lead).residue) % self.prime
        shift = Element(self.value_of(lead), dict(lead), {(): self.value_of(lead)})
        if rest == 1:
            return shift
        return self.add(shift, self.symbol(("log", rest)))

    def value_of(self, vector: Vector) -> int:
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
        # A rational factor comes out first, so that √(c·x) = √c · √x for c > 0.
        lead = Fraction(1) if constant is not None or not a.poly else abs(a.poly[min(a.poly)])
        if lead != 1:
            return self.mul(self.sqrt(self.number(lead)), self.sqrt(self.mul(a, self.number(1 / lead))))
        square = Fraction(1) if constant is None else _square_part(abs(constant))
        residue = a.residue * self.inverse(self.number(square * square).residue) % self.prime
        key = ("sqrt", residue)
        if key not in self.symbols:
            root = pow(residue, (self.prime + 1) // 4, self.prime)
            if root * root % self.prime != residue:
                raise BadPoint("no square root")
            number = self.atom(key)
            keeps_sign = constant is not None or self.choice(("root", residue), lambda: self.rng.random() < 0.5)
            self.symbols[key] = Element(
                root if keeps_sign else self.prime - root, {((number, 1),): Fraction(1)}, positive=True, degree=a.degree
            )
        return self.mul(self.number(square), self.symbols[key]) if square != 1 else self.symbols[key]

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
        return self.sign(difference.residue) < 0

    def sign(self, residue: int) -> int:
        self.branches += 1
        canonical = min(residue, self.prime - residue)
        sign = 1 if self.choice(("sign", canonical), lambda: self.rng.random() < 0.5) else -1
        return sign if canonical == residue else -sign

    def choice(self, key: object, draw: Callable[[], object]) -> object:
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
        return bool(self.choice(("equal", canonical), lambda: self.rng.random() < 0.3))

    def order(self, row: Sequence[Element]) -> list[int]:
        """Positions from largest to smallest: one random order per row, whatever common shift, positive factor or exp it carries."""
        self.branches += 1
        finite = [i for i, x in enumerate(row) if not x.infinite]
        last = [i for i, x in enumerate(row) if x.infinite < 0]
        first = [i for i, x in enumerate(row) if x.infinite > 0]
        key = tuple(self._rank_key([row[i] for i in finite]))
        values = sorted(set(key))
        ranks = self.choice(("order", tuple(values)), lambda: self.rng.sample(range(len(values)), len(values)))
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
                inner = [Element(self.value_of(v), dict(v)) for v, _ in parts]
                return self._rank_key(inner)
        return [(x.residue - row[0].residue) % self.prime for x in row]


def _square_part(value: Fraction) -> Fraction:
    """The largest small rational whose square divides a positive number: 2 for 12, 1/2 for 1/8."""
    return Fraction(_square_factor(value.numerator), _square_factor(value.denominator))


def _square_factor(n: int) -> int:
    found = 1
    for divisor in range(2, 100):
        while n % (divisor * divisor) == 0:
            n //= divisor * divisor
            found *= divisor
    return found
