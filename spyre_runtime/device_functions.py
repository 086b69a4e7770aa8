"""What each device program computes, on values carried as formats.py says. One table; the tiled executor knows no other meaning of a program.

Names are the device's (torch-spyre e1abccf, spyre_kernel.py). Inside a program arithmetic is float32; the caller rounds the result to the
format of the output, which is where the device rounds. What the device's special-function unit really computes (its approximations of exp,
rsqrt, gelu, …) is not public: the functions here are float32 ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Pointwise = Callable[..., Tensor]
Parameters = Mapping[str, Any]


def _mul(x: Tensor, y: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """`square` is the program mul with one operand."""
    return torch.mul(x, x if y is None else y, out=out)


def _condition(x: Tensor) -> Tensor:
    return x if x.dtype is torch.bool else x != 0


# Programs whose torch function takes `out`: it may write the output's sticks directly.
DIRECT: Mapping[str, Pointwise] = {
    "abs": torch.abs,
    "add": torch.add,
    "equal": torch.eq,
    "exp": torch.exp,
    "floor": torch.floor,
    "greaterequal": torch.ge,
    "greaterthan": torch.gt,
    "lesserequal": torch.le,
    "lesserthan": torch.lt,
    "log": torch.log,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": _mul,
    "neg": torch.neg,
    "notequal": torch.ne,
    "realdiv": torch.true_divide,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt,
    "sub": torch.sub,
    "tanh": torch.tanh,
}

COPIES = frozenset({"identity", "ReStickifyOpHBM", "dl16tofp32", "fp32todl16", "fp8todl16"})


def _softplus(x: Tensor, parameters: Parameters) -> Tensor:
    return F.softplus(x, parameters["softplusBeta"], parameters["softplusThresh"])


def layernormscale(mean: Tensor, square: Tensor, eps: float) -> Tensor:
    """Reciprocal standard deviation from the two moments that exx2 leaves."""
    return torch.rsqrt((square - mean * mean).clamp_min(0) + eps)


def layernormnorm(x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    out = (x - mean) * scale
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


# Programs with parameters, or without an `out` form: (operands, parameters) -> new tensor.
OTHERS: Mapping[str, Callable[[tuple[Tensor, ...], Parameters], Tensor]] = {
    "clip": lambda v, p: torch.clamp(v[0], p["clipMin"], p["clipMax"]),
    "layernormnorm": lambda v, p: layernormnorm(*v),
    "layernormscale": lambda v, p: layernormscale(v[0], v[1], p["eps"]),
    "gelufwd": lambda v, p: F.gelu(v[0]),  # the device has one gelu and ignores the mode that was asked for
    "qfp8ch": lambda v, p: v[0].to(torch.float8_e4m3fn).to(v[0].dtype),
    "relufwd": lambda v, p: F.relu(v[0]),
    "silu": lambda v, p: F.silu(v[0]),
    "softplus": lambda v, p: _softplus(v[0], p),
    "where3": lambda v, p: torch.where(_condition(v[0]), v[1], v[2]),
    **dict.fromkeys(COPIES, lambda v, p: v[0]),
}


def apply(program: str, operands: tuple[Tensor, ...], parameters: Parameters) -> Tensor:
    """Result of a pointwise program, unrounded. Raises KeyError for a program that there is none of."""
    if program in DIRECT:
        return DIRECT[program](*operands)
    return OTHERS[program](operands, parameters)


def convert(x: Tensor, carrier: torch.dtype) -> Tensor:
    """`x` in another carrier dtype: numbers become bool by comparison with zero, float becomes integer by truncation."""
    if x.dtype is carrier:
        return x
    return x != 0 if carrier is torch.bool else x.to(carrier)


# Neutral elements that the hardware puts in masked lanes (torch-spyre e1abccf, codegen/superdsc.py, coordinate masking).
MASKS: Mapping[str, float] = {"sum": 0.0, "mean": 0.0, "exx2": 0.0, "batchmatmul": 0.0, "max": float("-inf"), "min": float("inf")}
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "exx2", "topkvalue", "topkindex"})


def reduce_part(program: str, x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Partial results of one core's slice, kept dimensions 1: two sums for exx2, else one tensor. float32 inside."""
    if program in ("sum", "mean"):
        return (torch.sum(x, dims, keepdim=True),)
    if program == "max":
        return (torch.amax(x, dims, keepdim=True),)
    if program == "min":
        return (torch.amin(x, dims, keepdim=True),)
    if program == "exx2":
        return (torch.sum(x, dims, keepdim=True), torch.sum(x * x, dims, keepdim=True))
    raise KeyError(program)


def merge_parts(program: str, first: Tensor, second: Tensor) -> Tensor:
    """One hop of the ring: what a core makes of its own partial result and its neighbour's."""
    if program == "max":
        return torch.maximum(first, second)
    return torch.minimum(first, second) if program == "min" else first + second


def finish(program: str, totals: tuple[Tensor, ...], parameters: Parameters, count: int) -> tuple[Tensor, ...]:
    """Whole results from whole sums: means are sums times a constant, except that a sum over `count` elements with the exact
    reciprocal as its factor is divided, as torch does it."""
    if program == "mean":
        factor = parameters.get("scaling_factor", 1.0 / count)
        return (totals[0] / count if factor == 1.0 / count else totals[0] * factor,)
    if program == "exx2":
        scale = parameters["exx2scale"]
        mean = torch.zeros_like(totals[0]) if parameters.get("useZeroMean") else totals[0] * scale
        return (mean, totals[1] * scale)
    return totals
