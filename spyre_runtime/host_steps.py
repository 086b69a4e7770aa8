"""Steps that run on the host between bundles: CPU fallbacks of the compiled graph, on host copies of device tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch import Tensor

from .formats import NumberRules, device_to_host, host_to_device
from .ir import LoweredGraph, Op

Read = Callable[[str], Tensor]


@dataclass(frozen=True, eq=False)
class HostGraph:
    """The functional graph whose fallback nodes the host runs, and which buffer each of its nodes is.

    `read` in the methods gives a buffer's host copy in its carrier dtype (formats.py) and the buffer's own sizes and strides.
    """

    module: torch.fx.GraphModule
    graph: LoweredGraph
    rules: NumberRules | None  # None: values are carried unrounded

    @cached_property
    def nodes(self) -> Mapping[str, torch.fx.Node]:
        return {n.name: n for n in self.module.graph.nodes}

    @cached_property
    def buffers(self) -> Mapping[str, str]:
        """Node name → buffer, for placeholders and for the nodes that buffers are known by."""
        tensors = [n for n in self.module.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), Tensor)]
        found = {name.node: name.buffer for name in reversed(self.graph.names)}
        found.update(
            {
                op.origin.node: op.output
                for op in self.graph.ops
                if not op.on_device and op.origin.node in self.nodes and op.output in self.graph.by_name
            }
        )
        return {**found, **{n.name: name for n, name in zip(tensors, self.graph.inputs, strict=False)}}

    def run(self, op: Op, read: Read) -> Any:
        """The result of a fallback: carrier values in the sizes that torch gives them, or a tuple of such.

        Raises KeyError when the op's node is not in the functional graph.
        """
        node = self.nodes[op.origin.node]
        result = self._call(node, read)
        return pytree.tree_map_only(Tensor, self._to_device, result)

    def _to_device(self, x: Tensor) -> Tensor:
        if self.rules is None:
            return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
        return host_to_device(x, x.dtype, self.rules)

    def _call(self, node: torch.fx.Node, read: Read) -> Any:
        args, kwargs = pytree.tree_map_only(torch.fx.Node, lambda n: self._value(n, read), (node.args, node.kwargs))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        target = node.target
        if not callable(target):
            raise KeyError(f"{node.name} calls {target}, which is no function")
        return target(*args, **kwargs)

    def _value(self, node: torch.fx.Node, read: Read) -> Any:
        sample = node.meta.get("val")
        buffer = self.buffers.get(node.name)
        if buffer is not None and isinstance(sample, Tensor):
            return device_to_host(read(buffer), sample.dtype).reshape(sample.shape)
        if node.op == "call_function":
            return self._call(node, read)
        raise KeyError(f"{node.name} is neither a buffer nor computed from one")

    def item(self, op: Op) -> int:
        """Which result of its fallback an OUTPUT op stands for; 0 for a fallback with one result."""
        picks = (self.nodes.get(name.node) for name in self.graph.names if name.buffer == op.output)
        return next((int(cast(int, node.args[1])) for node in picks if node is not None and node.target is operator.getitem), 0)
