"""From a pattern of the language to the Python that builds the same pattern for the matcher."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript, walk
from adapterc.dsl.ops import DTYPE_NAMES, OPS
from adapterc.dsl.printer import INFIX
from adapterc.dsl.types import Dim, RestDims, ScalarType, TensorType, Type

from .errors import unsupported
from .layout import Doc, Paren, assign, call, chain, flat, give, listing, named, quote

_INFIX = frozenset({"add", "sub", "mul", "div", "matmul", "pow"})
_SIZE_OPS = frozenset({"add", "sub", "mul", "div", "floor_div", "remainder"})


def pattern_body(match: Expr, where: Mapping[str, Type]) -> list[str]:
    """The statements of a function that returns the pattern: sizes, variables, then the tree."""
    used = {n.id for n in walk(match) if isinstance(n, Name)}
    sizes = sorted(
        {
            d.id
            for t in where.values()
            if isinstance(t, TensorType)
            for e in t.dims
            if not isinstance(e, RestDims)
            for d in walk(e)
            if isinstance(d, Name)
        }
    )
    free = sorted(name for name in used if name not in where and name not in DTYPE_NAMES and name not in ("dtype", "inf", "pi"))
    declared = (name for name, typed in where.items() if typed == ScalarType("size") and name in used)
    sizes = sorted({*sizes, *declared, *(name for name in free if _is_size(match, name))})
    lines = [assign(name, call("Dim", quote(name)), 1) for name in sizes]
    for name in (*where, *free):
        if name in used and name not in sizes:
            lines.append(assign(name, _variable(name, where.get(name)), 1))
    scope = frozenset(sizes)
    lines.append(give(_pattern(match, scope)))
    return lines


def _is_size(match: Expr, name: str) -> bool:
    """A name that stands in a slice or inside arithmetic of sizes, and that `where` does not type."""
    slices = (node for node in walk(match) if isinstance(node, Slice))
    return any(isinstance(n, Name) and n.id == name for part in slices for n in walk(part))


def _variable(name: str, typed: Type | None) -> Doc:
    match typed:
        case None:
            return call("Anything", quote(name))
        case ScalarType():
            return call("Scalar", quote(name))
        case TensorType(element=element, dims=dims, weight=weight):
            shape = [dim(d) for d in dims]
            listed = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
            items: list[Doc] = [quote(name), quote(element), listed]
            return call("Tensor", *items, *(["weight=True"] if weight else []))


def dim(found: Dim) -> str:
    """A dimension of a shape."""
    if isinstance(found, RestDims):
        return "..." if found.name is None else flat(call("Rest", quote(found.name)))
    return _size(found)


def _size(node: Expr, precedence: int = 0) -> str:
    match node:
        case Literal(value=bool()):
            raise unsupported("a truth value as a size", node.span)
        case Literal(value=int() as number):
            return str(number)
        case Name(id=name):
            return name
        case Call(op=op, args=(left, right)) if op in _SIZE_OPS:
            symbol, own, first, second = INFIX[op]
            text = f"{_size(left, first)} {symbol} {_size(right, second)}"
            return f"({text})" if own < precedence else text
        case Call(op="neg", args=(inner,)):
            return f"-{_size(inner, 12)}"
    raise unsupported("this size in a pattern", node.span)


def _pattern(node: Expr, sizes: frozenset[str], precedence: int = 0) -> Doc:
    match node:
        case Literal():
            return literal(node)
        case Name(id=name) if name in DTYPE_NAMES or name == "dtype":
            return call("DType", quote(name))
        case Name(id=name) if name in ("inf", "pi"):
            return f"math.{name}"
        case Name(id=name):
            return name
        case Sequence(items=items):
            return listing(*(_pattern(i, sizes) for i in items))
        case Subscript(base=base, index=index):
            return f"{flat(_pattern(base, sizes, 15))}[{', '.join(_index(i) for i in index)}]"
        case Call(op="neg", args=(Literal(value=int() | Fraction()) as number,)):
            return f"-{literal(number)}"
        case Call(op="neg", args=(inner,)):
            return f"-{flat(_pattern(inner, sizes, 12))}"
        case Call(op=op, args=(left, right)) if op in _SIZE_OPS and _all_sizes(node, sizes):
            return _size(node, precedence)
        case Call(op=op, args=(left, right), kwargs=()) if op in _INFIX and _has_operator(left, right, sizes):
            symbol, own, first, second = INFIX[op]
            doc = chain(_pattern(left, sizes, first), symbol, _pattern(right, sizes, second), own)
            return Paren(doc) if own < precedence else doc
        case Call(op=op, args=args, kwargs=kwargs) if op in OPS:
            operands = [_pattern(a, sizes) for a in args]
            keywords = [named(key, _pattern(value, sizes)) for key, value in kwargs]
            return call("op", quote(op), *operands, *keywords)
        case Attribute():
            raise unsupported("a config field in a pattern; compare it in `when:`", node.span)
    raise unsupported("this in a pattern", node.span)


def _all_sizes(node: Expr, sizes: frozenset[str]) -> bool:
    names = {n.id for n in walk(node) if isinstance(n, Name)}
    return bool(names) and names <= sizes


def _has_operator(left: Expr, right: Expr, sizes: frozenset[str]) -> bool:
    """Whether Python's operator would reach a pattern: two numbers, or a number and a size, would be computed instead."""
    return any(not isinstance(side, Literal) and not _all_sizes(side, sizes) for side in (left, right))


def _index(part: Expr) -> str:
    match part:
        case Rest():
            return "..."
        case Slice(start=start, stop=stop, step=step):
            return slice_text(_size(start) if start else "", _size(stop) if stop else "", _size(step) if step else "")
    raise unsupported("an index that is not a slice, in a pattern", part.span)


def slice_text(start: str, stop: str, step: str) -> str:
    """`a:b` with the spaces that formatters put round a colon next to an expression."""
    parts = [start, stop, step] if step else [start, stop]
    loose = any(" " in part for part in parts)
    if not loose:
        return ":".join(parts)
    text = parts[0]
    for part in parts[1:]:
        text += (" :" if text else ":") + (f" {part}" if part else "")
    return text.strip() if parts[0] or text.startswith(":") else text


def literal(node: Literal) -> str:
    match node.value:
        case str() as text:
            return quote(text)
        case Fraction() as number:
            return number_text(number)
        case other:
            return repr(other)


def number_text(number: Fraction) -> str:
    """The shortest decimal that reads back as the nearest double, which is what the graph holds."""
    return repr(float(number))
