"""Rigorous bounds of the difference of two functions of one variable, by ball arithmetic (python-flint, the `prove` extra)."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from adapterc.verify.terms import Term, ordered

BOX = 8
PRECISION = 80
MOST_BOXES = 6_000
RELATIVE_GAP = 0.02


def sup_difference(pair: tuple[Term, Term]) -> float | None:
    """A rigorous upper bound of |left - right| on [-BOX, BOX]; None without python-flint or for terms that it cannot enclose."""
    if find_spec("flint") is None:
        return None
    flint: Any = import_module("flint")
    flint.ctx.prec = PRECISION
    try:
        return _branch_and_bound(flint, pair)
    except _NotEnclosed:
        return None


class _NotEnclosed(Exception):
    """A term without an enclosure."""


def _branch_and_bound(flint: Any, pair: tuple[Term, Term]) -> float | None:
    """Split where the enclosure is large until it is within RELATIVE_GAP of a value that is reached."""
    boxes = [(Fraction(i, 4), Fraction(i + 1, 4)) for i in range(-4 * BOX, 4 * BOX)]
    reached, bound, count = 0.0, 0.0, 0
    while boxes:
        low, high = boxes.pop()
        count += 1
        if count > MOST_BOXES:
            return None
        middle, radius = (low + high) / 2, (high - low) / 2
        ball = _ball(flint, middle) + flint.arb(0, float(radius) * 1.0000001)
        upper = _upper(_difference(flint, pair, ball))
        reached = max(reached, float(abs(_difference(flint, pair, _ball(flint, middle))).lower()))
        if upper is None or upper > reached * (1 + RELATIVE_GAP) + 1e-12:
            boxes += [(low, middle), (middle, high)]
        else:
            bound = max(bound, upper)
    return bound


def _upper(ball: Any) -> float | None:
    value = float(abs(ball).upper())
    return value if value == value and value != float("inf") else None


def _ball(flint: Any, value: Fraction) -> Any:
    return flint.arb(flint.fmpq(value.numerator, value.denominator))


def _difference(flint: Any, pair: tuple[Term, Term], x: Any) -> Any:
    values: dict[int, Any] = {}
    for term in ordered(pair):
        values[term.serial] = _apply(flint, term, [values[a.serial] for a in term.args], x)
    return values[pair[0].serial] - values[pair[1].serial]


def _apply(flint: Any, term: Term, args: list[Any], x: Any) -> Any:
    match term.op:
        case "var":
            return x
        case "const" if isinstance(term.payload, int | Fraction):
            return _ball(flint, Fraction(term.payload))
        case "const" if term.payload == "pi":
            return flint.arb.pi()
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "mul":
            return args[0] ** 2 if term.args[0] is term.args[1] else args[0] * args[1]
        case "div":
            return args[0] / args[1]
        case "neg":
            return -args[0]
        case "round" if term.kernel:
            return args[0]
        case "exp" | "log" | "sqrt" | "tanh" | "erf" | "sin" | "cos" | "atan" | "expm1" | "log1p":
            return getattr(args[0], term.op)()
        case "sigmoid":
            return 1 / (1 + (-args[0]).exp())
        case "pow" if term.args[1].op == "const" and isinstance(term.args[1].payload, int):
            return args[0] ** term.args[1].payload
        case "maximum":
            return flint.arb.max(args[0], args[1])
        case "minimum":
            return flint.arb.min(args[0], args[1])
        case "abs":
            return abs(args[0])
    raise _NotEnclosed(term.op)
