"""What a tiled run checks, and what it does differently on request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from .findings import Action, Check

PartialSums = Literal["float32", "dl16"]


class Padding(StrEnum):
    """What lanes hold that nobody wrote. LARGE is finite, so that a difference from NAN shows a leak whatever the op does with NaN."""

    ZERO = "zero"
    NAN = "nan"
    LARGE = "large"


@dataclass(frozen=True)
class TiledOptions:
    """checks: (check name, action) pairs (findings.py); a check that is not named raises.

    padding: what lanes hold that nobody wrote. leaks: run every op on two paddings side by side, and report elements that differ.
    shuffle: seed of a run in which the cores of each op take turns in random order and some of their stores arrive late; None runs them at once.
    partial_sums: whether partial results travel between cores in float32 or rounded; None takes the profile's (which one is right is unknown).
    faults: ids of device faults to inject (faults.py, and `faults` in the profile).
    """

    checks: tuple[tuple[Check, Action], ...] = ()
    padding: Padding = Padding.ZERO
    leaks: bool = False
    shuffle: int | None = None
    partial_sums: PartialSums | None = None
    faults: frozenset[str] = frozenset()
