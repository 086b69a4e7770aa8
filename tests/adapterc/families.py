"""A model family that no library knows, made for tests: an encoder that spells its norm with `var` and its activation with `sigmoid`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers import PretrainedConfig as Config
from transformers.modeling_outputs import BaseModelOutput

MODEL_TYPE = "quokka"


class QuokkaConfig(Config):
    model_type = MODEL_TYPE

    def __init__(self, vocab_size: int = 90, hidden_size: int = 128, num_hidden_layers: int = 1, **rest: Any) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        super().__init__(**rest)


class QuokkaNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5) * self.weight + self.bias


class QuokkaLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = QuokkaNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.up(self.norm(x))
        return x + self.down(inner * torch.sigmoid(inner))


class QuokkaModel(PreTrainedModel):
    config_class = QuokkaConfig
    main_input_name = "input_ids"

    def __init__(self, config: QuokkaConfig) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(QuokkaLayer(config.hidden_size) for _ in range(config.num_hidden_layers))
        self.post_init()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> BaseModelOutput:
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return BaseModelOutput(last_hidden_state=hidden)


def register() -> str:
    """Make `config:quokka` known; returns it."""
    AutoConfig.register(MODEL_TYPE, QuokkaConfig, exist_ok=True)
    AutoModel.register(QuokkaConfig, QuokkaModel, exist_ok=True)
    return f"config:{MODEL_TYPE}"
