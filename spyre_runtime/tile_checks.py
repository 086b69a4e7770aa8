"""Checks of a planned op before it runs: where it reads and writes is known from the plan, all but what index data selects.

Each function reports to `Findings`; none changes what the op does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from sympy import Symbol
from torch import Tensor

from .addressing import Addresses
from .findings import Check, Finding, Findings, Place
from .ir import STICK_BYTES
from .movers import Loops, Mover
from .profile import Limits
from .tiles import Ownership, Touched, span_elements, touched


@dataclass(frozen=True)
class Walk:
    """One operand of an op: name, storage that holds it, and its addresses."""

    buffer: str
    storage: str
    where: Addresses

    @property
    def stick(self) -> int:
        return self.where.device_size[-1]


@dataclass(frozen=True)
class Site:
    """A device op as the checks see it. shared: reduction loops, whose cores pass partial results on instead of storing them.

    lanes: neighbouring lanes that it stores at each place (exx2 leaves two moments in a stick).
    """

    place: Place
    loops: Loops
    ownership: Ownership
    reads: tuple[Walk, ...]
    write: Walk
    shared: frozenset[Symbol] = frozenset()
    lanes: int = 1


@dataclass
class Marks:
    """Which elements of each storage have been written so far. A storage is absent (nothing), whole (None), or has its lanes marked."""

    lanes: dict[str, Tensor | None] = field(default_factory=dict)

    def whole(self, storage: str) -> None:
        self.lanes[storage] = None


def check_bounds(site: Site, findings: Findings) -> None:
    """Every coordinate of every operand lies inside its dimension."""
    for walk in (*site.reads, site.write):
        where = walk.where
        for dim, (own, base, size) in enumerate(zip(where.coordinates, where.bases, where.device_size, strict=True)):
            top = base + sum(int(t.max()) for t in own.values())
            low = base + sum(int(t.min()) for t in own.values())
            if low >= 0 and top < size:
                continue
            cores = _cores_beyond(own, base, size, site.ownership)
            what = "within the stick" if dim == len(where.device_size) - 1 else f"in device dimension {dim}"
            stick = (where.base + sum(int(t.max()) for t in where.tables.values())) // walk.stick
            detail = f"place {low if low < 0 else top} {what}, which has {size}"
            findings.report(Finding(Check.OUT_OF_BOUNDS, site.place, detail, walk.buffer, cores, stick))


def _cores_beyond(own: Mapping[Symbol, Tensor], base: int, size: int, ownership: Ownership) -> tuple[int, ...]:
    """Cores with an element outside 0..size."""
    cores = torch.zeros(1, dtype=torch.int64)
    high = torch.full((1,), base)
    low = torch.full((1,), base)
    for share in ownership.shares:
        table = own.get(share.symbol, torch.zeros(share.extent, dtype=torch.int64))[: share.extent]
        parts = table.split(share.width)
        owners = torch.arange(len(parts)) * share.weight
        cores = (cores[:, None] + owners).reshape(-1)
        high = (high[:, None] + torch.stack([p.max() for p in parts])).reshape(-1)
        low = (low[:, None] + torch.stack([p.min() for p in parts])).reshape(-1)
    return tuple(sorted(set(cores[(high >= size) | (low < 0)].tolist())))


def check_initialised(site: Site, marks: Marks, findings: Findings) -> None:
    """Every element read has been written before."""
    for walk in site.reads:
        if walk.storage in marks.lanes and marks.lanes[walk.storage] is None:
            continue
        lanes = marks.lanes.get(walk.storage)
        table = Mover(walk.where, site.loops).table
        unwritten = table if lanes is None else table[~lanes[table]]
        if unwritten.numel() == 0:
            continue
        stick = int(unwritten.min()) // walk.stick
        cores = touched(walk.where, walk.stick, site.ownership).cores_at(stick)
        findings.report(Finding(Check.UNINITIALISED_READ, site.place, "nothing has been written there", walk.buffer, cores, stick))


def mark_written(site: Site, marks: Marks, elements: int) -> None:
    """Record the op's stores. elements: how many the storage holds (without padding)."""
    write = site.write
    if write.storage in marks.lanes and marks.lanes[write.storage] is None:
        return
    mover = Mover(write.where, site.loops)
    count = 1
    for n in mover.shape:
        count *= n
    lanes = marks.lanes.get(write.storage)
    if count >= elements:
        marks.lanes[write.storage] = None
        return
    if lanes is None:
        lanes = torch.zeros(write.where.elements, dtype=torch.bool)
        marks.lanes[write.storage] = lanes
    mover.fill(lanes, True)
    if int(lanes.sum()) >= elements:
        marks.lanes[write.storage] = None


def check_writers(site: Site, findings: Findings) -> None:
    """No stick is stored by two cores."""
    pairs = touched(site.write.where, site.write.stick, site.ownership, site.shared)
    sticks, counts = torch.unique(pairs.sticks, return_counts=True)
    if bool((counts > 1).any()):
        stick = int(sticks[counts > 1][0])
        cores = pairs.cores_at(stick)
        findings.report(
            Finding(Check.TWO_WRITERS, site.place, f"{len(cores)} cores store it, and the last one wins", site.write.buffer, cores, stick)
        )


def check_alignment(site: Site, findings: Findings) -> None:
    """Stores start at the first lane of a stick, on every core."""
    where, stick = site.write.where, site.write.stick
    lanes = where.coordinates[-1]
    if where.bases[-1] % stick:
        cores = tuple(range(site.ownership.cores))
        first = where.base // stick
        findings.report(
            Finding(
                Check.MISALIGNED_STORE,
                site.place,
                f"the store starts at lane {where.bases[-1]} of {stick}",
                site.write.buffer,
                cores,
                first,
            )
        )
    for symbol, table in lanes.items():
        share = site.ownership.by_symbol.get(symbol)
        if share is None or share.cores == 1:
            continue
        starts = table[:: share.width]
        bad = starts.nonzero().reshape(-1)
        if bad.numel():
            slice_number = int(bad[0])
            address = where.base + int(where.tables[symbol][slice_number * share.width])
            detail = f"slices of {share.width} elements start at lane {int(starts[slice_number])} of {stick}"
            cores = tuple(int(i) * share.weight for i in bad)
            findings.report(Finding(Check.MISALIGNED_STORE, site.place, detail, site.write.buffer, cores, address // stick))


def check_spans(site: Site, limits: Limits, findings: Findings) -> None:
    """No core addresses more of a tensor than its contiguous span."""
    for walk in (*site.reads, site.write):
        elements, core = span_elements(walk.where, site.ownership)
        size = elements * STICK_BYTES // walk.stick
        if size > limits.span_bytes:
            detail = f"one core addresses {size / 2**20:.1f} MiB of it, more than {limits.span_bytes / 2**20:.0f} MiB"
            findings.report(Finding(Check.SPAN_OVERFLOW, site.place, detail, walk.buffer, (core,)))


def check_race(site: Site, findings: Findings) -> None:
    """A stick that one core stores is read by no other core of the same op."""
    written: Touched | None = None
    for walk in site.reads:
        if walk.storage != site.write.storage:
            continue
        written = written or touched(site.write.where, site.write.stick, site.ownership, site.shared)
        read = touched(walk.where, walk.stick, site.ownership)
        foreign = read.keys[torch.isin(read.sticks, written.sticks) & ~torch.isin(read.keys, written.keys)]
        if foreign.numel():
            stick = int(read.sticks[torch.isin(read.keys, foreign)][0])
            cores = tuple(sorted({*read.cores_at(stick), *written.cores_at(stick)}))
            findings.report(
                Finding(Check.READ_WRITE_RACE, site.place, "some of these cores read it while another stores it", walk.buffer, cores, stick)
            )


def check_index(site: Site, symbol: Symbol, data: Tensor, size: int, findings: Findings) -> Tensor:
    """Index data lies in 0..size-1; returns it, clamped when the check only warns. Negative indices count from the end, as in torch."""
    data = torch.where(data < 0, data + size, data)
    wrong = (data < 0) | (data >= size)
    if not bool(wrong.any()):
        return data
    place = wrong.nonzero()[0].tolist()
    detail = f"index data {int(data[tuple(place)])} at {place} selects among {size}"
    loops = [s for (s, _), n in zip(site.loops, data.shape, strict=True) if n > 1]
    core = sum(int(site.ownership.by_symbol[s].owners[i]) for s, i in zip([s for s, _ in site.loops], place, strict=True) if s in loops)
    findings.report(Finding(Check.OUT_OF_BOUNDS, site.place, detail, site.reads[0].buffer, (core,)))
    return data.clamp(0, size - 1)


@dataclass(frozen=True, slots=True)
class LxSlot:
    """A storage that stays in LX: address and bytes on each core, alive from op `first` to op `last` (positions in the plan)."""

    storage: str
    address: int
    bytes: int
    first: int
    last: int


def check_lx(slots: Sequence[LxSlot], places: Mapping[int, Place], limits: Limits, findings: Findings) -> None:
    """What lives in LX at one time fits the planned share and does not overlap. places: position → op."""
    for slot in slots:
        place = places.get(slot.first, Place(slot.storage))
        end = slot.address + slot.bytes
        if end > limits.lx_usable:
            detail = f"it ends at byte {end} of LX, and the planned share is {limits.lx_usable}"
            findings.report(Finding(Check.LX_OVERFLOW, place, detail, slot.storage, stick=slot.address // STICK_BYTES))
    for earlier, later in _alive_together(slots):
        if earlier.address < later.address + later.bytes and later.address < earlier.address + earlier.bytes:
            stick = max(earlier.address, later.address) // STICK_BYTES
            detail = f"{earlier.storage} still lives there, until op {earlier.last}"
            findings.report(Finding(Check.LX_OVERLAP, places.get(later.first, Place(later.storage)), detail, later.storage, stick=stick))


def _alive_together(slots: Sequence[LxSlot]) -> Iterable[tuple[LxSlot, LxSlot]]:
    """Pairs that live at the same time; a buffer may take the place of one that dies in the same op."""
    ordered = sorted(slots, key=lambda s: (s.first, s.last))
    for i, earlier in enumerate(ordered):
        for later in ordered[i + 1 :]:
            if later.first < earlier.last:
                yield earlier, later


@dataclass
class LxOwners:
    """Which core's LX holds which stick of each buffer that stays there."""

    holders: dict[str, Touched] = field(default_factory=dict)

    def check(self, site: Site, resident: frozenset[str], findings: Findings) -> None:
        """Record a store to LX; a read must find each of its sticks in the reader's own LX."""
        for walk in site.reads:
            held = self.holders.get(walk.storage)
            if walk.storage not in resident or held is None:
                continue
            read = touched(walk.where, walk.stick, site.ownership)
            missing = ~torch.isin(read.keys, held.keys)
            if bool(missing.any()):
                stick = int(read.sticks[missing][0])
                cores = tuple(sorted(set(read.cores[missing].tolist())))
                held_by = held.cores_at(stick)
                detail = f"the stick is in the LX of core {held_by[0] if held_by else 'none'}, not in the reader's"
                findings.report(Finding(Check.LX_OWNERSHIP, site.place, detail, walk.buffer, cores, stick))
        if site.write.storage in resident:
            self.holders[site.write.storage] = touched(site.write.where, site.write.stick, site.ownership, site.shared)
