"""The patterns of a generated patch. They read like the spec's `match:` text: `x * cos + op("cat", tensors=[-x[..., d / 2:], ...], dim=-1) * sin`.

A pattern names ops of the adapter language; `normal.py` says which ATen nodes are such an op.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import EllipsisType
from typing import TypeAlias

from .sizes import Dim

Literal: TypeAlias = int | float | Fraction | bool | str | None


@dataclass(frozen=True)
class Rest:
    """`*B` in a shape: any leading dimensions; equal names are equal dimensions."""

    name: str


Shape: TypeAlias = tuple["Dim | int | Rest | EllipsisType", ...]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Base of the pattern nodes; only the operators live here."""

    def __add__(self, other: Operand) -> Op:
        return op("add", self, other)

    def __radd__(self, other: Operand) -> Op:
        return op("add", other, self)

    def __sub__(self, other: Operand) -> Op:
        return op("sub", self, other)

    def __rsub__(self, other: Operand) -> Op:
        return op("sub", other, self)

    def __mul__(self, other: Operand) -> Op:
        return op("mul", self, other)

    def __rmul__(self, other: Operand) -> Op:
        return op("mul", other, self)

    def __truediv__(self, other: Operand) -> Op:
        return op("div", self, other)

    def __rtruediv__(self, other: Operand) -> Op:
        return op("div", other, self)

    def __matmul__(self, other: Operand) -> Op:
        return op("matmul", self, other)

    def __pow__(self, other: Operand) -> Op:
        return op("pow", self, other)

    def __neg__(self) -> Op:
        return op("neg", self)

    def __getitem__(self, index: object) -> Subscript:
        return Subscript(self, index if isinstance(index, tuple) else (index,))


@dataclass(frozen=True, eq=False)
class Tensor(Pattern):
    """Binds a tensor of the graph. `element`: float, int, bool, any, or a dtype name; `weight` admits only values that depend on nothing but weights."""

    name: str
    element: str = "any"
    shape: Shape | None = None
    weight: bool = False


@dataclass(frozen=True, eq=False)
class Scalar(Pattern):
    """Binds a number of the graph, any real; a whole number that is a size is a `Dim`."""

    name: str


@dataclass(frozen=True, eq=False)
class Anything(Pattern):
    """Binds whatever stands there: a tensor, a number, or None for an argument that is absent."""

    name: str


@dataclass(frozen=True, eq=False)
class DType(Pattern):
    """A dtype argument; `dtype` is the dtype of the matched value itself."""

    name: str


@dataclass(frozen=True, eq=False)
class Op(Pattern):
    """An op of the adapter language on operands, positional ones in the order of its parameters."""

    name: str
    args: tuple[Operand, ...]
    kwargs: tuple[tuple[str, Operand], ...]


@dataclass(frozen=True, eq=False)
class Subscript(Pattern):
    """Static indexing with slices, sizes, None and `...`."""

    base: Pattern
    index: tuple[object, ...]


Operand: TypeAlias = "Pattern | Dim | Literal | list[Operand] | tuple[Operand, ...]"


def op(name: str, *args: Operand, **kwargs: Operand) -> Op:
    return Op(name, args, tuple(sorted(kwargs.items())))


def show(pattern: object) -> str:
    """The pattern as a reader writes it, for reports."""
    match pattern:
        case Tensor(name=name) | Scalar(name=name) | Anything(name=name) | DType(name=name):
            return name
        case Op(name=name, args=args, kwargs=kwargs):
            inner = [*(show(a) for a in args), *(f"{k}={show(v)}" for k, v in kwargs)]
            return f"{name}({', '.join(inner)})"
        case Subscript(base=base, index=index):
            return f"{show(base)}[{', '.join(_show_index(i) for i in index)}]"
        case list() | tuple():
            return f"[{', '.join(show(i) for i in pattern)}]"
    return str(pattern)


def _show_index(index: object) -> str:
    if index is Ellipsis:
        return "..."
    if isinstance(index, slice):
        return ":".join("" if part is None else str(part) for part in (index.start, index.stop))
    return str(index)


def walk(pattern: object) -> list[Pattern]:
    """The pattern and everything below it."""
    match pattern:
        case Op(args=args, kwargs=kwargs):
            return [pattern, *(p for a in (*args, *(v for _, v in kwargs)) for p in walk(a))]
        case Subscript(base=base):
            return [pattern, *walk(base)]
        case Pattern():
            return [pattern]
        case list() | tuple():
            return [p for item in pattern for p in walk(item)]
    return []
