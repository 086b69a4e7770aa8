"""Config truth on a part of the grid: which fields are cells is derived from the config classes, and cells of every kind are right.

`python benchmarks/config_grid.py` runs all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from config_cells import base, candidates, cells, others
from config_grid import measure
from stock_compare import shipped

from adapterc.codegen.runtime import PatchSet

# What changes the graph of these classes, to anyone who has read them: the derivation has to find it.
DERIVED = {
    "GPT2LMHeadModel": {
        "activation_function",
        "scale_attn_weights",
        "scale_attn_by_inverse_layer_idx",
        "head_dim",
        "vocab_size",
        "n_inner",
    },
    "OlmoForCausalLM": {"clip_qkv", "attention_bias", "num_key_value_heads", "rope_parameters", "tie_word_embeddings"},
}
IDLE = {"initializer_range", "resid_pdrop", "attn_pdrop", "attention_dropout", "use_cache", "summary_type", "pretraining_tp"}

# A field -> a class and the values that are run. One a kind of change; the families' other fields are in the benchmark.
RUN = {
    "scale_attn_by_inverse_layer_idx": ("GPT2LMHeadModel", "True"),
    "clip_qkv": ("OlmoForCausalLM", "0.5"),
    "vocab_size": ("GPT2LMHeadModel", "50"),
    "num_key_value_heads": ("OlmoForCausalLM", "num_key_value_heads 2"),
}


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    return shipped()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("model_class", DERIVED)
def test_the_fields_that_change_the_graph_are_found_and_no_others(model_class: str) -> None:
    found = {cell.field for cell in cells(model_class)}
    assert found >= DERIVED[model_class]
    assert not found & IDLE


def test_a_field_has_other_values_by_its_type() -> None:
    assert list(others(False, bool)) == [True]
    assert list(others(None, float | None)) == [0.5]
    assert None in list(others(8, int | None))
    assert "relu" in list(others("silu", str))
    assert not list(others("cls_index", str))  # a name that says nothing of its alternatives
    assert list(others([1, 0], list[int])) == [[0, 1]]


def test_rope_scaling_windows_and_heads_of_every_size_are_tried() -> None:
    tried = list(candidates(base("Gemma3ForCausalLM").config))
    kinds = {changed["rope_parameters"]["full_attention"]["rope_type"] for field, changed in tried if field == "rope_parameters"}
    assert {"linear", "dynamic", "yarn", "longrope", "llama3", "default"} <= kinds
    assert {changed["head_dim"] for field, changed in tried if field == "head_dim"} == {32, 64, 72, 80, 96, 128, 256}
    layers = [changed["layer_types"] for field, changed in tried if field == "layer_types"]
    assert ["sliding_attention"] * 2 in layers
    assert ["full_attention"] * 2 in layers


@pytest.mark.slow
@pytest.mark.parametrize("field", RUN)
def test_a_cell_is_right(field: str, patches: PatchSet) -> None:
    model_class, value = RUN[field]
    (cell,) = (cell for cell in cells(model_class, {field}) if value in str(cell))
    row = measure(cell, patches)
    assert row.verdict == "right", row
