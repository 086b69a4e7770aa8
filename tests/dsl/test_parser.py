"""Text to tree and back, and what is said about text that is no expression."""

from __future__ import annotations

import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript
from adapterc.dsl.diagnostics import SpecError, render
from adapterc.dsl.parser import MAX_DEPTH, MAX_LENGTH, parse_definition, parse_expression, parse_type
from adapterc.dsl.printer import INFIX, PREFIX, decimal_text, to_text, type_text
from adapterc.dsl.types import RestDims, ScalarType, TensorType

X, Y, D = Name("x"), Name("y"), Name("d")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("x * y", Call("mul", (X, Y))),
        ("x + y * d", Call("add", (X, Call("mul", (Y, D))))),
        ("(x + y) * d", Call("mul", (Call("add", (X, Y)), D))),
        ("-x ** 2", Call("neg", (Call("pow", (X, Literal(2))),))),
        ("x ** -y", Call("pow", (X, Call("neg", (Y,))))),
        ("x ** y ** d", Call("pow", (X, Call("pow", (Y, D))))),
        ("x - y - d", Call("sub", (Call("sub", (X, Y)), D))),
        ("x @ y", Call("matmul", (X, Y))),
        ("x // y % d", Call("remainder", (Call("floor_div", (X, Y)), D))),
        ("x & y | ~d", Call("bitwise_or", (Call("bitwise_and", (X, Y)), Call("bitwise_not", (D,))))),
        ("x >> 1 << y", Call("lshift", (Call("rshift", (X, Literal(1))), Y))),
        ("not x == y", Call("logical_not", (Call("eq", (X, Y)),))),
        ("x and y or d", Call("logical_or", (Call("logical_and", (X, Y)), D))),
        ("x < y <= d", Call("logical_and", (Call("lt", (X, Y)), Call("le", (Y, D))))),
        ("x not in [1]", Call("logical_not", (Call("contains", (X, Sequence((Literal(1),)))),))),
        ("x if y else d", Call("choose", (Y, X, D))),
        ("f(x, b=y, a=d)", Call("f", (X,), (("a", D), ("b", Y)))),
        ("f()", Call("f", ())),
        ("f(x,)", Call("f", (X,))),
        ("[]", Sequence(())),
        ("config.a.b", Attribute(Attribute(Name("config"), "a"), "b")),
        (
            "x[..., d:, :2, ::y, None, 3]",
            Subscript(X, (Rest(), Slice(D), Slice(None, Literal(2)), Slice(None, None, Y), Literal(None), Literal(3))),
        ),
        ("x[0][1]", Subscript(Subscript(X, (Literal(0),)), (Literal(1),))),
        ("0.044715", Literal(Fraction(44715, 1000000))),
        ("1e-5", Literal(Fraction(1, 100000))),
        (".5", Literal(Fraction(1, 2))),
        ("3.", Literal(Fraction(3))),
        ("-3", Literal(-3)),
        ("-0.0", Call("neg", (Literal(Fraction(0)),))),
        ("+x", X),
        ("true", Literal(True)),
        ("False", Literal(False)),
        ("None", Literal(None)),
        ("'a'", Literal("a")),
        ('"a b"', Literal("a b")),
        ("order", Name("order")),
        ("x\n * y", Call("mul", (X, Y))),
    ],
)
def test_parse(text: str, tree: Expr) -> None:
    assert parse_expression(text) == tree


def test_a_decimal_stays_a_real_number_and_an_integer_a_whole_one() -> None:
    assert type(parse_expression("3.0").value) is Fraction  # type: ignore[union-attr]
    assert type(parse_expression("3").value) is int  # type: ignore[union-attr]


def test_spans_point_at_what_was_read() -> None:
    tree = parse_expression("a + foo(b,\n  c.d)")
    assert isinstance(tree, Call)
    call = tree.args[1]
    assert (call.span.line, call.span.column, call.span.end_line, call.span.end_column) == (1, 5, 2, 7)
    assert isinstance(call, Call)
    assert (call.args[1].span.line, call.args[1].span.column) == (2, 3)


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("", 1, "empty"),
        ("   ", 1, "empty"),
        ("x +", 4, "ends too early"),
        ("f(x", 4, "Close it with `)`"),
        ("x[1", 4, "Close it with `]`"),
        ("x.sum(1)", 6, "no method calls"),
        ("x = 3", 3, "`==`"),
        ("a b", 3, "missing before `b`"),
        ("2x", 2, "missing before `x`"),
        ("x ? 1", 3, "where(condition, a, b)"),
        (")", 1, "cannot stand here"),
        ("x + * y", 5, "operand is missing"),
        ("x || y", 4, "operand is missing"),
        ("x !y", 3, "`not x`"),
        ("f(a=1, 2)", 8, "positional argument follows"),
        ("f(a=1, a=2)", 8, "given twice"),
        ('"abc', 1, "never closes"),
        ("x..y", 3, "operand is missing"),
        ("or", 1, "word of the language"),
        ("{}", 1, "no dictionaries"),
        ("x if y", 7, "ends too early"),
        ("x; y", 2, "cannot stand here"),
        ("lambda x: x", 8, "missing before `x`"),
        ("1e999", 1, "exponent"),
        ("9" * 401, 1, "401 characters"),
        ("\0", 1, "no meaning"),
        ("é", 1, "no meaning"),
    ],
)
def test_syntax_errors_have_a_place_and_a_next_step(text: str, column: int, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_expression(text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code in ("ADC201", "ADC202")
    assert (diagnostic.span.line, diagnostic.span.column) == (1, column)
    assert part in f"{diagnostic.message} {diagnostic.hint}"
    assert diagnostic.hint


def test_the_caret_stands_under_the_fault() -> None:
    with pytest.raises(SpecError) as caught:
        parse_expression("pow(x,\n    y..z)")
    shown = render(caught.value.diagnostics[0], "pow(x,\n    y..z)").split("\n")
    assert shown[-2].removeprefix("2 | ") == "    y..z)"
    assert shown[-1].removeprefix("  | ") == "      ^"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + "x" + ")" * 100_000,
        "x" + "+x" * 500_000,
        "-" * 15_000 + "x",
        "x" + "+x" * 5_000,
        "not " * 4_000 + "x",
        "x" + "**x" * 4_000,
        "f(" * 5_000 + "x" + ")" * 5_000,
        "x" + "[0]" * 5_000,
        "x" + ".y" * 5_000,
        "[" * 9_000 + "]" * 9_000,
        "a if b else " * 1_000 + "c",
        "x<" * 5_000 + "x",
    ],
    ids=lambda text: text[:6],
)
def test_huge_expressions_get_one_sentence(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_expression(text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "ADC203"


@pytest.mark.parametrize(
    "text", ["f" * 101 + "(x)", "x + " + "y" * 9_000, "a." + "b" * 200, "f(" + "k" * 150 + "=1)", "x " + "9" * 399 + "z" * 50]
)
def test_long_words_do_not_fill_the_screen(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_expression(text)
    assert len(str(caught.value)) < 300


def test_the_deepest_expression_that_is_read_can_be_walked() -> None:
    text = "(" * 5_000 + "x" + ")" * 5_000 + "+x" * (MAX_DEPTH - 2)
    tree = parse_expression(text)
    assert parse_expression(to_text(tree)) == tree
    assert hash(tree) == hash(parse_expression(to_text(tree)))
    assert len(text) < MAX_LENGTH
    assert sys.getrecursionlimit() >= 1000


def test_definitions_have_bindings() -> None:
    bindings, result = parse_definition("a = x * x; b = a + 1; a / b")
    assert [name for name, _ in bindings] == ["a", "b"]
    assert result == Call("div", (Name("a"), Name("b")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("float[..., d]", TensorType("float", (RestDims(), D))),
        ("weight float[V, H]", TensorType("float", (Name("V"), Name("H")), True)),
        ("int[*B, 2]", TensorType("int", (RestDims("B"), Literal(2)))),
        ("bool[]", TensorType("bool", ())),
        ("float16[2*d, d/2]", TensorType("float16", (Call("mul", (Literal(2), D)), Call("div", (D, Literal(2)))))),
        ("size", ScalarType("size")),
        ("scalar", ScalarType("scalar")),
    ],
)
def test_types(text: str, found: object) -> None:
    parsed = parse_type(text)
    assert parsed == found
    assert parse_type(type_text(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("float", "float[...]"),
        ("flaot[d]", 'Did you mean "float"?'),
        ("wieght float[d]", 'Did you mean "weight"?'),
        ("size[3]", "has no shape"),
        ("float[..., *B]", "at most one"),
        ("float[", "Close it with `]`"),
        ("", "empty"),
        ("float[d] x", "cannot stand here"),
        ("float[d,, e]", "operand is missing"),
        ("[d]", "cannot stand here"),
    ],
)
def test_bad_types(text: str, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_type(text)
    (diagnostic,) = caught.value.diagnostics
    assert part in f"{diagnostic.message} {diagnostic.hint}"


def test_decimals_print_exactly() -> None:
    for text in ("0.5", "0.044715", "0.7978845608028654", "100000.0", "3.0", "-0.25"):
        assert to_text(parse_expression(text)) == text
    assert decimal_text(Fraction(1, 3)) is None
    assert Fraction(str(decimal_text(Fraction(1, 2**40)))) == Fraction(1, 2**40)
    assert Fraction(str(decimal_text(Fraction(10**30)))) == 10**30


NAMES = st.sampled_from(["x", "y", "d", "config", "inf"]).map(Name)
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 15)).map(lambda t: Fraction(t[0], 10 ** t[1])),
)
LITERALS = st.one_of(NUMBERS, st.booleans(), st.none(), st.text("ab c'#", max_size=4).filter(lambda s: "\\" not in s)).map(Literal)


def _compound(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    part = st.none() | inner
    index = st.one_of(inner, st.builds(Slice, part, part, part), st.just(Rest()))
    return st.one_of(
        st.builds(lambda op, a, b: Call(op, (a, b)), st.sampled_from(sorted(INFIX)), inner, inner),
        st.builds(lambda op, a: Call(op, (a,)), st.sampled_from(sorted(PREFIX)), inner).filter(_not_folded),
        st.builds(lambda a, b, c: Call("choose", (a, b, c)), inner, inner, inner),
        st.builds(
            lambda args, kwargs: Call("op", tuple(args), tuple(sorted(kwargs.items()))),
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["dim", "eps"]), inner),
        ),
        st.builds(lambda items: Sequence(tuple(items)), st.lists(inner, max_size=3)),
        st.builds(lambda base, i: Subscript(base, tuple(i)), inner, st.lists(index, min_size=1, max_size=3)),
        st.builds(lambda base, name: Attribute(base, name), inner, st.sampled_from(["a", "rope_type"])),
    )


def _not_folded(call: Call) -> bool:
    operand = call.args[0]
    number = isinstance(operand, Literal) and isinstance(operand.value, int | Fraction) and not isinstance(operand.value, bool)
    return not (call.op == "neg" and number and isinstance(operand, Literal) and operand.value != 0)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(st.recursive(NAMES | LITERALS, _compound, max_leaves=12))
def test_printed_trees_read_back(tree: Expr) -> None:
    assert parse_expression(to_text(tree)) == tree


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(st.text(st.sampled_from("xyd01.+-*/()[]=<>,:;'\"@%&|^~ \n!?notifelse"), max_size=25))
def test_any_text_gives_a_tree_or_one_diagnostic(text: str) -> None:
    try:
        tree = parse_expression(text)
    except SpecError as error:
        (diagnostic,) = error.diagnostics
        assert diagnostic.message.endswith((".", "?"))
        assert "^" in render(diagnostic, text)
    else:
        assert parse_expression(to_text(tree)) == tree
