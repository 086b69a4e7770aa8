"""Stock generate() with the static cache on a compiled model: one graph for the prompt, one for every later token."""

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from adapterc.spyre_runtime import settings
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log


def gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=64, n_layer=1, n_head=1, bos_token_id=1, eos_token_id=2))


def qwen3() -> Qwen3ForCausalLM:
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=100, intermediate_size=128, **sizes))


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, qwen3])
def test_one_prefill_graph_and_one_decode_graph(make: Any) -> None:
    torch._dynamo.reset()
    clear_compile_log()
    torch.manual_seed(0)
    model = make().eval()
    ids = torch.randint(3, 100, (2, 16))
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static"}
    want = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
    with settings(numerics="fp32", legality="report"):
        model.to("spyre", torch.float16).compile(backend="spyre")
        moved = ids.to("spyre")
        for _ in range(2):
            assert torch.equal(model.generate(input_ids=moved, attention_mask=torch.ones_like(moved), **options).cpu(), want)
    assert [record.shapes[0] for record in compile_log()] == [(2, 16), (2, 1)]
