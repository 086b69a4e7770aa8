"""Whole models on the simulator for benchmarks/simulator.py: each measurement in a process of its own, which prints one JSON object.

python benchmarks/simulator_models.py memory|decoder-device|decoder-cpu
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from transformers import GenerationMixin

PROMPT, NEW_TOKENS = 64, 9  # the prompt gives the first of them, eight steps the others


def resident(field: str = "VmRSS") -> int:
    """Bytes of this process in memory; "VmHWM" is the most so far."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    """Let VmHWM start again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def own_bytes(model: torch.nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def in_half(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A model made in float16, with no float32 copy on the way."""
    torch.set_default_dtype(torch.float16)
    torch.manual_seed(0)
    try:
        return make().eval()
    finally:
        torch.set_default_dtype(torch.float32)


def bert(layers: int, **sizes: int) -> torch.nn.Module:
    """The encoder of BERT, from hidden states [batch, length, hidden] to the same."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertEncoder

    config = BertConfig(num_hidden_layers=layers, attn_implementation="sdpa", **sizes)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = BertEncoder(config)

        def forward(self, x: Tensor) -> Tensor:
            hidden: Tensor = self.encoder(x)[0]
            return hidden

    torch.manual_seed(0)
    return Encoder().eval()


def memory() -> Mapping[str, float]:
    """Growth of the peak while a model is made, moved, compiled and run, against the bytes of its float16 weights.

    A small model goes first, so that what torch loads once for a process does not count.
    """
    from adapterc.spyre_runtime import DEVICE_TYPE

    def run(layers: int, hidden: int) -> int:
        model = in_half(lambda: bert(layers, hidden_size=hidden, num_attention_heads=hidden // 64, intermediate_size=4 * hidden))
        size = own_bytes(model)
        compiled = torch.compile(model.to(DEVICE_TYPE, torch.float16), backend=DEVICE_TYPE, dynamic=False)
        x = torch.randn(1, 128, hidden).half().to(DEVICE_TYPE)
        with torch.no_grad():
            for _ in range(3):
                compiled(x)
        return size

    run(1, 128)
    forget_peak()
    before = resident()
    size = run(12, 1024)
    return {"ratio": (resident("VmHWM") - before) / size, "megabytes": size / 2**20, "grown": (resident("VmHWM") - before) / 2**20}


def decoder(dtype: torch.dtype) -> torch.nn.Module:
    """Qwen3-0.6B with seeded weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        max_position_embeddings=40960,
    )
    return in_half(lambda: Qwen3ForCausalLM(config)).to(dtype)


def _generate(model: torch.nn.Module, ids: Tensor) -> float:
    """CPU seconds of one greedy generation with the static cache (on one idle thread, its seconds)."""
    start = time.process_time()
    cast(GenerationMixin, model).generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
        cache_implementation="static",
    )
    return time.process_time() - start


def _prompt() -> Tensor:
    return torch.randint(0, 151936, (1, PROMPT), generator=torch.Generator().manual_seed(0))


def decoder_device() -> Mapping[str, float]:
    """Stock generate() on the simulator with the shipped adapters: seconds of the second and third run, peak memory, compilations."""
    from adapterc import specs
    from adapterc.build import built
    from adapterc.spyre_runtime.backend import compilations

    with built(specs.find(())) as (_, package):
        model = decoder(torch.float16)
        handle = package.install(model)
        model.to("spyre", torch.float16)
        model.compile(backend="spyre", dynamic=False)
        ids = _prompt().to("spyre")
        first = _generate(model, ids)
        seconds = min(_generate(model, ids) for _ in range(2))
        records = compilations(model)
        if any(record.refusals for record in records):
            raise RuntimeError(f"the decoder is refused: {records[0].refusals}")
        handle.remove()
    return {"seconds": seconds, "first": first, "gigabytes": resident("VmHWM") / 2**30, "graphs": len(records)}


def decoder_cpu() -> Mapping[str, float]:
    """The same generation by the stock model in float32 on the CPU."""
    model, ids = decoder(torch.float32), _prompt()
    _generate(model, ids)
    return {"seconds": min(_generate(model, ids) for _ in range(2))}


MEASUREMENTS: dict[str, Callable[[], Mapping[str, float]]] = {
    "memory": memory,
    "decoder-device": decoder_device,
    "decoder-cpu": decoder_cpu,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(MEASUREMENTS[sys.argv[1]]()))
