"""Gaps of models: what is found, that each program fails alone, who covers it, and how models weigh."""

from __future__ import annotations

from pathlib import Path

import pytest
from families import register

from adapterc import specs
from adapterc.errors import UserError
from adapterc.gaps import GapsReport, gaps_of, issue_text, ranking
from adapterc.population import models_with, population, representative
from adapterc.reproducer import MOST_LINES, confirms

PROFILE = "torch-spyre-2026-06"
NARROW_HEADS = "config:bert,num_hidden_layers=1,hidden_size=128,num_attention_heads=4,intermediate_size=128,vocab_size=90"


def only(*names: str) -> tuple[Path, ...]:
    return tuple(path for path in specs.find(()) if path.stem in names)


@pytest.fixture(scope="module")
def quokka() -> GapsReport:
    return gaps_of([register()], only("prologue", "embedding"), PROFILE)


def test_goes_on_behind_the_first_obstacle(quokka: GapsReport) -> None:
    assert [gap.place.obstacle.op for gap in quokka.gaps] == ["aten.var.correction", "aten.embedding.default"]


def test_names_the_line_and_the_shapes(quokka: GapsReport) -> None:
    var = quokka.gaps[0]
    file, _, line = var.place.obstacle.source.rpartition(":")
    assert "x.var(-1" in Path(file).read_text().splitlines()[int(line) - 1]
    assert var.shapes == ("float16[2, 16, 128]",)


def test_reproducers_are_short_and_fail_alone(quokka: GapsReport) -> None:
    assert all(gap.reproducer.confirmed and gap.reproducer.lines <= MOST_LINES for gap in quokka.gaps)


def test_a_program_that_compiles_confirms_nothing() -> None:
    text = 'import torch, adapterc.spyre_runtime\nx = torch.zeros([2, 64], dtype=torch.float16, device="spyre")\ntorch.compile(lambda x: x + x, backend="spyre")(x)'
    assert not confirms(text, "stick_expr_unsupported", PROFILE)
    assert not confirms(text, "cpu_fallback:aten.embedding.default", PROFILE)


def test_says_who_covers_it_and_what_is_left(quokka: GapsReport) -> None:
    var, embedding = quokka.gaps
    assert not var.coverage.covered
    assert embedding.coverage.by == ("embedding",)
    (left,) = quokka.remaining.values()
    assert len(left) == 1 and var.place.obstacle.kind in left[0]


def test_an_issue_holds_the_program(quokka: GapsReport) -> None:
    text = issue_text(quokka.gaps[0], PROFILE)
    assert quokka.gaps[0].reproducer.text in text and "Workaround: none known" in text


@pytest.mark.slow
def test_heads_below_a_stick_are_covered_by_the_library() -> None:
    found = gaps_of([NARROW_HEADS], specs.find(()), PROFILE)
    heads = [gap for gap in found.gaps if "scaled_dot_product_attention" in {n.name for n in gap.place.module.graph.nodes} and gap.blocking]
    assert heads and all("head_dim" in gap.coverage.by for gap in heads)
    assert list(found.remaining.values()) == [()]


def test_nothing_named_is_a_user_error() -> None:
    with pytest.raises(UserError) as error:
        gaps_of([], (), PROFILE)
    assert error.value.code == "ADC602"
    with pytest.raises(UserError) as error:
        gaps_of(["config:bert"], (), PROFILE, form="csv")
    assert error.value.code == "ADC603"


def test_population_counts() -> None:
    kinds = population()
    assert kinds[0].architecture == "BertModel"
    assert sum(kind.embedding for kind in kinds) == 9241
    assert models_with(("linear",)) > models_with(("linear", "gelu")) > 0 == models_with(("no_such_op",))


def test_representatives_cost_no_memory() -> None:
    assert all(parameter.device.type == "meta" for parameter in representative("BertModel").model.parameters())


def test_ranking_merges_equal_places(quokka: GapsReport) -> None:
    twice = ranking([*quokka.gaps, *quokka.gaps])
    assert [gap.place.obstacle.op for gap in twice] == ["aten.var.correction", "aten.embedding.default"]
