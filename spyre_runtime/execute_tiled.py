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
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from .execute_fast import Program
from .faults import Faults
from .findings import Check, Findings, Place
from .formats import NumberRules, carrier_dtype, host_to_device
from .frontend import Compilation
from .host_steps import HostStep
from .ir import OpKind
from .link_tiles import Link, LinkedOp, link_op
from .memory import from_sticks, layout_of
from .plan import Plan, PlannedBuffer, PlannedOp
from .plan_json import PlanError
from .plan_use import lx_slots
from .planner import output_samples
from .profile import Profile, load_profile
from .settings import profile_rules
from .tensor import SpyreTensor
from .tile_checks import (
    LxOwners,
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
from .tiled_run import OTHER_PADDING, Pass, run_step


@dataclass
class _Resident:
    """Sticks of an input that stays laid out between runs, while the tensor is the same and unwritten."""

    tensor: weakref.ref[Tensor]
    version: int
    sticks: Tensor


@dataclass(frozen=True, eq=False)
class TiledProgram:
    """A linked plan. `link.findings` collects what checks that only warn have found, while linking and while running."""

    options: TiledOptions
    rules: NumberRules | None
    link: Link
    steps: tuple[LinkedOp | HostStep, ...]
    dies: Mapping[int, tuple[str, ...]]  # step → storages that nothing later needs
    mutated: tuple[str, ...]  # inputs that the graph writes
    faults: Faults
    residents: dict[tuple[str, Padding], _Resident] = field(default_factory=dict)

    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """inputs: carriers (formats.py) in the plan's input order. Inputs that the graph mutates are overwritten.

        Returns the outputs' carriers, None for an output that is no tensor. Raises FindingError where a check finds something.
        """
        given = dict(zip(self.link.plan.inputs, inputs, strict=True))
        paddings = [self.options.padding, OTHER_PADDING[self.options.padding]][: 1 + self.options.leaks]
        passes = [Pass(self.link, self.faults, self.rules, padding, given) for padding in paddings]
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
        return tuple(map(first.output, self.link.plan.results))

    def _sticks(self, name: str, current: Pass) -> Tensor:
        tensor, key = current.given[name], (name, current.padding)
        resident = self.residents.get(key)
        if resident is not None and resident.tensor() is tensor and resident.version == tensor._version:
            return resident.sticks
        sticks = current.lay_out(name)
        if name not in self.mutated:
            self.residents[key] = _Resident(weakref.ref(tensor), tensor._version, sticks)
        return sticks


def _mutated(plan: Plan) -> tuple[str, ...]:
    """Inputs that the graph writes, in the plan's order."""
    written = {plan.graph.storage(op.output).name for op in plan.ops if plan.buffer(op.output).alias}
    return tuple(name for name in plan.inputs if name in written)


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
    """`link_plan` for a compiled graph."""
    return link_plan(compilation.plan, profile, options, rules)


def link_plan(plan: Plan, profile: Profile, options: TiledOptions | None = None, rules: NumberRules | None = None) -> TiledProgram:
    """Prepare a plan to run on sticks, and check it. rules: None carries half-precision values unrounded.

    Raises FindingError where a check finds something, KeyError for an unknown fault, NotImplementedError for a device program without a
    meaning here.
    """
    options = options or TiledOptions()
    faults = Faults.of(options.faults, profile)
    joined = Link(
        plan,
        plan.graph,
        profile,
        rules.op_rounding if rules else None,
        options.partial_sums or profile.numeric["partial_sums"].value,
        Findings(dict(options.checks)),
        faults,
        plan.by_name,
    )
    steps = tuple(link_op(step, joined) if isinstance(step, PlannedOp) else step for step in plan.steps)
    program = TiledProgram(options, rules, joined, steps, _lifetimes(joined), _mutated(plan), faults)
    check_plan(program, profile)
    return program


def execute_plan(
    plan: Plan,
    inputs: Mapping[str, Tensor],
    *,
    options: TiledOptions | None = None,
    rules: NumberRules | Literal["profile"] | None = "profile",
) -> tuple[Tensor | None, ...]:
    """Run a plan by itself, for example one that `plan_json.from_json` read: the outputs' carriers, None for one that is no tensor.

    inputs: a tensor for each name in `plan.inputs`. A tensor of the device gives its own values; a float32 one where the plan has half
    precision is taken as the device's values; any other arrives as a host tensor does, converted and rounded. Inputs that the graph writes are
    overwritten where they are taken as they are. rules: rounding; those of the plan's profile unless given, None carries values unrounded.
    Raises PlanError for a missing input or one of another size, and what `link_plan` raises.
    """
    profile = load_profile(plan.profile)
    chosen = profile_rules(plan.profile) if rules == "profile" else rules
    carriers = [_carrier(plan.buffer(name), inputs, chosen) for name in plan.inputs]
    return link_plan(plan, profile, options, chosen).run(carriers)


def _carrier(buffer: PlannedBuffer, inputs: Mapping[str, Tensor], rules: NumberRules | None) -> Tensor:
    value = inputs.get(buffer.name)
    if value is None or tuple(value.shape) != buffer.size:
        found = "there is none" if value is None else f"the given one has {list(value.shape)}"
        raise PlanError(f"the plan needs an input {buffer.name} of {buffer.dtype} {list(buffer.size)}, and {found}")
    if isinstance(value, SpyreTensor):
        value = value.raw
    elif value.dtype is not carrier_dtype(buffer.dtype):
        value = value.to(carrier_dtype(buffer.dtype)) if rules is None else host_to_device(value, buffer.dtype, rules)
    if value.stride() == buffer.stride:
        return value
    for dim, (size, step) in enumerate(zip(buffer.size, buffer.stride, strict=True)):
        if step == 0 and size > 1:  # an expanded tensor: the plan holds one of the equal slices
            value = value.narrow(dim, 0, 1)
    return torch.empty_strided(value.shape, buffer.stride, dtype=value.dtype).copy_(value).expand(buffer.size)


def check_plan(program: TiledProgram, profile: Profile) -> None:
    """Every check that needs no values, op by op in order."""
    link, findings = program.link, program.link.findings
    marks, owners = Marks(), LxOwners()
    for name in link.plan.inputs:
        marks.whole(name)
    slots = lx_slots(link.plan)
    resident = frozenset(s.storage for s in slots)
    # LX was planned for the places that the release reads, which are not those that are meant.
    misread = frozenset(op.name for op in link.plan.ops if op.misread)
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
            owners.check(replace(site, reads=()) if step.name in misread else site, resident, findings)
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
        mutated=tuple(position[name] for name in _mutated(compilation.plan)),
        code=str(compilation.plan),
    )
