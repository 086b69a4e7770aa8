"""Parts of a captured graph as graphs of their own: what stands outside becomes an input."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from adapterc.spyre_runtime.ir import DeviceLayout


def is_call(node: fx.Node) -> bool:
    return node.op == "call_function"


def is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def calls(graph: fx.Graph) -> tuple[fx.Node, ...]:
    return tuple(node for node in graph.nodes if is_call(node))


def closed(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes, with the op behind each selected output: a tuple cannot cross the edge of a part."""
    found = set(nodes)
    for node in tuple(found):
        while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
            node = node.args[0]
            found.add(node)
    return found


def part(module: fx.GraphModule, nodes: Iterable[fx.Node], outputs: Sequence[fx.Node]) -> fx.GraphModule:
    """The graph of `nodes` alone, in the order of the whole, returning `outputs` (tensor nodes among them) as a tuple.

    Every other value that they read is a placeholder of the same name and fake tensor; constants held by the module come along.
    """
    chosen = closed(nodes)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    outside = {source for node in chosen for source in node.all_input_nodes if source not in chosen and source.op != "get_attr"}
    for node in module.graph.nodes:
        if node in outside:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta.update(node.meta)
    if not any(is_tensor(node) for node in copies):
        # The compiler takes the tracing mode from an input; a part that needs none (an arange) gets the result's as one that nothing reads.
        spare = graph.placeholder("unused")
        spare.meta["val"] = next(node.meta["val"] for node in sorted(chosen) if is_tensor(node))
    for node in module.graph.nodes:
        if node in chosen or (node.op == "get_attr" and any(user in chosen for user in node.users)):
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[node] for node in outputs))
    return fx.GraphModule(module, graph)


def ancestors(node: fx.Node, depth: int, stop: frozenset[fx.Node] = frozenset()) -> frozenset[fx.Node]:
    """The node and the ops up to `depth` steps above it; nodes in `stop` count as inputs."""
    found = {node}
    edge = {node}
    for _ in range(depth):
        edge = {source for n in closed(edge) for source in n.all_input_nodes if is_call(source) and source not in stop} - found
        found |= edge
    return frozenset(found)


def results(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    """The tensors of a part that something outside reads."""
    chosen = closed(nodes)
    return [n for n in sorted(chosen) if is_tensor(n) and any(user not in chosen for user in n.users)]


def shape_text(value: Any) -> str:
    """`float16[2, 16, 128]`."""
    return f"{str(value.dtype).removeprefix('torch.')}{list(map(int, value.shape))}"


def structure(module: fx.GraphModule, layouts: Mapping[str, DeviceLayout]) -> str:
    """What a compiler's answer for the graph can depend on, free of names: equal texts get equal answers."""
    number: dict[fx.Node, int] = {}
    lines = []

    def plain(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return f"%{number[argument]}"
        if isinstance(argument, (list, tuple)):
            return [plain(a) for a in argument]
        if isinstance(argument, dict):
            return {key: plain(value) for key, value in argument.items()}
        return argument

    for node in module.graph.nodes:
        number[node] = len(number)
        value = node.meta.get("val")
        kind = ""
        if isinstance(value, torch.Tensor) and node.op in ("placeholder", "get_attr"):
            kind = f"{shape_text(value)} {value.stride()} {value.storage_offset()} {layouts.get(node.name, '')}"
        target = "" if node.op in ("placeholder", "get_attr") else node.target
        lines.append(f"{node.op} {target} {plain(node.args) if node.op != 'placeholder' else ''} {plain(dict(node.kwargs))} {kind}")
    return "\n".join(lines)
