"""Makes scalar terms: promotes dtypes and folds what is known exactly, so that index arithmetic and static masks vanish."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from adapterc.verify.tensors import constant, promote
from adapterc.verify.terms import INTEGER_DTYPES, Arena, Payload, Term

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGICAL = frozenset({"and", "or", "xor", "not"})
TRANSCENDENTAL = frozenset(
    [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log1p",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "tanh",
        "sigmoid",
        "erf",
        "sin",
        "cos",
        "tan",
        "asinh",
        "acosh",
        "atanh",
        "sinh",
        "cosh",
        "div",
    ]
)
_FOLD: dict[str, Callable[[Fraction, Fraction], Fraction | bool | None]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floor_div": lambda a, b: Fraction(a // b) if b else None,
    "remainder": lambda a, b: a % b if b else None,
    "bits_and": lambda a, b: Fraction(int(a) & int(b)),
    "bits_or": lambda a, b: Fraction(int(a) | int(b)),
    "bits_xor": lambda a, b: Fraction(int(a) ^ int(b)),
    "maximum": max,
    "minimum": min,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def number(term: Term) -> Fraction | None:
    """The value of a constant that is an exact number."""
    if term.op != "const" or isinstance(term.payload, bool) or not isinstance(term.payload, int | Fraction):
        return None
    return Fraction(term.payload)


def truth(term: Term) -> bool | None:
    return term.payload if term.op == "const" and isinstance(term.payload, bool) else None


def result_dtype(op: str, dtypes: tuple[str, ...]) -> str:
    if op in COMPARISONS or op in LOGICAL or op in ("isnan", "isinf"):
        return "bool"
    if op == "where":
        return promote(*dtypes[1:])
    joint = promote(*dtypes)
    if op in TRANSCENDENTAL and (joint in INTEGER_DTYPES or joint in ("bool", "weakint")):
        return "weak" if joint == "weakint" else "float"
    if joint == "bool":
        return "int64"
    return joint


def build(arena: Arena, op: str, *args: Term, kernel: str = "") -> Term:
    """The term of `op`, or the constant or operand that it equals for every value of every format."""
    dtype = result_dtype(op, tuple(a.dtype for a in args))
    folded = _folded(arena, op, args, dtype)
    return folded if folded is not None else arena.make(op, args, None, dtype, kernel)


def _folded(arena: Arena, op: str, args: tuple[Term, ...], dtype: str) -> Term | None:
    if op == "neg":
        return _negated(arena, args[0], dtype)
    if op == "where" and (chosen := truth(args[0])) is not None:
        return convert(arena, args[1 if chosen else 2], dtype)
    if op in LOGICAL:
        return _logical(arena, op, args)
    if len(args) != 2:
        return None
    if op == "pow":
        return _power(arena, args, dtype)
    left, right = number(args[0]), number(args[1])
    if left is None or right is None:
        return None
    if op == "div" and dtype == "weak" and right != 0:
        return constant(arena, left / right, dtype)
    fold = _FOLD.get(op)
    # Rounding is the format's business: only integers and numbers without a format fold.
    if fold is None or (dtype not in INTEGER_DTYPES and dtype not in ("weak", "weakint", "bool")):
        return None
    value = fold(left, right)
    if value is None or isinstance(value, bool):
        return None if value is None else constant(arena, value)
    whole = value.denominator == 1 and dtype != "weak"
    return constant(arena, int(value) if whole else value, dtype)


def _negated(arena: Arena, term: Term, dtype: str) -> Term | None:
    value = number(term)
    if value is not None:
        if value == 0 and dtype not in INTEGER_DTYPES and dtype != "weakint":
            return constant(arena, "-0", dtype)
        return constant(arena, -value if isinstance(term.payload, Fraction) else int(-value), dtype)
    flipped: dict[str, Payload] = {"inf": "-inf", "-inf": "inf", "-0": Fraction(0), "nan": "nan"}
    if term.op == "const" and isinstance(term.payload, str) and term.payload in flipped:
        return constant(arena, flipped[term.payload], dtype)
    return None


def _power(arena: Arena, args: tuple[Term, ...], dtype: str) -> Term | None:
    base, exponent = number(args[0]), number(args[1])
    if base is None or exponent is None or exponent.denominator != 1 or dtype not in ("weak", "weakint") or abs(exponent) > 64:
        return None
    if base == 0 and exponent < 0:
        return None
    value = base ** int(exponent)
    return constant(arena, int(value) if dtype == "weakint" and value.denominator == 1 else value, dtype if exponent >= 0 else "weak")


def _logical(arena: Arena, op: str, args: tuple[Term, ...]) -> Term | None:
    values = [truth(a) for a in args]
    if op == "not":
        return None if values[0] is None else constant(arena, not values[0])
    for value, other in ((values[0], args[1]), (values[1], args[0])):
        if value is None:
            continue
        if op == "and":
            return other if value else constant(arena, False)
        if op == "or":
            return constant(arena, True) if value else other
    return None


def convert(arena: Arena, term: Term, dtype: str) -> Term:
    """An explicit or implied change of dtype. Numbers without a dtype and widening of the same kind need no node of their own."""
    if term.dtype == dtype:
        return term
    if term.dtype in ("weak", "weakint") and term.op == "const":
        value = number(term)
        if dtype in INTEGER_DTYPES and value is not None:
            return constant(arena, int(value), dtype)
        if dtype == "bool":
            return constant(arena, value != 0) if value is not None else term
        if dtype == "float" or value is None or _representable(value):
            return constant(arena, term.payload if isinstance(term.payload, str | tuple) or value is None else value, dtype)
    return arena.make("cast", (term,), dtype, dtype)


def _representable(value: Fraction) -> bool:
    """Whether every float format holds the number exactly."""
    return value.denominator in (1, 2, 4, 8) and abs(value.numerator) <= 256
