"""The tiled executor: runs a plan on padded sticks, core by core in what is checked and batch by batch in how it is computed.

Every tensor is a flat buffer of sticks in its planned layout. Each op reads its operands' sticks, computes all cores' slices in one batched
torch op and stores sticks, rounding where the device rounds. `link` checks the plan once (tile_checks.py); what depends on values is checked while
it runs.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from .device_scalars import device_scalar
from .findings import Action, Check, Findings, Place
from .formats import NumberRules
from .frontend import Compilation
from .host_steps import HostGraph
from .ir import Op, OpKind
from .link_tiles import Link, LinkedOp, link_op
from .memory import Padding, allocate, from_sticks, host_tensor, to_sticks
from .plan import PlannedBuffer
from .profile import Profile
from .tile_checks import (
    LxOwners,
    LxSlot,
    Marks,
    Site,
    check_alignment,
    check_bounds,
    check_initialised,
    check_lx,
    check_race,
    check_spans,
    check_writers,
    mark_written,
)
from .tile_ops import FillOp, Memory, PartialSums


@dataclass(frozen=True)
class TiledOptions:
    """checks: action by check name (findings.py); a check that is not named raises.

    padding: what lanes hold that nobody wrote. leaks: run every op on two paddings side by side, and report elements that differ.
    shuffle: seed of a run in which the cores of each op take turns in random order and some of their stores arrive late; None runs them at once.
    partial_sums: whether partial results travel between cores in float32 or rounded; which one the device does is not public.
    """

    checks: Mapping[str, Action] = field(default_factory=dict)
    padding: Padding = Padding.ZERO
    leaks: bool = False
    shuffle: int | None = None
    partial_sums: PartialSums = "float32"
    faults: frozenset[str] = frozenset()


@dataclass
class _Resident:
    """Sticks of an input that stays laid out between runs, while the tensor is the same and unwritten."""

    tensor: weakref.ref[Tensor]
    version: int
    memory: Tensor


@dataclass(frozen=True, eq=False)
class TiledProgram:
    """A linked plan. `findings` collects what checks that only warn have found, while linking and while running."""

    compilation: Compilation
    options: TiledOptions
    rules: NumberRules | None
    findings: Findings
    link: Link
    steps: tuple[LinkedOp | Op, ...]
    dies: Mapping[int, tuple[str, ...]]  # step → storages that nothing later needs
    host: HostGraph
    residents: dict[str, _Resident] = field(default_factory=dict)

    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """inputs: carriers (formats.py) in the plan's input order. Inputs that the graph mutates are overwritten.

        Returns the outputs' carriers. Raises FindingError where a check finds something.
        """
        memory: Memory = {}
        pending: dict[str, Sequence[Any]] = {}  # results of fallbacks that OUTPUT ops take apart
        given = dict(zip(self.link.plan.inputs, inputs, strict=True))
        for name, tensor in given.items():
            memory[name] = self._laid_out(name, tensor)
        for position, step in enumerate(self.steps):
            self._run_step(step, memory, pending)
            for name in self.dies.get(position, ()):
                memory.pop(name, None)
        for name in self._mutated():
            from_sticks(memory[name], _layout(self.link.buffers[name]), given[name])
        return tuple(
            self._output(name, sample, memory, given) for name, sample in zip(self.link.plan.outputs, self._samples(), strict=True)
        )

    def _samples(self) -> list[Tensor]:
        """Fake tensors of the graph's tensor outputs: their sizes and strides as views of the buffers."""
        (end,) = self.compilation.functional.graph.find_nodes(op="output")
        nodes = [n for n in pytree.tree_leaves(end.args[0]) if isinstance(n, fx.Node)]
        return [n.meta["val"] for n in nodes]

    def _laid_out(self, name: str, tensor: Tensor) -> Tensor:
        resident = self.residents.get(name)
        if resident is not None and resident.tensor() is tensor and resident.version == tensor._version:
            return resident.memory
        buffer = self.link.buffers[name]
        memory = allocate(_layout(buffer), buffer.dtype, self.options.padding)
        to_sticks(tensor, _layout(buffer), memory)
        if name not in self._mutated():
            self.residents[name] = _Resident(weakref.ref(tensor), tensor._version, memory)
        return memory

    def _mutated(self) -> tuple[str, ...]:
        written = {self.link.storage(op.output).name for op in self.link.graph.ops if op.on_device and self.link.buffers[op.output].alias}
        return tuple(name for name in self.link.plan.inputs if name in written)

    def _run_step(self, step: LinkedOp | Op, memory: Memory, pending: dict[str, Sequence[Any]]) -> None:
        if isinstance(step, LinkedOp):
            self._allocate(step.site.write.buffer, memory)
            step.runner.run(memory)
        else:
            self._run_host(step, memory, pending)

    def _allocate(self, name: str, memory: Memory) -> None:
        storage = self.link.storage(name)
        if storage.name not in memory:
            memory[storage.name] = allocate(_layout(storage), storage.dtype, self.options.padding)

    def _run_host(self, op: Op, memory: Memory, pending: dict[str, Sequence[Any]]) -> None:
        if op.kind is OpKind.EMPTY:
            self._allocate(op.output, memory)
        elif op.kind is OpKind.CONSTANT:
            self._allocate(op.output, memory)
            value, dtype = op.info["value"], self.link.buffers[op.output].dtype
            held = value if self.rules is None else device_scalar(value, dtype, self.rules)
            FillOp(self.link.target(op.output), held).run(memory)
        elif op.kind is OpKind.OUTPUT:
            (source,) = op.host_reads
            self._upload(op.output, pending[source][self.host.item(op)], memory)
        else:
            result = self.host.run(op, partial(self._read, memory))
            if op.output in self.link.buffers:
                self._upload(op.output, result, memory)
            else:
                pending[op.output] = result if isinstance(result, tuple | list) else (result,)

    def _upload(self, name: str, value: Tensor, memory: Memory) -> None:
        buffer = self.link.buffers[name]
        self._allocate(name, memory)
        host = host_tensor(buffer.size, buffer.stride, buffer.dtype)
        host.copy_(value.reshape(buffer.size))
        to_sticks(host, _layout(buffer), memory[self.link.storage(name).name])

    def _read(self, memory: Memory, name: str) -> Tensor:
        buffer = self.link.buffers[name]
        host = host_tensor(buffer.size, buffer.stride, buffer.dtype)
        from_sticks(memory[self.link.storage(name).name], _layout(buffer), host)
        return host

    def _output(self, name: str, sample: Tensor, memory: Memory, given: Mapping[str, Tensor]) -> Tensor:
        storage = self.link.storage(name).name
        whole = given[storage] if storage in given else self._read(memory, name)
        if tuple(whole.shape) == tuple(sample.shape):
            return whole
        return torch.as_strided(whole, sample.shape, sample.stride(), int(sample.storage_offset()))


def _layout(buffer: PlannedBuffer) -> Any:
    assert buffer.layout is not None, f"{buffer.name} has no layout"
    return buffer.layout


def _lifetimes(link: Link) -> dict[int, tuple[str, ...]]:
    """Position of the last op that touches each storage, outputs and inputs excepted."""
    kept = {link.storage(n).name for n in (*link.plan.outputs, *link.plan.inputs)}
    last: dict[str, int] = {}
    for position, op in enumerate(link.graph.ops):
        for name in (*(r.buffer for r in op.reads), *op.host_reads, op.output):
            last[link.storage(name).name if name in link.buffers else name] = position
    dies: dict[int, tuple[str, ...]] = {}
    for name, position in last.items():
        if name not in kept:
            dies[position] = (*dies.get(position, ()), name)
    return dies


def link(compilation: Compilation, profile: Profile, options: TiledOptions | None = None, rules: NumberRules | None = None) -> TiledProgram:
    """Prepare a compiled graph to run on sticks, and check its plan. rules: None carries half-precision values unrounded.

    Raises FindingError where a check finds something, NotImplementedError for a device program without a meaning here.
    """
    options = options or TiledOptions()
    findings = Findings(options.checks)
    plan, graph = compilation.plan, compilation.padded
    joined = Link(plan, graph, profile, rules.op_rounding if rules else None, options.partial_sums, findings, {b.name: b for b in plan.buffers})
    planned = {op.name: op for op in plan.ops}
    steps: list[LinkedOp | Op] = []
    for op in graph.ops:
        steps.append(link_op(planned[op.name], op, joined) if op.on_device else op)
    program = TiledProgram(
        compilation, options, rules, findings, joined, tuple(steps), _lifetimes(joined), HostGraph(compilation.functional, graph, rules)
    )
    check_plan(program, profile)
    return program


def check_plan(program: TiledProgram, profile: Profile) -> None:
    """Every check that needs no values, op by op in order."""
    link, findings = program.link, program.findings
    marks, owners = Marks(), LxOwners()
    for name in link.plan.inputs:
        marks.whole(name)
    slots = _lx_slots(link)
    resident = frozenset(s.storage for s in slots)
    places: dict[int, Place] = {}
    for position, step in enumerate(program.steps):
        if not isinstance(step, LinkedOp):
            if step.kind is not OpKind.EMPTY:
                marks.whole(step.output)
            continue
        site = step.site
        places[position] = site.place
        _check_site(site, marks, findings, profile)
        mark_written(site, marks, math.prod(link.storage(site.write.buffer).size))
        owners.check(site, resident, findings)
    check_lx(slots, places, profile.limits, findings)


def _check_site(site: Site, marks: Marks, findings: Findings, profile: Profile) -> None:
    if findings.watches(Check.OUT_OF_BOUNDS):
        check_bounds(site, findings)
    if findings.watches(Check.UNINITIALISED_READ):
        check_initialised(site, marks, findings)
    if findings.watches(Check.TWO_WRITERS):
        check_writers(site, findings)
    if findings.watches(Check.MISALIGNED_STORE):
        check_alignment(site, findings)
    if findings.watches(Check.SPAN_OVERFLOW):
        check_spans(site, profile.limits, findings)
    if findings.watches(Check.READ_WRITE_RACE):
        check_race(site, findings)


def _lx_slots(link: Link) -> list[LxSlot]:
    cores = {link.storage(op.output).name: op.cores for op in link.plan.ops}
    uses: dict[str, list[int]] = {}
    for position, op in enumerate(link.graph.ops):
        for name in (*(r.buffer for r in op.reads), op.output):
            if name in link.buffers:
                uses.setdefault(link.storage(name).name, []).append(position)
    slots = []
    for buffer in link.plan.buffers:
        if buffer.lx_address is None or buffer.alias is not None or buffer.layout is None:
            continue
        size = math.prod(buffer.layout.device_size[:-1]) * 128 // cores[buffer.name]
        slots.append(LxSlot(buffer.name, buffer.lx_address, size, uses[buffer.name][0], uses[buffer.name][-1]))
    return slots
