"""Numbers in a graph that the device reads from memory: uploaded as tensors of the op's dtype, so rounded like any tensor on its way in.

Public source: torch-spyre e1abccf, op_spec.py (a literal becomes `torch.tensor(value, dtype).to(device)`). So an epsilon of 1e-6 under float16 is
9.5e-7 there. Numbers that a program takes as parameters (clamp bounds, softplus' beta, the eps of layernormscale) are not uploaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .formats import HALF_DTYPES, NumberRules, host_to_device

aten = torch.ops.aten
# Pointwise ATen packets whose Python numbers become uploaded literals.
_UPLOADING = frozenset(
    {aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge}
    | {aten.maximum, aten.minimum, aten.where, aten.full, aten.full_like}
)


def device_scalar(value: float, dtype: torch.dtype, rules: NumberRules) -> float:
    """What the device holds of a literal of logical `dtype`."""
    return float(host_to_device(torch.tensor(float(value), dtype=torch.float32), dtype, rules))


def _dtype(node: fx.Node) -> torch.dtype | None:
    """The dtype in which a node's numbers are uploaded: that of its first half-precision operand or result."""
    for candidate in (*node.all_input_nodes, node):
        value = candidate.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype in HALF_DTYPES:
            return value.dtype
    return None


def upload_scalars(graph: fx.GraphModule, rules: NumberRules) -> fx.GraphModule:
    """Round the literals of a functional graph in place, as their upload does; returns the graph. Applying it twice changes nothing more."""
    for node in graph.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "overloadpacket", None) not in _UPLOADING:
            continue
        dtype = _dtype(node)
        if dtype is None:
            continue
        packet = node.target.overloadpacket
        first = 1 if packet in (aten.full, aten.full_like) else 0
        node.args = (*node.args[:first], *(_rounded(a, dtype, rules) for a in node.args[first:]))
    graph.recompile()
    return graph


def _rounded(argument: Any, dtype: torch.dtype, rules: NumberRules) -> Any:
    return device_scalar(argument, dtype, rules) if isinstance(argument, float) else argument
