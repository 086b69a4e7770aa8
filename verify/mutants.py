"""Small wrong variants of an expression: swapped operands, a dropped term, another constant, axis, comparison or fill.

A check that accepts a rule with such a change in it checks nothing: every rule must have a mutant that dies, and the checker's own score is
the share of all mutants that die or are shown to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from adapterc.dsl.ast import Call, Expr, Literal, Sequence, Slice, Subscript, children
from adapterc.dsl.ops import ALIASES, OPS
from adapterc.dsl.printer import to_text

SWAPPED = {"sub", "div", "pow", "lt", "le", "gt", "ge", "matmul", "where", "floor_div", "remainder", "trunc_div", "fmod"}
OTHER = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq", "add": "sub", "sub": "add", "mul": "add", "div": "mul", "maximum": "minimum", "minimum": "maximum", "amax": "amin", "amin": "amax", "logical_and": "logical_or", "logical_or": "logical_and", "sin": "cos", "cos": "sin", "exp": "expm1", "argmax": "argmin"}  # fmt: skip
DROPPED = {"add", "sub", "mul", "div"}


@dataclass(frozen=True, slots=True)
class Mutant:
    change: str
    expression: Expr


def mutants(expression: Expr) -> Iterator[Mutant]:
    """Every single change, outermost first."""
    for change, mutated in at_each(expression, _here):
        yield Mutant(f"{change}: {to_text(mutated)}", mutated)


def at_each(node: Expr, changes: Callable[[Expr], Iterator[tuple[str, Expr]]]) -> Iterator[tuple[str, Expr]]:
    """The whole expression with one node changed, for every change of every node, outermost first."""
    yield from changes(node)
    for i, part in enumerate(children(node)):
        for change, mutated in at_each(part, changes):
            yield change, _with_child(node, i, mutated)


def _here(node: Expr) -> Iterator[tuple[str, Expr]]:
    match node:
        case Call(op=op, args=args, kwargs=kwargs, span=span):
            name = ALIASES.get(op, op)
            if name in SWAPPED and len(args) >= 2 and args[-1] != args[-2]:
                yield "operands swapped", Call(op, (*args[:-2], args[-1], args[-2]), kwargs, span)
            if name in OTHER and OPS.get(OTHER[name]) is not None:
                yield f"{name} became {OTHER[name]}", Call(OTHER[name], args, kwargs, span)
            if name in DROPPED and len(args) == 2:
                yield "a term dropped", args[0]
            if name == "neg" or (name in ("exp", "sqrt", "tanh", "sigmoid", "relu", "abs", "rsqrt", "log") and len(args) == 1):
                yield f"{name} dropped", args[0]
        case Literal(value=value) if isinstance(value, bool):
            yield "truth value flipped", Literal(not value, node.span)
        case Literal(value=value) if isinstance(value, int):
            yield "constant changed", Literal(value + 1 if value >= 0 else value - 1, node.span)
        case Literal(value=value) if isinstance(value, Fraction):
            yield "constant changed", Literal(value * Fraction(9, 8) + (0 if value else 1), node.span)
        case Sequence(items=items, span=span) if len(items) >= 2 and items[0] != items[-1]:
            yield "list reversed", Sequence(items[::-1], span)


def _with_child(node: Expr, index: int, child: Expr) -> Expr:
    match node:
        case Call(args=args, kwargs=kwargs):
            if index < len(args):
                return replace(node, args=(*args[:index], child, *args[index + 1 :]))
            at = index - len(args)
            return replace(node, kwargs=(*kwargs[:at], (kwargs[at][0], child), *kwargs[at + 1 :]))
        case Sequence(items=items):
            return replace(node, items=(*items[:index], child, *items[index + 1 :]))
        case Subscript(base=base, index=indices):
            if index == 0:
                return replace(node, base=child)
            return replace(node, base=base, index=(*indices[: index - 1], child, *indices[index:]))
        case Slice(start=start, stop=stop, step=step):
            present = [name for name, part in (("start", start), ("stop", stop), ("step", step)) if part is not None]
            return replace(node, **{present[index]: child})  # type: ignore[arg-type]
    return node
