"""The shipped specs on tiny models of many families: what fires, and that the rewritten graph computes what the stock graph does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from adapterc.codegen.module import Source, module_text
from adapterc.codegen.runtime import Context, Rule, context_of, rewrite_graph
from adapterc.dsl.loader import load_all
from adapterc.spyre_runtime.capture import CapturedGraph, capture
from adapterc.spyre_runtime.profile import load_profile

SPECS = sorted((Path(__file__).resolve().parents[2] / "adapter_specs").glob("*.yaml"))
BASE = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
CAUSAL = BASE | {"num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT = {"vocab_size": 99, "n_embd": 64, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
HEADS = {"head_dim.head": 2, "prologue.parameter_free": 1}
LM = HEADS | {"embedding.rows": 1, "masks.additive": 2, "lm_head.vocabulary": 1}

# model type -> auto class, config, what must have fired
ENCODERS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "bert": (BASE, HEADS | {"embedding.rows": 2, "embedding.untied_rows": 1, "masks.additive": 2}),
    "mpnet": (BASE, {"attention.keys_over_scale": 2, "head_dim.scores": 2, "head_dim.values": 2}),
}
DECODERS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "gpt2": (GPT, HEADS | {"conv1d.flattened": 8, "gelu_new.cube": 2, "lm_head.vocabulary": 1}),
    "qwen3": (CAUSAL | {"head_dim": 32}, LM | {"rope.halves": 4}),
    "gpt_neox": (BASE | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}, LM | {"rope.partial": 4}),
    "gptj": (GPT | {"rotary_dim": 16}, HEADS | {"rope.partial_pairs": 4, "lm_head.vocabulary_with_bias": 1}),
    "phi3": (CAUSAL, LM | {"rope.halves": 4}),
    "mistral": (CAUSAL | {"sliding_window": 6}, LM | {"rope.halves": 4}),
    "gemma2": (CAUSAL | {"head_dim": 32, "sliding_window": 6}, {"attention.keys_times_scale": 2, "head_dim.scores": 2, "rope.halves": 4}),
    "olmo2": (CAUSAL, LM | {"rope.halves": 4}),
}


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    found: list[Rule] = []
    for adapter in load_all(SPECS):
        scope: dict[str, Any] = {}
        exec(module_text(adapter, Source(f"adapter_specs/{adapter.name}.yaml", {})), scope)
        found.extend(scope["RULES"])
    return tuple(found)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(7)
    yield
    torch._dynamo.reset()


def model_of(auto: Any, model_type: str, fields: dict[str, Any]) -> torch.nn.Module:
    config = transformers.AutoConfig.for_model(model_type, **fields)
    model = auto.from_config(config).eval()
    for parameter in model.parameters():  # gains away from one and biases away from zero, so that a lost one shows
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model  # type: ignore[no-any-return]


def captured(model: torch.nn.Module, **inputs: Any) -> CapturedGraph:
    graphs: list[CapturedGraph] = []

    def keep(gm: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        graphs.append(capture(gm, examples))
        return gm.forward

    with torch.no_grad():
        torch.compile(model, backend=keep, dynamic=False)(**inputs)
    (graph,) = graphs
    return graph


def context(model: torch.nn.Module) -> Context:
    """Sticks of 64 elements in float32 too, so that the numbers can be compared closely."""
    profile = load_profile()
    return context_of(model, dataclasses.replace(profile, limits=dataclasses.replace(profile.limits, stick_bytes=256)))


def padded_ids() -> tuple[torch.Tensor, torch.Tensor]:
    ids, mask = torch.randint(3, 99, (2, 12)), torch.ones(2, 12, dtype=torch.int64)
    mask[1, :5] = 0
    return ids, mask


def compare(model: torch.nn.Module, rules: tuple[Rule, ...], expected: dict[str, int], **inputs: Any) -> None:
    graph = captured(model, **inputs)
    rewritten, report = rewrite_graph(graph, rules, context(model), len(list(model.parameters())))
    assert report.whole
    assert {name: report.fired.get(name, 0) for name in expected} == expected, report.misses
    with torch.no_grad():
        stock, patched = graph.module(*graph.examples)[0], rewritten.module(*graph.examples)[0]
    real = inputs["attention_mask"].bool()  # rows that are padding attend to nothing and are read by nothing
    assert torch.allclose(stock[real], patched[real], atol=1e-5, rtol=1e-5)
    assert torch.equal(stock[real].argmax(-1), patched[real].argmax(-1))


@pytest.mark.parametrize("model_type", ENCODERS)
def test_encoders(model_type: str, rules: tuple[Rule, ...]) -> None:
    fields, expected = ENCODERS[model_type]
    ids, mask = padded_ids()
    compare(model_of(transformers.AutoModel, model_type, fields), rules, expected, input_ids=ids, attention_mask=mask)


@pytest.mark.parametrize("model_type", DECODERS)
def test_decoders(model_type: str, rules: tuple[Rule, ...]) -> None:
    fields, expected = DECODERS[model_type]
    ids, mask = padded_ids()
    model = model_of(transformers.AutoModelForCausalLM, model_type, fields)
    compare(model, rules, expected, input_ids=ids, attention_mask=mask, use_cache=False)


def test_a_step_on_a_static_cache(rules: tuple[Rule, ...]) -> None:
    model = model_of(transformers.AutoModelForCausalLM, "qwen3", CAUSAL | {"head_dim": 32})
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    cache.early_initialization(1, 1, 32, torch.float32, torch.device("cpu"))
    graph = captured(model, input_ids=torch.tensor([[5]]), attention_mask=torch.ones(1, 16, dtype=torch.int64), past_key_values=cache)
    rewritten, report = rewrite_graph(graph, rules, context(model), 1)
    assert report.fired["kv_write.token"] == 4
    assert report.fired["head_dim.head"] == 2

    def run(module: torch.fx.GraphModule) -> tuple[torch.Tensor, list[torch.Tensor]]:
        inputs = [x if isinstance(x, torch.nn.Parameter) else x.detach().clone() for x in graph.examples]
        with torch.no_grad():
            return module(*inputs)[0], [x for x in inputs if not isinstance(x, torch.nn.Parameter)]

    (stock, written), (patched, also_written) = run(graph.module), run(rewritten.module)
    assert torch.allclose(stock, patched, atol=1e-5)
    for mine, theirs in zip(written, also_written, strict=True):  # caches and token counters
        assert torch.allclose(mine.double(), theirs.double(), atol=1e-5)
