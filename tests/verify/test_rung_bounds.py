"""Rung 5: what is proved of rounding is never less than what is measured, and the errors of both sides are told apart."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from adapterc.dsl.loader import load
from adapterc.verify import check_adapter, problems
from adapterc.verify.formats import FORMATS
from adapterc.verify.instances import instances
from adapterc.verify.ladder import decide
from adapterc.verify.rung_bounds import TARGETS, bounds, gamma
from adapterc.verify.samples import draw

_SPEC = importlib.util.spec_from_file_location("verify_claims", Path(__file__).with_name("claims.py"))
assert _SPEC is not None and _SPEC.loader is not None
_CLAIMS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CLAIMS)
claim = _CLAIMS.claim

ANY = "float[...]"
REAL_RULES = [
    ("pow(x, 3)", "x * x * x", {"x": ANY}, (2, 2)),
    ("x * a + x * b", "x * (a + b)", {"x": ANY, "a": ANY, "b": ANY}, (2, 2)),
    ("x / y", "x * (1 / y)", {"x": ANY, "y": ANY}, (1, 2)),
    ("silu(x)", "x / (1 + exp(-x))", {"x": ANY}, (1, 4)),
    ("(a @ b) @ c", "a @ (b @ c)", {"a": "float[m, k]", "b": "float[k, n]", "c": "float[n, o]"}, (2, 2)),
    ("rms_norm(x, [n], w, eps=0.001)", "x * rsqrt(mean(x * x, -1, true) + 0.001) * w", {"x": "float[..., n]", "w": "float[n]"}, None),
    ("softmax(x, -1)", "exp(x) / sum(exp(x), -1, true)", {"x": "float[..., n]"}, None),
    ("x * tanh(y + x)", "x * tanh(x + y) * 1.0", {"x": ANY, "y": ANY}, None),
    ("sqrt(x * x + y * y)", "sqrt(y * y + x * x) / 1.0", {"x": ANY, "y": ANY}, None),
]


@pytest.mark.parametrize(("left", "right", "where", "counts"), REAL_RULES)
def test_the_proved_bound_covers_what_is_measured(left: str, right: str, where: dict[str, str], counts: tuple[float, float] | None) -> None:
    instance = instances(claim(left, right, **where), 2, stick_edges=False).found[0]
    found = {b.format: b for b in bounds(instance, instance.pairs[:8], draw(instance, 5, 12))}
    assert tuple(found) == TARGETS
    for bound in found.values():
        assert bound.counts is not None
        # |l - r| <= γ(c1) S1 + γ(c2) S2 <= γ(max c) (S1 + S2); measured is in u (S1 + S2).
        assert bound.measured <= gamma(max(bound.counts), bound.unit) / bound.unit
    if counts is not None:
        assert found["float16"].counts == pytest.approx(counts, abs=0.02)


def test_what_structure_does_not_bound_is_not_bounded() -> None:
    instance = instances(claim("where(x * y > 1, x, y)", "where(y * x > 1, x, y) + 0", x=ANY, y=ANY)).found[0]
    assert all(b.counts is None for b in bounds(instance, instance.pairs, draw(instance)))


def test_a_side_that_cancels_is_told_from_one_that_does_not() -> None:
    instance = instances(claim("expm1(x)", "exp(x) - 1", x=ANY)).found[0]
    found = bounds(instance, instance.pairs, draw(instance, 0, 12))
    assert all(not b.no_worse for b in found)
    turned = instances(claim("exp(x) - 1", "expm1(x)", x=ANY)).found[0]
    assert all(b.no_worse for b in bounds(turned, turned.pairs, draw(turned, 0, 12)))


def test_the_unit_is_that_of_the_format() -> None:
    assert gamma(1, FORMATS["float16"].epsilon / 2) == pytest.approx(2.0**-11, rel=1e-3)
    assert np.isfinite(gamma(10, FORMATS["bfloat16"].epsilon / 2))


HEAD = "adapter: sample\nsummary: A sample.\nlifetime: scaffold\nrules:\n"
RULE = '  - rewrite: it\n    match: {}\n    where: {{x: "float[...]"}}\n    substitute: {}\n    reason: A sample.\n    budget: no worse than stock\n'


@pytest.mark.parametrize(("left", "right", "codes"), [("exp(x) - 1", "expm1(x)", []), ("expm1(x)", "exp(x) - 1", ["ADC309"])])
def test_no_worse_than_stock_is_measured(tmp_path: Path, left: str, right: str, codes: list[str]) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(HEAD + RULE.format(left, right), encoding="utf-8")
    adapter = load(path)
    (verdict,) = check_adapter(adapter)
    assert verdict.klass == "REAL"
    assert [d.code for d in problems(verdict, adapter.rules[0].header)] == codes


@pytest.mark.parametrize(
    ("left", "right", "where", "expected"),
    [
        ("x - 0", "x", {"x": ANY}, {"float16": "EXACT", "bfloat16": "EXACT", "dlfloat16": "EXACT", "float32": "EXACT"}),
        ("transpose(transpose(x, 0, 1), 0, 1)", "x", {"x": "float[a, b]"}, dict.fromkeys(TARGETS, "EXACT")),
        ("where(x < 0, -0.0, x)", "where(x <= 0, -0.0, x)", {"x": ANY}, {"float16": "EXACT-Z", "float32": "EXACT-Z"}),
        # A product of four fits float32's range and not float16's.
        ("x * x * x * x / (y * y)", "x * x / y * (x * x / y)", {"x": ANY, "y": ANY}, {"float16": "EDGE"}),
        ("x * y", "x * y * z", {"x": ANY, "y": ANY, "z": ANY}, {}),
    ],
)
def test_the_class_is_given_for_each_format(left: str, right: str, where: dict[str, str], expected: dict[str, str]) -> None:
    formats = dict(decide(claim(left, right, **where), guess=False).formats)
    assert {name: formats.get(name) for name in expected} == expected
