"""Small questions about one node of a captured graph: its value, its arguments by schema name, what it depends on."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import torch
from torch.fx import Graph, Node

WEIGHT = "weight"  # a parameter
BUFFER = "buffer"
HIDDEN = "hidden"  # a float input: hidden states, caches, images
INDEX = "index"  # an int or bool input: ids, positions, masks


def value(node: Node) -> torch.Tensor | None:
    """The fake tensor that capture recorded for the node; None for a node that is no tensor (split, topk)."""
    val = node.meta.get("val")
    return val if isinstance(val, torch.Tensor) else None


def shape(node: Node) -> tuple[int, ...]:
    """The shape of a tensor node. Raises TypeError for a node that is no tensor."""
    val = value(node)
    if val is None:
        raise TypeError(f"{node.name} is not a tensor")
    return tuple(int(s) for s in val.shape)


def dtype(node: Node) -> torch.dtype:
    val = value(node)
    if val is None:
        raise TypeError(f"{node.name} is not a tensor")
    return val.dtype


def packet(node: Node) -> str | None:
    """`linear` for `aten.linear.default`; None for placeholders, getitem and ops outside ATen."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return str(target._schema.name).removeprefix("aten::")
    return None


def arguments(node: Node) -> dict[str, Any]:
    """The node's arguments by the names of its ATen schema, absent ones filled with the schema's defaults."""
    target = cast("torch._ops.OpOverload", node.target)
    found: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(node.args) and not argument.kwarg_only:
            found[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value if argument.has_default_value() else None
    return found


def set_argument(node: Node, name: str, new: Any) -> None:
    """Replace one argument of the node, named as in the ATen schema, wherever it stands."""
    target = cast("torch._ops.OpOverload", node.target)
    for position, argument in enumerate(target._schema.arguments):
        if argument.name == name:
            if position < len(node.args) and not argument.kwarg_only:
                node.update_arg(position, new)
            else:
                node.update_kwarg(name, new)
            return
    raise KeyError(f"{target} has no argument {name}")


def mutates(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def mutated_inputs(node: Node) -> tuple[Node, ...]:
    """The nodes whose memory this node writes."""
    if not mutates(node):
        return ()
    target = cast("torch._ops.OpOverload", node.target)
    written = {a.name for a in target._schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    return tuple(v for k, v in arguments(node).items() if k in written and isinstance(v, Node))


def is_getitem(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


def remove_dead(graph: Graph) -> int:
    """Erase nodes that nothing reads and that write nothing; placeholders stay. Returns how many went."""
    gone = 0
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "get_attr") and not mutates(node):
            graph.erase_node(node)
            gone += 1
    return gone


def placeholder_kinds(graph: Graph, parameters: Iterable[str], buffers: Iterable[str]) -> dict[Node, str]:
    """What each graph input is, by whether capture lists it as a weight and by its dtype."""
    weights, stored = frozenset(parameters), frozenset(buffers)
    kinds = {}
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        val = value(node)
        if node.name in weights or str(node.target) in weights:
            kinds[node] = WEIGHT
        elif node.name in stored or str(node.target) in stored:
            kinds[node] = BUFFER
        else:
            kinds[node] = HIDDEN if val is not None and (val.is_floating_point() or val.is_complex()) else INDEX
    return kinds


def dependences(graph: Graph, kinds: Mapping[Node, str]) -> dict[Node, frozenset[str]]:
    """For each node, the kinds of graph input that its value depends on. A constant depends on nothing; written memory counts as its writer's inputs."""
    found: dict[Node, frozenset[str]] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            found[node] = frozenset({kinds[node]})
            continue
        found[node] = frozenset().union(*(found[n] for n in node.all_input_nodes)) if node.all_input_nodes else frozenset()
        for written in mutated_inputs(node):
            found[written] = found[written] | found[node]
    return found


def source_line(node: Node) -> str:
    """`modeling_gpt2.py:412` where the user's model made this node; empty when capture kept no trace."""
    return _innermost(str(node.meta.get("stack_trace") or ""))


@lru_cache(maxsize=4096)  # every failed match asks, and the nodes of a layer share their traces
def _innermost(trace: str) -> str:
    frames = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    if not frames:
        return ""
    parts = frames[-1].split('"')
    name = parts[1].rsplit("/", 1)[-1]
    line = parts[2].split("line")[1].split(",")[0].strip()
    return f"{name}:{line}"
