"""A compiled graph on the device under test, next to the same graph as it is meant to be: any of its ops can run by reference, the rest on the device.

The device under test is the simulator's tiled executor with a set of faults; the reference is the same plan without them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from adapterc.spyre_runtime.execute_tiled import TiledProgram, link_plan
from adapterc.spyre_runtime.findings import Action, Check
from adapterc.spyre_runtime.formats import NumberRules
from adapterc.spyre_runtime.frontend import Compilation
from adapterc.spyre_runtime.ir import Op
from adapterc.spyre_runtime.link_tiles import Link, LinkedOp
from adapterc.spyre_runtime.memory import from_sticks, host_tensor, layout_of
from adapterc.spyre_runtime.plan import Plan
from adapterc.spyre_runtime.profile import Profile
from adapterc.spyre_runtime.tile_ops import Memory
from adapterc.spyre_runtime.tiled_options import Padding, PartialSums, TiledOptions
from adapterc.spyre_runtime.tiled_run import Pass, run_step

QUIET: tuple[tuple[Check, Action], ...] = tuple((check, "off") for check in Check)
GARBAGE = Padding.LARGE  # what unused lanes of the device hold is not defined, and zeros would hide a leak
Outputs = tuple[Tensor | None, ...]


@dataclass
class Subject:
    """`source`: the compiled graph, or a plan alone, behind which there is no graph to cut a program from. `device`: what is diagnosed. `expected`: the same plan done right. `inputs`: carriers in the plan's order. `runs`: whole runs so far."""

    source: Compilation | Plan
    profile: Profile
    rules: NumberRules
    expected: TiledProgram
    device: TiledProgram
    inputs: tuple[Tensor, ...]
    runs: int = 0
    reference: Outputs = ()
    ops: tuple[int, ...] = field(default=())  # positions of the steps that run on the device

    def run(self, by_reference: frozenset[int], transfers_by_reference: bool = True, padding: Padding = GARBAGE) -> Outputs:
        """One run with the ops at these positions, and the transfers, done right."""
        self.runs += 1
        steps = tuple(e if i in by_reference else d for i, (e, d) in enumerate(zip(self.expected.steps, self.device.steps, strict=True)))
        transfers = self.expected if transfers_by_reference else self.device
        mixed = dataclasses.replace(
            self.device,
            steps=steps,
            faults=transfers.faults,
            options=dataclasses.replace(self.device.options, padding=padding),
            residents={},
        )
        return mixed.run([value.clone() for value in self.inputs])

    def linked(self, position: int, program: TiledProgram) -> LinkedOp:
        step = program.steps[position]
        assert isinstance(step, LinkedOp)
        return step

    def op(self, position: int) -> Op:
        name = self.linked(position, self.expected).name
        ops = self.source.padded.ops if isinstance(self.source, Compilation) else self.source.graph.ops
        return next(op for op in ops if op.name == name)

    def before(self, position: int) -> Memory:
        """Device memory as the reference leaves it for the op at `position`, whose own output is allocated."""
        self.runs += 1
        current = self._pass(self.expected)
        for step in self.expected.steps[:position]:
            run_step(step, [current], None)
        current.allocate(self.linked(position, self.expected).site.write.buffer)
        return current.memory

    def after(self, position: int, memory: Memory) -> Memory:
        """A copy of the memory as the reference's op at `position` leaves it."""
        own = {name: value.clone() for name, value in memory.items()}
        self.linked(position, self.expected).runner.run(own)
        return own

    def walk(self) -> Iterator[tuple[int, Memory]]:
        """One run by reference: each op's position with the memory that it finds, its own output allocated. The caller leaves the memory as it is."""
        current = self._pass(self.expected)
        for position, step in enumerate(self.expected.steps):
            if isinstance(step, LinkedOp):
                current.allocate(step.site.write.buffer)
                yield position, current.memory
            run_step(step, [current], None)

    def local_errors(self) -> tuple[tuple[int, float], ...]:
        """Per op, how far the device's output is from the reference's, both going on with their own values: where an error arises and how it spreads."""
        self.runs += 2
        right, wrong = self._pass(self.expected), self._pass(self.device)
        found = []
        for position, (meant, done) in enumerate(zip(self.expected.steps, self.device.steps, strict=True)):
            run_step(meant, [right], None)
            run_step(done, [wrong], None)
            if isinstance(meant, LinkedOp):
                name = meant.site.write.buffer
                found.append((position, relative(host_view(wrong.link, wrong.memory, name), host_view(right.link, right.memory, name))))
        return tuple(found)

    def _pass(self, program: TiledProgram) -> Pass:
        given = dict(zip(program.link.plan.inputs, (value.clone() for value in self.inputs), strict=True))
        current = Pass(program.link, program.faults, program.rules, program.options.padding, given)
        for name in given:
            current.memory[name] = current.lay_out(name)
        return current


def host_view(link: Link, memory: Memory, name: str) -> Tensor:
    """The elements of a buffer's storage as the host would see them; what unused lanes hold is left out."""
    storage = link.storage(name)
    host = host_tensor(storage.size, storage.stride, storage.dtype)
    from_sticks(memory[storage.name], layout_of(storage), host)
    return host


def plan_of(source: Compilation | Plan) -> Plan:
    return source.plan if isinstance(source, Compilation) else source


def subject_of(
    source: Compilation | Plan, inputs: Sequence[Tensor], profile: Profile, rules: NumberRules, faults: frozenset[str] = frozenset()
) -> Subject:
    """The graph on a device with `faults`. Raises KeyError for a fault that the profile does not list."""
    plan = plan_of(source)
    expected = link_plan(plan, profile, TiledOptions(checks=QUIET, padding=GARBAGE), rules)
    device = link_plan(plan, profile, TiledOptions(checks=QUIET, padding=GARBAGE, faults=faults), rules) if faults else expected
    return made(source, inputs, profile, rules, expected, device)


def made(
    source: Compilation | Plan, inputs: Sequence[Tensor], profile: Profile, rules: NumberRules, expected: TiledProgram, device: TiledProgram
) -> Subject:
    ops = tuple(i for i, step in enumerate(expected.steps) if isinstance(step, LinkedOp))
    subject = Subject(source, profile, rules, expected, device, tuple(inputs), ops=ops)
    subject.reference = subject.run(frozenset(ops))
    return subject


def at(subject: Subject, position: int) -> Subject:
    """The same graph on a device of which only the op at `position` is what it was."""
    steps = tuple(d if i == position else e for i, (e, d) in enumerate(zip(subject.expected.steps, subject.device.steps, strict=True)))
    device = dataclasses.replace(subject.device, steps=steps, faults=subject.expected.faults, residents={})
    return dataclasses.replace(subject, device=device, runs=0)


def variant(subject: Subject, partial_sums: PartialSums, rules: NumberRules | None) -> Outputs:
    """What a device without faults gives that sums or rounds in another admissible way."""
    program = link_plan(
        plan_of(subject.source), subject.profile, TiledOptions(checks=QUIET, padding=GARBAGE, partial_sums=partial_sums), rules
    )
    return program.run([value.clone() for value in subject.inputs])


def relative(found: Tensor, meant: Tensor) -> float:
    """Largest difference as a part of the largest value that was meant; infinite where one is finite and the other is not."""
    if found.shape != meant.shape:
        return math.inf
    if not meant.is_floating_point():
        return 0.0 if torch.equal(found, meant) else math.inf
    same = (found == meant) | (found.isnan() & meant.isnan())
    if bool(same.all()):
        return 0.0
    finite = found.isfinite() & meant.isfinite()
    if not bool((finite | same).all()):
        return math.inf
    scale = meant[meant.isfinite()].abs().max().item()
    return (found - meant)[~same].abs().max().item() / (scale or 1.0)


def distance(found: Outputs, meant: Outputs) -> float:
    """The largest relative difference over the outputs."""
    return max((relative(f, m) for f, m in zip(found, meant, strict=True) if f is not None and m is not None), default=0.0)
