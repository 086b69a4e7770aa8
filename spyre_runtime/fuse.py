"""Bundles: which consecutive device ops become one program on the card, and the memory pool that intermediates share.

Ops are bundled in order, without reordering. A host step (fallback, literal, allocation) ends a bundle. A bundle addresses each tensor that lies
outside the pool through a memory segment of its own, and segments are few (public source: torch-spyre e1abccf, fusion.py, memory_planning.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .ir import STICK_BYTES, BufferRole, LoweredGraph, Op
from .profile import Profile
from .refusal import refuse
from .scratchpad import Placement


@dataclass(frozen=True, slots=True)
class PoolBlock:
    """An intermediate in the pool: offset and size in bytes, alive from op `first` to op `last` (positions in the op list)."""

    buffer: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Pool:
    blocks: tuple[PoolBlock, ...] = ()

    @property
    def bytes(self) -> int:
        return max((b.offset + b.bytes for b in self.blocks), default=0)

    def offset(self, buffer: str) -> int | None:
        return next((b.offset for b in self.blocks if b.buffer == buffer), None)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Ops that run as one program, and the tensors that it addresses by segment, in order of first use."""

    ops: tuple[str, ...]
    tensors: tuple[str, ...]


def _pool_lifetimes(graph: LoweredGraph, placement: Placement) -> dict[str, tuple[int, int]]:
    """First and last position at which each pooled buffer is touched: written and read on the device, not in LX, no input or output."""
    outside = {graph.storage(name).name for name in (*graph.inputs, *graph.outputs)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    written: set[str] = set()
    read: set[str] = set()
    for position, op in enumerate(graph.ops):
        if not op.on_device:
            touched = [n for n in (op.output, *op.host_reads) if n in graph.by_name]
        else:
            written.add(graph.storage(op.output).name)
            read.update(graph.storage(r.buffer).name for r in op.reads)
            touched = [op.output, *(r.buffer for r in op.reads)]
        for name in (graph.storage(t).name for t in touched):
            first.setdefault(name, position)
            last[name] = position
    return {
        name: (first[name], last[name])
        for name in first
        if name in written
        and name in read
        and name not in outside
        and placement.address(name) is None
        and graph.buffer(name).layout is not None
    }


def buffer_bytes(graph: LoweredGraph, name: str) -> int:
    """Device bytes of a buffer, padding included."""
    return math.prod(graph.layout(name).device_size[:-1]) * STICK_BYTES


def plan_pool(graph: LoweredGraph, placement: Placement, profile: Profile) -> Pool:
    """First fit over freed blocks, in order of time. Raises Refusal when more is alive at once than a segment holds."""
    blocks: list[PoolBlock] = []
    free: list[tuple[int, int]] = []
    live: list[PoolBlock] = []
    end = 0
    for name, (first, last) in sorted(_pool_lifetimes(graph, placement).items(), key=lambda item: item[1][0]):
        free += [(b.offset, b.bytes) for b in live if b.last < first]
        live = [b for b in live if b.last >= first]
        size = buffer_bytes(graph, name)
        slot = next((i for i, (_, room) in enumerate(free) if room >= size), None)
        if slot is None:
            offset, end = end, end + size
        else:
            offset, room = free.pop(slot)
            if room > size:
                free.append((offset + size, room - size))
        live.append(PoolBlock(name, offset, size, first, last))
        blocks.append(live[-1])
        held = sum(b.bytes for b in live)
        if held > profile.limits.segment_bytes:
            raise refuse(
                "RuntimeError@_inductor/memory_planning.py:allocate",
                f"intermediates hold {held} bytes at once, and a memory segment has {profile.limits.segment_bytes}",
                stage="fuse",
            )
    return Pool(tuple(blocks))


def _external(graph: LoweredGraph, op: Op, placement: Placement, pool: Pool) -> list[str]:
    names = dict.fromkeys([*(r.buffer for r in op.reads), op.output])
    return [
        name
        for name in names
        if graph.buffer(name).role is not BufferRole.FALLBACK
        and placement.address(graph.storage(name).name) is None
        and pool.offset(graph.storage(name).name) is None
    ]


def bundle(graph: LoweredGraph, placement: Placement, pool: Pool, profile: Profile) -> tuple[Bundle, ...]:
    """Cut the ops into bundles. One segment is the pool's, when there is one, and one is kept free."""
    segments = profile.limits.bundle_tensors
    most = math.inf if segments is None else segments - (2 if pool.bytes else 1)
    bundles: list[Bundle] = []
    ops: list[str] = []
    tensors: dict[str, None] = {}

    def close() -> None:
        if ops:
            bundles.append(Bundle(tuple(ops), tuple(tensors)))
        ops.clear()
        tensors.clear()

    for op in graph.ops:
        if not op.on_device:
            close()
            continue
        needed = _external(graph, op, placement, pool)
        if ops and len({**tensors, **dict.fromkeys(needed)}) > most:
            close()
        ops.append(op.name)
        tensors.update(dict.fromkeys(needed))
    close()
    return tuple(bundles)
