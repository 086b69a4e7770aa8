"""A write into a part of a value that only this graph holds (`freqs[..., 1::3] = other`) becomes a new value, and whoever reads later reads that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.fx import Graph, Node

from .graph import is_getitem, packet
from .trace import KEPT_META, Tracer
from .transfer import PERMUTES, SPLITS, VIEWS

aten = torch.ops.aten
_SCATTERS = {"slice": aten.slice_scatter.default, "select": aten.select_scatter.default}
# Ops that always share memory with their operand, so that they can be taken again of the new value. Others may share or copy: nobody can tell.
_ALIASES = (VIEWS - {"reshape", "flatten"}) | PERMUTES | {"slice", "select", "expand", "expand_as", "narrow", "alias", "detach"}
_PERHAPS = {"reshape", "flatten", "contiguous", "to", "unbind", "getitem"} | SPLITS


def part_of(target: Node) -> tuple[Node, ...] | None:
    """The value that `target` is a part of, and the slices that lead to it, `target` last. None for a whole value, an input or another view."""
    chain = [target]
    while packet(chain[0]) in _SCATTERS:
        source = chain[0].args[0]
        if not isinstance(source, Node):
            return None
        chain.insert(0, source)
    whole = chain[0]
    made_here = whole.op == "call_function" and packet(whole) is not None and packet(whole) not in _ALIASES | _PERHAPS
    return tuple(chain) if made_here and len(chain) > 1 else None


def write_part(graph: Graph, node: Node, functional: torch._ops.OpOverload, chain: Sequence[Node], tracer: Tracer) -> bool:
    """Replace the in-place `node` by `functional` and put its result back into the whole. False, and nothing changed, where later readers
    see the memory through an op that may have copied it."""
    order = {found: place for place, found in enumerate(graph.nodes)}
    stale = _aliases(chain[0], order[node], order)
    behind = [(reader, source) for source in stale for reader in source.users if order[reader] > order[node]]
    if any(_kind(source) in _PERHAPS for _, source in behind):
        return False
    with graph.inserting_before(node):
        value = tracer.call(functional, node.args, node.kwargs, node, rule="functional")
        whole = value
        for part in reversed(chain[1:]):
            parent = part.args[0]
            whole = tracer.call(_SCATTERS[str(packet(part))], (parent, whole, *part.args[1:]), part.kwargs, node, rule="functional")
        current: dict[Node, Node] = {chain[0]: whole}
        for reader, source in behind:
            reader.replace_input_with(source, _again(graph, source, current))
    node.replace_all_uses_with(value)
    graph.erase_node(node)
    return True


def _aliases(whole: Node, end: int, order: Mapping[Node, int]) -> list[Node]:
    """The value and all that shares its memory, or may do so, before place `end`."""
    found = [whole]
    for node in found:
        found.extend(u for u in node.users if order[u] < end and u not in found and _kind(u) in _ALIASES | _PERHAPS)
    return found


def _kind(node: Node) -> str | None:
    return "getitem" if is_getitem(node) else packet(node)


def _again(graph: Graph, view: Node, current: dict[Node, Node]) -> Node:
    """The same view of the value that the write made."""
    if view not in current:
        source = view.args[0]
        assert isinstance(source, Node)
        _again(graph, source, current)
        copy = graph.node_copy(view, lambda n: current.get(n, n))
        copy.meta |= {key: view.meta[key] for key in (*KEPT_META, "val") if key in view.meta}
        current[view] = copy
    return current[view]
