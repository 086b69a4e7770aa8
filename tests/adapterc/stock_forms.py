"""The stock form of each place that `draft` has a topic for, as a small module: a draft is worth nothing where its rules do not fire."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.llama.modeling_llama import repeat_kv

from adapterc.capturing import DEVICE, ModelGraph, fake_twin, fresh_dynamo, traced
from adapterc.models import Loaded, Source


@dataclass(frozen=True)
class Form:
    """`function`: of the inputs, in order, then the weights and linear layers. `inputs`, `weights`: shapes; an input named `mask` is bool.

    `linears`: [in, out] of layers. `refused`: the release does not take the stock form, so that the draft has a gap to make go away.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    linears: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    refused: bool = False


class Stock(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, form: Form) -> None:
        super().__init__(PretrainedConfig(vocab_size=50257, intermediate_size=100))
        self.form = form
        generator = torch.Generator().manual_seed(0)
        for name, shape in form.weights.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=generator) / math.sqrt(shape[0])))
        for name, (inside, outside) in form.linears.items():
            layer = nn.Linear(inside, outside)
            with torch.no_grad():
                layer.weight.copy_(torch.randn(outside, inside, generator=generator) / math.sqrt(inside))
                layer.bias.zero_()
            self.add_module(name, layer)

    def forward(self, **given: Tensor) -> BaseModelOutput:
        members = [getattr(self, name) for name in (*self.form.weights, *self.form.linears)]
        return BaseModelOutput(last_hidden_state=self.form.function(*given.values(), *members))


def loaded_form(topic: str) -> Loaded:
    """The stock form as a model that `adapterc run` takes."""
    return Loaded(Source(f"the stock form of {topic}"), Stock(FORMS[topic]).eval(), None)


def inputs_of(form: Form) -> dict[str, Tensor]:
    """Values that every form is defined for: from 0.25 to 2.25, where no power overflows."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.rand(shape, generator=generator) < 0.3 if name == "mask" else torch.rand(shape, generator=generator) * 2 + 0.25
        for name, shape in form.inputs.items()
    }


def graph_of(form: Form) -> ModelGraph:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    twin = fake_twin(Stock(form), mode, torch.float16)
    with mode, torch.no_grad(), fresh_dynamo():
        given = {
            name: torch.empty(shape, dtype=torch.bool if name == "mask" else torch.float16, device=DEVICE)
            for name, shape in form.inputs.items()
        }
        (graph,) = traced(twin, given, PretrainedConfig(vocab_size=50257, intermediate_size=100))
    return graph


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    by_pow = (x - mean) / torch.sqrt((x - mean).pow(2).mean(-1, keepdim=True) + 1e-5) * weight + bias
    by_var = (x - mean) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5) * weight + bias
    return by_pow + 2 * by_var


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def _gelus(x: Tensor) -> Tensor:
    exact = x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
    cubic = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    return exact + 2 * cubic + 4 * (x * torch.sigmoid(1.702 * x))


def _heads(x: Tensor, fused: nn.Linear) -> Tensor:
    """Three parts of one projection, cut inside a stick."""
    return torch.cat([part + n for n, part in enumerate(fused(x).split(96, dim=-1))])


def _causal(x: Tensor) -> Tensor:
    size = x.shape[-1]
    return torch.where(torch.tril(torch.ones(size, size, device=x.device)) == 0, torch.full((), -1e4, dtype=x.dtype, device=x.device), x)


X = {"x": (2, 16, 128)}
HEADS = dict.fromkeys(("q", "k", "v"), (2, 4, 64, 32))
FORMS: Mapping[str, Form] = {
    "pow integer exponent": Form(lambda x: x**3 + x**4 + x**5 + x**6, X, refused=True),
    "pow half exponents": Form(lambda x: torch.pow(x, 0.5) + torch.pow(x, -0.5) + torch.pow(x, 1.5), X, refused=True),
    "pow(x, 5)": Form(lambda x: x**5, X, refused=True),
    "x ** 2.5": Form(lambda x: x**2.5, X, refused=True),
    "gelu": Form(_gelus, X, refused=True),
    "silu": Form(lambda x: x * torch.sigmoid(x) + 2 * (x / (1 + torch.exp(-x))), X),
    "softplus": Form(lambda x: torch.log(1 + torch.exp(x)), X),
    "RMSNorm": Form(_rms_norm, X, {"weight": (128,)}, refused=True),
    "LayerNorm unfused": Form(_layer_norm, X, {"weight": (128,), "bias": (128,)}, refused=True),
    "rotate_half": Form(lambda q, cos, sin: q * cos + _rotated(q) * sin, dict.fromkeys(("q", "cos", "sin"), (2, 4, 16, 32)), refused=True),
    "repeat_kv": Form(
        lambda q, k, v: F.scaled_dot_product_attention(q, repeat_kv(k, 2), repeat_kv(v, 2)),
        {"q": (2, 4, 16, 64), **dict.fromkeys(("k", "v"), (2, 2, 16, 64))},
    ),
    "masked_fill": Form(lambda x, mask: x.masked_fill(mask, -1e4), {**X, "mask": (2, 16, 128)}),
    "tril mask": Form(_causal, {"x": (2, 16, 16)}, refused=True),
    "vocabulary": Form(lambda x, head: head(x), X, linears={"head": (128, 50257)}),
    "MLP width": Form(lambda x, up, down: down(F.gelu(up(x))), X, linears={"up": (128, 100), "down": (100, 128)}),
    "fused qkv": Form(_heads, X, linears={"fused": (128, 288)}, refused=True),
    "Conv1D": Form(lambda x, b, w: torch.addmm(b, x.view(-1, x.size(-1)), w).view(2, 16, 256), X, {"b": (256,), "w": (128, 256)}),
    "head_dim": Form(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), HEADS, refused=True),
}
