"""Configs that the published hand-written adapters get silently wrong, or crash on (facts: a differential test of hf-adapters 8bf2b76): here they are right.

Each is a tiny model with random weights, run past its window or its original length, and compared with its stock self on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from stock_compare import compare, outputs, shipped

from adapterc.codegen.runtime import PatchSet
from adapterc.spyre_runtime.settings import settings
from adapterc.tiny import enliven

LENGTH = 12  # beyond the windows and the original lengths below
SIZES = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
CAUSAL = SIZES | {"num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 64}
WINDOW = {"sliding_window": 4}
GPT2 = {"vocab_size": 99, "n_embd": 64, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2, "n_positions": 32}
ATTENTION = CAUSAL | {"layer_types": ["attention"], "shared_intermediate_size": 64, "mamba_n_heads": 4, "mamba_d_head": 32}

SILENT: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral: sliding_window": ("MistralForCausalLM", CAUSAL | WINDOW),
    "ministral: sliding_window": (
        "MinistralForCausalLM",
        CAUSAL
        | WINDOW
        | {"layer_types": ["sliding_attention"], "head_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    ),
    "qwen2: use_sliding_window": ("Qwen2ForCausalLM", CAUSAL | WINDOW | {"use_sliding_window": True, "max_window_layers": 0}),
    "qwen3: use_sliding_window": (
        "Qwen3ForCausalLM",
        CAUSAL | WINDOW | {"use_sliding_window": True, "max_window_layers": 0, "head_dim": 32},
    ),
    "phi3: sliding_window": ("Phi3ForCausalLM", CAUSAL | WINDOW),
    "smollm3: sliding_window and layers without positions": (
        "SmolLM3ForCausalLM",
        CAUSAL
        | WINDOW
        | {"num_hidden_layers": 2, "use_sliding_window": True, "no_rope_layers": [1, 0], "layer_types": ["sliding_attention"] * 2},
    ),
    "gpt_neox: use_parallel_residual=False": (
        "GPTNeoXForCausalLM",
        SIZES | {"use_parallel_residual": False, "max_position_embeddings": 64},
    ),
    "olmo: clip_qkv": ("OlmoForCausalLM", CAUSAL | {"clip_qkv": 0.5}),
    "dynamic NTK beyond the original length": (
        "LlamaForCausalLM",
        CAUSAL | {"max_position_embeddings": 8, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "longrope beyond the original length": (
        "Phi3ForCausalLM",
        CAUSAL
        | {
            "original_max_position_embeddings": 8,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0 + 0.01 * i for i in range(16)],
                "long_factor": [2.0 + 0.1 * i for i in range(16)],
                "original_max_position_embeddings": 8,
                "factor": 4.0,
            },
        },
    ),
    "gpt_neo: a window in local layers": (
        "GPTNeoForCausalLM",
        {
            "vocab_size": 99,
            "hidden_size": 64,
            "num_layers": 1,
            "num_heads": 2,
            "attention_types": [[["local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt2: scale_attn_weights=False": ("GPT2LMHeadModel", GPT2 | {"scale_attn_weights": False}),
    "gpt2: scale_attn_by_inverse_layer_idx": ("GPT2LMHeadModel", GPT2 | {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2: gelu": ("GPT2LMHeadModel", GPT2 | {"activation_function": "gelu"}),
    "gpt2: relu": ("GPT2LMHeadModel", GPT2 | {"activation_function": "relu"}),
}
CRASHES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neox: attention_bias=False": ("GPTNeoXForCausalLM", SIZES | {"attention_bias": False, "max_position_embeddings": 64}),
    "olmo2: heads of 64": ("Olmo2ForCausalLM", CAUSAL | {"hidden_size": 128}),
    "granitemoehybrid: nope": ("GraniteMoeHybridForCausalLM", ATTENTION | {"num_local_experts": 0, "position_embedding_type": "nope"}),
    "a vocabulary below a stick": ("LlamaForCausalLM", CAUSAL | {"vocab_size": 50}),
}


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    return shipped()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def made(class_name: str, fields: dict[str, Any]) -> Any:
    model_class = getattr(transformers, class_name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**fields)).eval()
    enliven(model, 0)
    return model


def inputs(vocabulary: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, vocabulary, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("case", [*SILENT, *CRASHES])
def test_is_right(case: str, patches: PatchSet) -> None:
    class_name, fields = (SILENT | CRASHES)[case]
    found = compare(made(class_name, fields), inputs(fields["vocab_size"]), patches, rounded=False)
    assert found.right, found


IGNORED = {  # config fields whose loss would not be seen if they did nothing in the tiny model
    "mistral: sliding_window": {"sliding_window": None},
    "gpt_neox: use_parallel_residual=False": {"use_parallel_residual": True},
    "olmo: clip_qkv": {"clip_qkv": None},
    "dynamic NTK beyond the original length": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "longrope beyond the original length": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "gpt_neo: a window in local layers": {"attention_types": [[["global"], 1]]},
    "gpt2: scale_attn_weights=False": {"scale_attn_weights": True},
    "gpt2: scale_attn_by_inverse_layer_idx": {"scale_attn_by_inverse_layer_idx": False},
}


@pytest.mark.parametrize("case", IGNORED)
def test_the_config_field_matters_in_the_tiny_model(case: str) -> None:
    class_name, fields = SILENT[case]
    with torch.no_grad():
        a, b = (made(class_name, chosen)(**inputs(99)).logits for chosen in (fields, fields | IGNORED[case]))
    assert (a - b).abs().max() > 1e-2


def test_no_token_outside_the_vocabulary_wins_when_all_real_logits_are_negative(patches: PatchSet) -> None:
    """A padded row of the head gives the logit zero, which would be the largest one."""
    model = made("GPTJForCausalLM", GPT2 | {"rotary_dim": 16})
    with torch.no_grad():
        model.lm_head.bias.fill_(-50.0)
        stock = model(**inputs(99)).logits
        assert stock.max() < 0
        with settings(numerics="fp32"), patches.patched(model.to("spyre", torch.float16)) as handle:
            compiled = torch.compile(model, backend="spyre", dynamic=False)
            found = compiled(**{name: value.to("spyre") for name, value in inputs(99).items()}, use_cache=False).logits.to("cpu")
            assert handle.fired()["lm_head.vocabulary_with_bias"] == 1
    assert found.shape == stock.shape
    assert torch.equal(found.argmax(-1)[0], stock.argmax(-1)[0])


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_second_model_of_the_class_is_left_alone(activation: str, patches: PatchSet) -> None:
    """Theirs changes the activation's class for the whole process."""
    fields = GPT2 | {"activation_function": activation}
    first, second = made("GPT2LMHeadModel", fields), made("GPT2LMHeadModel", fields)
    kinds = {type(module): type(module).forward for module in second.modules()}
    with torch.no_grad():
        before = outputs(second, inputs(99), second.config)
        compare(first, inputs(99), patches, rounded=False)
        after = outputs(second, inputs(99), second.config)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(kind.forward is forward for kind, forward in kinds.items())


@pytest.mark.parametrize(("task", "config"), [("AutoModelForMaskedLM", "LlamaConfig"), ("AutoModelForQuestionAnswering", "OlmoConfig")])
def test_a_task_that_a_decoder_has_no_class_for_is_refused_by_transformers_itself(task: str, config: str) -> None:
    """There is no stock class to patch, so that the refusal is stock's own clear sentence."""
    with pytest.raises(ValueError, match="Unrecognized configuration class"):
        getattr(transformers, task).from_config(getattr(transformers, config)(**CAUSAL))
