"""Each class of verdict, by the rung that decides it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from adapterc.verify.guards import guard_text
from adapterc.verify.ladder import decide

_SPEC = importlib.util.spec_from_file_location("verify_claims", Path(__file__).with_name("claims.py"))
assert _SPEC is not None and _SPEC.loader is not None
_CLAIMS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CLAIMS)
claim = _CLAIMS.claim

ANY = "float[...]"


@pytest.mark.parametrize(
    ("left", "right", "where", "klass", "status"),
    [
        ("pow(x, 2)", "x * x", {"x": ANY}, "EXACT", "PROVED"),
        ("x - 0", "x", {"x": ANY}, "EXACT", "PROVED"),
        ("cat([x[..., :k], x[..., k:]], dim=-1)", "x", {"x": "float[..., n]", "k": "size"}, "EXACT", "PROVED"),
        ("where(x < 0, -0.0, x)", "where(x <= 0, -0.0, x)", {"x": ANY}, "EXACT-Z", "PROVED"),
        ("pow(x, 3)", "x * x * x", {"x": ANY}, "REAL", "PROVED"),
        ("softmax(x, -1)", "softmax(x - c, -1)", {"x": "float[..., n]", "c": "scalar"}, "REAL", "PROVED"),
        ("x * relu6(x + 3) / 6", "hardswish(x)", {"x": ANY}, "REAL", "PROVED"),
        ("silu(x)", "x / (1 + exp(-x))", {"x": ANY}, "EDGE", "PROVED"),
        ("where(m, x, 0)", "x * m", {"x": ANY, "m": "bool[...]"}, "EDGE", "PROVED"),
        ("argmax(exp(x), -1)", "argmax(x, -1)", {"x": "float[n]"}, "EDGE", "PROVED"),
        ("x * 1.000009", "x", {"x": ANY}, "WRONG", "REFUTED"),
        ("reshape(permute(x, [1, 0]), [a * b])", "reshape(x, [a * b])", {"x": "float[a, b]"}, "WRONG", "REFUTED"),
    ],
)
def test_finds_the_class(left: str, right: str, where: dict[str, str], klass: str, status: str) -> None:
    decision = decide(claim(left, right, **where))
    assert (decision.klass, decision.status) == (klass, status), decision.how


@pytest.mark.parametrize(
    ("left", "right", "where", "guard"),
    [
        ("exp(log(x))", "x", {"x": ANY}, "x >= 0"),
        ("relu(clamp(x, lo, hi))", "clamp(x, maximum(lo, 0), hi)", {"x": ANY, "lo": "scalar", "hi": "scalar"}, "hi >= 0"),
        ("to(to(x, float16), float32)", "x", {"x": "float32[...]"}, "to(x, float16) == x"),
    ],
)
def test_prints_the_guard_under_which_a_rule_holds(left: str, right: str, where: dict[str, str], guard: str) -> None:
    decision = decide(claim(left, right, **where))
    assert (decision.klass, guard_text(decision.guard)) == ("COND", guard)
    assert decide(claim(left, right, guard, **where)).klass in ("EXACT", "REAL", "EDGE")


def test_a_wrong_fill_is_mended_by_another_fill() -> None:
    decision = decide(claim("softmax(x, -1)", "softmax(pad(x, -1, 0, 4, 0), -1)[..., :n]", x="float[..., n]"))
    assert decision.klass == "WRONG"
    assert decision.mend is not None
    assert "-inf" in decision.mend


def test_an_approximation_states_its_bound() -> None:
    decision = decide(claim("0.5 * x * (1 + erf(x / 1.4142))", "gelu(x)", x=ANY))
    assert decision.klass == "APPROX"
    assert decision.bound is not None
    assert 1e-6 < float(decision.bound) < 1e-5


def test_a_counterexample_is_plain_and_true() -> None:
    decision = decide(claim("a / b", "b / a", a=ANY, b=ANY), guess=False)
    example = decision.counterexample
    assert decision.klass == "WRONG"
    assert example is not None
    assert example.left != example.right
