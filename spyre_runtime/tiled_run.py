"""One run of a linked plan: memory, host steps, transfers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from .faults import Faults
from .formats import NumberRules
from .host_steps import HostGraph
from .ir import Op, OpKind
from .link_tiles import Link, LinkedOp
from .memory import allocate, from_sticks, host_tensor, layout_of, to_sticks
from .rounding_points import device_scalar
from .shake import compare_paddings, run_shaken
from .tile_ops import Memory
from .tiled_options import Padding

OTHER_PADDING: Mapping[Padding, Padding] = {Padding.ZERO: Padding.NAN, Padding.NAN: Padding.LARGE, Padding.LARGE: Padding.NAN}


@dataclass
class Pass:
    """Device memory during a run. padding: what unused lanes hold. given: the inputs' carriers by name.

    results: what fallbacks returned, until OUTPUT ops place it on the device.
    """

    link: Link
    host: HostGraph
    faults: Faults
    rules: NumberRules | None
    padding: Padding
    given: Mapping[str, Tensor]
    memory: Memory = field(default_factory=dict)
    results: dict[str, Sequence[Any]] = field(default_factory=dict)

    def lay_out(self, name: str) -> Tensor:
        """Sticks of an input, as it arrives on the device."""
        buffer = self.link.buffers[name]
        sticks = allocate(layout_of(buffer), buffer.dtype, self.padding)
        to_sticks(self.faults.arrive(self.given[name], buffer.dtype), layout_of(buffer), sticks)
        return sticks

    def allocate(self, name: str) -> None:
        storage = self.link.storage(name)
        if storage.name not in self.memory:
            self.memory[storage.name] = allocate(layout_of(storage), storage.dtype, self.padding)

    def host_step(self, op: Op) -> None:
        if op.kind is OpKind.EMPTY:
            self.allocate(op.output)
        elif op.kind is OpKind.CONSTANT:
            self.allocate(op.output)
            value, dtype = op.info["value"], self.link.buffers[op.output].dtype
            self.memory[op.output][:1] = value if self.rules is None else device_scalar(value, dtype, self.rules)
        elif op.kind is OpKind.OUTPUT:
            (source,) = op.host_reads
            self.upload(op.output, self.results[source][self.host.item(op)])
        else:
            result = self.host.run(op, self.read)
            buffer = self.link.buffers.get(op.output)
            if buffer is not None and buffer.layout is not None:
                self.upload(op.output, result)
            else:
                self.results[op.output] = result if isinstance(result, tuple | list) else (result,)

    def upload(self, name: str, value: Tensor) -> None:
        buffer = self.link.buffers[name]
        self.allocate(name)
        host = host_tensor(buffer.size, buffer.stride, buffer.dtype)
        host.copy_(value.reshape(buffer.size))
        to_sticks(self.faults.arrive(host, buffer.dtype), layout_of(buffer), self.memory[self.link.storage(name).name])

    def read(self, name: str) -> Tensor:
        """A host copy of a buffer, in its carrier."""
        buffer = self.link.buffers[name]
        host = host_tensor(buffer.size, buffer.stride, buffer.dtype)
        from_sticks(self.memory[self.link.storage(name).name], layout_of(self.link.storage(name)), host)
        return self.faults.leave(host, buffer.dtype)

    def output(self, name: str, sample: Tensor) -> Tensor:
        """An output as the graph returns it: a view of its buffer with the sizes and strides of `sample`."""
        storage = self.link.storage(name).name
        whole = self.given[storage] if storage in self.given else self.read(name)
        if tuple(whole.shape) == tuple(sample.shape):
            return whole
        return torch.as_strided(whole, sample.shape, sample.stride(), int(sample.storage_offset()))


def output_samples(functional: fx.GraphModule) -> list[Any]:
    """Fake tensors of the graph's outputs in order; None where an output is no tensor."""
    (end,) = functional.graph.find_nodes(op="output")
    leaves = pytree.tree_leaves(end.args[0], is_leaf=lambda v: v is None)
    return [leaf.meta.get("val") if isinstance(leaf, fx.Node) else None for leaf in leaves]


def run_step(step: LinkedOp | Op, passes: Sequence[Pass], shuffle: random.Random | None) -> None:
    """Run one op in every pass; with two of them, report elements that differ between their paddings."""
    for current in passes:
        if not isinstance(step, LinkedOp):
            current.host_step(step)
            continue
        current.allocate(step.site.write.buffer)
        if shuffle is not None:
            run_shaken(step.site, step.runner, current.memory, shuffle, current.link.findings)
        else:
            step.runner.run(current.memory)
    if isinstance(step, LinkedOp) and len(passes) == 2:
        compare_paddings(step.site, passes[0].memory, passes[1].memory, passes[0].link.findings)
