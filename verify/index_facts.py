"""What is known of symbolic sizes and indices, and what follows: signs of polynomials, quotients and remainders by symbolic radices.

All atoms are integers ≥ 0. An index variable lies below its bound; a size may be known to be at least 1. A question that needs a size or an
index taken apart (`d` as `2 · q`, a flat index as `q · n + r`) raises `Refine`: the proof starts again with the digits in its place, so that
every reshape, repeat and flatten comes down to polynomials over digits, and equality of places to equality of polynomials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from adapterc.dsl.poly import ONE, Poly, number, substitute_atoms, symbol
from adapterc.verify.index_smt import Questions

ZERO = number(0)
MINUS_ONE = number(-1)
MOST_RESIDUES = 4
MOST_PAIRS = 12


class Undecided(Exception):
    """The symbolic argument stops here; the sizes tried have to do."""


class NoValue(Exception):
    """At the sizes of this case an expression has no value."""


@dataclass(frozen=True, slots=True)
class Digits:
    """`name` is `value`, whose fresh atoms lie below `bounds`; `facts` are polynomials ≥ 0 that come with it."""

    name: str
    value: Poly
    bounds: tuple[tuple[str, Poly], ...] = ()
    facts: tuple[Poly, ...] = ()


class Refine(Exception):
    """Start again, once for each of the alternatives, which together are all there is."""

    def __init__(self, alternatives: tuple[Digits, ...]) -> None:
        super().__init__(alternatives[0].name)
        self.alternatives = alternatives


@dataclass(slots=True)
class Facts:
    """One case of a proof: `taken` are the atoms taken apart so far, in order."""

    taken: tuple[Digits, ...] = ()
    questions: Questions = field(default_factory=Questions)
    bounds: dict[str, Poly] = field(default_factory=dict)
    positive: set[str] = field(default_factory=set)
    known: list[Poly] = field(default_factory=list)

    def __post_init__(self) -> None:
        for digits in self.taken:
            for name, bound in digits.bounds:
                self.below(name, self.now(bound))
            self.known.extend(self.now(f) for f in digits.facts)

    def now(self, poly: Poly) -> Poly:
        """The polynomial with everything that was taken apart in its place."""
        for digits in self.taken:
            poly = substitute_atoms(poly, {digits.name: digits.value})
        return poly

    def size(self, name: str) -> Poly:
        return self.now(symbol(name))

    def index(self, name: str, bound: Poly) -> Poly:
        """An index variable 0 ≤ v < bound. The same name always has the same bound."""
        self.below(name, bound)
        value = self.now(symbol(name))
        if value != symbol(name):
            self.learn(bound - value - ONE)
        return value

    def below(self, name: str, bound: Poly) -> None:
        self.bounds[name] = bound
        self.at_least_one(bound)

    def at_least_one(self, size: Poly) -> None:
        """The size is not 0: then no factor of a product is."""
        if len(size.terms) == 1:
            self.positive.update(name for name, _ in size.terms[0][0])
        else:
            self.learn(size - ONE)

    def learn(self, poly: Poly) -> None:
        """poly ≥ 0."""
        if poly.constant is None and poly not in self.known:
            self.known.append(poly)

    def sign(self, poly: Poly, hard: bool = False) -> bool | None:
        """True: poly ≥ 0 always. False: poly < 0 always. None: neither is shown."""
        if self.shown(poly, hard):
            return True
        return False if self.shown(-poly - ONE, hard) else None

    def shown(self, poly: Poly, hard: bool = False) -> bool:
        """Whether poly ≥ 0 follows; `hard` lets z3 try."""
        if self._easy(poly):
            return True
        remainders = [poly - f for f in self.known]
        if any(self._easy(r) for r in remainders):
            return True
        if len(self.known) <= MOST_PAIRS and any(self._easy(r - f) for i, r in enumerate(remainders) for f in self.known[i + 1 :]):
            return True
        return hard and self.questions.follows(poly, self.bounds, self.positive, self.known)

    def zero(self, poly: Poly, hard: bool = False) -> bool:
        return not poly.terms or (self.shown(poly, hard) and self.shown(-poly, hard))

    def contradictory(self) -> bool:
        """Whether no sizes and places meet what is known: such a case says nothing."""
        return any(self.shown(-f - ONE) for f in list(self.known)) or self.questions.follows(
            number(-1), self.bounds, self.positive, self.known
        )

    def _easy(self, poly: Poly) -> bool:
        """Each index variable at the end of its range that is worst, then every size at its least: no negative coefficient may remain."""
        if poly.constant is not None:
            return poly.constant >= 0
        for name in sorted({n for m, _ in poly.terms for n, _ in m}):
            bound = self.bounds.get(name)
            if bound is None or not any(n == name for m, _ in poly.terms for n, _ in m):
                continue
            split = linear(poly, name)
            if split is None:
                continue
            slope, rest = split
            if self._easy(slope):
                poly = rest
            elif self._easy(-slope):
                poly = rest + slope * (bound - ONE)
        grown = substitute_atoms(poly, {n: symbol(n) + ONE for n in self.positive})
        return all(c >= 0 for _, c in grown.terms)

    # Division -----------------------------------------------------------------------------------------------------------------------------

    def divide(self, value: Poly, radix: Poly) -> tuple[Poly, Poly]:
        """Quotient and remainder of value by radix ≥ 1, rounded down. Raises Refine or Undecided."""
        if radix == ONE:
            return value, ZERO
        quotient = ZERO
        for monomial, coefficient in value.terms:
            part = Poly(((monomial, coefficient),))
            found = exact_quotient(part, radix)
            if found is not None and whole(found):
                quotient = quotient + found
        rest = value - quotient * radix
        for shift in (ZERO, ONE, -ONE):
            moved = rest - shift * radix
            if self.shown(moved) and self.shown(radix - ONE - moved):
                return quotient + shift, moved
        self._take_apart(rest, radix)
        raise Undecided(f"{value} has no known quotient by {radix}")

    def _take_apart(self, rest: Poly, radix: Poly) -> None:
        """Raises Refine where an index or a size in `rest` has digits in the radix; returns where none has."""
        for monomial, coefficient in reversed(rest.terms):
            for name, exponent in monomial:
                if exponent != 1:
                    continue
                factor = Poly(((tuple((n, e) for n, e in monomial if n != name), abs(coefficient)),))
                modulus = exact_quotient(radix, factor)
                if modulus is None or not whole(modulus) or modulus == ONE:
                    continue
                bound = self.bounds.get(name)
                if bound is None or not self.shown(modulus - bound):
                    raise Refine(digits_of(name, modulus, bound))
                if coefficient < 0:
                    raise Refine((Digits(name, ZERO), zero_or_more(name, bound)))


def zero_or_more(name: str, bound: Poly) -> Digits:
    return Digits(name, symbol(f"{name}-1") + ONE, ((f"{name}-1", bound - ONE),), (bound - ONE - ONE,))


def digits_of(name: str, modulus: Poly, bound: Poly | None) -> tuple[Digits, ...]:
    """`name` as quotient and remainder by `modulus`: each remainder its own case where they are few numbers."""
    high = symbol(f"{name}/({modulus})")
    constant = modulus.constant
    if bound is None and constant is not None and constant <= MOST_RESIDUES:
        return tuple(Digits(name, high * modulus + number(r)) for r in range(int(constant)))
    low = f"{name}%({modulus})"
    whole_part = exact_quotient(bound, modulus) if bound is not None else None
    bounds: tuple[tuple[str, Poly], ...] = ((low, modulus),)
    if whole_part is not None and whole(whole_part):
        bounds = ((low, modulus), (str(high), whole_part))
    return (Digits(name, high * modulus + symbol(low), bounds),)


def halves(name: str, denominator: int) -> tuple[Digits, ...]:
    """A size that must divide by a small number: one case a remainder."""
    if denominator > MOST_RESIDUES:
        raise Undecided(f"{name} / {denominator} may not be whole")
    return tuple(Digits(name, symbol(f"{name}/{denominator}") * number(denominator) + number(r)) for r in range(denominator))


def whole(poly: Poly) -> bool:
    return all(c.denominator == 1 for _, c in poly.terms)


def fractions_of(poly: Poly) -> Iterator[tuple[str, int]]:
    """The atoms that stand over a denominator."""
    for monomial, coefficient in poly.terms:
        if coefficient.denominator != 1:
            for name, _ in monomial[:1]:
                yield name, coefficient.denominator


def linear(poly: Poly, name: str) -> tuple[Poly, Poly] | None:
    """poly = slope · name + rest, both free of it; None where it is not linear."""
    slope: dict[tuple[tuple[str, int], ...], Fraction] = {}
    rest = []
    for monomial, coefficient in poly.terms:
        exponents = dict(monomial)
        exponent = exponents.pop(name, 0)
        if exponent > 1:
            return None
        if exponent:
            slope[tuple(sorted(exponents.items()))] = coefficient
        else:
            rest.append((monomial, coefficient))
    total = ZERO
    for key, coefficient in slope.items():
        total = total + Poly(((key, coefficient),))
    return total, Poly(tuple(rest))


def exact_quotient(value: Poly, by: Poly) -> Poly | None:
    """value / by where it is a polynomial (coefficients may be fractions)."""
    if by.constant is not None:
        return None if by.constant == 0 else Poly(tuple((m, c / by.constant) for m, c in value.terms))
    rest, quotient = value, ZERO
    lead, coefficient = by.terms[-1]
    for _ in range(32):
        if not rest.terms:
            return quotient
        monomial, own = rest.terms[-1]
        exponents = dict(monomial)
        for name, exponent in lead:
            exponents[name] = exponents.get(name, 0) - exponent
        if any(e < 0 for e in exponents.values()):
            return None
        part = Poly(((tuple(sorted((n, e) for n, e in exponents.items() if e)), own / coefficient),))
        quotient, rest = quotient + part, rest - part * by
    return None


def atoms(poly: Poly) -> frozenset[str]:
    return frozenset(n for m, _ in poly.terms for n, _ in m)


Scope = Mapping[str, Poly]
