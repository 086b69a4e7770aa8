"""What rounding can explain in one op, and which ops it cannot: each is fed by the reference, so that nothing of an earlier error is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from adapterc.spyre_runtime.execute_tiled import TiledProgram, link_plan
from adapterc.spyre_runtime.formats import NumberRules
from adapterc.spyre_runtime.tile_ops import Memory
from adapterc.spyre_runtime.tiled_options import PartialSums, TiledOptions
from adapterc.subject import GARBAGE, QUIET, Subject, host_view, plan_of

LAST_BIT = 2.0**-8  # of a 1-6-9 number, with a neighbour to either side
MARGIN = 2.0
SUMS: tuple[PartialSums, ...] = ("float32", "dl16")


def within_rounding(meant: Tensor, done: Tensor, sums: bool) -> bool:
    """Whether an op's output is right but for how it rounds: each element to a bit, a sum to a bit of the largest one in its row."""
    if not meant.is_floating_point() or not bool(((done - meant).isfinite() | (done == meant)).all()):
        return bool(torch.equal(done, meant))
    scale = meant.abs().amax(-1, keepdim=True) if meant.dim() else meant.abs()
    allowed = scale * LAST_BIT if sums else meant.abs() * LAST_BIT + scale * LAST_BIT**3
    return bool(((done - meant).abs() <= allowed).all())


@dataclass
class Admissible:
    """The same plan as devices without faults would run it that sum or round in the other ways that the documents leave open."""

    subject: Subject
    programs: tuple[TiledProgram, ...] = field(default=())

    def allows(self, position: int, memory: Memory, meant: Tensor, done: Tensor) -> bool:
        """Whether the op's output is off by no more than a rounding, or than such a device's is: a long sum of large terms can lose more than a bit."""
        if within_rounding(meant, done, self.subject.op(position).is_reduction):
            return True
        if not meant.is_floating_point() or not bool((done.isfinite() == meant.isfinite()).all()):
            return False
        spread = torch.stack([(ran(self.subject, position, program, memory) - meant).abs().nan_to_num() for program in self._programs()])
        scale = meant[meant.isfinite()].abs().amax() if bool(meant.isfinite().any()) else torch.tensor(0.0)
        allowed = MARGIN * spread.amax(0).amax(-1, keepdim=True) if meant.dim() else MARGIN * spread.amax(0)
        return bool(((done - meant).abs().nan_to_num() <= allowed + scale * LAST_BIT**3).all())

    def _programs(self) -> tuple[TiledProgram, ...]:
        if not self.programs:
            rules = (self.subject.rules, NumberRules("nearest_even", self.subject.rules.host_rounding))
            self.programs = tuple(
                link_plan(
                    plan_of(self.subject.source), self.subject.profile, TiledOptions(checks=QUIET, padding=GARBAGE, partial_sums=sums), rule
                )
                for rule in rules
                for sums in SUMS
            )
        return self.programs


def ran(subject: Subject, position: int, program: TiledProgram, memory: Memory) -> Tensor:
    """The elements of the op's output when a program runs it on this memory, which stays as it is."""
    step = subject.linked(position, program)
    name = step.site.write.buffer
    stored = program.link.storage(name).name
    own = {**memory, stored: memory[stored].clone()}
    step.runner.run(own)
    return host_view(program.link, own, name)


def suspects(subject: Subject, allows: Callable[[int, Memory, Tensor, Tensor], bool]) -> Iterator[int]:
    """The ops that rounding does not explain, in the order of the graph, in the time of two runs however many ops there are."""
    subject.runs += 2
    for position, memory in subject.walk():
        meant, done = (ran(subject, position, program, memory) for program in (subject.expected, subject.device))
        if not torch.equal(meant, done) and not allows(position, memory, meant, done):
            yield position
