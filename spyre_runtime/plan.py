"""The plan: everything that running a compiled graph needs to know, as plain data. `planner.py` makes one, `plan_json.py` writes and reads it.

A plan names every buffer with its device layout and place (LX, the pool of intermediates, or a segment of its own), every device op with its
program, final loops, cores, accesses and operand coordinates, the host steps between with their calls, the bundles and the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from .align import Loop
from .divide import SpanFinding
from .fuse import Bundle
from .host_steps import HostStep
from .ir import Access, Buffer, BufferRole, DeviceLayout, LoweredGraph, Op, OpKind, Origin
from .terms import Coordinate


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """A tensor in memory. At most one of `lx_address` (bytes on each core) and `pool_offset` (bytes) is set; `bytes` is its device size."""

    name: str
    role: BufferRole
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    layout: DeviceLayout | None
    alias: str | None = None
    lx_address: int | None = None
    pool_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as one op walks it: device dimensions (outermost first) and the coordinate along each, over the op's final loops."""

    buffer: str
    size: tuple[int, ...]
    coordinates: tuple[Coordinate, ...]


@dataclass(frozen=True)
class PlannedOp:
    """One device program.

    planned: the splits as the planner chose them, by loop of the loop nest, before alignment. inputs, result: operands as the release's code
    generator walks them over the final `loops`. reads, write: the same operands as they are meant, over the loops in `planned`; a read of
    index data comes before the tensors. misread: operands (by position) that this release reads elsewhere, and where.
    """

    name: str
    kind: OpKind
    function: str
    kernel: str
    output: str
    loops: tuple[Loop, ...]
    inputs: tuple[Operand, ...]
    result: Operand
    planned: tuple[Loop, ...]
    reads: tuple[Access, ...]
    write: Access
    misread: tuple[tuple[int, Access], ...] = ()
    parameters: tuple[tuple[str, Any], ...] = ()
    node: str = ""
    source: str = ""

    @property
    def is_reduction(self) -> bool:
        return self.kind in (OpKind.REDUCTION, OpKind.MATMUL)

    @property
    def cores(self) -> int:
        cores = 1
        for loop in self.loops:
            cores *= loop.cores
        return cores


@dataclass(frozen=True, slots=True)
class Result:
    """An output of the graph: a view (elements) of a buffer. `buffer` None: the output is no tensor."""

    buffer: str | None
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class Plan:
    """`order` is the sequence of ops and host steps, each by the buffer that it makes (names of ops may repeat).

    `spans` are findings, not refusals: the front-end goes on, the device aborts.
    """

    profile: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[PlannedBuffer, ...]
    ops: tuple[PlannedOp, ...]
    host_steps: tuple[HostStep, ...]
    order: tuple[str, ...]
    bundles: tuple[Bundle, ...]
    pool_bytes: int
    lx_peak: int
    results: tuple[Result, ...] = ()
    spans: tuple[SpanFinding, ...] = ()

    @property
    def intermediates(self) -> tuple[PlannedBuffer, ...]:
        """Buffers of its own that device loops or allocations make (not inputs, literals, fallback results or aliases)."""
        own = (BufferRole.COMPUTED, BufferRole.EMPTY)
        return tuple(b for b in self.buffers if b.role in own and b.alias is None and b.layout is not None)

    @cached_property
    def by_name(self) -> Mapping[str, PlannedBuffer]:
        return {b.name: b for b in self.buffers}

    def buffer(self, name: str) -> PlannedBuffer:
        return self.by_name[name]

    @cached_property
    def steps(self) -> tuple[PlannedOp | HostStep, ...]:
        """Device ops and host steps in the order in which they run."""
        known: dict[str, PlannedOp | HostStep] = {op.output: op for op in self.ops}
        known.update((step.output, step) for step in self.host_steps)
        return tuple(known[name] for name in self.order)

    @cached_property
    def graph(self) -> LoweredGraph:
        """The plan's buffers and accesses as a graph, for what looks at those only."""
        buffers = tuple(
            Buffer(b.name, b.role, b.dtype, b.size, b.stride, b.offset, None if b.alias else b.layout, b.alias) for b in self.buffers
        )
        return LoweredGraph(self.inputs, self.outputs, buffers, tuple(map(_op, self.steps)))

    def __str__(self) -> str:
        lines = [
            f"plan for {self.profile}: {len(self.ops)} ops in {len(self.bundles)} bundles, pool {self.pool_bytes} B, LX {self.lx_peak} B a core"
        ]
        for op in self.ops:
            loops = ", ".join(f"{loop.name}:{loop.size}/{loop.cores}" for loop in op.loops)
            reads = ", ".join(o.buffer for o in op.inputs)
            lines.append(f"  {op.name}: {op.output} = {op.kernel}({reads}) over ({loops}) on {op.cores} cores")
        return "\n".join([*lines, *(f"  span: {f}" for f in self.spans)])


def _op(step: PlannedOp | HostStep) -> Op:
    origin = Origin(step.node, "", step.source)
    if isinstance(step, HostStep):
        return Op(step.name, step.kind, step.function, step.output, origin=origin, host_reads=step.reads)
    return Op(step.name, step.kind, step.function, step.output, step.write, step.reads, origin=origin, attributes=step.parameters)
