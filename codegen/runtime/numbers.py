"""The arithmetic of sizes that generated predicates call; what is more than one line is the language's own."""

from __future__ import annotations

from fnmatch import fnmatchcase as glob
from fractions import Fraction
from math import gcd, lcm

from adapterc.dsl.sizes import largest_prime_factor as lpf
from adapterc.dsl.sizes import next_smooth as smooth


def ceil_div(n: int, m: int) -> int:
    """n / m rounded up."""
    return -(-n // m)


def ceil_to(n: int, m: int) -> int:
    """The smallest multiple of m that is at least n."""
    return ceil_div(n, m) * m


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def is_integer(n: int | float | Fraction) -> bool:
    return Fraction(n).denominator == 1


__all__ = ["ceil_div", "ceil_to", "gcd", "glob", "is_integer", "is_power_of_two", "lcm", "lpf", "smooth"]
