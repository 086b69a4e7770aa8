"""Elements of the finite fields in which terms are evaluated: residues, with what is known of their form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

# 61-bit primes that are 3 modulo 4: a square root is one power.
PRIMES = ((1 << 61) - 1, 2305843009213693907, 2305843009213693723, 2305843009213693487)
DENOMINATOR = 2**7 * 3**2 * 5**7 * 7
MOST_MONOMIALS = 48
TURNS = 24  # rotations are by 1/24 of a monomial, so that its halves, thirds, … eighths are powers

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


def joined(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items()))


def vector_of(poly: Poly) -> Vector:
    return tuple(sorted((m, c) for m, c in poly.items() if c))


def shifted(a: Vector, b: Vector, sign: int) -> Vector:
    total = dict(a)
    for monomial, coefficient in b:
        total[monomial] = total.get(monomial, Fraction(0)) + sign * coefficient
    return vector_of(total)


class _Lexicographic:
    """A translation-invariant order of exponents: by the first monomial in which they differ."""

    __slots__ = ("vector",)

    def __init__(self, vector: Vector) -> None:
        self.vector = vector

    def __lt__(self, other: _Lexicographic) -> bool:
        difference = shifted(self.vector, other.vector, -1)
        return bool(difference) and difference[0][1] < 0


def lexicographic(vector: Vector) -> _Lexicographic:
    return _Lexicographic(vector)


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
