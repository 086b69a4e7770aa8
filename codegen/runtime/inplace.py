"""In-place ops on intermediate values become the functional ops that they mean, so that patterns and growing dimensions see through them."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from .graph import mutated_inputs, packet
from .spelled_out import spell_out
from .trace import Tracer
from .transfer import PERMUTES, SPLITS, VIEWS
from .written_views import part_of, write_part

# What shares memory with its operand: a write through one name would be seen through the other.
_SHARING = VIEWS | PERMUTES | SPLITS | {"slice", "select", "expand", "expand_as", "unbind", "narrow", "alias", "detach", "contiguous", "to"}


def functionalise(graph: Graph, tracer: Tracer) -> int:
    """Replace writes to values that only this graph holds, and to slices of them; products with a bias are
    taken apart on the way. Inputs, caches and buffers stay as they are. Returns how many writes."""
    spell_out(graph, tracer)
    done = 0
    for node in list(graph.nodes):
        written = mutated_inputs(node)
        functional = _functional(node)
        if functional is None or written != (node.args[0],):
            continue
        chain = part_of(written[0])
        if chain is not None:
            done += write_part(graph, node, functional, chain, tracer)
            continue
        if not _owned(written[0]):
            continue
        with graph.inserting_before(node):
            value = tracer.call(functional, node.args, node.kwargs, node, rule="functional")
        node.replace_all_uses_with(value)
        _read_behind(written[0], node, value)
        graph.erase_node(node)
        done += 1
    return done


def _functional(node: Node) -> torch._ops.OpOverload | None:
    """`aten.clamp.default` for `aten.clamp_.default`; None for anything that is no in-place op or has no such twin."""
    name = packet(node)
    if name is None or not name.endswith("_") or name.startswith("_"):
        return None
    twin = getattr(torch.ops.aten, name.removesuffix("_"), None)
    overload = str(node.target).rsplit(".", 1)[-1]
    return getattr(twin, overload, None) if twin is not None and overload in twin.overloads() else None


def _owned(target: Node) -> bool:
    """Whether the value is the graph's own and stands alone in its memory."""
    if target.op != "call_function" or packet(target) is None or packet(target) in _SHARING:
        return False
    return not any(packet(user) in _SHARING for user in target.users)


def _read_behind(target: Node, write: Node, value: Node) -> None:
    """Readers behind the write read what was written."""
    behind = False
    for node in target.graph.nodes:
        if behind and node is not value and target in node.all_input_nodes:
            node.replace_input_with(target, value)
        behind = behind or node is write
