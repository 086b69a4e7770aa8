"""One run of a linked plan: memory, host steps, transfers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .faults import Faults
from .formats import NumberRules
from .host_steps import HostStep, run_call
from .ir import OpKind
from .link_tiles import Link, LinkedOp
from .memory import allocate, from_sticks, host_tensor, layout_of, to_sticks
from .plan import Result
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

    def host_step(self, step: HostStep) -> None:
        if step.kind is OpKind.EMPTY:
            self.allocate(step.output)
        elif step.kind is OpKind.CONSTANT:
            assert step.value is not None
            self.allocate(step.output)
            value, dtype = step.value, self.link.buffers[step.output].dtype
            self.memory[step.output][:1] = value if self.rules is None else device_scalar(value, dtype, self.rules)
        elif step.kind is OpKind.OUTPUT:
            (source,) = step.reads
            self.upload(step.output, self.results[source][step.item])
        else:
            if step.call is None:
                raise KeyError(f"{step.name}: the plan has no call for {step.function}")
            result = run_call(step.call, self.read, self.rules)
            buffer = self.link.buffers.get(step.output)
            if buffer is not None and buffer.layout is not None:
                self.upload(step.output, result)
            else:
                self.results[step.output] = result if isinstance(result, tuple | list) else (result,)

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

    def output(self, result: Result) -> Tensor | None:
        """An output as the graph returns it: a view of its buffer, or None where it is no tensor."""
        if result.buffer is None:
            return None
        storage = self.link.storage(result.buffer).name
        whole = self.given[storage] if storage in self.given else self.read(result.buffer)
        return whole if tuple(whole.shape) == result.size else torch.as_strided(whole, result.size, result.stride, result.offset)


def run_step(step: LinkedOp | HostStep, passes: Sequence[Pass], shuffle: random.Random | None) -> None:
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
