"""The expression tree of the adapter language: the one tree that every interpreter walks.

Operators are calls (`a * b` is `Call("mul", (a, b))`), so an interpreter knows only the ops of `dsl/ops.py`. Literals are exact: `0.044715` is
the fraction 44715/1000000, never a rounded float. Each node carries the span of the text that it was read from; spans take no part in equality.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a spec file. Lines and columns count from 1; the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Span("<expression>", 1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class Literal:
    """A number (int or exact fraction), a string, a truth value or None."""

    value: int | Fraction | str | bool | None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A pattern variable, a size, or one of the known names (`stick`, `cores`, `dtype`, `device`, `config`, `inf`, `pi`)."""

    id: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A read of a known record, such as `config.hidden_size`. Never a method call: the language is total."""

    base: Expr
    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """An op of `dsl/ops.py` applied to operands; `kwargs` is sorted by name."""

    op: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def keyword(self, name: str) -> Expr | None:
        return next((value for key, value in self.kwargs if key == name), None)


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of expressions: the tensors of `cat`, the sizes of `reshape`."""

    items: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Slice:
    """`start:stop:step` inside a subscript; an absent part is None."""

    start: Expr | None = None
    stop: Expr | None = None
    step: Expr | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rest:
    """`...` inside a subscript: all the dimensions not named."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Subscript:
    """`x[..., d/2:]`: static indexing with slices, sizes, `...` and None; `w[ids]` with a tensor is the op `take`."""

    base: Expr
    index: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Expr: TypeAlias = Literal | Name | Attribute | Call | Sequence | Slice | Rest | Subscript


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct operands of a node, in reading order."""
    match node:
        case Attribute(base=base):
            return (base,)
        case Call(args=args, kwargs=kwargs):
            return (*args, *(value for _, value in kwargs))
        case Sequence(items=items):
            return items
        case Slice(start=start, stop=stop, step=step):
            return tuple(part for part in (start, stop, step) if part is not None)
        case Subscript(base=base, index=index):
            return (base, *index)
    return ()


def walk(node: Expr) -> Iterator[Expr]:
    """The node and everything below it, outermost first."""
    yield node
    for child in children(node):
        yield from walk(child)


def names(node: Expr) -> frozenset[str]:
    """The identifiers that an expression reads."""
    return frozenset(n.id for n in walk(node) if isinstance(n, Name))
