"""Tree to text: the canonical source of an expression or a type. `parse_expression(to_text(e)) == e` for every tree the parser can make."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript
from adapterc.dsl.diagnostics import shorten
from adapterc.dsl.types import RestDims, ScalarType, Type

# op -> (symbol, precedence, precedence that each operand needs). Higher binds tighter; the order is that of dsl/grammar.lark.
INFIX: Mapping[str, tuple[str, int, int, int]] = {
    "logical_or": ("or", 2, 2, 3),
    "logical_and": ("and", 3, 3, 4),
    "eq": ("==", 5, 6, 6),
    "ne": ("!=", 5, 6, 6),
    "lt": ("<", 5, 6, 6),
    "le": ("<=", 5, 6, 6),
    "gt": (">", 5, 6, 6),
    "ge": (">=", 5, 6, 6),
    "contains": ("in", 5, 6, 6),
    "bitwise_or": ("|", 6, 6, 7),
    "bitwise_xor": ("^", 7, 7, 8),
    "bitwise_and": ("&", 8, 8, 9),
    "lshift": ("<<", 9, 9, 10),
    "rshift": (">>", 9, 9, 10),
    "add": ("+", 10, 10, 11),
    "sub": ("-", 10, 10, 11),
    "mul": ("*", 11, 11, 12),
    "div": ("/", 11, 11, 12),
    "floor_div": ("//", 11, 11, 12),
    "remainder": ("%", 11, 11, 12),
    "matmul": ("@", 11, 11, 12),
    "pow": ("**", 13, 14, 12),
}
PREFIX: Mapping[str, tuple[str, int]] = {"logical_not": ("not ", 4), "neg": ("-", 12), "bitwise_not": ("~", 12)}
_CHOOSE, _PRODUCT, _UNARY, _ATOM = 1, 11, 12, 15


def to_text(expression: Expr) -> str:
    """Canonical source text: operators where the language has them, parentheses only where needed."""
    return _text(expression)[0]


def short_text(expression: Expr) -> str:
    """The source text, cut to what a message can hold."""
    return shorten(to_text(expression))


def type_text(found: Type) -> str:
    """Canonical source text of a type."""
    if isinstance(found, ScalarType):
        return found.element
    dims = (("..." if d.name is None else f"*{d.name}") if isinstance(d, RestDims) else to_text(d) for d in found.dims)
    return f"{'weight ' if found.weight else ''}{found.element}[{', '.join(dims)}]"


def _at(expression: Expr, least: int) -> str:
    text, precedence = _text(expression)
    return text if precedence >= least else f"({text})"


def _text(expression: Expr) -> tuple[str, int]:
    """The text and the precedence of its outermost operator."""
    match expression:
        case Literal(value=value):
            return _literal(value)
        case Name(id=identifier):
            return identifier, _ATOM
        case Attribute(base=base, name=name):
            # After a number, a point would be its own.
            return f"{f'({to_text(base)})' if isinstance(base, Literal) else _at(base, _ATOM)}.{name}", _ATOM
        case Sequence(items=items):
            return f"[{', '.join(to_text(item) for item in items)}]", _ATOM
        case Slice(start=start, stop=stop, step=step):
            head = f"{to_text(start) if start else ''}:{to_text(stop) if stop else ''}"
            return (f"{head}:{to_text(step)}" if step else head), 0
        case Rest():
            return "...", 0
        case Subscript(base=base, index=index):
            return f"{_at(base, _ATOM)}[{', '.join(to_text(i) for i in index)}]", _ATOM
        case Call():
            return _call(expression)


def _call(call: Call) -> tuple[str, int]:
    if not call.kwargs:
        if call.op in INFIX and len(call.args) == 2:
            symbol, precedence, left, right = INFIX[call.op]
            return f"{_at(call.args[0], left)} {symbol} {_at(call.args[1], right)}", precedence
        if call.op in PREFIX and len(call.args) == 1:
            symbol, precedence = PREFIX[call.op]
            operand = call.args[0]
            # `-3` reads back as a literal, so the negation of a literal keeps its parentheses.
            folded = call.op == "neg" and isinstance(operand, Literal) and operand.value != 0
            return f"{symbol}{f'({to_text(operand)})' if folded else _at(operand, precedence)}", precedence
        if call.op == "choose" and len(call.args) == 3:
            condition, value, otherwise = call.args
            return f"{_at(value, 2)} if {_at(condition, 2)} else {_at(otherwise, _CHOOSE)}", _CHOOSE
    parts = [to_text(a) for a in call.args] + [f"{key}={to_text(value)}" for key, value in call.kwargs]
    return f"{call.op}({', '.join(parts)})", _ATOM


def _literal(value: int | Fraction | str | bool | None) -> tuple[str, int]:
    match value:
        case None:
            return "None", _ATOM
        case bool():
            return ("true" if value else "false"), _ATOM
        case str():
            quote = "'" if '"' in value else '"'
            return f"{quote}{value}{quote}", _ATOM
        case int():
            return str(value), _ATOM if value >= 0 else _UNARY
    decimal = decimal_text(value)
    if decimal is None:
        return f"{value.numerator} / {value.denominator}", _PRODUCT
    return decimal, _ATOM if value >= 0 else _UNARY


def decimal_text(value: Fraction) -> str | None:
    """The exact decimal of a fraction, always with a point or an exponent; None when it has none (1/3)."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return None
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator)
    sign = "-" if value < 0 else ""
    if places > 20 or (places == 0 and len(digits) > 17):
        significant = digits.rstrip("0") or "0"
        exponent = len(digits) - len(significant) - places
        return f"{sign}{significant}e{exponent}"
    digits = digits.rjust(places + 1, "0")
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :] or '0'}"
