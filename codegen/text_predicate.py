"""From a predicate or a size to Python over `here` (runtime/context.py): sizes, config fields, the profile's numbers and gaps."""

from __future__ import annotations

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Sequence
from adapterc.dsl.ops import DTYPE_NAMES, expand_once, lookup
from adapterc.dsl.printer import INFIX

from .errors import unsupported
from .layout import Doc, chain
from .text_pattern import literal

_FUNCTIONS = frozenset({"ceil_to", "ceil_div", "gcd", "lcm", "lpf", "smooth", "is_power_of_two", "is_integer"})
_CONTEXT = frozenset({"stick", "cores", "device", "dtype"})
_ATOM = 15


def predicate_doc(node: Expr) -> Doc:
    """The predicate as a statement's value: its outermost conjunction may be broken over lines."""
    if isinstance(node, Call) and node.op in ("logical_and", "logical_or"):
        symbol, own, first, second = INFIX[node.op]
        left, right = node.args
        below = predicate_doc(left) if isinstance(left, Call) and left.op == node.op else predicate_text(left, first)
        return chain(below, symbol, predicate_text(right, second), own)
    return predicate_text(node)


def predicate_text(node: Expr, precedence: int = 0) -> str:
    text, own = _write(node)
    return f"({text})" if own < precedence else text


def _write(node: Expr) -> tuple[str, int]:
    match node:
        case Literal():
            return literal(node), _ATOM
        case Name(id=name):
            return _name(name), _ATOM
        case Attribute(base=base, name=name):
            return f"{predicate_text(base, _ATOM)}.{name}", _ATOM
        case Sequence(items=items):
            return f"[{', '.join(predicate_text(i) for i in items)}]", _ATOM
        case Call(op="logical_not", args=(inner,)):
            return f"not {predicate_text(inner, 4)}", 4
        case Call(op="contains", args=(item, values)):
            return f"{predicate_text(item, 6)} in {predicate_text(values, 6)}", 5
        case Call(op=op, args=(left, right)) if op in INFIX:
            return _infix(op, left, right)
        case Call(op="neg", args=(inner,)):
            return f"-{predicate_text(inner, 12)}", 12
        case Call(op="choose", args=(condition, value, otherwise)):
            return f"{predicate_text(value, 2)} if {predicate_text(condition, 2)} else {predicate_text(otherwise, 1)}", 1
        case Call(op="gap", args=(name,)):
            return f"here.gap({predicate_text(name)})", _ATOM
        case Call(op="has", args=(record, Literal(value=str() as field))):
            return f"{predicate_text(record, _ATOM)}.{field} is not None", 5
        case Call(op="stick", args=(found,)):
            return f"here.stick_of({predicate_text(found)})", _ATOM
        case Call(op=op, args=args, kwargs=()) if op in _FUNCTIONS or op == "glob":
            return f"{op}({', '.join(predicate_text(a) for a in args)})", _ATOM
        case Call() if lookup(node).definition is not None:
            meaning = expand_once(node)
            assert meaning is not None
            return _write(meaning)
    raise unsupported("this in a predicate or size", node.span)


def _infix(op: str, left: Expr, right: Expr) -> tuple[str, int]:
    symbol, own, first, second = INFIX[op]
    if op in ("eq", "ne") and (
        Literal(None) in (left, right) or any(isinstance(s, Literal) and isinstance(s.value, bool) for s in (left, right))
    ):
        symbol = "is" if op == "eq" else "is not"
    return f"{predicate_text(left, first)} {symbol} {predicate_text(right, second)}", own


def _name(name: str) -> str:
    if name == "config":
        return "here.config"
    if name in _CONTEXT:
        return f"here.{name}"
    if name in DTYPE_NAMES:
        return f"torch.{name}"
    if name in ("inf", "pi", "nan"):
        return f"math.{name}"
    return f'here["{name}"]'
