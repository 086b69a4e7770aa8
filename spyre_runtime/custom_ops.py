"""Ops of the device that ATen has no name for, in namespace `spyre_sim`, with what they mean on any torch device.

The compiler keeps them as single nodes (each rounds once on the device); the fast executor calls the definitions below.
Importing this module registers them; registering is idempotent within one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

NAMESPACE = "spyre_sim"


@dataclass(frozen=True)
class CustomOp:
    """A schema and its two meanings: `compute` on real values (any device), `shape` on fake ones.

    `shape` is None where running `compute` on fake tensors gives the right shape.
    """

    schema: str
    compute: Callable[..., Any]
    shape: Callable[..., Any] | None = None


def _like(x: Tensor, *_: object, **__: object) -> Tensor:
    return x.new_empty(x.shape)


def _exx2(x: Tensor, scale: float, zero_mean: bool) -> Tensor:
    first = torch.zeros_like(x[..., :1]) if zero_mean else x.sum(-1, keepdim=True) * scale
    return torch.cat([first, (x * x).sum(-1, keepdim=True) * scale], dim=-1)


def _layernormscale(moments: Tensor, eps: float) -> Tensor:
    mean, square = moments[..., :1], moments[..., 1:]
    return torch.rsqrt((square - mean * mean).clamp_min(0) + eps)


def _layernormnorm(x: Tensor, moments: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = (x - moments[..., :1]) * scale
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def _clamp(x: Tensor, low: float | None, high: float | None) -> Tensor:
    return torch.clamp(x, low, high)


def _topk(x: Tensor, k: int, dim: int, which: int) -> Tensor:
    return torch.topk(x, k, dim)[which]


def _topk_shape(x: Tensor, k: int, dim: int) -> list[int]:
    size = list(x.shape)
    size[dim % x.dim()] = k
    return size


def _unfold(x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]) -> Tensor:
    return F.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


def _unfold_shape(x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]) -> Tensor:
    count = 1
    for size, k, d, p, s in zip(x.shape[2:], kernel, dilation, padding, stride, strict=True):
        count *= (size + 2 * p - d * (k - 1) - 1) // s + 1
    return x.new_empty((x.shape[0], x.shape[1] * kernel[0] * kernel[1], count))


def _extreme_shape(x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    size = list(x.shape)
    if keepdim:
        size[dim] = 1
    else:
        size.pop(dim)
    return x.new_empty(size), x.new_empty(size, dtype=torch.int64)


def _overwrite(source: Tensor, target: Tensor, dims: Sequence[int], offsets: Sequence[int]) -> None:
    for dim, offset in zip(dims, offsets, strict=True):
        target = target.narrow(dim, offset, source.shape[dim])
    target.copy_(source)


def _copy_into(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


FP8_MAX = 448.0  # largest float8_e4m3fn


def _quantize_fp8(x: Tensor, scale: Tensor) -> Tensor:
    scaled = x * torch.reciprocal(scale)
    quantized: Tensor = torch.ops.spyre_sim.qfp8ch(torch.ops.spyre_sim.clamp(scaled, -FP8_MAX, FP8_MAX))
    return quantized


def _dequantize_fp8(x: Tensor, scale: Tensor) -> Tensor:
    return x.to(torch.float16) * scale


# Ops that are only names for what they decompose into.
COMPOSITES = {
    "quantize_fp8_with_scale(Tensor x, Tensor scale) -> Tensor": _quantize_fp8,
    "dequantize_fp8_with_scale(Tensor x, Tensor scale) -> Tensor": _dequantize_fp8,
}

OPS: tuple[CustomOp, ...] = (
    CustomOp("exx2(Tensor x, float scale, bool zero_mean) -> Tensor", _exx2, lambda x, *_: x.new_empty([*x.shape[:-1], 2])),
    CustomOp("layernormscale(Tensor moments, float eps) -> Tensor", _layernormscale, lambda m, _: m.new_empty([*m.shape[:-1], 1])),
    CustomOp(
        "layernormnorm(Tensor x, Tensor moments, Tensor scale, Tensor? weight, Tensor? bias) -> Tensor",
        _layernormnorm,
        _like,
    ),
    CustomOp("gelu(Tensor x, str approximate='none') -> Tensor", lambda x, approximate="none": F.gelu(x, approximate=approximate), _like),
    CustomOp("silu(Tensor x) -> Tensor", F.silu, _like),
    CustomOp("softplus(Tensor x, float beta=1.0, float threshold=20.0) -> Tensor", F.softplus, _like),
    CustomOp("clamp(Tensor x, Scalar? low=None, Scalar? high=None) -> Tensor", _clamp, _like),
    CustomOp(
        "topkvalue(Tensor x, int k, int dim) -> Tensor",
        lambda x, k, dim: _topk(x, k, dim, 0),
        lambda x, k, dim: x.new_empty(_topk_shape(x, k, dim)),
    ),
    CustomOp(
        "topkindex(Tensor x, int k, int dim) -> Tensor",
        lambda x, k, dim: _topk(x, k, dim, 1),
        lambda x, k, dim: x.new_empty(_topk_shape(x, k, dim), dtype=torch.int64),
    ),
    CustomOp("batched_matmul(Tensor x, Tensor y) -> Tensor", torch.matmul),
    CustomOp("restickify(Tensor x) -> Tensor", lambda x: x.clone(), _like),
    CustomOp(
        "to_dtype_cpu(Tensor x, ScalarType dtype) -> Tensor",
        lambda x, dtype: x.to(dtype, copy=True),
        lambda x, dtype: torch.empty_like(x, dtype=dtype),
    ),
    CustomOp("unfold(Tensor x, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> Tensor", _unfold, _unfold_shape),
    CustomOp(
        "reshape_via_cpu(Tensor x, int[] shape) -> Tensor", lambda x, shape: x.reshape(shape).clone(), lambda x, shape: x.new_empty(shape)
    ),
    CustomOp(
        "max_dim_int64_fallback(Tensor x, int dim, bool keepdim=False) -> (Tensor, Tensor)",
        lambda x, dim, keepdim=False: tuple(torch.max(x, dim, keepdim)),
        lambda x, dim, keepdim=False: _extreme_shape(x, dim, keepdim),
    ),
    CustomOp(
        "min_dim_int64_fallback(Tensor x, int dim, bool keepdim=False) -> (Tensor, Tensor)",
        lambda x, dim, keepdim=False: tuple(torch.min(x, dim, keepdim)),
        lambda x, dim, keepdim=False: _extreme_shape(x, dim, keepdim),
    ),
    CustomOp(
        "rms_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, float eps=1e-05) -> Tensor",
        lambda x, normalized_shape, weight=None, eps=1e-5: F.rms_norm(x, list(normalized_shape), weight, eps),
        _like,
    ),
    CustomOp(
        "layer_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
        lambda x, normalized_shape, weight=None, bias=None, eps=1e-5: F.layer_norm(x, list(normalized_shape), weight, bias, eps),
        _like,
    ),
    CustomOp("logical_not(Tensor x) -> Tensor", torch.logical_not, _like),
    CustomOp("qfp8ch(Tensor x) -> Tensor", lambda x: x.to(torch.float8_e4m3fn), lambda x: x.new_empty(x.shape, dtype=torch.float8_e4m3fn)),
    CustomOp("overwrite(Tensor source, Tensor(a!) target, int[] dims, int[] offsets) -> ()", _overwrite, lambda *_: None),
    CustomOp("copy_from_d2d(Tensor source, Tensor(a!) target) -> ()", _copy_into, lambda *_: None),
)

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


def _register(op: CustomOp) -> None:
    name = op.schema.split("(", 1)[0]
    if hasattr(getattr(torch.ops, NAMESPACE), name):
        return
    _LIBRARY.define(op.schema)
    _LIBRARY.impl(name, op.compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", op.shape or op.compute, lib=_LIBRARY)


for _op in OPS:
    _register(_op)
for _schema, _meaning in COMPOSITES.items():
    _LIBRARY.define(_schema)
    _LIBRARY.impl(_schema.split("(", 1)[0], _meaning, "CompositeImplicitAutograd")


def public_name(target: object) -> str:
    """Name of an op as reports and fallback lists give it: `spyre.x.default` for the device's own ops."""
    return str(target).replace(f"{NAMESPACE}.", "spyre.", 1)
