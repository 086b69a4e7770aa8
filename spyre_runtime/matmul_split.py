"""The public compiler's cost model for dividing a matmul, and the search over it.

An estimate to *rank* splits, with the constants that its authors fitted (torch-spyre e1abccf, _inductor/work_division.py:934-1010). It is kept
apart from the calibrated model of `cost.py`, which predicts time.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

PE_ROWS = 8
FULL_PASSES = 8  # passes of PE_ROWS rows per core that keep the array busy
PEAK_MACS_PER_US = 98.304e12 / 2 / 32 / 1e6  # one core, DL16
MEMORY_GB_PER_S = 204.8
ELEMENT_BYTES = 2
PARTIAL_SUM_US = 1.4e-4  # per output element and hop
BROADCAST_COHORT = 8  # cores that share one broadcast before it contends
BATCH_EXPONENT = 1.4
SHORT_TILE_US = 50.0  # per halving of the passes below FULL_PASSES


@dataclass(frozen=True, slots=True)
class MatmulSize:
    """Loops of a matmul: rows in elements, N and K in sticks of `stick` elements."""

    batch: tuple[int, ...]
    m: int
    n_sticks: int
    k_sticks: int
    stick: int


@dataclass(frozen=True, slots=True)
class MatmulSplit:
    batch: tuple[int, ...]
    m: int
    n: int
    k: int


def estimate_us(size: MatmulSize, split: MatmulSplit) -> float:
    """Estimated microseconds: arithmetic on short tiles, broadcast reads, partial sums, all dearer when the batch is split."""
    b, m, n, k = math.prod(size.batch), size.m, size.n_sticks * size.stick, size.k_sticks * size.stick
    b_cores = math.prod(split.batch)
    cores = b_cores * split.m * split.n * split.k
    passes = max(1.0, m // split.m / PE_ROWS)
    efficiency = min(1.0, (passes / FULL_PASSES) ** 0.5)
    arithmetic = (b * m * n * k / cores) / (PEAK_MACS_PER_US * efficiency)
    traffic = (b * m * k + b * k * n + b * m * n) * ELEMENT_BYTES
    memory = traffic / (MEMORY_GB_PER_S * 1000) * max(1.0, max(split.m, split.n) / BROADCAST_COHORT)
    partial_sums = max(0, split.k - 1) * (b * m * n) * PARTIAL_SUM_US
    short_tile = 0.0 if passes >= FULL_PASSES else math.log2(FULL_PASSES / passes) * SHORT_TILE_US
    return float((arithmetic + memory + partial_sums + short_tile) * b_cores**BATCH_EXPONENT)


def _divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def best_split(size: MatmulSize, cores: int) -> MatmulSplit | None:
    """The cheapest split on at most `cores` cores; the first in ascending order of (batch…, m, n, k) among equals."""
    axes = [_divisors(axis, cores) for axis in (*size.batch, size.m, size.n_sticks, size.k_sticks)]
    best: MatmulSplit | None = None
    least = math.inf
    for *batch, m, n, k in itertools.product(*axes):
        if math.prod(batch) * m * n * k > cores:
            continue
        split = MatmulSplit(tuple(batch), m, n, k)
        cost = estimate_us(size, split)
        if cost < least:
            best, least = split, cost
    return best
