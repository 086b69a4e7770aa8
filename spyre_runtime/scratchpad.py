"""Scratchpad (LX) placement: which intermediate buffers stay in each core's own memory between two ops, and at which address.

A buffer may stay when the op that makes it is on the planner's list, every op that touches it slices it over the cores in the same way,
nothing on the host touches it and it is no output. What may stay is placed greedily in order of time
(public description: torch-spyre docs, scratchpad_planning.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sympy

from .divide import Division
from .ir import STICK_BYTES, Access, DeviceLayout, LoweredGraph, Op, OpKind
from .profile import Profile

# ATen ops whose results the planner of e1abccf pins, and those of them that may overwrite an operand in place.
PINNED = frozenset({"max", "amax", "sum", "exp", "sub", "mul", "mean", "add", "rsqrt"})
IN_PLACE = frozenset({"exp", "sub", "mul", "add", "rsqrt"})


@dataclass(frozen=True, slots=True)
class CoreView:
    """How an op slices a buffer over the cores, in terms of the buffer's device dimensions only.

    slices: (device dimension, number of slices). owners: (device dimension, how many consecutive cores hold the same slice, number of slices
    before it repeats). Two ops that agree on both leave each core's part where the other looks for it.
    """

    slices: tuple[tuple[int, int], ...] = ()
    owners: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Resident:
    """A buffer in LX: address and bytes on each core, from the op that writes it to the last that reads it (positions in the op list)."""

    buffer: str
    address: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Placement:
    residents: tuple[Resident, ...] = ()

    def address(self, buffer: str) -> int | None:
        return next((r.address for r in self.residents if r.buffer == buffer), None)

    @property
    def peak(self) -> int:
        """Highest byte in use on a core, plus one."""
        return max((r.address + r.bytes for r in self.residents), default=0)

    def __str__(self) -> str:
        return "\n".join(f"{r.buffer}: LX {r.address}..{r.address + r.bytes} on each core, ops {r.first}..{r.last}" for r in self.residents)


def _dimension_of_stride(layout: DeviceLayout) -> dict[int, int]:
    found: dict[int, int] = {}
    for dimension, (size, stride) in enumerate(zip(layout.device_size, layout.stride_map, strict=True)):
        if stride > 0 and (stride not in found or size != 1):
            found[stride] = dimension
    return found


def _owners(op: Op, splits: Mapping[sympy.Symbol, int]) -> dict[sympy.Symbol, tuple[int, int]]:
    """For each loop: cores that share a slice before the next begins, and the number of slices. Cores count up over the loops in order,
    except that a matmul with a split reduction lets that one vary fastest, so that partial sums travel one hop."""
    order = list(op.iteration_space)
    if op.kind is OpKind.MATMUL and len(order) >= 3 and splits.get(order[-1], 1) > 1:
        order = [order[-1], *order[:-1]]
    owners = {}
    inner = 1
    for symbol in order:
        count = splits.get(symbol, 1)
        owners[symbol] = (inner, count)
        inner *= count
    return owners


def core_view(op: Op, access: Access, splits: Mapping[sympy.Symbol, int], layout: DeviceLayout) -> CoreView:
    """The slicing of `access`; the empty view when nothing is split, or when a split falls on no single device dimension."""
    by_stride: dict[int, tuple[int, sympy.Symbol]] = {}
    for symbol, count in splits.items():
        step = int(access.index.coeff(symbol))
        if count > 1 and step != 0:
            by_stride[step] = (count, symbol)
    dimension_of = _dimension_of_stride(layout)
    stick_stride = layout.stride_map[-1]
    tile = dimension_of.get(stick_stride * layout.stick) if stick_stride > 0 else None
    slices: dict[int, int] = {}
    place: dict[sympy.Symbol, int] = {}
    for step, (count, symbol) in sorted(by_stride.items()):
        dimension = tile if step == stick_stride else dimension_of.get(step)
        parts = count
        if dimension is None and tile is not None and step % layout.stride_map[tile] == 0:
            sticks_per_step = step // layout.stride_map[tile]  # a view that walks the tile dimension several sticks at a time
            if count * sticks_per_step == layout.device_size[tile]:
                dimension, parts = tile, count * sticks_per_step
        if dimension is None or dimension in slices or layout.device_size[dimension] % parts != 0:
            return CoreView()
        slices[dimension] = parts
        place[symbol] = dimension
    owners = _owners(op, splits)
    return CoreView(tuple(sorted(slices.items())), tuple(sorted((place[s], *owners[s]) for s in place)))


def _touches(op: Op) -> list[tuple[Access, bool]]:
    """Accesses of a device op, each once, and whether it is the write."""
    if op.write is None:
        return []
    return [(access, False) for access in dict.fromkeys(op.reads)] + [(op.write, True)]


def _disagreeing(graph: LoweredGraph, division: Division) -> set[str]:
    """Buffers that not every op slices alike, or that a split reduction leaves as partial sums."""
    views: dict[str, CoreView] = {}
    wrong: set[str] = set()
    touched: dict[str, int] = {}
    for op in graph.ops:
        for name in dict.fromkeys(op.host_reads):
            touched[name] = touched.get(name, 0) + 1
            if views.setdefault(name, CoreView()) != CoreView():
                wrong.add(name)
        splits = division.splits.get(op.name, {})
        partial = any(splits[s] > 1 for s in op.reduction_symbols)
        for access, is_write in _touches(op):
            name = access.buffer
            touched[name] = touched.get(name, 0) + 1
            if graph.buffer(name).layout is None and graph.buffer(name).alias is None:
                continue
            view = core_view(op, access, splits, graph.layout(name))
            if views.setdefault(name, view) != view or (is_write and partial):
                wrong.add(name)
    return {name for name in wrong if touched[name] > 1}


def aten_name(op: Op) -> str:
    """The ATen packet whose result an op makes: "add" for aten.add.Tensor; empty when it makes none."""
    parts = op.result_of.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A buffer that may stay: bytes per core, lifetime, and operands that it may take the place of."""

    buffer: str
    bytes: int
    first: int
    last: int
    parents: tuple[str, ...]


def _uses(graph: LoweredGraph) -> dict[str, list[int]]:
    """Positions in the op list at which each buffer is touched, once for each different access."""
    uses: dict[str, list[int]] = {}
    for position, op in enumerate(graph.ops):
        names = [access.buffer for access, _ in _touches(op)] or [*op.host_reads, op.output]
        for name in names:
            uses.setdefault(name, []).append(position)
    return uses


def _candidates(graph: LoweredGraph, division: Division) -> list[_Candidate]:
    wrong = _disagreeing(graph, division)
    eligible = [
        op
        for op in graph.device_ops()
        if aten_name(op) in PINNED and graph.buffer(op.output).alias is None and op.output not in wrong and op.output not in graph.outputs
    ]
    names = {op.output for op in eligible}
    cores = _core_counts(eligible, division)
    size = {op.output: math.prod(graph.layout(op.output).device_size[:-1]) * STICK_BYTES // cores[op.output] for op in eligible}
    uses = _uses(graph)
    host = {position for position, op in enumerate(graph.ops) if not op.on_device}
    found = []
    for op in eligible:
        name, at = op.output, uses[op.output]
        if len(at) <= 1 or host.intersection(at):
            continue
        parents = tuple(
            r.buffer
            for r in dict.fromkeys(op.reads)
            if aten_name(op) in IN_PLACE
            and r.buffer in names
            and size[r.buffer] == size[name]
            and graph.layout(r.buffer) == graph.layout(name)
            and uses[r.buffer][-1] == at[0]
        )
        found.append(_Candidate(name, size[name], at[0], at[-1], parents))
    return found


def _core_counts(ops: Iterable[Op], division: Division) -> dict[str, int]:
    """Cores over which each buffer is spread: the most that any of these ops uses on it."""
    counts: dict[str, int] = {}
    for op in ops:
        for access, _ in _touches(op):
            counts[access.buffer] = max(counts.get(access.buffer, 1), division.cores(op.name))
    return counts


def _align(address: int) -> int:
    return -(-address // STICK_BYTES) * STICK_BYTES


def _free_address(live: Sequence[tuple[int, int]], size: int, limit: int) -> int | None:
    """Below everything that is live, else above it, else in the first gap; `live` holds (address, bytes)."""
    if size > limit:
        return None
    if not live or min(address for address, _ in live) >= size:
        return 0
    top = _align(max(address + taken for address, taken in live))
    if top + size <= limit:
        return top
    ordered = sorted(live)
    for (address, taken), (following, _) in itertools.pairwise(ordered):
        start = _align(address + taken)
        if following - start >= size:
            return start
    return None


def _solve(candidates: Sequence[_Candidate], limit: int) -> list[Resident]:
    """Greedy in time: what is dead makes room first; then each newcomer takes a dying operand's place, or the lowest room there is."""
    live: dict[str, Resident] = {}
    placed: list[Resident] = []
    for time in sorted({t for c in candidates for t in (c.first, c.last + 1)}):
        live = {name: r for name, r in live.items() if r.last + 1 != time}
        for candidate in (c for c in candidates if c.first == time):
            parent = next((live[p] for p in candidate.parents if p in live and candidate.bytes <= live[p].bytes), None)
            if parent is not None:
                address: int | None = parent.address
                del live[parent.buffer]
            else:
                address = _free_address([(r.address, r.bytes) for r in live.values()], candidate.bytes, limit)
            if address is not None:
                resident = Resident(candidate.buffer, address, candidate.bytes, candidate.first, candidate.last)
                live[candidate.buffer] = resident
                placed.append(resident)
    return placed


def place(graph: LoweredGraph, division: Division, profile: Profile) -> Placement:
    """Choose the buffers that stay in LX and their addresses, in bytes from the start of each core's planned share."""
    return Placement(tuple(_solve(_candidates(graph, division), profile.limits.lx_usable)))
