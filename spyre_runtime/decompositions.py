"""How the device spells ATen ops that it does not have: one function an op, from ATen to simpler ATen or `spyre_sim` ops.

The tables below say what the public compiler does in its June 2026 release (torch-spyre docs, "Supported operations" and
"Adding operations"); a profile lists by name which of them are active (`decompositions.ops`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import custom_ops  # noqa: F401 (registers the ops used below)
from .refusal import refuse

aten = torch.ops.aten
prims = torch.ops.prims
device_ops = torch.ops.spyre_sim

_STAGE = "decompose"
Decomposition = Callable[..., Any]


def _one_dimension(op: str, normalized_shape: Sequence[int]) -> None:
    if len(normalized_shape) != 1:
        raise refuse(
            "norm_multi_dim",
            f"{op} over the last {len(normalized_shape)} dimensions {list(normalized_shape)}: the device normalises over one dimension only",
            sizes=tuple(normalized_shape),
            stage=_STAGE,
            op=op,
        )


def rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = 1e-5) -> Tensor:
    _one_dimension("rms_norm", normalized_shape)
    if eps is None:
        raise TypeError("rms_norm needs eps as a number")
    out = x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + eps)
    return out if weight is None else out * weight


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    _one_dimension("layer_norm", normalized_shape)
    weight = x.new_ones(normalized_shape) if weight is None else weight
    bias = x.new_zeros(normalized_shape) if bias is None else bias
    moments = device_ops.exx2(x, 1.0 / normalized_shape[0], False)
    return device_ops.layernormnorm(x, moments, device_ops.layernormscale(moments, eps), weight, bias)  # type: ignore[no-any-return]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    turned = weight.transpose(-1, -2)
    for _ in range(x.dim() - weight.dim()):
        turned = turned.unsqueeze(0)
    out = x @ turned
    return out if bias is None else out + bias


def addmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = x @ y
    if alpha != 1:
        product = alpha * product
    if beta == 0:
        return product
    return (bias if beta == 1 else beta * bias) + product


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Scaled dot-product attention: both factors are scaled by the root of the scale, key and value heads are repeated."""
    if dropout_p > 0.0:
        raise refuse(
            "attention_dropout", f"attention dropout of {dropout_p} does not lower", stage=_STAGE, op="scaled_dot_product_attention"
        )
    root = math.sqrt(1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        minus_inf = torch.full((), -math.inf, dtype=query.dtype, device=query.device)
        attn_mask = torch.where(attn_mask, 0.0, minus_inf)
    query, key = query * root, key * root
    repeat = query.shape[1] // key.shape[1]
    if repeat != 1:
        key = key.unsqueeze(2).expand(-1, -1, repeat, -1, -1).flatten(1, 2)
        value = value.unsqueeze(2).expand(-1, -1, repeat, -1, -1).flatten(1, 2)
    scores = torch.matmul(query, key.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.full_like(scores, -math.inf).triu(diagonal=1)
    if attn_mask is not None:
        scores = scores + attn_mask
    out = torch.matmul(torch.softmax(scores, -1), value)
    return out.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out = attention(query, key, value, attn_bias, dropout_p, is_causal, scale=scale)
    batch, heads, length = query.shape[:3]
    statistics = torch.empty((batch, heads, length), dtype=torch.float32, device=query.device)
    seed = torch.empty((1,), dtype=torch.float16, device=query.device)
    return out, statistics, None, None, length, key.shape[2], seed, torch.empty_like(seed), None


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    if k > 4:
        raise refuse("topk_k_gt_4", f"topk of k={k}: the device keeps at most 4 values", sizes=(k,), stage=_STAGE, op="topk")
    if x.dim() != 2:
        raise refuse(
            "topk_not_2d",
            f"topk over a tensor of shape {list(x.shape)}: the device takes matrices only",
            sizes=tuple(x.shape),
            stage=_STAGE,
            op="topk",
        )
    return device_ops.topkvalue(x, k, dim), device_ops.topkindex(x, k, dim)


def logical_not(x: Tensor) -> Tensor:
    return torch.eq(x, torch.ne(x, x) if x.dtype is torch.bool else torch.zeros_like(x))


def bitwise_not(x: Tensor) -> Tensor:
    return torch.logical_not(x) if x.dtype is torch.bool else aten.bitwise_xor(x, aten.full_like(x, -1))


def bitwise_and(x: Any, y: Any) -> Tensor:
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype is torch.bool and y.dtype is torch.bool:
        return aten.logical_and(x, y)  # type: ignore[no-any-return]
    return aten.bitwise_not(aten.bitwise_or(aten.bitwise_not(x), aten.bitwise_not(y)))  # type: ignore[no-any-return]


def sign(x: Tensor) -> Tensor:
    zero = torch.zeros_like(x)
    below = torch.where(torch.lt(x, zero), -torch.ones_like(x), zero)
    return torch.where(torch.gt(x, zero), torch.ones_like(x), below)


def ceil(x: Tensor) -> Tensor:
    return aten.neg.default(aten.floor.default(aten.neg.default(x)))  # type: ignore[no-any-return]


def ones(size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Tensor:
    return aten.full(size, 1, dtype=dtype, layout=layout, device=device)  # type: ignore[no-any-return]


def new_ones(
    x: Tensor, size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Tensor:
    return aten.full(size, 1, dtype=dtype or x.dtype, layout=layout, device=device or x.device)  # type: ignore[no-any-return]


def where_other_scalar(condition: Tensor, x: Tensor, other: float) -> Tensor:
    return aten.where.self(condition, x, torch.full_like(x, other))  # type: ignore[no-any-return]


def where_self_scalar(condition: Tensor, x: float, other: Tensor) -> Tensor:
    return aten.where.self(condition, torch.full_like(other, x), other)  # type: ignore[no-any-return]


def where_scalars(condition: Tensor, x: float, other: float) -> Tensor:
    def filled(value: float) -> Any:
        return aten.full.default(list(condition.shape), value, dtype=torch.float16, device=condition.device)

    return aten.where.self(condition, filled(x), filled(other))  # type: ignore[no-any-return]


def _extreme(name: str) -> tuple[Decomposition, Decomposition]:
    """(reduction with indices, reduction) for "max" and "min"; bool is reduced as float16, int64 pairs on the host."""
    values_of, indices_of = getattr(aten, f"a{name}"), getattr(aten, f"arg{name}")
    on_host = getattr(device_ops, f"{name}_dim_int64_fallback")
    pair = getattr(torch.return_types, name)

    def with_indices(x: Tensor, dim: int, keepdim: bool = False) -> Any:
        if x.dtype == torch.int64:
            return on_host(x, dim=dim, keepdim=keepdim)
        if x.dtype != torch.bool:
            return pair((values_of(x, dim=dim, keepdim=keepdim), indices_of(x, dim=dim, keepdim=keepdim)))
        number = prims.convert_element_type(x, torch.float16)
        values, indices = values_of(number, dim=dim, keepdim=keepdim), indices_of(number, dim=dim, keepdim=keepdim)
        return pair((prims.convert_element_type(values, torch.bool), indices))

    def values_only(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        if x.dtype != torch.bool:
            return NotImplemented
        number = prims.convert_element_type(x, torch.float16)
        reduced = values_of(number, keepdim=keepdim) if dim is None else values_of(number, dim=dim, keepdim=keepdim)
        return prims.convert_element_type(reduced, torch.bool)

    return with_indices, values_only


def _host_reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    return device_ops.reshape_via_cpu(x, list(shape))  # type: ignore[no-any-return]


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """2-D convolution as a batched matmul over patches that the host gathers."""
    kind = "Unsupported@_inductor/decompositions.py:conv2d_via_bmm_decomp"
    if transposed or any(output_padding) or x.dim() != 4:
        what = (
            "transposed convolution"
            if transposed
            else "output padding"
            if any(output_padding)
            else f"convolution over {x.dim() - 2} dimension(s)"
        )
        raise refuse(
            kind,
            f"{what} (input {list(x.shape)}, weight {list(weight.shape)}) does not lower; only plain 2-D convolutions do",
            sizes=tuple(x.shape),
            stage=_STAGE,
            op="convolution",
        )
    batch, channels, height, width = x.shape
    out_channels, group_channels, kernel_h, kernel_w = weight.shape
    if channels != groups * group_channels:
        raise refuse(
            kind,
            f"convolution of {channels} channels with {groups} groups of {group_channels}",
            sizes=(channels, groups, group_channels),
            stage=_STAGE,
            op="convolution",
        )
    out_h, out_w = (
        (size + 2 * pad - dil * (k - 1) - 1) // step + 1
        for size, pad, dil, k, step in zip((height, width), padding, dilation, (kernel_h, kernel_w), stride, strict=False)
    )
    taps = group_channels * kernel_h * kernel_w
    patches = device_ops.unfold(x, (kernel_h, kernel_w), tuple(dilation[:2]), tuple(padding[:2]), tuple(stride[:2]))
    if groups == 1:
        flat = _host_reshape(weight, (out_channels, taps))
        out = torch.matmul(flat.unsqueeze(0).expand(batch, -1, -1).clone(), patches)
    else:
        patches = _host_reshape(patches, (batch, groups, taps, out_h * out_w))
        grouped = _host_reshape(weight, (groups, out_channels // groups, taps))
        out = torch.matmul(grouped.unsqueeze(0), patches).reshape(batch, out_channels, out_h * out_w)
    out = out.reshape(batch, out_channels, out_h, out_w)
    return out if bias is None else out + _host_reshape(bias, (1, out_channels, 1, 1))


_max_dim, _amax = _extreme("max")
_min_dim, _amin = _extreme("min")

# Ops that ATen itself takes apart before a compiler sees them: they must be replaced while the graph is read.
COMPOSITES: dict[Any, Decomposition] = {
    aten.linear.default: linear,
    aten.layer_norm.default: layer_norm,
    aten.rms_norm.default: rms_norm,
    aten.scaled_dot_product_attention.default: attention,
    aten.where.ScalarOther: where_other_scalar,
    aten.where.ScalarSelf: where_self_scalar,
    aten.where.Scalar: where_scalars,
}

PRIMITIVES: dict[Any, Decomposition] = {
    aten._scaled_dot_product_fused_attention_overrideable.default: fused_attention,
    aten.addmm.default: addmm,
    aten.amax.default: _amax,
    aten.amin.default: _amin,
    aten.bitwise_and.Scalar: bitwise_and,
    aten.bitwise_and.Scalar_Tensor: bitwise_and,
    aten.bitwise_and.Tensor: bitwise_and,
    aten.bitwise_not.default: bitwise_not,
    aten.ceil.default: ceil,
    aten.convolution.default: convolution,
    aten.gelu.default: lambda x, approximate="none": device_ops.gelu(x, approximate),
    aten.logical_not.default: logical_not,
    aten.max.dim: _max_dim,
    aten.min.dim: _min_dim,
    aten.new_ones.default: new_ones,
    aten.ones.default: ones,
    aten.sign.default: sign,
    aten.silu.default: lambda x: device_ops.silu(x),
    aten.softplus.default: lambda x, beta=1.0, threshold=20.0: device_ops.softplus(x, beta, threshold),
    aten.topk.default: topk,
}


def named(table: dict[Any, Decomposition], active: frozenset[str]) -> dict[Any, Decomposition]:
    """The entries of `table` whose ATen packet ("aten.linear") a profile lists as active."""
    return {op: function for op, function in table.items() if str(op).rsplit(".", 1)[0] in active}
