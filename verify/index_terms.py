"""One element of a tensor of symbolic sizes, as a function of its place: which element of which input it is, or what is computed of such."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from adapterc.dsl.poly import Poly, number, substitute_atoms

Place: TypeAlias = tuple[Poly, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """The element of an input at a place."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Const:
    """A number, a truth value, or one of the names of verify/tensors.constant."""

    payload: Fraction | bool | str


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer that the place or a size decides (arange)."""

    value: Poly


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise op; `statics` are its arguments that are no elements."""

    op: str
    statics: tuple[object, ...]
    args: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction of `body` over the variable 0 ≤ variable < bound."""

    op: str
    variable: str
    bound: Poly
    body: Element


@dataclass(frozen=True, slots=True)
class Choice:
    """`then` where condition ≥ 0, else `other`."""

    condition: Poly
    then: Element
    other: Element


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """One element of what a kernel makes of whole tensors: the same kernel on equal tensors of one shape gives the same bits."""

    op: str
    statics: tuple[object, ...]
    tensors: tuple[Symbolic, ...]
    place: Place


Element: TypeAlias = Read | Const | Whole | Apply | Fold | Choice | Opaque


@dataclass(frozen=True, slots=True, eq=False)
class Symbolic:
    """A tensor: sizes, and the element at a place within them. `element` is its kind or dtype ("weak": a number)."""

    shape: tuple[Poly, ...]
    at: Callable[[Place], Element]
    element: str


def renamed(node: Element, variable: str, value: Poly) -> Element | None:
    """The element with an index variable replaced; None below an opaque kernel, whose tensors are functions."""
    scope = {variable: value}

    def poly(p: Poly) -> Poly:
        return substitute_atoms(p, scope)

    def visit(e: Element) -> Element | None:
        match e:
            case Read(name=name, place=place):
                return Read(name, tuple(poly(p) for p in place))
            case Const():
                return e
            case Whole(value=p):
                return Whole(poly(p))
            case Apply(op=op, statics=statics, args=args):
                found = [visit(a) for a in args]
                return None if None in found else Apply(op, statics, tuple(a for a in found if a is not None))
            case Fold(op=op, variable=own, bound=bound, body=body):
                inner = visit(body)
                return None if inner is None else Fold(op, own, poly(bound), inner)
            case Choice(condition=condition, then=then, other=other):
                a, b = visit(then), visit(other)
                return None if a is None or b is None else Choice(poly(condition), a, b)
        return None

    return visit(node)


def position(element: Element) -> Poly | None:
    if isinstance(element, Whole):
        return element.value
    if isinstance(element, Const) and isinstance(element.payload, Fraction):
        return number(element.payload)
    return None
