"""Which elementwise ops of the fast executor write their result over an operand that nothing needs any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from . import custom_ops  # noqa: F401 (registers spyre_sim)
from .aliasing import Aliases
from .formats import carrier_dtype

CASTS = frozenset({torch.ops.aten._to_copy.default, torch.ops.prims.convert_element_type.default})
# Copies that need not be made where nothing tells them from their source.
COPIES = CASTS | {torch.ops.aten.clone.default, torch.ops.spyre_sim.restickify.default}


def reusable_operands(graph: fx.Graph, aliases: Aliases, last_use: Mapping[fx.Node, Sequence[fx.Node]]) -> dict[fx.Node, fx.Node]:
    """For elementwise ops an operand that nothing needs any more and whose memory can take the result: memory that is in the caches
    already, where fresh memory of this size would be mapped in page by page.
    """
    live: dict[fx.Node, int] = {}  # values in each piece of memory that something still needs
    for node in graph.nodes:
        live[aliases.root[node]] = live.get(aliases.root[node], 0) + 1
    shared: set[fx.Node] = set()  # memory that a second value may lie in without saying so: the source of a copy that is not made
    found: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.target in COPIES:
            shared.update(aliases.root[n] for n in (node, *node.all_input_nodes))
        dying = [n for n in last_use.get(node, ()) if n is not node]
        for value in dying:
            live[aliases.root[value]] -= 1
        if out_overload(node.target) is None:
            continue
        for value in dying:
            memory = aliases.root[value]
            private = memory.op == "call_function" and memory not in shared | aliases.written | aliases.escaping
            if private and value is memory and live[memory] == 0 and _same_carrier(value, node):
                found[node] = value
                break
    return found


def _same_carrier(one: fx.Node, other: fx.Node) -> bool:
    a, b = one.meta.get("val"), other.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return bool(a.shape == b.shape and a.stride() == b.stride() and carrier_dtype(a.dtype) is carrier_dtype(b.dtype))


@cache
def out_overload(target: Any) -> Any:
    """The overload of an elementwise op that takes the same arguments and writes its result where it is told; None if there is none."""
    if torch.Tag.pointwise not in getattr(target, "tags", ()):
        return None
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        other = getattr(target.overloadpacket, name)
        arguments = other._schema.arguments
        if arguments and arguments[-1].is_out and [(a.name, str(a.type)) for a in arguments[:-1]] == wanted:
            return other
    return None
