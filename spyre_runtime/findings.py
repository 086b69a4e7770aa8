"""What the tiled executor finds wrong with a program while it runs it: named, located, and raised unless told otherwise.

A finding says what happened, where (op, graph node, user's line, cores, buffer, stick) and what to do about it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Check(StrEnum):
    """The checks by name. Their value is what settings and reports call them."""

    OUT_OF_BOUNDS = "out-of-bounds"
    UNINITIALISED_READ = "uninitialised-read"
    TWO_WRITERS = "two-writers"
    READ_WRITE_RACE = "read-write-race"
    MISALIGNED_STORE = "misaligned-store"
    LX_OVERFLOW = "lx-overflow"
    LX_OVERLAP = "lx-overlap"
    LX_OWNERSHIP = "lx-ownership"
    SPAN_OVERFLOW = "span-overflow"
    PAD_LEAK = "pad-leak"


Action = Literal["raise", "warn", "off"]

_ADVICE: Mapping[Check, str] = {
    Check.OUT_OF_BOUNDS: "check the slice or the index data against the sizes of the tensor",
    Check.UNINITIALISED_READ: "write the whole tensor first, for example with full or zeros",
    Check.TWO_WRITERS: "split a loop that the output walks, by whole sticks",
    Check.READ_WRITE_RACE: "copy the operand before it is overwritten (clone)",
    Check.MISALIGNED_STORE: "let slices start at a whole stick, or put another dimension on the stick",
    Check.LX_OVERFLOW: "keep fewer buffers in LX at a time, or split the op over more cores",
    Check.LX_OVERLAP: "give buffers that live at the same time their own addresses",
    Check.LX_OWNERSHIP: "divide producer and consumer alike, or keep the buffer in device memory",
    Check.SPAN_OVERFLOW: "pad the dimension to a size that more cores divide",
    Check.PAD_LEAK: "fill the padding with the neutral element, or mask it, before it is read",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an op comes from: its name in the lowered graph, the graph node, the user's line ("file:line" or "")."""

    op: str = ""
    node: str = ""
    source: str = ""

    def __str__(self) -> str:
        inner = ", ".join(part for part in (self.node, self.source) if part)
        return f"{self.op} ({inner})" if inner else self.op


@dataclass(frozen=True, slots=True)
class Finding:
    """cores: ids, ascending. stick: number of the stick in the buffer's device memory, or in LX for the LX checks."""

    check: Check
    place: Place
    detail: str
    buffer: str = ""
    cores: tuple[int, ...] = ()
    stick: int | None = None

    @property
    def advice(self) -> str:
        return _ADVICE[self.check]

    def __str__(self) -> str:
        where = f" on core{'s' if len(self.cores) != 1 else ''} {core_ranges(self.cores)}" if self.cores else ""
        what = f" {self.buffer}" if self.buffer else ""
        stick = f" stick {self.stick}" if self.stick is not None else ""
        subject = f":{what}{stick}" if what or stick else ""
        return f"{self.check} at {self.place}{where}{subject}: {self.detail}; {self.advice}"


class FindingError(RuntimeError):
    """A check that is set to "raise" found something. `finding` is what."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class FindingWarning(UserWarning):
    """A check that is set to "warn" found something."""


@dataclass
class Findings:
    """Collects findings under a policy: checks that `actions` does not name raise."""

    actions: Mapping[str, Action] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, action in self.actions.items():
            if name not in set(Check):
                raise ValueError(f"there is no check {name!r}; there are {', '.join(Check)}")
            if action not in ("raise", "warn", "off"):
                raise ValueError(f"check {name} cannot be {action!r}; choose raise, warn or off")

    def watches(self, check: Check) -> bool:
        return self.actions.get(check, "raise") != "off"

    def report(self, finding: Finding) -> None:
        """Record it, then raise FindingError or warn as the policy says; nothing when the check is off."""
        action = self.actions.get(finding.check, "raise")
        if action == "off":
            return
        self.found.append(finding)
        if action == "raise":
            raise FindingError(finding)
        warnings.warn(str(finding), FindingWarning, stacklevel=3)


def core_ranges(cores: Iterable[int]) -> str:
    """Core ids as compressed ranges: (0, 1, 2, 3, 8) is "0-3,8"."""
    parts: list[list[int]] = []
    for core in sorted(set(cores)):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
