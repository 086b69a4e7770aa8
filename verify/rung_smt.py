"""Rung 4: SMT (z3, the `prove` extra). Piecewise-linear and comparison rules over the reals; the same nodes over IEEE binary16 for bits.

Without z3 installed every question is answered None: a weaker status, never a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from adapterc.verify.compare import keeps, signature
from adapterc.verify.formats import FORMATS
from adapterc.verify.instances import Instance
from adapterc.verify.terms import INTEGER_DTYPES, Term, ordered

Pair = tuple[Term, Term]
STEPS = 4_000_000  # of z3's own count, about two seconds: a limit by the clock would make verdicts depend on the machine's load
MOST_NODES = 160
MOST_SHAPES = 6
WHOLE = INTEGER_DTYPES | {"bool", "weakint"}


@dataclass(frozen=True, slots=True)
class Solved:
    """`holds`: equality over the reals was proved. `klass`: EXACT or EXACT-Z proved over binary16."""

    how: str
    holds: bool = False
    klass: str | None = None


class Unsupported(Exception):
    """The theory has no meaning for a term."""


def available() -> bool:
    return find_spec("z3") is not None


def _distinct(instances: Sequence[Instance], pairs: Sequence[Sequence[Pair]]) -> list[tuple[Instance, Pair]] | None:
    shapes: dict[tuple[object, ...], tuple[Instance, Pair]] = {}
    for instance, differing in zip(instances, pairs, strict=True):
        for pair in differing:
            if len(ordered(pair)) > MOST_NODES:
                return None
            # With guards the names of variables matter, so pairs are not merged.
            key: tuple[object, ...] = signature(pair) if not instance.guards else (id(instance), pair[0].serial, pair[1].serial)
            shapes.setdefault(key, (instance, pair))
            if len(shapes) > MOST_SHAPES:
                return None
    return list(shapes.values())


def prove_reals(instances: Sequence[Instance], pairs: Sequence[Sequence[Pair]]) -> Solved | None:
    """Whether every differing pair is equal for all real values that the guards allow; None when z3 cannot say."""
    questions = _distinct(instances, pairs) if available() else None
    if not questions:
        return None
    z3 = import_module("z3")
    for instance, (left, right) in questions:
        whole = all(t.dtype in WHOLE for t in ordered((left, right, *instance.guards)))
        encode = _Encoder(z3, _Integers(z3) if whole else _Reals(z3), keeps(instance))
        try:
            a, b = encode.both(left, right)
            guards = [encode.term(g) for g in instance.guards]
        except Unsupported:
            return None
        if not _unsatisfiable(z3, [*encode.side_conditions, *guards, a != b]):
            return None
    return Solved(
        f"z3 proved {len(questions)} distinct pair{'s' if len(questions) > 1 else ''} of elements equal for all real values", holds=True
    )


def prove_ieee(instances: Sequence[Instance], pairs: Sequence[Sequence[Pair]]) -> Solved | None:
    """EXACT or EXACT-Z over every binary16 value; None when neither is proved."""
    questions = _distinct(instances, pairs) if available() else None
    if not questions or any(t.dtype not in ("float", "float16", "bool", "weak", "weakint") for _, p in questions for t in ordered(p)):
        return None
    z3 = import_module("z3")
    klass = "EXACT"
    for instance, (left, right) in questions:
        encode = _Encoder(z3, _Halves(z3), keeps(instance))
        try:
            a, b = encode.both(left, right)
            guards = [encode.term(g) for g in instance.guards]
        except Unsupported:
            return None
        if z3.is_bool(a):
            if not _unsatisfiable(z3, [*guards, a != b]):
                return None
            continue
        same = z3.Or(z3.And(z3.fpIsNaN(a), z3.fpIsNaN(b)), z3.fpEQ(a, b))
        if _unsatisfiable(z3, [*guards, z3.Not(z3.Or(z3.And(z3.fpIsNaN(a), z3.fpIsNaN(b)), a == b))]):
            continue
        if not _unsatisfiable(z3, [*guards, z3.Not(same)]):
            return None
        klass = "EXACT-Z"
    bits = "the same bits" if klass == "EXACT" else "the same bits but for the sign of zero"
    return Solved(f"z3 proved {bits} for all IEEE binary16 values", klass=klass)


def _unsatisfiable(z3: Any, conditions: Sequence[Any]) -> bool:
    solver = z3.Solver()
    solver.set("rlimit", STEPS)
    solver.add(*conditions)
    return bool(solver.check() == z3.unsat)


class _Encoder:
    """Terms to z3 expressions over one theory."""

    def __init__(self, z3: Any, theory: _Reals | _Integers | _Halves, kept: Callable[[str], bool]) -> None:
        self.z3 = z3
        self.theory = theory
        self.kept = kept
        self.done: dict[int, Any] = {}
        self.side_conditions: list[Any] = []

    def both(self, left: Term, right: Term) -> tuple[Any, Any]:
        a, b = self.term(left), self.term(right)
        if self.z3.is_bool(a) != self.z3.is_bool(b):
            a, b = self._as_number(a), self._as_number(b)
        return a, b

    def term(self, root: Term) -> Any:
        for term in ordered([root]):
            if term.serial not in self.done:
                self.done[term.serial] = self._one(term, [self.done[a.serial] for a in term.args])
        return self.done[root.serial]

    def _as_number(self, value: Any) -> Any:
        if self.z3.is_bool(value):
            return self.z3.If(value, self.theory.number(Fraction(1)), self.theory.number(Fraction(0)))
        return value

    def _one(self, term: Term, args: list[Any]) -> Any:
        z3, theory = self.z3, self.theory
        match term.op:
            case "const":
                if isinstance(term.payload, bool):
                    return z3.BoolVal(term.payload)
                if isinstance(term.payload, int | Fraction):
                    return theory.number(Fraction(term.payload))
                return theory.named(term.payload)
            case "var":
                name = str(term.payload)
                return z3.Bool(name) if term.dtype == "bool" else theory.variable(name, term.dtype, self.side_conditions)
            case "and" | "or" | "not" | "xor":
                return {"and": z3.And, "or": z3.Or, "not": z3.Not, "xor": z3.Xor}[term.op](*args)
            case "where":
                if z3.is_bool(args[1]) and z3.is_bool(args[2]):
                    return z3.If(args[0], args[1], args[2])
                return z3.If(args[0], self._as_number(args[1]), self._as_number(args[2]))
            case "cast":
                if not self.kept(str(term.payload)):
                    raise Unsupported(f"a cast to {term.payload}")
                return self._as_number(args[0])
            case "round" if term.kernel:
                return args[0]
            case "eq" | "ne" if all(z3.is_bool(a) for a in args):
                return (args[0] == args[1]) if term.op == "eq" else (args[0] != args[1])
        return theory.apply(term, [self._as_number(a) for a in args], self.side_conditions)


def _simple(z3: Any) -> Mapping[str, Callable[..., Any]]:
    """Ops that read the same in real and in integer arithmetic."""
    return {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "neg": lambda a: -a,
        "abs": lambda a: z3.If(a >= 0, a, -a),
        "maximum": lambda a, b: z3.If(a >= b, a, b),
        "minimum": lambda a, b: z3.If(a <= b, a, b),
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
        "isnan": lambda a: z3.BoolVal(False),
        "floor": lambda a: z3.ToReal(z3.ToInt(a)),
    }


class _Reals:
    """The theory of real (and integer) arithmetic."""

    def __init__(self, z3: Any) -> None:
        self.z3 = z3

    def number(self, value: Fraction) -> Any:
        return self.z3.RealVal(f"{value.numerator}/{value.denominator}")

    def named(self, payload: object) -> Any:
        if payload == "-0":
            return self.number(Fraction(0))
        raise Unsupported(str(payload))

    def variable(self, name: str, dtype: str, conditions: list[Any]) -> Any:
        found = self.z3.Real(name)
        if dtype.startswith("int"):
            conditions.append(found == self.z3.ToReal(self.z3.ToInt(found)))
        return found

    def apply(self, term: Term, args: list[Any], conditions: list[Any]) -> Any:
        simple = _simple(self.z3)
        if term.op in simple:
            return simple[term.op](*args)
        if term.op == "floor_div":
            conditions.append(args[1] != 0)
            return simple["floor"](args[0] / args[1])
        if term.op == "div":
            # Where the divisor is 0 both sides are undefined: nothing is claimed there (the value rung looks at zeros).
            conditions.append(args[1] != 0)
            return args[0] / args[1]
        if term.op in ("sum", "amax", "amin"):
            fold = {"sum": "add", "amax": "maximum", "amin": "minimum"}[term.op]
            value = args[0]
            for other in args[1:]:
                value = simple[fold](value, other)
            return value
        if term.op == "dot":
            products = [a * b for a, b in zip(args[::2], args[1::2], strict=True)]
            return self.z3.Sum(products) if len(products) > 1 else products[0]
        raise Unsupported(term.op)


class _Integers:
    """The theory of integers, for terms that are nothing else; divisions by constants stay linear."""

    def __init__(self, z3: Any) -> None:
        self.z3 = z3

    def number(self, value: Fraction) -> Any:
        if value.denominator != 1:
            raise Unsupported(str(value))
        return self.z3.IntVal(int(value))

    def named(self, payload: object) -> Any:
        raise Unsupported(str(payload))

    def variable(self, name: str, dtype: str, conditions: list[Any]) -> Any:
        return self.z3.Int(name)

    def apply(self, term: Term, args: list[Any], conditions: list[Any]) -> Any:
        if term.op == "floor_div":
            return self._floor_div(args[0], args[1], conditions)
        if term.op == "remainder":
            return args[0] - args[1] * self._floor_div(args[0], args[1], conditions)
        if term.op == "bits_and":
            return self._masked(term, args)
        if term.op == "sum":
            return self.z3.Sum(args)
        simple = _simple(self.z3)
        if term.op in simple and term.op != "floor":
            return simple[term.op](*args)
        raise Unsupported(term.op)

    def _floor_div(self, a: Any, b: Any, conditions: list[Any]) -> Any:
        # z3 divides with a remainder that is never negative, which rounds down for positive divisors.
        if self.z3.is_int_value(b):
            if b.as_long() == 0:
                raise Unsupported("division by zero")
            return a / b if b.as_long() > 0 else (-a) / (-b)
        conditions.append(b != 0)
        return self.z3.If(b > 0, a / b, (-a) / (-b))

    def _masked(self, term: Term, args: list[Any]) -> Any:
        """x & (2ᵏ - 1) is the remainder by 2ᵏ, in two's complement."""
        for value, mask in ((args[0], args[1]), (args[1], args[0])):
            if self.z3.is_int_value(mask) and mask.as_long() >= 0 and (mask.as_long() + 1) & mask.as_long() == 0:
                return value % (mask.as_long() + 1)
        raise Unsupported(term.op)


class _Halves:
    """IEEE binary16, round to nearest even; maximum and minimum as IEEE 754-2019 (NaN spreads, -0 < +0)."""

    def __init__(self, z3: Any) -> None:
        self.z3 = z3
        self.sort = z3.FPSort(5, FORMATS["float16"].precision)
        self.mode = z3.RNE()

    def number(self, value: Fraction) -> Any:
        return self.z3.fpToFP(self.mode, self.z3.RealVal(f"{value.numerator}/{value.denominator}"), self.sort)

    def named(self, payload: object) -> Any:
        z3 = self.z3
        table = {"inf": z3.fpPlusInfinity, "-inf": z3.fpMinusInfinity, "-0": z3.fpMinusZero, "nan": z3.fpNaN}
        if payload not in table:
            raise Unsupported(str(payload))
        return table[str(payload)](self.sort)

    def variable(self, name: str, dtype: str, conditions: list[Any]) -> Any:
        if dtype.startswith("int"):
            raise Unsupported("integers")
        return self.z3.FP(name, self.sort)

    def apply(self, term: Term, args: list[Any], conditions: list[Any]) -> Any:
        z3, mode = self.z3, self.mode
        simple: Mapping[str, Callable[..., Any]] = {
            "add": lambda a, b: z3.fpAdd(mode, a, b),
            "sub": lambda a, b: z3.fpSub(mode, a, b),
            "mul": lambda a, b: z3.fpMul(mode, a, b),
            "div": lambda a, b: z3.fpDiv(mode, a, b),
            "sqrt": lambda a: z3.fpSqrt(mode, a),
            "neg": z3.fpNeg,
            "abs": z3.fpAbs,
            "maximum": lambda a, b: self._largest(a, b),
            "minimum": lambda a, b: z3.fpNeg(self._largest(z3.fpNeg(a), z3.fpNeg(b))),
            "eq": z3.fpEQ,
            "ne": lambda a, b: z3.Not(z3.fpEQ(a, b)),
            "lt": z3.fpLT,
            "le": z3.fpLEQ,
            "gt": z3.fpGT,
            "ge": z3.fpGEQ,
            "isnan": z3.fpIsNaN,
            "floor": lambda a: z3.fpRoundToIntegral(z3.RTN(), a),
        }
        if term.op in simple and not term.wide:
            return simple[term.op](*args)
        raise Unsupported(term.op)

    def _largest(self, a: Any, b: Any) -> Any:
        z3 = self.z3
        takes_a = z3.Or(z3.fpGT(a, b), z3.And(z3.fpEQ(a, b), z3.fpIsNegative(b)))
        return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b)), z3.fpNaN(self.sort), z3.If(takes_a, a, b))
