"""The graph of one decode step: a causal LM with a static cache that a prefill has filled, given one token a sequence, as `generate` calls it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

from adapterc.capturing import DEVICE, HALVES, ModelGraph, fake_twin, fresh_dynamo, graphs_of_loaded, traced
from adapterc.errors import UserError
from adapterc.inputs import seeded_inputs
from adapterc.models import Loaded

ROOM = 16  # new tokens that the cache has room for


def decodes(model: transformers.PreTrainedModel) -> bool:
    """Whether the model generates from token ids alone, and so has a decode step."""
    return model.can_generate() and model.main_input_name == "input_ids" and not model.config.is_encoder_decoder


def all_graphs(loaded: Loaded) -> tuple[tuple[ModelGraph, ...], str]:
    """The model's graphs on seeded inputs, the decode step's among them, and why that one is missing where it should be there.

    Raises UserError ADC601 where the forward cannot be traced.
    """
    inputs = seeded_inputs(loaded)
    graphs = graphs_of_loaded(loaded, inputs)
    if not decodes(loaded.model):
        return graphs, ""
    try:
        return (*graphs, *decode_graphs(loaded.model, inputs, loaded.source.text)), ""
    except UserError as error:
        return graphs, error.message


def decode_graphs(model: transformers.PreTrainedModel, inputs: Mapping[str, torch.Tensor], name: str) -> tuple[ModelGraph, ...]:
    """The graphs of the step behind a prefill of `inputs` [batch, length], in half precision. Raises UserError ADC601 where it cannot be traced."""
    failure = ""
    for dtype in HALVES:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        twin: Any = fake_twin(model, mode, dtype)
        try:
            with mode, torch.no_grad(), fresh_dynamo():
                return tuple(replace(graph, step="decode") for graph in traced(twin, _step(twin, inputs), model.config))
        except Exception as error:  # a model's own forward may raise anything
            failure = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    raise UserError("ADC601", f"{name}: its decode step cannot be traced to a graph: {failure}", "run it on CPU first with the same inputs")


def _step(twin: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The arguments of the step. The prefill runs on the same fakes, which gives the cache its shapes without asking the config for them."""
    batch, length = inputs["input_ids"].shape
    cache = transformers.StaticCache(config=twin.config, max_cache_len=length + ROOM)
    for layer in cache.layers:
        if hasattr(layer, "cumulative_length"):  # made on the host from a number, which a fake of another device cannot be moved from
            layer.cumulative_length = torch.empty((), dtype=torch.int64, device=DEVICE)
    ids = torch.empty(batch, length, dtype=torch.int64, device=DEVICE)
    accepted = inspect.signature(twin.forward).parameters
    store = {"cache" if "cache" in accepted else "past_key_values": cache, "use_cache": True}
    twin(input_ids=ids, attention_mask=torch.ones_like(ids), **store)
    mask = torch.empty(batch, length + 1, dtype=torch.int64, device=DEVICE)
    positions = {"position_ids": torch.empty(batch, 1, dtype=torch.int64, device=DEVICE)} if "position_ids" in accepted else {}
    return {"input_ids": ids[:, :1].clone(), "attention_mask": mask, **positions, **store}
