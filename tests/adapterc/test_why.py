"""Why a rule fires or does not: each of the reasons, with the values that decide it."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapterc import specs
from adapterc.errors import UserError
from adapterc.why import Answer, why_rule

PROFILE = "torch-spyre-2026-06"
BERT = "config:bert,num_hidden_layers=1,hidden_size=128,num_attention_heads=2,intermediate_size=128,vocab_size=90"
GPT2 = "config:gpt2,n_layer=2,n_embd=128,n_head=2,vocab_size=90"

RULES = """
adapter: pair
summary: Two rules for one place.
lifetime: hardware
rules:
  - rewrite: first
    match: gelu(x)
    where: {x: "float[...]"}
    substitute: relu(x)
    reason: For the test.
  - rewrite: second
    match: gelu(x)
    where: {x: "float[...]"}
    substitute: silu(x)
    reason: For the test.
  - rewrite: too_wide
    match: gelu(linear(x, w, b))
    where: {x: "float[..., d]", w: "weight float[d, d]", b: "weight float[d]"}
    substitute: relu(linear(x, w, b))
    when: d == config.hidden_size and d % 3 == 0
    reason: For the test.
"""


def ask(rule: str, model: str, paths: tuple[Path, ...] | None = None) -> Answer:
    (answer,) = why_rule(rule, model, paths or specs.find(()), PROFILE).answers
    return answer


def test_counts_where_it_fires() -> None:
    answer = ask("gelu_new.cube", GPT2)
    assert (answer.reason, answer.fired) == ("fired", 2)


def test_says_that_the_graph_has_no_such_op() -> None:
    answer = ask("gelu_new.cube", BERT)
    assert answer.reason == "absent" and "`pow`" in answer.sentence


def test_names_the_clause_and_its_values() -> None:
    answer = ask("head_dim.head", BERT)
    assert answer.reason == "when"
    (clause,) = answer.clauses
    assert clause.text == "d % stick != 0" and dict(clause.values) == {"d": "64", "stick": "64"}


def test_names_only_the_clauses_that_fail(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(RULES)
    answer = ask("pair.too_wide", BERT, (path,))
    assert [clause.text for clause in answer.clauses] == ["d % 3 == 0"]
    assert dict(answer.clauses[0].values) == {"d": "128"}


def test_names_the_rule_that_took_the_place(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(RULES)
    answer = ask("pair.second", BERT, (path,))
    assert (answer.reason, answer.shadowed_by) == ("shadowed", ("pair.first",))


def test_gives_the_nearest_miss() -> None:
    answer = ask("conv1d.matrix", BERT)
    assert answer.fired == 0 and answer.reason in ("miss", "absent")
    near = ask("rope.halves", BERT)
    assert near.reason == "miss" and near.miss is not None and near.miss.depth >= 1


def test_an_unknown_rule_gets_a_suggestion() -> None:
    with pytest.raises(UserError) as error:
        why_rule("gelu_new.cubes", BERT, specs.find(()), PROFILE)
    assert error.value.code == "ADC604" and "gelu_new.cube" in error.value.next_step
