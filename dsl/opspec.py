"""What one entry of the op table is: the name, the parameters, the meaning over the real numbers, the shape rule and the torch forms.

The entries are in dsl/table_*.py and are put together in dsl/ops.py. Signatures and call forms are written as text and read once, here.

Call forms: `aten.softmax.int(x, dim, half_to_float=False)[0]`. A bare name is a parameter of the op, a constant is a value that the graph node
must have (or that the generated call passes), `_` is an argument that may have any value, `[0]` selects an output. A parameter that the form leaves out
has its default; an argument of the ATen schema that the form leaves out has the schema's default.
"""

from __future__ import annotations

import ast as python
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from adapterc.dsl.ast import Expr, Literal, Name, Sequence
from adapterc.dsl.printer import to_text

# What an argument may be. "operand" is a tensor or a number; "numbers" and "dims" also take a single one; "static" is any value known at build.
PARAM_KINDS = ("tensor", "tensors", "operand", "number", "dim", "dims", "size", "sizes", "bool", "dtype", "string", "static")
FAMILIES = ("elementwise", "reduction", "scan", "layout", "index", "contraction", "source", "static", "predicate")


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter; `default` None means that the argument is required."""

    name: str
    kind: str
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """In a call form: the parameter of this name."""

    param: str


@dataclass(frozen=True, slots=True)
class Anything:
    """In a call form: an argument whose value does not matter."""


FormValue: TypeAlias = "Use | Anything | Literal | tuple[FormValue, ...]"


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call of `target`: positional values, named values, and which output (an index, a parameter, or None for the only one)."""

    target: str
    positional: tuple[FormValue, ...]
    keyword: tuple[tuple[str, FormValue], ...] = ()
    output: int | Use | None = None


Macro: TypeAlias = Callable[[Mapping[str, Expr]], Expr]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One op.

    `definition` is the meaning over the real numbers, in the language itself (`a = …; result`) or as a function from bound arguments to
    an expression where the form depends on how many there are; None marks a primitive, whose meaning is `meaning`. Floating point is
    evaluated with `torch`, never with `definition`: softmax is defined without the shift that keeps floats finite.
    `commutes` is None or the class in which the two first operands may swap ("EXACT", "EXACT-Z").
    `shape` names a rule of dsl/shapes.py; composites whose definition yields their type leave it empty.
    """

    name: str
    params: tuple[Param, ...]
    family: str
    meaning: str
    definition: str | Macro | None = None
    shape: str = ""
    torch: CallForm | None = None
    aten: tuple[CallForm, ...] = ()
    commutes: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def primitive(self) -> bool:
        return self.definition is None

    @property
    def elementwise(self) -> bool:
        return self.family == "elementwise"

    def param(self, name: str) -> Param | None:
        return next((p for p in self.params if p.name == name), None)

    @property
    def signature(self) -> str:
        """`softmax(x, dim, dtype=None)`, for messages and the reference."""
        return f"{self.name}({', '.join(p.name if p.default is None else f'{p.name}={to_text(p.default)}' for p in self.params)})"


def op(
    signature: str,
    family: str,
    meaning: str,
    *,
    definition: str | Macro | None = None,
    shape: str = "",
    torch: str = "",
    aten: tuple[str, ...] = (),
    commutes: str | None = None,
    aliases: tuple[str, ...] = (),
) -> OpSpec:
    """An entry of the table from its texts; raises ValueError for an entry that is not well formed (a fault of the table, not of a user)."""
    name, params = _signature(signature)
    known = frozenset(p.name for p in params)
    form = call_form(torch, known) if torch else None
    return OpSpec(name, params, family, meaning, definition, shape, form, tuple(call_form(a, known) for a in aten), commutes, aliases)


def call_form(text: str, params: frozenset[str]) -> CallForm:
    """Read a call form; names must be parameters. Raises ValueError."""
    node = python.parse(text, mode="eval").body
    output: int | Use | None = None
    if isinstance(node, python.Subscript):
        chosen = _form_value(node.slice, params, text)
        output = chosen if isinstance(chosen, Use) else python.literal_eval(node.slice)
        node = node.value
    if not isinstance(node, python.Call):
        raise ValueError(f"{text}: not a call form")
    positional = tuple(_form_value(a, params, text) for a in node.args)
    keyword = tuple((str(k.arg), _form_value(k.value, params, text)) for k in node.keywords)
    return CallForm(python.unparse(node.func), positional, keyword, output)


def _form_value(node: python.expr, params: frozenset[str], text: str) -> FormValue:
    match node:
        case python.Name(id="_"):
            return Anything()
        case python.Name(id=name):
            if name not in params:
                raise ValueError(f"{text}: {name} is not a parameter")
            return Use(name)
        case python.List(elts=items):
            return tuple(_form_value(item, params, text) for item in items)
    return _literal(node, text)


def _signature(text: str) -> tuple[str, tuple[Param, ...]]:
    source = f"def {text}: ..."
    function = python.parse(source).body[0]
    assert isinstance(function, python.FunctionDef)
    given = function.args.args
    defaults: list[python.expr | None] = [None] * (len(given) - len(function.args.defaults))
    defaults += function.args.defaults
    params: list[Param] = []
    for argument, default in zip(given, defaults, strict=True):
        kind = python.unparse(argument.annotation) if argument.annotation else "operand"
        if kind not in PARAM_KINDS:
            raise ValueError(f"{text}: {kind} is not a kind of parameter")
        params.append(Param(argument.arg, kind, None if default is None else _default(default, source)))
    return function.name, tuple(params)


def _default(node: python.expr, source: str) -> Expr:
    if isinstance(node, python.List):
        return Sequence(tuple(_default(item, source) for item in node.elts))
    if isinstance(node, python.Name):
        return Name(node.id)
    return _literal(node, source)


def _literal(node: python.expr, source: str) -> Literal:
    value = python.literal_eval(node)
    if isinstance(value, float):
        # Through the decimal text, so that 1e-5 stays exact.
        return Literal(Fraction(repr(value)))
    if value is None or isinstance(value, str | int):
        return Literal(value)
    raise ValueError(f"{source}: {value!r} is not a literal of the language")
