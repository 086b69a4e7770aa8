"""Gaps of models: what is found, that each program fails alone, who covers it, and how models weigh."""

from __future__ import annotations

import gc
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from families import register
from rich.console import Console

from adapterc import gap_ranking, specs
from adapterc.coverage import Coverage
from adapterc.decoding import decode_graphs, decodes
from adapterc.errors import UserError
from adapterc.gap_ranking import RankingReport, rank_gaps, ranking
from adapterc.gap_report import issue_text
from adapterc.gaps import Gap, GapsReport, ModelGaps, _merged, gaps_of, profile_named
from adapterc.inputs import seeded_inputs
from adapterc.known_faults import FAULT
from adapterc.models import load
from adapterc.obstacles import Compiler, find
from adapterc.population import Kind, models_with, population, representative
from adapterc.reproducer import MOST_LINES, confirms

PROFILE = "torch-spyre-2026-06"
TINY_GPT2 = "config:GPT2LMHeadModel,n_layer=1,n_embd=128,n_head=2,vocab_size=90"
NARROW_HEADS = "config:bert,num_hidden_layers=1,hidden_size=128,num_attention_heads=4,intermediate_size=128,vocab_size=90"


def only(*names: str) -> tuple[Path, ...]:
    return tuple(path for path in specs.find(()) if path.stem in names)


def refused(report: GapsReport) -> list[Gap]:
    return [gap for gap in report.gaps if not gap.obstacle.kind.startswith(FAULT)]


@pytest.fixture(scope="module")
def quokka() -> GapsReport:
    return gaps_of([register()], only("prologue", "embedding"), PROFILE)


def test_goes_on_behind_the_first_obstacle(quokka: GapsReport) -> None:
    assert [gap.obstacle.op for gap in refused(quokka)] == ["aten.var.correction", "aten.embedding.default"]


def test_names_the_line_and_the_shapes(quokka: GapsReport) -> None:
    var = quokka.gaps[0]
    file, _, line = var.obstacle.source.rpartition(":")
    assert "x.var(-1" in Path(file).read_text().splitlines()[int(line) - 1]
    assert var.shapes == ("float16[2, 16, 128]",)


def test_reproducers_are_short_and_fail_alone(quokka: GapsReport) -> None:
    assert all(gap.reproducer.confirmed and gap.reproducer.lines <= MOST_LINES for gap in quokka.gaps)


def test_a_program_that_compiles_confirms_nothing() -> None:
    text = 'import torch, adapterc.spyre_runtime\nx = torch.zeros([2, 64], dtype=torch.float16, device="spyre")\ntorch.compile(lambda x: x + x, backend="spyre")(x)'
    assert not confirms(text, "stick_expr_unsupported", PROFILE)
    assert not confirms(text, "cpu_fallback:aten.embedding.default", PROFILE)


def test_programs_leave_no_tensors_behind() -> None:
    text = 'import torch, adapterc.spyre_runtime\nx = torch.zeros([61, 67], dtype=torch.float16, device="spyre")\ntorch.compile(lambda x: x + x, backend="spyre")(x)'
    confirms(text, "stick_expr_unsupported", PROFILE)
    gc.collect()
    assert not any(type(found).__name__ == "SpyreTensor" and tuple(found.shape) == (61, 67) for found in gc.get_objects())


def test_says_who_covers_it_and_what_is_left(quokka: GapsReport) -> None:
    var, embedding = refused(quokka)
    assert not var.coverage.covered
    assert embedding.coverage.by == ("embedding",)
    (left,) = quokka.remaining.values()
    assert len(left) == 1 and var.obstacle.kind in left[0]


def test_an_issue_holds_the_program(quokka: GapsReport) -> None:
    text = issue_text(quokka.gaps[0].to_json(), PROFILE)
    assert quokka.gaps[0].reproducer.text in text and "Workaround: none known" in text


def test_a_ranking_is_printed_as_issues_with_all_its_models(quokka: GapsReport) -> None:
    ranked = ranking({"A": [quokka.gaps[0].to_json()], "B": [quokka.gaps[0].to_json()]}, {"A": 3, "B": 5})
    console = Console(record=True, width=200, file=StringIO())
    RankingReport(PROFILE, False, ranked, ("A", "B"), {}, (), as_issue=True).show(console)
    text = console.export_text()
    assert "Blocks 8 of" in text and "B, A" in text and quokka.gaps[0].reproducer.text.splitlines()[2] in text


@pytest.mark.slow
def test_heads_below_a_stick_are_covered_by_the_library() -> None:
    found = gaps_of([NARROW_HEADS], specs.find(()), PROFILE)
    heads = [gap for gap in found.gaps if "scaled_dot_product_attention" in gap.ops and gap.blocking]
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


def test_ranking_merges_equal_places_and_adds_the_models(quokka: GapsReport) -> None:
    found = [gap.to_json() for gap in quokka.gaps]
    var = next(gap for gap in found if gap["op"] == "aten.var.correction")
    first, second, *rest = ranking({"A": found, "B": [{**var, "covered_by": ["x"]}]}, {"A": 3, "B": 5})
    assert (first.sample["op"], first.architectures, first.blocks, first.covered) == ("aten.var.correction", ("B", "A"), 8, False)
    assert (second.sample["op"], second.blocks, second.covered) == ("aten.embedding.default", 3, True)
    assert all(gap.sample["kind"].startswith(FAULT) for gap in rest)


def test_known_faults_are_listed_and_fail_alone(quokka: GapsReport) -> None:
    faults = [gap for gap in quokka.gaps if gap.obstacle.kind.startswith(FAULT)]
    assert "padding-not-masked" not in {gap.obstacle.fault for gap in faults}  # widths of whole sticks
    assert "broadcast-result-misread" in {gap.obstacle.fault for gap in faults}
    assert not any(gap.blocking for gap in faults)


def test_both_steps_with_a_gap_make_one_gap(quokka: GapsReport) -> None:
    gap = quokka.gaps[0]
    uncovered = replace(gap, graphs=("decode",), shapes=("float16[2, 1, 128]",), coverage=Coverage(template="near"))
    (merged,) = _merged([replace(gap, coverage=Coverage(by=("x",))), uncovered])
    assert merged.graphs == ("forward", "decode") and merged.shapes == gap.shapes
    assert merged.coverage == uncovered.coverage


@pytest.mark.slow
def test_a_decode_step_has_obstacles_of_its_own() -> None:
    loaded = load(TINY_GPT2)
    (graph,) = decode_graphs(loaded.model, seeded_inputs(loaded), TINY_GPT2)
    assert graph.step == "decode"
    assert {"index_copy_", "scaled_dot_product_attention"} <= {node.name for node in graph.captured.module.graph.nodes}
    compiler = Compiler(profile_named(PROFILE))
    kinds = {
        place.obstacle.source.rpartition("/")[2].partition(":")[0]
        for place in find(graph.captured.module, graph.layouts, compiler.profile, compiler)
    }
    assert "cache_utils.py" in kinds  # writing into the cache


def test_an_encoder_has_no_decode_step() -> None:
    assert not decodes(load(NARROW_HEADS).model)
    assert decodes(load(TINY_GPT2).model)


def test_a_ranking_goes_on_where_it_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [Kind("a", name, 0, weight, frozenset({"mm"})) for name, weight in (("A", 3), ("B", 2), ("C", 1))]
    asked = []

    def look(architecture: str, *_: object) -> ModelGaps:
        asked.append(architecture)
        if architecture == "B":
            raise UserError("ADC601", "no graph", "")
        return ModelGaps(architecture, (), ())

    monkeypatch.setattr(gap_ranking, "representative", lambda architecture: architecture)
    monkeypatch.setattr(gap_ranking, "model_gaps", look)
    ticks = iter((0.0, 1.0, 2.0, 3.0))
    store = tmp_path / "gaps.sqlite"
    first = rank_gaps((), PROFILE, store=store, seconds=1.5, clock=lambda: next(ticks), kinds=kinds)
    assert (first.asked, first.pending) == (("A",), ("B", "C"))
    second = rank_gaps((), PROFILE, store=store, kinds=kinds)
    assert (second.asked, second.pending, list(second.failed)) == (("A", "C"), (), ["B"])
    assert asked == ["A", "B", "C"]
    rank_gaps((), PROFILE, store=store, kinds=kinds, patched=True)
    assert asked == ["A", "B", "C"] * 2  # another question


def test_a_store_that_is_none_is_a_user_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be seen as none " * 20)
    with pytest.raises(UserError) as error:
        rank_gaps((), PROFILE, store=path, kinds=[])
    assert error.value.code == "ADC614"
