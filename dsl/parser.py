"""Text to tree: expressions, op definitions and types, by the grammar in dsl/grammar.lark.

Every fault is a `SpecError` with one `Diagnostic` whose span points into the file that the text came from. Nothing here recurses over the
text, so its nesting can exhaust nothing: texts beyond MAX_LENGTH and trees beyond MAX_DEPTH are refused.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias, cast

from lark import Lark, Token, Transformer_NonRecursive, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError
from lark.tree import Meta

from adapterc.dsl.ast import (
    NOWHERE,
    Attribute,
    Call,
    Expr,
    Literal,
    Name,
    Rest,
    Sequence,
    Slice,
    Span,
    Subscript,
    children,
)
from adapterc.dsl.diagnostics import Diagnostic, SpecError, did_you_mean, shorten
from adapterc.dsl.source import Origin, inline_origin
from adapterc.dsl.types import DTYPES, KINDS, Dim, RestDims, ScalarType, TensorType, Type

MAX_LENGTH = 20_000  # characters; the longest shipped expression has fewer than 400
MAX_DEPTH = 100  # keeps every recursive walk far from Python's own limit
MAX_WORD = 100
MAX_DIGITS = 400  # digits or decimal exponent; float64 ends at 1e308

_COMPARATORS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "in": "contains"}
_RESERVED = frozenset({"and", "or", "not", "if", "else", "in", "None", "true", "True", "false", "False"})

# Ops that give several tensors are read piece by piece: `chunk(x, 2, -1)[0]` is `chunk_piece(x, 2, 0, -1)`.
_PIECES = {
    "chunk": ("chunk_piece", ("x", "chunks", "dim")),
    "split": ("split_piece", ("x", "size", "dim")),
    "unbind": ("unbind_piece", ("x", "dim")),
}
_PAIRS = {
    "topk": ("topk_values", "topk_indices"),
    "sort": ("sort_values", "sort_indices"),
}

_LONG_WORD = re.compile(rf"[A-Za-z_]\w{{{MAX_WORD},}}")

Bindings: TypeAlias = tuple[tuple[str, Expr], ...]


def parse_expression(text: str, span_origin: Origin | None = None) -> Expr:
    """Parse an expression, pattern, predicate or size.

    `span_origin` maps offsets of `text` to a file; without it spans count inside `text`. Raises SpecError (ADC2xx).
    """
    expression = cast(Expr, _parse(text, "start_expression", span_origin))
    _refuse_depth(expression)
    return expression


def parse_definition(text: str) -> tuple[Bindings, Expr]:
    """Parse an op definition `a = …; b = …; result` into its bindings and its result. Raises SpecError (ADC2xx)."""
    return cast(tuple[Bindings, Expr], _parse(text, "start_definition", None))


def parse_type(text: str, span_origin: Origin | None = None) -> Type:
    """Parse a type such as `weight float[V, H]`, `int[*B, n]`, `size`. Raises SpecError (ADC2xx)."""
    found = cast(Type, _parse(text, "start_type", span_origin))
    for dim in found.dims if isinstance(found, TensorType) else ():
        if not isinstance(dim, RestDims):
            _refuse_depth(dim)
    return found


@cache
def _grammar() -> Lark:
    text = files("adapterc.dsl").joinpath("grammar.lark").read_text(encoding="utf-8")
    starts = ["start_expression", "start_definition", "start_type"]
    return Lark(text, parser="lalr", start=starts, propagate_positions=True, maybe_placeholders=True)


def _parse(text: str, start: str, span_origin: Origin | None) -> object:
    if len(text) > MAX_LENGTH:
        where = (span_origin or Origin("<expression>", ((1, 1),))).span(0, 1)
        message = f"The expression has {len(text):,} characters; at most {MAX_LENGTH:,} are read."
        raise SpecError(Diagnostic("ADC203", message, where, "Split it into `let:` bindings."))
    origin = span_origin or inline_origin(text)
    word = _LONG_WORD.search(text)
    if word is not None:
        message = f"A word of {len(word[0])} characters is too long; at most {MAX_WORD} are read."
        raise SpecError(Diagnostic("ADC203", message, origin.span(*word.span()), "Choose a shorter name."))
    try:
        tree = _grammar().parse(text, start=start)
    except UnexpectedInput as error:
        raise SpecError(_syntax_error(error, text, origin)) from None
    try:
        return _Build(origin).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, SpecError):
            raise error.orig_exc from None
        raise


def _refuse_depth(expression: Expr) -> None:
    level: list[Expr] = [expression]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in children(node)]
        if not level:
            return
    message = f"The expression nests deeper than {MAX_DEPTH} levels."
    raise SpecError(Diagnostic("ADC203", message, level[0].span, "Name its parts with `let:`."))


def _syntax_error(error: UnexpectedInput, text: str, origin: Origin) -> Diagnostic:
    offset = error.pos_in_stream if error.pos_in_stream is not None and error.pos_in_stream >= 0 else len(text)
    if isinstance(error, UnexpectedCharacters):
        character = text[offset]
        hints = {
            '"': "A string opens here and never closes.",
            "'": "A string opens here and never closes.",
            "!": "Write `not x`, or `!=` to compare.",
            "?": "Write `a if condition else b` for sizes, `where(condition, a, b)` for tensors.",
            "{": "The language has no dictionaries.",
            "`": "Names are written without quotes.",
        }
        hint = hints.get(character, "Remove it.")
        return Diagnostic("ADC201", f"The character {character!r} has no meaning here.", origin.span(offset, offset + 1), hint)
    assert isinstance(error, UnexpectedToken)
    token = error.token
    if token.type == "$END":
        start = len(text.rstrip())
        if start == 0:
            return Diagnostic("ADC201", "The expression is empty.", origin.span(0, 0), "Write an expression such as `x * x`.")
        return Diagnostic("ADC201", "The expression ends too early.", origin.span(start, start + 1), _missing(error))
    offset = token.start_pos if token.start_pos is not None else offset
    span = origin.span(offset, offset + len(token))
    return Diagnostic("ADC201", f"`{shorten(str(token))}` cannot stand here.", span, _syntax_hint(error, token, text[:offset].rstrip()))


def _missing(error: UnexpectedToken) -> str:
    wanted = set(error.accepts or error.expected)
    for terminal, mark in (("RPAR", ")"), ("RSQB", "]")):
        if terminal in wanted:
            return f"Close it with `{mark}`."
    return "An operand is missing."


def _syntax_hint(error: UnexpectedToken, token: Token, before: str) -> str:
    operand_ended = bool(before) and (before[-1].isalnum() or before[-1] in "_)]\"'")
    if token.type == "LPAR" and operand_ended:
        return "The language has no method calls: write the op as a function, as in `sum(x, dim=-1)`."
    if token == "=" and operand_ended:
        return "Write `==` to compare; a single `=` only names an argument."
    if operand_ended and token.type in ("NAME", "INTEGER", "DECIMAL", "STRING", "LPAR"):
        return f"An operator or a comma is missing before `{shorten(str(token))}`."
    if token.type in ("RPAR", "RSQB"):
        return "An operand is missing before it, or it closes nothing."
    if token in _RESERVED:
        return f"`{token}` is a word of the language."
    return "An operand is missing before it." if not operand_ended else _missing(error)


@v_args(meta=True)
class _Build(Transformer_NonRecursive[Token, object]):
    """Tree of lark to tree of dsl/ast.py; one method a grammar rule, named as there."""

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self._origin = origin

    def _span(self, meta: Meta) -> Span:
        return NOWHERE if meta.empty else self._origin.span(meta.start_pos, meta.end_pos)

    def _token_span(self, token: Token) -> Span:
        start = token.start_pos or 0
        return self._origin.span(start, start + len(token))

    def _fail(self, code: str, message: str, span: Span, hint: str = "") -> SpecError:
        return SpecError(Diagnostic(code, message, span, hint))

    def __default__(self, data: Token, items: list[Any], meta: Meta) -> object:
        # What has no method of its own is an operator whose alias in the grammar is the op's name.
        return Call(str(data), tuple(items), (), self._span(meta))

    def start_expression(self, meta: Meta, items: list[Any]) -> Expr:
        return cast(Expr, items[0])

    def start_definition(self, meta: Meta, items: list[Any]) -> tuple[Bindings, Expr]:
        *pairs, result = items
        return tuple((str(name), value) for name, value in zip(pairs[::2], pairs[1::2], strict=True)), result

    def start_type(self, meta: Meta, items: list[Any]) -> Type:
        first, second, dims = items
        span = self._span(meta)
        if second is not None and first != "weight":
            hint = did_you_mean(first, ["weight"]) or "Only `weight` may stand before the element kind."
            raise self._fail("ADC204", f"`{first}` is not a type qualifier.", self._token_span(first), hint)
        element = second if second is not None else first
        if element in ("scalar", "size"):
            if dims is not None or second is not None:
                raise self._fail("ADC204", f"`{element}` is a number and has no shape.", span, f"Write `{element}`.")
            return ScalarType(str(element), span)
        if element not in KINDS and element not in DTYPES:
            known = (*KINDS, *DTYPES, "scalar", "size")
            hint = did_you_mean(element, known) or f"Write one of {', '.join(known)}."
            raise self._fail("ADC204", f"`{element}` is not an element kind.", self._token_span(element), hint)
        if dims is None:
            raise self._fail("ADC204", f"The tensor type `{element}` has no shape.", span, f"Write `{element}[...]` for any shape.")
        if sum(isinstance(dim, RestDims) for dim in dims) > 1:
            raise self._fail("ADC204", "A shape has at most one `...` or `*name`.", span, "Name the other dimensions.")
        return TensorType(str(element), dims, second is not None, span)

    def shape(self, meta: Meta, items: list[Any]) -> tuple[Dim, ...]:
        return tuple(item for item in items if item is not None)

    def rest_dims(self, meta: Meta, items: list[Any]) -> RestDims:
        return RestDims()

    def named_rest(self, meta: Meta, items: list[Any]) -> RestDims:
        return RestDims(str(items[0]))

    def name(self, meta: Meta, items: list[Any]) -> Name:
        if items[0] in _RESERVED:
            raise self._fail("ADC201", f"`{items[0]}` is a word of the language.", self._span(meta), "Choose another name.")
        return Name(str(items[0]), self._span(meta))

    def integer(self, meta: Meta, items: list[Any]) -> Literal:
        return Literal(int(self._digits(items[0])), self._span(meta))

    def decimal(self, meta: Meta, items: list[Any]) -> Literal:
        text = self._digits(items[0])
        exponent = text.lower().partition("e")[2]
        if exponent and abs(int(exponent)) > MAX_DIGITS:
            message = f"The exponent of {text} is beyond {MAX_DIGITS}."
            raise self._fail("ADC202", message, self._span(meta), "float64 ends near 1e308; write `inf` for infinity.")
        return Literal(Fraction(text), self._span(meta))

    def _digits(self, token: Token) -> str:
        if len(token) > MAX_DIGITS:
            message = f"A number of {len(token)} characters is too long; at most {MAX_DIGITS} are read."
            raise self._fail("ADC202", message, self._token_span(token), "Round it.")
        return str(token)

    def string(self, meta: Meta, items: list[Any]) -> Literal:
        return Literal(str(items[0])[1:-1], self._span(meta))

    def none(self, meta: Meta, items: list[Any]) -> Literal:
        return Literal(None, self._span(meta))

    def true(self, meta: Meta, items: list[Any]) -> Literal:
        return Literal(True, self._span(meta))

    def false(self, meta: Meta, items: list[Any]) -> Literal:
        return Literal(False, self._span(meta))

    def sequence(self, meta: Meta, items: list[Any]) -> Sequence:
        return Sequence(tuple(item for item in items if item is not None), self._span(meta))

    def attribute(self, meta: Meta, items: list[Any]) -> Expr:
        transposes = {"T": (Literal(0), Literal(1)), "mT": (Literal(-2), Literal(-1))}
        if str(items[1]) in transposes:
            return Call("transpose", (items[0], *transposes[str(items[1])]), (), self._span(meta))
        return Attribute(items[0], str(items[1]), self._span(meta))

    def rest(self, meta: Meta, items: list[Any]) -> Rest:
        return Rest(self._span(meta))

    def slice(self, meta: Meta, items: list[Any]) -> Slice:
        start, stop, step = (*items, None)[:3]
        return Slice(start, stop, step, self._span(meta))

    def subscript(self, meta: Meta, items: list[Any]) -> Expr:
        base, *index = (item for item in items if item is not None)
        piece = _piece(base, index, self._span(meta))
        if piece is not None:
            return piece
        return Subscript(base, tuple(index), self._span(meta))

    def keyword(self, meta: Meta, items: list[Any]) -> tuple[Token, Expr]:
        return items[0], items[1]

    def call(self, meta: Meta, items: list[Any]) -> Call:
        op, *arguments = (item for item in items if item is not None)
        positional: list[Expr] = []
        named: dict[str, Expr] = {}
        for argument in arguments:
            if not isinstance(argument, tuple):
                if named:
                    raise self._fail("ADC201", "A positional argument follows a named one.", argument.span, "Name it, or move it forward.")
                positional.append(argument)
                continue
            key, value = argument
            if str(key) in named:
                raise self._fail("ADC201", f"The argument `{key}` is given twice.", self._token_span(key), "Remove one.")
            named[str(key)] = value
        return Call(str(op), tuple(positional), tuple(sorted(named.items())), self._span(meta))

    def neg(self, meta: Meta, items: list[Any]) -> Expr:
        operand = items[0]
        # -0.0 is not 0.0, and a fraction has no signed zero: that one stays a call.
        if isinstance(operand, Literal) and _is_number(operand.value) and operand.value != 0:
            return Literal(-cast(Fraction, operand.value), self._span(meta))
        return Call("neg", (operand,), (), self._span(meta))

    def plus(self, meta: Meta, items: list[Any]) -> Expr:
        return cast(Expr, items[0])

    def chain(self, meta: Meta, items: list[Any]) -> Expr:
        """`a < b < c` is `a < b and b < c`."""
        span = self._span(meta)
        links: list[Call] = []
        for left, comparator, right in zip(items[0:-2:2], items[1::2], items[2::2], strict=True):
            link = Call(_COMPARATORS[comparator[-1]], (left, right), (), span)
            links.append(Call("logical_not", (link,), (), span) if len(comparator) > 1 else link)
        joined: Expr = links[0]
        for link in links[1:]:
            joined = Call("logical_and", (joined, link), (), span)
        return joined

    def comparator(self, meta: Meta, items: list[Any]) -> tuple[str, ...]:
        return tuple(str(item) for item in items)

    def choose(self, meta: Meta, items: list[Any]) -> Call:
        value, condition, otherwise = items
        return Call("choose", (condition, value, otherwise), (), self._span(meta))


def _piece(base: Expr, index: list[Any], span: Span) -> Call | None:
    """One piece of an op that gives several."""
    if not isinstance(base, Call) or len(index) != 1 or not isinstance(index[0], Literal) or not isinstance(index[0].value, int):
        return None
    number = index[0]
    if base.op in _PAIRS and number.value in (0, 1):
        return Call(_PAIRS[base.op][int(number.value)], base.args, base.kwargs, span)
    if base.op not in _PIECES:
        return None
    op, names = _PIECES[base.op]
    given = {**dict(zip(names, base.args, strict=False)), **dict(base.kwargs), "index": number}
    if isinstance(given.get("size"), Sequence):
        op = "split_sizes_piece"
        given["sizes"] = given.pop("size")
    return Call(op, (), tuple(sorted(given.items())), span)


def _is_number(value: object) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool)
