"""Stock Transformers layers and models of an oracle file, by name.

`<family>-<layer|block|model>[-<option>…]-hd<D>-L<length>-<sdpa|eager>`, with a leading `x-` for altered ones: 4 heads of size D, 2 key/value
heads where the family has them, hidden 4·D, intermediate 4·hidden, batch 1. Options: `mask` (an additive [1, 1, L, L] input), `bf16`, `fp32`,
`torchRMSNorm` (every RMSNorm replaced by torch's own, eps 1e-6), or the name of an activation. Altered decoder layers all take a mask.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

HEADS, KV_HEADS = 4, 2
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
LAYER_SUFFIXES = ("DecoderLayer", "Block", "Layer", "EncoderLayer")
ACTIVATION_FIELDS = ("hidden_act", "activation_function", "hidden_activation", "activation")
ENCODERS = ("bert", "roberta", "modernbert")
VOCABULARIES = {"bert": 30522, "gpt2": 50257, "llama": 32000, "qwen3": 151936}


class BlockError(ValueError):
    """The name is not of the notation above, or Transformers has no such family."""


@dataclass(frozen=True)
class Block:
    """What a name says."""

    family: str
    kind: str
    head_dim: int
    length: int
    attention: str
    dtype: torch.dtype
    mask: bool
    torch_rms_norm: bool
    activation: str | None

    @property
    def hidden(self) -> int:
        return HEADS * self.head_dim


def parse_block(name: str) -> Block:
    """Read a name. Raises BlockError."""
    match = re.fullmatch(r"(x-)?(\w+?)-(layer|block|model)((?:-\w+)*?)-hd(\d+)-L(\d+)-(\w+)", name)
    if match is None:
        raise BlockError(f"not a layer's name: {name!r}")
    altered, family, kind, options, head_dim, length, attention = match.groups()
    rest = [o for o in options.split("-") if o]
    dtypes = [DTYPES[o] for o in rest if o in DTYPES]
    activations = [o for o in rest if o not in (*DTYPES, "mask", "torchRMSNorm")]
    return Block(
        family=family,
        kind=kind,
        head_dim=int(head_dim),
        length=int(length),
        attention=attention,
        dtype=dtypes[0] if dtypes else torch.float16,
        mask="mask" in rest or bool(altered and family not in ENCODERS),
        torch_rms_norm="torchRMSNorm" in rest,
        activation=activations[0] if activations else None,
    )


def _config(block: Block) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if block.family not in CONFIG_MAPPING:
        raise BlockError(f"Transformers has no model family {block.family!r}")
    config_class = CONFIG_MAPPING[block.family]
    fields = set(config_class().to_dict()) | set(config_class.attribute_map)
    wanted: dict[str, Any] = {
        "hidden_size": block.hidden,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": block.head_dim,
        "intermediate_size": 4 * block.hidden,
        "n_inner": 4 * block.hidden,
        "num_hidden_layers": 1,
        "vocab_size": VOCABULARIES.get(block.family),
    }
    config = config_class(**{k: v for k, v in wanted.items() if k in fields and v is not None})
    if block.activation is not None:
        field = next(f for f in ACTIVATION_FIELDS if f in fields)
        setattr(config, field, block.activation)
    config._attn_implementation = block.attention
    config.tie_word_embeddings = False  # moving a model lays out the output weight on its own, which unties it
    return config


def _layer_class(block: Block, config: Any) -> type[nn.Module]:
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    prefix = type(config).__name__.removesuffix("Config")
    for suffix in LAYER_SUFFIXES:
        if isinstance(found := getattr(module, prefix + suffix, None), type):
            return found
    raise BlockError(f"{module.__name__} has no layer class called {prefix}*{LAYER_SUFFIXES}")


def _build(block: Block, config: Any) -> nn.Module:
    if block.kind == "model":
        from transformers import AutoModel, AutoModelForCausalLM

        auto = AutoModel if block.family in ENCODERS else AutoModelForCausalLM
        from_config: Callable[[Any], nn.Module] = auto.from_config
        return from_config(config)
    cls = _layer_class(block, config)
    extra = {"layer_idx": 0} if "layer_idx" in inspect.signature(cls.__init__).parameters else {}
    layer: nn.Module = cls(config, **extra)
    return layer


def _use_torch_norms(model: nn.Module, device: str) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm") and not isinstance(child, nn.RMSNorm):
                weight = cast(torch.Tensor, child.weight)
                setattr(parent, name, nn.RMSNorm(tuple(weight.shape), eps=1e-6, device=device))


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Parameters are made in `dtype`, because fake ones cannot be converted afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build_block(name: str, device: str) -> tuple[nn.Module, dict[str, Any]]:
    """The module and its keyword inputs, on `device`; call it under a FakeTensorMode to allocate nothing."""
    block = parse_block(name)
    config = _config(block)
    with torch.device(device), _default_dtype(block.dtype):
        model = _build(block, config)
        if block.torch_rms_norm:
            _use_torch_norms(model, device)
        model.eval()
        inputs: dict[str, Any] = {}
        if block.kind == "model":
            return model, {"input_ids": torch.empty(1, block.length, dtype=torch.int64), "use_cache": False}
        takes: Callable[[str], bool] = inspect.signature(model.forward).parameters.__contains__
        inputs["hidden_states"] = torch.empty(1, block.length, block.hidden, dtype=block.dtype)
        if block.mask:
            inputs["attention_mask"] = torch.empty(1, 1, block.length, block.length, dtype=block.dtype)
        if takes("position_embeddings"):
            table = (1, block.length, block.head_dim)
            inputs["position_embeddings"] = (torch.empty(table, dtype=block.dtype), torch.empty(table, dtype=block.dtype))
    return model, inputs


def linear_weights(model: nn.Module) -> set[int]:
    """`id` of each weight that moving a module to the device lays out with its rows innermost."""
    return {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
