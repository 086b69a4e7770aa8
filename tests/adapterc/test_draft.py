"""Drafts: every topic gives a spec that `check` takes as it is, and candidates that are wrong or refused are not taken."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from stock_forms import FORMS, graph_of

from adapterc import specs
from adapterc.attach import attach, rules_of
from adapterc.candidates import Candidate, about, forms_path, library, power_candidates, power_texts
from adapterc.check import check_specs
from adapterc.draft import _trial, draft_gap
from adapterc.dsl.loader import load_text
from adapterc.errors import UserError
from adapterc.gaps import profile_named

PROFILE = "torch-spyre-2026-06"
TOPICS = (
    "pow integer exponent", "pow half exponents", "pow(x, 5)", "x ** 1.5", "gelu", "silu", "softplus", "RMSNorm", "LayerNorm unfused",
    "rotate_half", "repeat_kv", "masked_fill", "tril mask", "vocabulary", "MLP width", "fused qkv", "Conv1D",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("topic", (*TOPICS, "head_dim"))
def test_a_draft_passes_check_unchanged(topic: str, tmp_path: Path) -> None:
    path = tmp_path / "draft.yaml"
    report = draft_gap(topic, specs.find(()), PROFILE, output=path)
    assert report.ok
    assert check_specs([path]).ok
    rules = rules_of(load_text(report.text, str(path)))
    assert sum(attach(graph_of(FORMS[topic]), rules, profile_named(PROFILE)).fired.values())


@pytest.mark.parametrize("topic", (*TOPICS, "head_dim"))
def test_every_topic_has_candidates(topic: str) -> None:
    assert about(topic, library(specs.find(())))


@pytest.mark.parametrize(
    ("exponent", "texts"),
    [
        (Fraction(3), ("x * x * x",)),
        (Fraction(1, 2), ("sqrt(x)",)),
        (Fraction(3, 2), ("x * sqrt(x)",)),
        (Fraction(-2), ("reciprocal(x * x)", "1 / (x * x)")),
        (Fraction(1, 3), ()),
        (Fraction(100), ()),
    ],
)
def test_powers_by_products_and_roots(exponent: Fraction, texts: tuple[str, ...]) -> None:
    assert power_texts(exponent) == texts


def test_a_wrong_candidate_is_refused() -> None:
    (right,) = power_candidates([Fraction(3)])
    wrong = Candidate("wrong", {**right.body, "substitute": "x * x"}, None, "scaffold")
    profile = profile_named(PROFILE)
    assert _trial(right, profile, None).good
    trial = _trial(wrong, profile, None)
    assert not trial.good and trial.verdict is not None and trial.verdict.status == "REFUTED"


def test_a_form_that_the_compiler_refuses_is_not_taken() -> None:
    body = {
        "rewrite": "by_expm1",
        "match": "exp(x) - 1",
        "where": {"x": "float[...]"},
        "substitute": "expm1(x)",
        "reason": "For the test.",
    }
    trial = _trial(Candidate("by_expm1", body, None, "scaffold"), profile_named(PROFILE), None)
    assert trial.accepted is False and "expm1" in trial.why


def test_the_draft_says_what_is_open() -> None:
    report = draft_gap("pow(x, 3)", specs.find(()), PROFILE)
    assert report.questions and all(f"# TODO {question}" in report.text for question in report.questions)
    assert report.trials[0].verdict is not None and report.trials[0].verdict.klass in report.text


def test_nothing_known_is_a_user_error() -> None:
    with pytest.raises(UserError) as error:
        draft_gap("frobnicate", specs.find(()), PROFILE)
    assert error.value.code == "ADC605"


@pytest.mark.slow
def test_the_known_forms_hold() -> None:
    assert check_specs([forms_path()]).ok
