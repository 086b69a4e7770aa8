"""What an expression can be, as far as types go: a tensor of symbolic shape, a number, a list, a name of a format, or unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from adapterc.dsl.poly import ONE, Poly


class Mismatch(Exception):
    """Operands that do not fit; the caller adds the place. `code` is ADC230 (kind), ADC231 (shape) or ADC232 (argument)."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


@dataclass(frozen=True, slots=True)
class Rest:
    """Any number of dimensions: the broadcast of the rests of these names (`*B`, or a private name for each `...`)."""

    names: frozenset[str]


Axis: TypeAlias = Poly | Rest
Shape: TypeAlias = tuple[Axis, ...] | None  # None: unknown


@dataclass(frozen=True, slots=True)
class TensorValue:
    """`element` is a kind, a format, or "any"."""

    element: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class NumberValue:
    """A number or truth value known when the rule is built; `size` is its polynomial where it has one."""

    element: str  # "int", "float", "bool" or "any"
    size: Poly | None = None


@dataclass(frozen=True, slots=True)
class ListValue:
    items: tuple[TypeOf, ...]


@dataclass(frozen=True, slots=True)
class StaticValue:
    """Text, None, a format, or a part of a config; `text` is the format or text where it is known."""

    kind: str  # "none", "text", "dtype", "record"
    text: str | None = None


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """A variable without a declared type: fits everywhere."""


TypeOf: TypeAlias = TensorValue | NumberValue | ListValue | StaticValue | UnknownValue
UNKNOWN = UnknownValue()

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTS = ("int8", "uint8", "int32", "int64")


def category(element: str) -> str:
    """ "float", "int", "bool" or "any": the kind that a format belongs to."""
    if element in _FLOATS:
        return "float"
    return "int" if element in _INTS else element


def promote(a: str, b: str) -> str:
    """The element of a result of two tensors. A kind next to a format of the same kind leaves the format open."""
    if a == b:
        return a
    order = ("bool", "int", "float")
    first, second = category(a), category(b)
    if "any" in (first, second):
        return "any"
    if first != second:
        return a if order.index(first) > order.index(second) else b
    if a in _FLOATS and b in _FLOATS:
        return "float32" if {a, b} == {"float16", "bfloat16"} else max(a, b, key=lambda e: (_width(e), e))
    if a in _INTS and b in _INTS and "uint8" not in (a, b):
        return max(a, b, key=_width)
    return "any"


def _width(element: str) -> int:
    return int(element.lstrip("abcdefghijklmnopqrstuvwxyz"))


def joined_element(values: tuple[TypeOf, ...]) -> str:
    """The element of an elementwise result: tensors decide, numbers only raise the kind."""
    tensors = [v.element for v in values if isinstance(v, TensorValue)]
    numbers = [v.element for v in values if isinstance(v, NumberValue)]
    if any(isinstance(v, UnknownValue) for v in values):
        return "any"
    if not tensors:
        result = "bool"
        for element in numbers:
            result = promote(result, element)
        return result
    result = tensors[0]
    for element in tensors[1:]:
        result = promote(result, element)
    for element in numbers:
        kinds = ("bool", "int", "float")
        known = category(result) in kinds and element in kinds
        if known and kinds.index(element) > kinds.index(category(result)):
            # An integer tensor with a real number takes the default format.
            result = "float32" if element == "float" else "int64"
    return result


def broadcast(values: tuple[TypeOf, ...]) -> Shape:
    """The shape of an elementwise result; numbers have none. Raises Mismatch ADC231."""
    shape: Shape = ()
    for value in values:
        if isinstance(value, UnknownValue) or (isinstance(value, TensorValue) and value.shape is None):
            return None
    for value in values:
        if isinstance(value, TensorValue):
            shape = _broadcast_two(shape, value.shape)
    return shape


def _broadcast_two(a: Shape, b: Shape) -> Shape:
    """Aligned from the right. A named dimension that meets the other side's rest stays: the rest has to broadcast with it."""
    if a is None or b is None:
        return None
    (a_head, a_rest, a_tail), (b_head, b_rest, b_tail) = _split(a), _split(b)
    if a_head and b_head and a_head != b_head:
        return None
    if (a_head and b_rest is None) or (b_head and a_rest is None):
        return None
    common = min(len(a_tail), len(b_tail))
    longer = a_tail if len(a_tail) > common else b_tail
    paired = zip(a_tail[len(a_tail) - common :], b_tail[len(b_tail) - common :], strict=True)
    tail = (*longer[: len(longer) - common], *(_broadcast_axis(p, q, a, b) for p, q in paired))
    if a_rest is None and b_rest is None:
        return tail
    names = frozenset[str]().union(*(r.names for r in (a_rest, b_rest) if r is not None))
    return (*(a_head or b_head), Rest(names), *tail)


def _split(shape: tuple[Axis, ...]) -> tuple[tuple[Poly, ...], Rest | None, tuple[Poly, ...]]:
    """The dimensions before the rest, the rest, and those after it; all of them after it where there is none."""
    at = next((i for i, axis in enumerate(shape) if isinstance(axis, Rest)), None)
    rest = shape[at] if at is not None else None
    head = tuple(axis for axis in shape[: at or 0] if isinstance(axis, Poly))
    tail = tuple(axis for axis in shape[0 if at is None else at + 1 :] if isinstance(axis, Poly))
    return head, rest if isinstance(rest, Rest) else None, tail


def _broadcast_axis(p: Poly, q: Poly, a: Shape, b: Shape) -> Poly:
    if p == q or q == ONE:
        return p
    if p == ONE:
        return q
    raise Mismatch(
        "ADC231",
        f"The shapes {shape_text(a)} and {shape_text(b)} do not broadcast: {p} is not {q}.",
        "Use one size name for equal dimensions.",
    )


def rank(shape: Shape) -> int | None:
    """The number of dimensions, where it is known."""
    return None if shape is None or any(isinstance(axis, Rest) for axis in shape) else len(shape)


def axis_at(shape: Shape, dim: int) -> Poly | None:
    """The size of dimension `dim`, where it is known. Raises Mismatch ADC232 when there is no such dimension."""
    index = axis_index(shape, dim)
    found = shape[index] if shape is not None and index is not None else None
    return found if isinstance(found, Poly) else None


def axis_index(shape: Shape, dim: int) -> int | None:
    """The place of dimension `dim` in the shape; None when a rest stands between. Raises Mismatch ADC232."""
    if shape is None:
        return None
    known = rank(shape)
    if known is not None:
        if not -max(known, 1) <= dim < max(known, 1):
            raise Mismatch("ADC232", f"There is no dimension {dim} in {shape_text(shape)}.", f"It has {known}.")
        return dim % known if known else None
    at = next(i for i, axis in enumerate(shape) if isinstance(axis, Rest))
    if dim >= 0:
        return dim if dim < at else None
    return len(shape) + dim if len(shape) + dim > at else None


def shape_text(shape: Shape) -> str:
    """`[..., d]`, for messages."""
    if shape is None:
        return "[unknown]"
    return f"[{', '.join(_axis_text(axis) for axis in shape)}]"


def _axis_text(axis: Axis) -> str:
    if isinstance(axis, Poly):
        return str(axis)
    named = sorted(name for name in axis.names if not name.startswith("."))
    return f"*{'*'.join(named)}" if named else "..."


def type_of_text(value: TypeOf) -> str:
    """A type as messages show it."""
    match value:
        case TensorValue(element=element, shape=shape):
            return f"{element}{shape_text(shape)}"
        case NumberValue(element=element, size=size):
            return f"the number {size}" if size is not None else ("a truth value" if element == "bool" else "a number")
        case ListValue():
            return "a list"
        case StaticValue(kind="none"):
            return "None"
        case StaticValue(kind=kind):
            return {"text": "text", "dtype": "a number format", "record": "a config field"}.get(kind, kind)
    return "a value without a declared type"
