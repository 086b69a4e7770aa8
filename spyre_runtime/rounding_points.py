"""Where the compiled graph rounds and the functional graph, node by node, does not: literals, powers and the like, spelt as the device computes them.

Literals are uploaded as tensors of the op's dtype, so rounded like any tensor on its way in (public source: torch-spyre e1abccf, op_spec.py: a
literal becomes `torch.tensor(value, dtype).to(device)`); an epsilon of 1e-6 under float16 is 9.5e-7 there. Numbers that a program takes
as parameters (clamp bounds, softplus' beta, the eps of layernormscale) are not uploaded. Ops that torch's lowering takes apart round after each part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from . import custom_ops  # noqa: F401 (registers spyre_sim)
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


def as_device_computes(graph: fx.GraphModule, rules: NumberRules | None) -> fx.GraphModule:
    """A functional graph with one node for each rounding point, changed in place and returned. Applying it twice changes nothing more.

    Covers integer powers, division by a number (a product with its reciprocal), add and sub with alpha, glu, and gelu, of which the device has one.
    rules: how literals are rounded; None leaves them.
    """
    graph.graph.eliminate_dead_code()  # lowering adds nodes of its own, which nothing uses
    for node in list(graph.graph.nodes):
        rewrite = _REWRITES.get(node.target) if node.op == "call_function" else None
        if rewrite is not None:
            with graph.graph.inserting_before(node):
                _replace(graph.graph, node, rewrite(graph.graph, node))
    for node in graph.graph.nodes:
        if rules is not None and node.op == "call_function" and getattr(node.target, "overloadpacket", None) in _UPLOADING:
            _upload(node, rules)
    graph.recompile()
    return graph


def _replace(graph: fx.Graph, node: fx.Node, new: fx.Node | None) -> None:
    if new is None:
        return
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _upload(node: fx.Node, rules: NumberRules) -> None:
    dtype = _uploaded_dtype(node)
    if dtype is None:
        return
    first = 1 if node.target.overloadpacket in (aten.full, aten.full_like) else 0  # type: ignore[union-attr]
    node.args = (*node.args[:first], *(device_scalar(a, dtype, rules) if isinstance(a, float) else a for a in node.args[first:]))


def _uploaded_dtype(node: fx.Node) -> torch.dtype | None:
    """The dtype in which a node's numbers are uploaded: that of its first half-precision operand or result."""
    for candidate in (*node.all_input_nodes, node):
        value = candidate.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype in HALF_DTYPES:
            return value.dtype
    return None


def _like(graph: fx.Graph, model: fx.Node, target: Any, *args: Any) -> fx.Node:
    """A call whose result has the sizes and dtype of `model`'s."""
    made = graph.call_function(target, args)
    made.meta = dict(model.meta)
    return made


def _power(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """x**n by squaring, in the order of torch's own lowering: the power of n // 2 squared, times x when n is odd."""
    base, exponent = node.args[:2]
    if not isinstance(base, fx.Node) or not isinstance(exponent, int | float) or exponent != int(exponent) or not 2 <= exponent <= 32:
        return None
    x = base

    def power(n: int) -> fx.Node:
        if n == 1:
            return x
        half = power(n // 2)
        square = _like(graph, node, aten.mul.Tensor, half, half)
        return _like(graph, node, aten.mul.Tensor, square, x) if n % 2 else square

    return power(int(exponent))


def _divide(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    x, divisor = node.args[:2]
    value = x.meta.get("val") if isinstance(x, fx.Node) else None
    if isinstance(divisor, bool) or not isinstance(divisor, int | float) or divisor == 0 or not isinstance(value, torch.Tensor):
        return None
    return _like(graph, node, aten.mul.Tensor, x, 1.0 / divisor) if value.dtype.is_floating_point else None


def _scaled(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    alpha = node.kwargs.get("alpha", 1)
    x, y = node.args[:2]
    if alpha == 1 or not isinstance(y, fx.Node) or not isinstance(alpha, int | float):
        return None
    return _like(graph, node, node.target, x, _like(graph, y, aten.mul.Tensor, y, float(alpha)))


def _glu(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    x = node.args[0]
    assert isinstance(x, fx.Node)
    dim = node.args[1] if len(node.args) > 1 else -1
    assert isinstance(dim, int)
    size = node.meta["val"].shape[dim]
    left, right = (_like(graph, node, aten.slice.Tensor, x, dim, start, start + size) for start in (0, size))
    return _like(graph, node, aten.mul.Tensor, left, _like(graph, node, aten.sigmoid.default, right))


def _gelu(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    return _like(graph, node, node.target, node.args[0]) if len(node.args) > 1 else None


_REWRITES: dict[Any, Callable[[fx.Graph, fx.Node], fx.Node | None]] = {
    aten.pow.Tensor_Scalar: _power,
    aten.div.Tensor: _divide,
    aten.add.Tensor: _scaled,
    aten.sub.Tensor: _scaled,
    aten.glu.default: _glu,
    torch.ops.spyre_sim.gelu.default: _gelu,
}
