"""Which core owns which part of an op's loops.

A loop of n elements shared by c cores is cut into c equal slices, in whole sticks where some operand has the loop on its stick (the extent is
padded to whole sticks first). Core ids count up over the loops in order, the first loop fastest, except that a matmul whose K is split
lets K vary fastest, so that partial sums travel one hop of the ring (public source: torch-spyre e1abccf, codegen/superdsc.py, the
core-to-slice mappings).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from sympy import Symbol
from torch import Tensor

from .addressing import Addresses


@dataclass(frozen=True, slots=True)
class Share:
    """A loop over cores: `extent` elements in slices of `width`, `cores` of them; the core id advances by `weight` a slice."""

    symbol: Symbol
    extent: int
    cores: int
    width: int
    weight: int

    @property
    def owners(self) -> Tensor:
        """int64 [extent]: this loop's part of the id of the core that owns each element."""
        return torch.arange(self.extent).div(self.width, rounding_mode="floor") * self.weight


@dataclass(frozen=True)
class Ownership:
    """The shares of all loops of an op, in loop order."""

    shares: tuple[Share, ...]

    @cached_property
    def by_symbol(self) -> Mapping[Symbol, Share]:
        return {s.symbol: s for s in self.shares}

    @property
    def cores(self) -> int:
        count = 1
        for share in self.shares:
            count *= share.cores
        return count


def own(loops: Sequence[tuple[Symbol, int, int]], granules: Mapping[Symbol, int], fastest: Symbol | None = None) -> Ownership:
    """loops: (symbol, extent, cores), in order. granules: elements that must stay together, by symbol (a stick). fastest: loop whose
    slices lie on neighbouring cores, ahead of the first.
    """
    weights: dict[Symbol, int] = {}
    weight = 1
    for symbol, _, cores in sorted(loops, key=lambda loop: loop[0] != fastest):
        weights[symbol] = weight
        weight *= cores
    shares = []
    for symbol, extent, cores in loops:
        granule = granules.get(symbol, 1)
        pieces = math.ceil(extent / granule)
        width = math.ceil(pieces / cores) * granule
        shares.append(Share(symbol, extent, cores, width, weights[symbol]))
    return Ownership(tuple(shares))


def lane_granules(walks: Iterable[tuple[Addresses, int]]) -> dict[Symbol, int]:
    """Elements per stick of each symbol that some operand (its addresses, its elements per stick) has on its stick; the largest wins."""
    found: dict[Symbol, int] = {}
    for where, stick in walks:
        for symbol in where.coordinates[-1]:
            found[symbol] = max(found.get(symbol, 1), stick)
    return found


@dataclass(frozen=True, eq=False)
class Touched:
    """Pairs of a core and a stick that it touches, each once: int64 [pairs] both."""

    cores: Tensor
    sticks: Tensor

    @property
    def keys(self) -> Tensor:
        """One number a pair, unique."""
        return self.sticks * _CORE_RADIX + self.cores

    def cores_at(self, stick: int) -> tuple[int, ...]:
        return tuple(sorted(set(self.cores[self.sticks == stick].tolist())))


_CORE_RADIX = 1 << 16


def touched(where: Addresses, stick: int, ownership: Ownership, ignore: Iterable[Symbol] = ()) -> Touched:
    """Which core touches which stick of a buffer. `ignore`: loops whose owners do not count (a reduction that cores share)."""
    skipped = set(ignore)
    keys = torch.tensor([(where.base // stick) * _CORE_RADIX])
    for share in ownership.shares:
        if share.symbol in skipped and share.symbol not in where.tables:
            continue
        table = torch.zeros(share.extent, dtype=torch.int64)
        for coordinates, step in zip(where.coordinates[:-1], _stick_strides(where, stick), strict=True):
            if share.symbol in coordinates:
                table = table + coordinates[share.symbol][: share.extent] * step
        owners = torch.zeros_like(table) if share.symbol in skipped else share.owners
        keys = (keys[:, None] + torch.unique(table * _CORE_RADIX + owners)).reshape(-1)
    keys = torch.unique(keys)
    return Touched(keys % _CORE_RADIX, keys.div(_CORE_RADIX, rounding_mode="floor"))


def _stick_strides(where: Addresses, stick: int) -> list[int]:
    strides = [1]
    for size in where.device_size[-2:0:-1]:
        strides.append(strides[-1] * size)
    assert where.device_size[-1] == stick
    return strides[::-1]


def span_elements(where: Addresses, ownership: Ownership) -> tuple[int, int]:
    """(elements from the first to the last that one core touches, the core that spans most)."""
    spans = []
    for share in ownership.shares:
        table = where.tables.get(share.symbol)
        if table is None:
            continue
        table = table[: share.extent]
        slices = [table[start : start + share.width] for start in range(0, share.extent, share.width)]
        spans.append([(int(part.max() - part.min()), position * share.weight) for position, part in enumerate(slices)])
    widest = [max(options) for options in spans]
    return 1 + sum(span for span, _ in widest), sum(core for _, core in widest)


def slices_of(share: Share) -> list[tuple[int, int]]:
    """(start, stop) of each core's slice of a loop; the last ones may be short or empty."""
    bounds = [min(i * share.width, share.extent) for i in range(share.cores + 1)]
    return list(itertools.pairwise(bounds))
