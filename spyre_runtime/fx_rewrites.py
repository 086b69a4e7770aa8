"""Graph rewrites of the device: matrices that torch flattened to 2-D or 3-D get their batch dimensions back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from . import custom_ops  # noqa: F401 (registers batched_matmul)
from .refusal import Found, meet, refuse
from .source_lines import source_line

aten = torch.ops.aten
_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
UNIT_BATCH = "unit_batch_matmul"  # node.meta["custom"]: a matmul over a batch of one whose weight is shared


def _shape(node: Any) -> list[int] | None:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return list(value.shape) if isinstance(value, torch.Tensor) else None


def _is_reshape(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target in _RESHAPES


def _only_user(node: torch.fx.Node) -> torch.fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _restored_shape(node: torch.fx.Node, least: int) -> list[int] | None:
    """Target shape of the one reshape that uses `node`, when it has at least `least` dimensions."""
    user = _only_user(node)
    if user is None or not _is_reshape(user):
        return None
    shape = user.args[1]
    return list(shape) if isinstance(shape, list | tuple) and len(shape) >= least else None  # type: ignore[arg-type]


def _mark_unit_batch(product: torch.fx.Node, x: torch.fx.Node, y: torch.fx.Node) -> None:
    shapes = [_shape(n) for n in (x, y, product)]
    if any(s is None or len(s) != 3 or s[0] != 1 for s in shapes):
        return
    (_, m, k), (_, k_y, n), (_, m_out, n_out) = (s for s in shapes if s is not None)
    if (m, k, n) != (m_out, k_y, n_out) or k % 64 or n % 64:
        return
    product.meta["custom"] = {**(product.meta.get("custom") or {}), UNIT_BATCH: {"batch_dim": 0}}


def _meta_value(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(list(shape), dtype=dtype, device="meta")


def _widen_mm(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """view(x, [B·M, K]) @ w -> view(…, [B, M, N]) becomes x @ w.expand(B, K, N)."""
    flat, weight = node.args[:2]
    if not _is_reshape(flat) or not isinstance(weight, torch.fx.Node):
        return
    assert isinstance(flat, torch.fx.Node)
    x = flat.args[0]
    x_shape, w_shape, out_shape = _shape(x), _shape(weight), _restored_shape(node, least=3)
    if x_shape is None or w_shape is None or len(w_shape) != 2 or out_shape is None or out_shape[:-1] != x_shape[:-1]:
        return
    assert isinstance(x, torch.fx.Node)
    dtype = weight.meta["val"].dtype
    batch, wide = x_shape[:-2], weight
    with graph.inserting_before(node):
        for dims in range(len(batch)):
            wide = graph.call_function(aten.unsqueeze.default, (wide, 0))
            wide.meta["val"] = _meta_value([*[1] * (dims + 1), *w_shape], dtype)
        expanded = graph.call_function(aten.expand.default, (wide, [*batch, *w_shape]))
        expanded.meta["val"] = _meta_value([*batch, *w_shape], dtype)
        matmul = torch.ops.spyre_sim.batched_matmul.default if len(out_shape) > 3 else aten.bmm.default
        product = graph.call_function(matmul, (x, expanded))
    product.meta.update({k: v for k, v in node.meta.items() if k in ("custom", "stack_trace", "nn_module_stack")})
    product.meta["val"] = _meta_value(out_shape, dtype)
    _mark_unit_batch(product, x, expanded)
    view = _only_user(node)
    assert view is not None
    node.replace_all_uses_with(product)
    view.replace_all_uses_with(product)
    graph.erase_node(view)
    graph.erase_node(node)
    if not flat.users:
        graph.erase_node(flat)


def _is_plain_operand(node: Any) -> bool:
    if not isinstance(node, torch.fx.Node):
        return False
    if node.op == "call_function" and node.target == aten.expand.default and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node.op in ("placeholder", "get_attr")


def _mark_direct(node: torch.fx.Node) -> None:
    """A batch of one whose right side is a graph input, unless it is a piece of attention that is unflattened below."""
    x, y = node.args[:2]
    if not _is_plain_operand(y) or _is_reshape(x) or _is_reshape(y):
        return
    restored = _restored_shape(node, least=4)
    if restored is None and isinstance(x, torch.fx.Node) and isinstance(y, torch.fx.Node):
        _mark_unit_batch(node, x, y)


def _collapses_batch(node: Any) -> bool:
    if not _is_reshape(node):
        return False
    shape, source = node.args[1], _shape(node.args[0])
    return isinstance(shape, list | tuple) and len(shape) == 3 and source is not None and len(source) > 3


def _merges_more(flats: Sequence[torch.fx.Node], restored: Sequence[int]) -> bool:
    """Whether the reshapes merge more than batch dimensions, as those of an einsum do: the original tensors are no operands of a matmul."""
    (*x_batch, m, k), (*y_batch, k_y, n) = (_shape(flat.args[0]) or [] for flat in flats)
    return x_batch != y_batch or k != k_y or [*x_batch, m, n] != list(restored)


def _unflatten_bmm(graph: torch.fx.Graph, node: torch.fx.Node, found: Found) -> None:
    """bmm over reshapes that only merged batch dimensions becomes a matmul over the original tensors.

    The public compiler takes every such reshape for one of batch dimensions, and refuses an einsum of rank 5 or more when it lowers it
    (torch-spyre e1abccf, temp_passes.py, lowering.py); it would multiply the wrong dimensions of rank 4, so these stay flat.
    """
    sides = node.args[:2]
    restored = _restored_shape(node, least=4)
    if not all(_collapses_batch(side) for side in sides) or restored is None:
        return
    view = _only_user(node)
    assert view is not None
    flats = [side for side in sides if isinstance(side, torch.fx.Node)]
    if _merges_more(flats, restored):
        shapes = [_shape(flat.args[0]) or [] for flat in flats]
        if max(map(len, shapes)) > 4:
            refusal = refuse(
                "LoweringException@_inductor/lowering.py:lower_bmm",
                f"batched matmul of {shapes[0]} with {shapes[1]}: the device takes batches of rank 3 or 4",
                sizes=tuple(size for shape in shapes for size in shape),
                stage="decompose",
            )
            meet(refusal, found, op="bmm", node=node.name, source=source_line(node))
        return
    with graph.inserting_before(node):
        product = graph.call_function(torch.ops.spyre_sim.batched_matmul.default, tuple(flat.args[0] for flat in flats))
    product.meta.update({k: v for k, v in node.meta.items() if k in ("custom", "stack_trace", "nn_module_stack")})
    product.meta["val"] = view.meta["val"]
    view.replace_all_uses_with(product)
    node.replace_all_uses_with(product)
    graph.erase_node(view)
    graph.erase_node(node)
    for flat in dict.fromkeys(flats):
        source = flat.args[0]
        if flat.users:
            continue
        graph.erase_node(flat)
        if isinstance(source, torch.fx.Node) and source.op == "call_function" and source.target == aten.expand.default and not source.users:
            graph.erase_node(source)


def batch_matmuls(graph: torch.fx.Graph, found: Found = None) -> None:
    """The three rewrites in order, in place (this is the form that torch's pass hook wants). Raises Refusal, or notes it in `found`."""
    for node in reversed(graph.find_nodes(op="call_function", target=aten.mm.default)):
        _widen_mm(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten.bmm.default):
        _mark_direct(node)
    for node in reversed(graph.find_nodes(op="call_function", target=aten.bmm.default)):
        _unflatten_bmm(graph, node, found)
