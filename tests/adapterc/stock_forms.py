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
from transformers import PretrainedConfig
from transformers.models.llama.modeling_llama import repeat_kv

from adapterc.capturing import DEVICE, ModelGraph, fake_twin, fresh_dynamo, traced


@dataclass(frozen=True)
class Form:
    """`function`: of the inputs, in order, and then the weights. `inputs`, `weights`: shapes; an input named `mask` is bool."""

    function: Callable[..., Any]
    inputs: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Stock(nn.Module):
    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form
        for name, shape in form.weights.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))

    def forward(self, **given: Tensor) -> Any:
        return self.form.function(*given.values(), *(getattr(self, name) for name in self.form.weights))


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
    return (x - mean) / torch.sqrt((x - mean).pow(2).mean(-1, keepdim=True) + 1e-12) * weight + bias


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


X = {"x": (2, 16, 128)}
HEADS = {"q": (2, 4, 16, 32), "k": (2, 4, 16, 32), "v": (2, 4, 16, 32)}
FORMS: Mapping[str, Form] = {
    "pow integer exponent": Form(lambda x: torch.pow(x, 3), X),
    "pow half exponents": Form(lambda x: torch.pow(x, 0.5) + torch.pow(x, -0.5), X),
    "pow(x, 5)": Form(lambda x: x**5, X),
    "x ** 1.5": Form(lambda x: x**1.5, X),
    "gelu": Form(lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), X),
    "silu": Form(lambda x: x * torch.sigmoid(x), X),
    "softplus": Form(lambda x: torch.log(1 + torch.exp(x)), X),
    "RMSNorm": Form(_rms_norm, X, {"weight": (128,)}),
    "LayerNorm unfused": Form(_layer_norm, X, {"weight": (128,), "bias": (128,)}),
    "rotate_half": Form(lambda q, cos, sin: q * cos + _rotated(q) * sin, dict.fromkeys(("q", "cos", "sin"), (2, 4, 16, 32))),
    "repeat_kv": Form(
        lambda q, k, v: F.scaled_dot_product_attention(q, repeat_kv(k, 2), repeat_kv(v, 2)),
        {"q": (2, 4, 16, 64), **dict.fromkeys(("k", "v"), (2, 2, 16, 64))},
    ),
    "masked_fill": Form(lambda x, mask: x.masked_fill(mask, -1e4), {**X, "mask": (2, 16, 128)}),
    "tril mask": Form(
        lambda x: torch.where(
            torch.tril(torch.ones(16, 16, device=x.device)) == 0, torch.full((), -1e4, dtype=x.dtype, device=x.device), x
        ),
        {"x": (2, 16, 16)},
    ),
    "vocabulary": Form(lambda x, w: F.linear(x, w), X, {"w": (50257, 128)}),
    "MLP width": Form(lambda x, w1, w2: F.linear(F.gelu(F.linear(x, w1)), w2), X, {"w1": (100, 128), "w2": (128, 100)}),
    "fused qkv": Form(
        lambda x, w, b: torch.cat([p + n for n, p in enumerate(F.linear(x, w, b).split(128, dim=-1))]), X, {"w": (384, 128), "b": (384,)}
    ),
    "Conv1D": Form(lambda x, b, w: torch.addmm(b, x.view(-1, x.size(-1)), w).view(2, 16, 256), X, {"b": (256,), "w": (128, 256)}),
    "head_dim": Form(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), HEADS),
}
