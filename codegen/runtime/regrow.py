"""Carry out a growth plan: padded copies at load or on the host, new sizes in views, pinned scales, compensated means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from .graph import BUFFER, WEIGHT, arguments, is_getitem, packet, set_argument, shape
from .grow import GrowthPlan
from .growth import Growth
from .trace import Tracer, annotate
from .transfer import SPLITS, VIEWS

aten = torch.ops.aten


def carry_out(plan: GrowthPlan, tracer: Tracer, rule: str) -> None:
    """Edit the graph as planned. The root of a cropping plan is cut back to its old size right behind it."""
    copies = _padded_copies(plan, tracer, rule)
    order = list(plan.graph.nodes)
    sizes = {node: shape(node) for node in order if isinstance(node.meta.get("val"), torch.Tensor)}
    for (user, operand), copy in copies.items():
        user.replace_input_with(operand, copy)
        sizes[copy] = sizes[operand]
    changed = set(copies.values())
    for node in order:
        if (
            node.op != "call_function"
            or any(node is reader for reader, _ in plan.cuts)
            or not (node in plan.grown or changed.intersection(node.all_input_nodes))
        ):
            continue
        _resize(plan, node, plan.grown.get(node), sizes)
        changed.add(node)
        if node in plan.compensated:
            _compensate(plan, tracer, node, plan.compensated[node], rule)
        node.meta["val"] = tracer.evaluate(node)
        if node is plan.crop or (node not in plan.grown and packet(node) not in (*SPLITS, "unbind")):
            changed.discard(node)  # what reads it sees the old size
    for reader, node in plan.cuts:
        _cut(plan, tracer, reader, node, rule)
    if plan.crop is not None:
        _crop(plan, tracer, plan.crop, plan.grown[plan.crop], rule)


def _padded_copies(plan: GrowthPlan, tracer: Tracer, rule: str) -> dict[tuple[Node, Node], Node]:
    made: dict[tuple[Node, tuple[Growth, ...], float], Node] = {}
    copies = {}
    for (user, operand), axes in plan.copies.items():
        growths = tuple(axes[axis] for axis in sorted(axes))
        fill = plan.fills.get(operand, 0.0)
        key = (operand, growths, fill)
        if key not in made:
            made[key] = _padded(plan, tracer, operand, growths, fill, rule)
        copies[user, operand] = made[key]
    return copies


def _padded(plan: GrowthPlan, tracer: Tracer, operand: Node, growths: tuple[Growth, ...], fill: float, rule: str) -> Node:
    # What follows from positions goes where `place` puts it; an input of the device grows there.
    stage = "load" if plan.depends[operand] <= {WEIGHT, BUFFER} else None
    after = operand.next
    while after.op == "placeholder":
        after = after.next
    result = operand
    with plan.graph.inserting_before(after):
        for growth in growths:
            operands: Mapping[str, Any] = {
                "x": result, "axis": growth.axis, "outer": growth.outer, "old": growth.old, "new": growth.new, "inner": growth.inner, "fill": fill,
            }  # fmt: skip
            result = tracer.insert(pad_groups, operands, operand, rule=rule, stage=stage)
    return result


def cut_groups(x: torch.Tensor, axis: int, outer: int, old: int, new: int, inner: int) -> torch.Tensor:
    """The real elements of a grown value: what `pad_groups` added is gone again."""
    if outer == 1:
        return x.narrow(axis, 0, old * inner)
    grouped = x.reshape(*x.shape[:axis], outer, new * inner, *x.shape[axis + 1 :])
    return grouped.narrow(axis + 1, 0, old * inner).reshape(*x.shape[:axis], outer * old * inner, *x.shape[axis + 1 :])


def pad_groups(x: torch.Tensor, axis: int, outer: int, old: int, new: int, inner: int, fill: float) -> torch.Tensor:
    """`x` with each group of `old * inner` elements along `axis` grown to `new * inner`, the new ones holding `fill`."""
    behind = x.dim() - axis - 1
    if outer == 1:
        return torch.nn.functional.pad(x, [0, 0] * behind + [0, (new - old) * inner], value=fill)
    grouped = x.reshape(*x.shape[:axis], outer, old * inner, *x.shape[axis + 1 :])
    padded = torch.nn.functional.pad(grouped, [0, 0] * behind + [0, (new - old) * inner], value=fill)
    return padded.reshape(*x.shape[:axis], outer * new * inner, *x.shape[axis + 1 :])


def _resize(plan: GrowthPlan, node: Node, growth: Growth | None, sizes: Mapping[Node, tuple[int, ...]]) -> None:
    """Update the numbers in a node's arguments that were the old size."""
    name = packet(node)
    if name is None or is_getitem(node):
        return
    given = arguments(node)
    if name == "scaled_dot_product_attention":
        size = sizes[given["query"]][-1]
        if given["scale"] is None and shape(given["query"])[-1] != size:
            set_argument(node, "scale", size**-0.5)
        return
    if name in SPLITS:
        _resize_split(plan, node, given)
        return
    if name == "slice":
        _resize_slice(plan, node, given, sizes)
        return
    if growth is None:
        return
    new = _new_shape(sizes[node], growth)
    if name in VIEWS and name not in ("unsqueeze", "squeeze"):
        node.target = aten.reshape.default if name in ("flatten", "unflatten") else node.target
        node.args, node.kwargs = (given["self"], list(new)), {}
    elif name == "expand":
        set_argument(node, "size", list(new))
    elif name in ("rms_norm",):
        set_argument(node, "normalized_shape", [new[-1]])


def _new_shape(old: tuple[int, ...], growth: Growth) -> tuple[int, ...]:
    return (*old[: growth.axis], growth.after, *old[growth.axis + 1 :])


def _resize_split(plan: GrowthPlan, node: Node, given: dict[str, Any]) -> None:
    growth = plan.grown.get(given["self"])
    dim = (given.get("dim") or 0) % len(shape(given["self"]))
    if growth is None or growth.axis != dim:
        return
    key = "split_size" if "split_size" in given else "split_sizes" if "split_sizes" in given else None
    if key is None:
        return
    old = given[key]
    scaled = old // growth.old * growth.new if isinstance(old, int) else [size // growth.old * growth.new for size in old]
    set_argument(node, key, scaled)


def _resize_slice(plan: GrowthPlan, node: Node, given: dict[str, Any], sizes: Mapping[Node, tuple[int, ...]]) -> None:
    source = given["self"]
    growth = plan.grown.get(source)
    rank = len(shape(source))
    if growth is None or given["dim"] % rank != growth.axis:
        return
    size = sizes[source][growth.axis]
    start, stop, _ = slice(given.get("start"), given.get("end"), given.get("step", 1)).indices(size)
    if node in plan.grown:
        start, stop = (n // growth.old * growth.new for n in (start, stop))
    node.args, node.kwargs = (source, given["dim"], start, stop, given.get("step", 1)), {}


def _compensate(plan: GrowthPlan, tracer: Tracer, node: Node, growth: Growth, rule: str) -> None:
    """A mean over the grown dimension still divides by the old count; RMSNorm's epsilon and weight absorb the same factor."""
    given = arguments(node)
    ratio = growth.old / growth.new
    if packet(node) == "mean":
        count = growth.before
        for axis in _reduced(node, given):
            count *= shape(given["self"])[axis] if axis != growth.axis else 1
        node.target = aten.sum.dim_IntList
        _scale_result(plan, tracer, node, 1.0 / count, rule)
        return
    eps = given["eps"] if given["eps"] is not None else torch.finfo(node.meta["val"].dtype).eps
    set_argument(node, "eps", eps * ratio)
    weight = given["weight"]
    if weight is not None:
        with plan.graph.inserting_before(weight.next if weight.op != "placeholder" else node):
            scaled = tracer.call(aten.mul.Tensor, (weight, ratio**0.5), {}, node, rule=rule, stage="load")
        node.replace_input_with(weight, scaled)
        return
    _scale_result(plan, tracer, node, ratio**0.5, rule)


def _scale_result(plan: GrowthPlan, tracer: Tracer, node: Node, factor: float, rule: str) -> None:
    """All readers of the node read it times `factor`."""
    node.meta["val"] = tracer.evaluate(node)
    with plan.graph.inserting_after(node):
        scaled = plan.graph.create_node("call_function", aten.mul.Tensor, (node, factor))
    annotate(scaled, node, rule, None)
    node.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)
    scaled.meta["val"] = tracer.evaluate(scaled)


def _reduced(node: Node, given: dict[str, Any]) -> set[int]:
    rank = len(shape(given["self"]))
    dims = given.get("dim")
    listed = range(rank) if dims in (None, []) else [dims] if isinstance(dims, int) else dims
    return {d % rank for d in listed}


def _cut(plan: GrowthPlan, tracer: Tracer, reader: Node, node: Node, rule: str) -> None:
    growth = plan.grown[node]
    with plan.graph.inserting_before(reader):
        operands = {"x": node, "axis": growth.axis, "outer": growth.outer, "old": growth.old, "new": growth.new, "inner": growth.inner}
        real = tracer.insert(cut_groups, operands, node, rule=rule)
    reader.replace_input_with(node, real)


def _crop(plan: GrowthPlan, tracer: Tracer, root: Node, growth: Growth, rule: str) -> None:
    with plan.graph.inserting_after(root):
        cut = plan.graph.create_node("call_function", aten.slice.Tensor, (root, growth.axis, 0, growth.before))
    annotate(cut, root, rule, None)
    root.replace_all_uses_with(cut, delete_user_cb=lambda user: user is not cut)
    cut.meta["val"] = tracer.evaluate(cut)
