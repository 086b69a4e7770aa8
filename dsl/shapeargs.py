"""How shape rules read their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from adapterc.dsl.poly import ONE, Poly
from adapterc.dsl.values import (
    Axis,
    ListValue,
    Mismatch,
    NumberValue,
    Shape,
    StaticValue,
    TensorValue,
    TypeOf,
    UnknownValue,
    axis_index,
)

NONE = StaticValue("none")
Arguments: TypeAlias = Mapping[str, TypeOf]
ShapeRule: TypeAlias = Callable[[Arguments], TypeOf]


def tensor_of(arguments: Arguments, name: str = "x") -> TensorValue:
    """The tensor argument; an unknown one is a tensor of which nothing is known."""
    value = arguments[name]
    if isinstance(value, TensorValue):
        return value
    if isinstance(value, UnknownValue):
        return TensorValue("any", None)
    if isinstance(value, NumberValue):
        raise Mismatch("ADC230", f"The argument `{name}` must be a tensor, and is a number.", "Numbers fit only elementwise ops.")
    raise Mismatch("ADC230", f"The argument `{name}` must be a tensor.")


def int_of(value: TypeOf) -> int | None:
    size = value.size if isinstance(value, NumberValue) else None
    constant = size.constant if size is not None else None
    return int(constant) if constant is not None and constant.denominator == 1 else None


def ints_of(value: TypeOf) -> list[int] | None:
    """A number or a list of numbers, where all are known."""
    items = value.items if isinstance(value, ListValue) else (value,)
    found = [int_of(item) for item in items]
    return None if None in found else [i for i in found if i is not None]


def poly_of(value: TypeOf) -> Poly | None:
    return value.size if isinstance(value, NumberValue) else None


def polys_of(value: TypeOf) -> list[Poly] | None:
    items = value.items if isinstance(value, ListValue) else (value,)
    found = [poly_of(item) for item in items]
    return None if None in found else [p for p in found if p is not None]


def is_none(value: TypeOf) -> bool:
    return isinstance(value, StaticValue) and value.kind == "none"


def is_true(value: TypeOf) -> bool:
    return isinstance(value, NumberValue) and value.element == "bool" and value.size == ONE


def dtype_of(value: TypeOf, otherwise: str) -> str:
    if isinstance(value, StaticValue) and value.kind == "dtype":
        return value.text or "any"
    return otherwise if is_none(value) else "any"


def replaced(shape: Shape, dim: int, axes: tuple[Axis, ...]) -> Shape:
    """The shape with dimension dim replaced by others; unknown when its place is."""
    index = axis_index(shape, dim)
    return None if shape is None or index is None else (*shape[:index], *axes, *shape[index + 1 :])
