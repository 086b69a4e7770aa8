"""The tiled executor: runs a plan on padded sticks, core by core in what is checked and batch by batch in how it is computed.

Every tensor is a flat buffer of sticks in its planned layout. Each op reads its operands' sticks, computes all cores' slices in one batched
torch op and stores sticks, rounding where the device rounds. `link` checks the plan once (tile_checks.py); what depends on values is checked while
it runs.
"""

from __future__ import annotations

import math
import random
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from torch import Tensor

from .execute_fast import Program
from .faults import Faults
from .findings import Check, Findings, Place
from .formats import NumberRules
from .frontend import Compilation
from .host_steps import HostGraph
from .ir import STICK_BYTES, Op, OpKind
from .link_tiles import Link, LinkedOp, link_op
from .memory import from_sticks, layout_of
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
from .tiled_options import Padding, TiledOptions
from .tiled_run import OTHER_PADDING, Pass, output_samples, run_step


@dataclass
class _Resident:
    """Sticks of an input that stays laid out between runs, while the tensor is the same and unwritten."""

    tensor: weakref.ref[Tensor]
    version: int
    sticks: Tensor


@dataclass(frozen=True, eq=False)
class TiledProgram:
    """A linked plan. `link.findings` collects what checks that only warn have found, while linking and while running."""

    compilation: Compilation
    options: TiledOptions
    rules: NumberRules | None
    link: Link
    steps: tuple[LinkedOp | Op, ...]
    dies: Mapping[int, tuple[str, ...]]  # step → storages that nothing later needs
    mutated: tuple[str, ...]  # inputs that the graph writes
    host: HostGraph
    faults: Faults
    residents: dict[tuple[str, Padding], _Resident] = field(default_factory=dict)

    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """inputs: carriers (formats.py) in the plan's input order. Inputs that the graph mutates are overwritten.

        Returns the outputs' carriers, None for an output that is no tensor. Raises FindingError where a check finds something.
        """
        given = dict(zip(self.link.plan.inputs, inputs, strict=True))
        paddings = [self.options.padding, OTHER_PADDING[self.options.padding]][: 1 + self.options.leaks]
        passes = [Pass(self.link, self.host, self.faults, self.rules, padding, given) for padding in paddings]
        for current in passes:
            for name in given:
                current.memory[name] = self._sticks(name, current)
        shuffle = None if self.options.shuffle is None else random.Random(self.options.shuffle)
        for position, step in enumerate(self.steps):
            run_step(step, passes, shuffle)
            for name in self.dies.get(position, ()):
                for current in passes:
                    current.memory.pop(name, None)
        first = passes[0]
        for name in self.mutated:
            from_sticks(first.memory[name], layout_of(self.link.buffers[name]), given[name])
        names = iter(self.link.plan.outputs)
        return tuple(
            None if sample is None else first.output(next(names), sample) for sample in output_samples(self.compilation.functional)
        )

    def _sticks(self, name: str, current: Pass) -> Tensor:
        tensor, key = current.given[name], (name, current.padding)
        resident = self.residents.get(key)
        if resident is not None and resident.tensor() is tensor and resident.version == tensor._version:
            return resident.sticks
        sticks = current.lay_out(name)
        if name not in self.mutated:
            self.residents[key] = _Resident(weakref.ref(tensor), tensor._version, sticks)
        return sticks


def _mutated(compilation: Compilation) -> tuple[str, ...]:
    """Inputs that the graph writes, in the plan's order."""
    graph = compilation.padded
    written = {graph.storage(op.output).name for op in graph.device_ops() if graph.buffer(op.output).alias}
    return tuple(name for name in compilation.plan.inputs if name in written)


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

    Raises FindingError where a check finds something, KeyError for an unknown fault, NotImplementedError for a device program without a
    meaning here.
    """
    options = options or TiledOptions()
    plan, graph = compilation.plan, compilation.padded
    faults = Faults.of(options.faults, profile)
    joined = Link(
        plan,
        graph,
        profile,
        rules.op_rounding if rules else None,
        options.partial_sums,
        Findings(dict(options.checks)),
        faults,
        {b.name: b for b in plan.buffers},
    )
    planned = {op.name: op for op in plan.ops}
    steps = tuple(link_op(planned[op.name], op, joined) if op.on_device else op for op in graph.ops)
    host = HostGraph(compilation.functional, graph, rules)
    program = TiledProgram(compilation, options, rules, joined, steps, _lifetimes(joined), _mutated(compilation), host, faults)
    check_plan(program, profile)
    return program


def check_plan(program: TiledProgram, profile: Profile) -> None:
    """Every check that needs no values, op by op in order."""
    link, findings = program.link, program.link.findings
    marks, owners = Marks(), LxOwners()
    for name in link.plan.inputs:
        marks.whole(name)
    slots = lx_slots(link)
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
        if findings.watches(Check.LX_OWNERSHIP):
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


def lx_slots(link: Link) -> list[LxSlot]:
    """Buffers that the plan keeps in LX: their addresses, bytes on each core, and the ops that they live from and to."""
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
        size = math.prod(buffer.layout.device_size[:-1]) * STICK_BYTES // cores[buffer.name]
        slots.append(LxSlot(buffer.name, buffer.lx_address, size, uses[buffer.name][0], uses[buffer.name][-1]))
    return slots


def tiled_program(compilation: Compilation, profile: Profile, options: TiledOptions, rules: NumberRules | None) -> Program:
    """`link`, in the form in which the fast executor gives its programs: all placeholders' carriers in, all outputs' carriers out.

    The plan is linked and checked on the first call, so that a finding reaches the caller and not the compiler around it.
    """
    placeholders = compilation.functional.graph.find_nodes(op="placeholder")
    tensors = [i for i, n in enumerate(placeholders) if isinstance(n.meta.get("val"), Tensor)]
    position = dict(zip(compilation.plan.inputs, tensors, strict=True))

    @cache
    def program() -> TiledProgram:
        return link(compilation, profile, options, rules)

    return Program(
        run=lambda *carriers: program().run([carriers[i] for i in tensors]),
        outputs=tuple(output_samples(compilation.functional)),
        mutated=tuple(position[name] for name in _mutated(compilation)),
        code=str(compilation.plan),
    )
