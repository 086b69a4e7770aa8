"""What the checker knows of kernels, integers, ties, rounded constants, undefined values and NaN: one kind of fault a test."""

from __future__ import annotations

import importlib.util
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from adapterc.dsl.parser import parse_expression
from adapterc.dsl.printer import to_text
from adapterc.verify import floats, literals, nan_sign
from adapterc.verify.guards import guard_text
from adapterc.verify.instances import instances
from adapterc.verify.ladder import decide
from adapterc.verify.terms import variables
from adapterc.verify.vacuity import vacuous

_SPEC = importlib.util.spec_from_file_location("verify_claims", Path(__file__).with_name("claims.py"))
assert _SPEC is not None and _SPEC.loader is not None
_CLAIMS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CLAIMS)
claim = _CLAIMS.claim

ANY, WHOLE = "float[...]", "int[...]"


def test_a_library_kernel_rounds_its_result() -> None:
    (left, right) = instances(claim("exp2(x)", "pow(2, x)", x="float[n]")).found[0].pairs[0]
    (x,) = variables([left])
    run = floats.run([left, right], {x.serial: np.array([0.5, 20.0], dtype=np.longdouble)}, 2, "float16")
    assert run.of(left).tolist() == run.of(right).tolist() == [float(np.float16(2**0.5)), np.inf]


@pytest.mark.parametrize(
    ("left", "right", "klass"),
    [
        ("remainder(x, 8)", "x & 7", "EXACT"),
        ("floor_div(x + 7, 8)", "-floor_div(-x, 8)", "EXACT"),
        ("x ^ x", "x - x", "EXACT"),
        ("remainder(x, 6)", "x & 5", "WRONG"),
    ],
)
def test_integers_do_not_round(left: str, right: str, klass: str) -> None:
    assert decide(claim(left, right, x=WHOLE)).klass == klass


def test_an_integer_division_by_zero_has_no_value_to_lose() -> None:
    decision = decide(claim("trunc_div(x, y) * y + fmod(x, y)", "x", x=WHOLE, y=WHOLE))
    assert (decision.klass, decision.status) == ("EXACT", "PROVED")


def test_a_pole_on_both_sides_is_no_difference() -> None:
    assert decide(claim("a / c + b / c", "(a + b) / c", a=ANY, b=ANY, c=ANY)).klass == "REAL"
    assert guard_text(decide(claim("x / x", "x * 0 + 1", x=ANY)).guard) == "x != 0"


def test_ties_are_named() -> None:
    decision = decide(claim("argmax(x, -1)", "n - 1 - argmax(flip(x, -1), -1)", x="float[n]"))
    assert (decision.klass, decision.edges) == ("EDGE", ("ties",))
    assert decide(claim("argmax(x, -1)", "argmax(flip(x, -1), -1)", x="float[n]"), guess=False).klass == "WRONG"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1.4142135623730951", "sqrt(2)"),
        ("0.7071067811865475", "1 / sqrt(2)"),
        ("0.70710677", "1 / sqrt(2)"),
        ("0.7978845608028654", "sqrt(2 / pi)"),
        ("0.08838834764831845", "1 / sqrt(128)"),
        ("0.3333333333333333", "1 / 3"),
        ("0.6931471805599453", "log(2)"),
        ("1.4142", None),
        ("0.044715", None),
        ("0.2", None),
        ("1.702", None),
        ("0.00001", None),
        ("10000.0", None),
    ],
)
def test_a_rounded_constant_is_read_as_what_it_rounds(text: str, meant: str | None) -> None:
    assert literals.constant_of(Fraction(text)) == meant
    if meant is not None:
        read, notes = literals.exact(claim(f"x * -{text}", "x", x=ANY))
        assert to_text(read.left) == to_text(parse_expression(f"x * -({meant})"))
        assert notes


def test_the_sign_of_nan_is_a_bit_too() -> None:
    found = instances(claim("where(x <= 0, 0 - x, x)", "abs(x)", x="float[n]")).found[0]
    assert nan_sign.differs(found.pairs)
    same = instances(claim("abs(-x)", "abs(x)", x="float[n]")).found[0]
    assert not nan_sign.differs(same.pairs)


def test_minus_infinity_is_a_mask_only_where_it_is_compared_or_exponentiated() -> None:
    where = {"a": "float[l, m]", "v": "float[m, d]", "w": "float[d, e]"}
    assert decide(claim("softmax(a, -1) @ (v @ w)", "(softmax(a, -1) @ v) @ w", **where)).klass == "REAL"


def test_a_guard_does_not_make_the_rule_trivial() -> None:
    decision = decide(claim("logical_and(x < 3, x < 5)", "x < 5", x=ANY))
    assert (decision.klass, decision.guard) == ("WRONG", ())
    assert decide(claim("s * x", "x", x=ANY, s="scalar")).klass == "WRONG"


def test_equal_sizes_are_a_guard_where_nothing_else_fits_and_a_remark_elsewhere() -> None:
    misfit = decide(claim("x * 2", "x + reshape(transpose(x, 0, 1), [a, b]) - transpose(x, 0, 1) + x", x="float[a, b]"))
    assert (misfit.klass, guard_text(misfit.guard)) == ("COND", "a == b")
    wrong = decide(
        claim("mean(cat([mean(x, -1, true), mean(y, -1, true)], -1), -1)", "mean(cat([x, y], -1), -1)", x="float[n]", y="float[m]")
    )
    assert wrong.klass == "WRONG"


def test_a_rule_that_fails_is_not_called_empty() -> None:
    assert vacuous(claim("where(not c, a, b)", "where(c, a, b)", c="bool[...]", a=ANY, b=ANY)) is None
    assert vacuous(claim("group_norm(x, 1)", "layer_norm(x, [c, n])", x="float[b, c, n]")) is None


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("chunk(x, 2, dim=-1)[0]", "chunk_piece(x=x, chunks=2, index=0, dim=-1)"),
        ("split(x, [1, 2], 0)[1]", "split_sizes_piece(x=x, sizes=[1, 2], index=1, dim=0)"),
        ("topk(x, 2)[1]", "topk_indices(x, 2)"),
        ("q @ k.mT", "q @ transpose(k, -2, -1)"),
        ("sum(x, (0, 1))", "sum(x, [0, 1])"),
    ],
)
def test_torch_notation_is_read(text: str, meaning: str) -> None:
    assert parse_expression(text) == parse_expression(meaning)


def test_angles_add_in_the_field() -> None:
    decision = decide(claim("cos(a + b)", "cos(a) * cos(b) - sin(a) * sin(b)", a=ANY, b=ANY))
    assert (decision.klass, decision.status) == ("REAL", "PROVED")
