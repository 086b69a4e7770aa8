"""Families that needed a rule of their own kind, end to end at tiny widths: bitwise stock on the CPU while patched, 1e-5 and the same best tokens
in fp32 on the simulator, and the device's format within the budget of a sweep."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from adapterc.attach import rules_of
from adapterc.codegen.runtime.patchset import PatchSet
from adapterc.dsl.loader import load_all
from adapterc.sweep_row import Task, run_row

SPECS = Path(__file__).resolve().parents[2] / "adapter_specs"
GIB = 2**30

# model type, architecture -> the rules without which it does not pass
MENDED: dict[tuple[str, str], tuple[str, ...]] = {
    ("bloom", "BloomForCausalLM"): ("joined.heads", "head_views.times", "head_views.bias"),
    ("clip", "CLIPModel"): ("patches.linear", "patches.cut", "pick_token.one_hot_row", "pick_token.norm_of_token"),
    ("deberta-v2", "DebertaV2Model"): ("head_views.transposed", "head_views.scaled", "head_views.product", "head_views.undone"),
    ("falcon", "FalconForCausalLM"): ("joined.by_hand", "joined.groups"),
    ("gemma4_text", "Gemma4ForCausalLM"): (
        "gelu_tanh.by_sigmoid",
        "joined.layers",
        "joined.table",
        "joined.scaled",
        "joined.sum",
        "joined.norm",
    ),
    ("gpt_neo", "GPTNeoForCausalLM"): ("attention.mask_before_sum", "attention.wide_scores"),
    ("lfm2", "Lfm2ForCausalLM"): ("short_conv.three", "masks.factor"),
    ("mpt", "MPTForCausalLM"): ("attention.wide_bias",),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration"): ("rope.halves",),
    ("xglm", "XGLMForCausalLM"): ("head_views.softmax",),
}


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    return PatchSet(tuple(rule for adapter in load_all([SPECS]) for rule in rules_of(adapter)))


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "architecture"), MENDED, ids=[architecture for _, architecture in MENDED])
def test_a_mended_family_passes(model_type: str, architecture: str, patches: PatchSet) -> None:
    task = Task(architecture, "tiny", model_type, architecture, None, "", "torch-spyre-2026-06", 4 * GIB)
    outcome = run_row(task, lambda _: cast(ModuleType, patches))  # a package has the same `patched`
    assert outcome.passed, (outcome.stage, outcome.kind, outcome.message, outcome.place)
    assert set(MENDED[model_type, architecture]) <= outcome.fired.keys()
    assert outcome.numbers["fallbacks"] == 0
