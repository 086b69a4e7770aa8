"""Drafts: every topic gives a spec that `check` takes as it is, and candidates that are wrong or refused are not taken."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from stock_forms import FORMS, graph_of, inputs_of, loaded_form

from adapterc import specs
from adapterc.build import built
from adapterc.candidates import Candidate, about, forms_path, library, power_candidates, power_texts
from adapterc.check import check_specs
from adapterc.draft import _trial, draft_gap
from adapterc.errors import UserError
from adapterc.gaps import profile_named
from adapterc.obstacles import find
from adapterc.run import run_loaded

PROFILE = "torch-spyre-2026-06"


@pytest.mark.slow
@pytest.mark.parametrize("topic", FORMS)
def test_a_draft_passes_check_unchanged_and_its_gap_is_gone_in_a_run(topic: str, tmp_path: Path) -> None:
    """All that a user does: draft, check, build, and the stock form on the simulator; the prologue's adapter puts masks on the host."""
    path, form = tmp_path / "draft.yaml", FORMS[topic]
    report = draft_gap(topic, specs.find(()), PROFILE, output=path)
    assert report.ok
    loaded, backend = loaded_form(topic), profile_named(PROFILE)
    stock = graph_of(form)
    assert bool(find(stock.captured.module, stock.layouts, backend)) == form.refused
    prologue = [spec for spec in specs.find(()) if spec.stem == "prologue"]
    with built([path, *prologue]) as (checked, package):
        assert checked.ok
        ran = run_loaded(loaded, inputs_of(form), checked, package, PROFILE, "device", 0, look=False)
    assert ran.ok and ran.refusal is None
    assert not any(graph.fallbacks or graph.refusals for graph in ran.graphs)
    assert ran.comparison is not None and ran.comparison.largest < 0.01 * ran.comparison.scale
    assert any(count for rule, count in ran.fired.items() if rule.startswith(report.name))


@pytest.mark.parametrize("topic", FORMS)
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
