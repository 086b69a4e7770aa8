"""What a plan does with memory, cores and numbers, to be looked at: LX over time, which core has which part of a tensor, what is unknown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .findings import Findings
from .ir import STICK_BYTES
from .link_tiles import Link, link_op
from .plan import Plan, PlannedOp
from .profile import NumericChoice, Profile
from .tile_checks import LxSlot, Site, Walk
from .tiles import touched

NOBODY, SEVERAL = -1, -2  # in a picture: no core touches the place; several do
MOST_CELLS = 40  # of a picture, along each side
MOST_STICKS = 2**21  # a tensor with more gets no picture


def lx_slots(plan: Plan) -> list[LxSlot]:
    """Buffers that the plan keeps in LX: their addresses, bytes on each core, and the steps that they live from and to."""
    graph = plan.graph
    cores = {graph.storage(op.output).name: op.cores for op in plan.ops}
    uses: dict[str, list[int]] = {}
    for position, op in enumerate(graph.ops):
        for name in (*(r.buffer for r in op.reads), op.output):
            if name in graph.by_name:
                uses.setdefault(graph.storage(name).name, []).append(position)
    slots = []
    for buffer in plan.buffers:
        if buffer.lx_address is None or buffer.alias is not None or buffer.layout is None:
            continue
        size = math.prod(buffer.layout.device_size[:-1]) * STICK_BYTES // cores[buffer.name]
        slots.append(LxSlot(buffer.name, buffer.lx_address, size, uses[buffer.name][0], uses[buffer.name][-1]))
    return slots


@dataclass(frozen=True)
class Ownership:
    """Which core touches which sticks of a tensor in one op.

    cells: rows of core ids (or NOBODY, SEVERAL), the device dimension `down` from top to bottom, the others across; a large tensor is sampled.
    writes: whether the op writes the tensor.
    """

    buffer: str
    op: str
    kernel: str
    writes: bool
    cores: int
    device_size: tuple[int, ...]
    down: int
    cells: tuple[tuple[int, ...], ...]


def ownerships(plan: Plan, profile: Profile) -> Iterator[Ownership]:
    """For each tensor the op that writes it, or for an input or a weight the first op that reads it; where data selects rows, no plan says."""
    link = Link(plan, plan.graph, profile, None, "float32", Findings(), buffers=plan.by_name)
    seen: set[str] = set()
    for op in plan.ops:
        site = link_op(op, link).site
        for walk in (*site.reads, site.write):
            sticks = walk.where.elements // walk.stick
            by_data = any(symbol not in site.ownership.by_symbol for symbol in walk.where.tables)
            if walk.storage in seen or by_data or sticks > MOST_STICKS:
                continue
            seen.add(walk.storage)
            yield _picture(op, site, walk, sticks)


def _picture(op: PlannedOp, site: Site, walk: Walk, sticks: int) -> Ownership:
    writes = walk is site.write
    pairs = touched(walk.where, walk.stick, site.ownership, site.shared if writes else ())
    inside = pairs.sticks < sticks
    owner = torch.full((sticks,), NOBODY)
    count = torch.bincount(pairs.sticks[inside], minlength=sticks)
    owner[pairs.sticks[inside]] = pairs.cores[inside]
    owner[count > 1] = SEVERAL
    sizes = walk.where.device_size[:-1]
    down = max(range(len(sizes)), key=lambda i: sizes[i])
    grid = owner.view(sizes).movedim(down, 0).reshape(sizes[down], -1)
    cells = tuple(tuple(row) for row in _sampled(_sampled(grid, 0), 1).tolist())
    return Ownership(walk.storage, op.name, op.kernel, writes, site.ownership.cores, walk.where.device_size, down, cells)


def _sampled(grid: Tensor, dim: int) -> Tensor:
    size = grid.shape[dim]
    if size <= MOST_CELLS:
        return grid
    return grid.index_select(dim, torch.arange(MOST_CELLS) * size // MOST_CELLS)


@dataclass(frozen=True)
class Leaning:
    """An unknown of the release that results lean on, and how many ops of the plan do."""

    choice: NumericChoice
    ops: int


def leanings(plan: Plan, profile: Profile) -> tuple[Leaning, ...]:
    """Choices of the profile that nobody has stated and that bear on this plan's results, in the profile's order."""
    found = []
    for choice in profile.numeric.values():
        ops = sum(choice.concerns(op.kernel, _shared(op)) for op in plan.ops)
        if not choice.known and (ops or choice.transfer):
            found.append(Leaning(choice, ops))
    return tuple(found)


def _shared(op: PlannedOp) -> bool:
    """Whether cores share the op's reduction, so that partial results travel."""
    kept = {str(s) for s in op.write.symbols}
    return op.is_reduction and any(loop.cores > 1 for loop in op.planned if loop.name not in kept)
