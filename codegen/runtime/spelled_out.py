"""A product that takes a scale and a bias along (`baddbmm`) becomes product, scale and sum, which patterns can name one by one."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from .graph import arguments, packet
from .trace import Tracer

aten = torch.ops.aten


def spell_out(graph: Graph, tracer: Tracer) -> int:
    """Take apart every batched product with a bias. Returns how many."""
    done = 0
    for node in list(graph.nodes):
        if packet(node) == "baddbmm":
            with graph.inserting_before(node):
                node.replace_all_uses_with(_product_and_bias(node, tracer))
            graph.erase_node(node)
            done += 1
    return done


def _product_and_bias(node: Node, tracer: Tracer) -> Node:
    given = arguments(node)

    def scaled(of: Node, by: float) -> Node:
        return of if by == 1 else tracer.call(aten.mul.Tensor, (of, by), {}, node, rule="spelled out")

    product = scaled(tracer.call(aten.bmm.default, (given["batch1"], given["batch2"]), {}, node, rule="spelled out"), given["alpha"])
    if given["beta"] == 0:  # then the bias is not read, whatever it holds
        return product
    return tracer.call(aten.add.Tensor, (product, scaled(given["self"], given["beta"])), {}, node, rule="spelled out")
