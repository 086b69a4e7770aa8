"""Rung 6: Hypothesis finds what contradicts a class, shrinks it, draws the same each time and leaves nothing behind."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from adapterc.verify import rung_hypothesis as H
from adapterc.verify.cases import Decision
from adapterc.verify.formats import FORMATS, round_to

_SPEC = importlib.util.spec_from_file_location("verify_claims", Path(__file__).with_name("claims.py"))
assert _SPEC is not None and _SPEC.loader is not None
_CLAIMS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CLAIMS)
claim = _CLAIMS.claim

ANY = "float[...]"


def believed(klass: str) -> Decision:
    return Decision(klass, "TESTED", "as an earlier rung found")


@pytest.mark.parametrize(
    ("left", "right", "where", "klass", "found"),
    [
        ("pow(x, 3)", "x * x", {"x": ANY}, "REAL", "WRONG"),
        ("a @ b", "b @ a", {"a": "float[n, n]", "b": "float[n, n]"}, "REAL", "WRONG"),
        ("where(m, x, 0)", "x * m", {"x": ANY, "m": "bool[...]"}, "REAL", "EDGE"),
        ("pow(x, 3)", "x * x * x", {"x": ANY}, "EXACT", "REAL"),
        ("x", "x + 0", {"x": ANY}, "EXACT", "EXACT-Z"),
        ("x", "x[:63]", {"x": "float[n]"}, "EXACT", "WRONG"),
    ],
)
def test_a_class_that_is_too_strong_is_lowered(left: str, right: str, where: dict[str, str], klass: str, found: str) -> None:
    decision = H.searched(claim(left, right, **where), believed(klass), 80)
    assert decision.klass == found
    assert decision.counterexample is not None


@pytest.mark.parametrize(
    ("left", "right", "where", "klass"),
    [
        ("x * y", "y * x", {"x": ANY, "y": ANY}, "EXACT"),
        ("pow(x, 3)", "x * x * x", {"x": ANY}, "REAL"),
        ("(a @ b) @ c", "a @ (b @ c)", {"a": "float[m, k]", "b": "float[k, n]", "c": "float[n, o]"}, "REAL"),
        ("where(m, x, 0)", "x * m", {"x": ANY, "m": "bool[...]"}, "EDGE"),
    ],
)
def test_a_class_that_holds_is_left(left: str, right: str, where: dict[str, str], klass: str) -> None:
    decision = H.searched(claim(left, right, **where), believed(klass), 80)
    assert decision.klass == klass
    evidence = decision.evidence[-1]
    assert evidence.rung == H.RUNG
    assert dict(evidence.numbers)["examples"] >= 20


def test_an_example_is_shrunk_to_plain_values() -> None:
    decision = H.searched(claim("x + y + z", "x + y - z", x=ANY, y=ANY, z=ANY), believed("REAL"), 60)
    assert decision.counterexample is not None
    values = dict(decision.counterexample.values)
    assert values["x"] == values["y"] == "0"
    assert values["z"] in ("1", "-1")


def test_the_same_examples_are_drawn_again() -> None:
    wrong = claim("a @ b", "b @ a", a="float[n, n]", b="float[n, n]")
    assert H.searched(wrong, believed("REAL"), 30) == H.searched(wrong, believed("REAL"), 30)


def test_no_example_is_drawn_where_none_is_wanted_or_nothing_is_claimed() -> None:
    wrong = claim("pow(x, 3)", "x * x", x=ANY)
    assert H.searched(wrong, believed("REAL"), 0) == believed("REAL")
    assert H.searched(wrong, Decision("WRONG", "REFUTED", "known"), 30).evidence == ()


def test_sizes_reach_the_stick_one_and_none() -> None:
    sizes = {i.sizes["n"] for i in H._shapes(claim("x + y", "y + x", x="float[n]", y="float[n]"))}
    assert {0, 1, 63, 64, 65} <= sizes
    rests = {i.rest for i in H._shapes(claim("x * 1", "x", x=ANY))}
    assert {(), (0,), (65,)} <= rests


@pytest.mark.parametrize(
    "left, right",
    [("sum(x, -1)", "cumsum(x, -1)[n - 1]"), ("mean(x, -1)", "mean(pad(x, -1, 0, 3, 0), -1) * ((n + 3) / n)")],
)
def test_what_parts_on_empty_tensors_only_is_said_and_keeps_the_class(left: str, right: str) -> None:
    decision = H.searched(claim(left, right, x="float[n]"), believed("REAL"), 10)
    assert decision.klass == "REAL"
    assert "no model has a dimension of zero" in decision.evidence[-1].detail and "n=0" in decision.evidence[-1].detail


def test_a_result_without_elements_has_none_that_could_be_wrong() -> None:
    shifted = "exp(x - amax(x, -1, true)) / sum(exp(x - amax(x, -1, true)), -1, true)"
    assert H.searched(claim("softmax(x, -1)", shifted, x="float[..., n]"), believed("REAL"), 10).klass == "REAL"


def test_nothing_is_left_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    H.searched(claim("x * y", "y * x", x=ANY, y=ANY), believed("EXACT"), 5)
    assert list(tmp_path.iterdir()) == []


def test_special_values_are_values_of_their_format() -> None:
    for name in ("float16", "bfloat16"):
        target = FORMATS[name]
        values = np.array([v for v in H.special_values(target) if np.isfinite(v)])
        assert np.isfinite(round_to(values, target)).all()
        assert {0.0, target.tiny, target.largest} <= set(values.tolist())


def test_recorded_activations_are_longer_than_a_stick_and_have_outliers() -> None:
    rows = H.activations()
    assert len(rows) >= 5
    assert all(len(row) > 64 for row in rows)
    assert max(abs(v) for row in rows for v in row) > 8 * np.median(np.abs(np.array(rows)))


def test_more_ids_than_rows_stay_within_the_table() -> None:
    where = {"w": "weight float[V, H]", "ids": "int[n]"}
    decision = H.searched(claim("embedding(w, ids)", "to(one_hot(ids, V), float32) @ w", **where), believed("EDGE"), 10)
    assert decision.klass == "EDGE"
