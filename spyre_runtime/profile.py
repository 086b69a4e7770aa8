"""What changes with a backend release, read from `profiles/<name>.yaml`: limits, op table, casts, fallbacks, gaps and faults.

Every entry of a profile may carry a `source`; what is not publicly known is the word "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from .ir import DataFormat
from .refusal import Obstacle

DEFAULT_PROFILE = "torch-spyre-2026-06"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes unless the name says otherwise."""

    cores: int = 32
    stick_bytes: int = 128
    lx_bytes: int = 2 * 1024 * 1024
    lx_reserved: float = 0.2
    span_bytes: int = 256 * 1024 * 1024
    segments: int = 7
    segment_bytes: int = 16 * 1024**3
    bundle_tensors: int | None = 7
    max_rank: int = 6
    topk_k: int = 4
    restickify_beam: int = 64

    @property
    def lx_usable(self) -> int:
        return int(self.lx_bytes * (1 - self.lx_reserved))


@dataclass(frozen=True)
class DeviceFunction:
    """A loop-body function that the device has: its device name, and the formats that it takes."""

    name: str
    device: str
    formats: frozenset[DataFormat]
    source: str = ""


@dataclass(frozen=True)
class Note:
    """A gap (what does not lower, to be retired when a release closes it) or a fault (a bug of that release)."""

    id: str
    summary: str
    source: str = ""
    kinds: tuple[str, ...] = ()
    state: str = "open"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NumericChoice:
    """What the device does where its number format or its units leave a choice: the value that the simulator computes with, and who says so.

    programs: device programs whose result depends on it (with * wildcards). shared: only where cores share the op's reduction.
    transfer: it bears on what crosses the bus, not on a program.
    """

    name: str
    value: Any
    summary: str
    source: str
    programs: tuple[str, ...] = ()
    shared: bool = False
    transfer: bool = False

    @property
    def known(self) -> bool:
        return not self.source.startswith(UNKNOWN)

    def concerns(self, program: str, shared: bool) -> bool:
        """Whether a device program leans on the choice. shared: whether cores share its reduction."""
        return (shared or not self.shared) and any(fnmatchcase(program, pattern) for pattern in self.programs)


@dataclass(frozen=True)
class Profile:
    name: str
    limits: Limits
    functions: Mapping[str, DeviceFunction]
    casts: Mapping[tuple[str, str], str]
    fallbacks: frozenset[str]
    host_kernels: frozenset[str]
    decompositions: frozenset[str]
    restickify_formats: frozenset[DataFormat]
    gaps: Mapping[str, Note]
    faults: Mapping[str, Note]
    numeric: Mapping[str, NumericChoice]
    unknowns: tuple[str, ...]
    raw: Mapping[str, Any]

    def runs_on_host(self, op: str) -> bool:
        """Whether a fallback ("aten.sin.default") has a kernel for tensors of the device: named itself, or by its packet."""
        return any(name in names for name in (op, op.rsplit(".", 1)[0]) for names in (self.fallbacks, self.host_kernels))

    def with_gap(self, obstacle: Obstacle) -> Obstacle:
        """The obstacle with the first open gap that names its kind (and its op, where the gap names ops)."""
        for gap in self.gaps.values():
            ops = gap.details.get("ops", ())
            kind_fits = any(fnmatchcase(obstacle.kind, pattern) for pattern in gap.kinds)
            if gap.state == "open" and kind_fits and (not ops or any(fnmatchcase(obstacle.op, pattern) for pattern in ops)):
                return obstacle.at(gap=gap.id)
        return obstacle

    def has_fault(self, name: str) -> bool:
        """Whether this release has the fault; asking for an id that no profile knows raises KeyError."""
        return self.faults[name].state == "open"

    @property
    def compiler_faults(self) -> tuple[str, ...]:
        """Ids of the faults that change what the compiler takes, as opposed to what a program does on the device."""
        return tuple(name for name, note in self.faults.items() if "device" not in note.kinds)

    def with_faults(self, switched: Mapping[str, bool]) -> Profile:
        """The release with compiler faults switched on or off. Raises KeyError for an id that is none."""
        for name in switched:
            if name not in self.compiler_faults:
                raise KeyError(f"profile {self.name} has no compiler fault {name!r}; there are {', '.join(self.compiler_faults)}")
        changed = {name: replace(self.faults[name], state="open" if on else "closed") for name, on in switched.items()}
        return replace(self, faults={**self.faults, **changed})

    def unknown(self, part: str) -> bool:
        """Whether the profile says that a part of it ("cost", "limits.restickify_beam") is not known for this release."""
        return any(part == name or part.startswith(f"{name}.") for name in self.unknowns)


def _notes(table: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Note]:
    notes = {}
    for name, entry in (table or {}).items():
        known = {"summary", "source", "kinds", "state"}
        notes[name] = Note(
            id=name,
            summary=entry["summary"],
            source=entry.get("source", ""),
            kinds=tuple(entry.get("kinds", ())),
            state=entry.get("state", "open"),
            details={k: v for k, v in entry.items() if k not in known},
        )
    return notes


def _functions(table: Mapping[str, Mapping[str, Any]]) -> dict[str, DeviceFunction]:
    return {
        name: DeviceFunction(name, entry.get("device", name), frozenset(DataFormat(f) for f in entry["formats"]), entry.get("source", ""))
        for name, entry in table.items()
    }


def _numeric(table: Mapping[str, Mapping[str, Any]]) -> dict[str, NumericChoice]:
    """Every entry says its value, what it is, and its source."""
    return {
        name: NumericChoice(
            name,
            entry["value"],
            entry["summary"],
            entry["source"],
            tuple(entry.get("programs", ())),
            bool(entry.get("shared", False)),
            bool(entry.get("transfer", False)),
        )
        for name, entry in table.items()
    }


def _casts(table: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    pairs = {}
    for device, entry in table.items():
        for pair in entry["pairs"]:
            source, target = pair.split("->")
            pairs[source.strip(), target.strip()] = device
    return pairs


def _merged(base: Any, change: Any) -> Any:
    """`change` on top of `base`: mappings key by key (null removes a key), lists by {add: […], remove: […]}, anything else replaced."""
    if isinstance(base, list) and isinstance(change, Mapping):
        removed = change.get("remove", ())
        return [entry for entry in base if entry not in removed] + list(change.get("add", ()))
    if not isinstance(base, Mapping) or not isinstance(change, Mapping):
        return change
    merged = {key: value for key, value in base.items() if key not in change or change[key] is not None}
    return merged | {key: _merged(base.get(key), value) for key, value in change.items() if value is not None}


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that come with the package, oldest release first."""
    return tuple(sorted(p.name.removesuffix(".yaml") for p in (files(__package__) / "profiles").iterdir() if p.name.endswith(".yaml")))


def _read(name: str) -> dict[str, Any]:
    if name not in profile_names():
        raise FileNotFoundError(f"no backend profile {name!r}; there are {', '.join(profile_names())}")
    raw: dict[str, Any] = yaml.safe_load((files(__package__) / "profiles" / f"{name}.yaml").read_text(encoding="utf-8"))
    base = raw.pop("extends", None)
    return raw if base is None else dict(_merged(_read(base), raw))


@cache
def load_profile(name: str = DEFAULT_PROFILE) -> Profile:
    """Read a profile by name; one that `extends` another says what differs. Raises FileNotFoundError naming the profiles that exist."""
    raw = _read(name)
    limits: dict[str, Any] = {key: entry.get("value") if isinstance(entry, Mapping) else entry for key, entry in raw["limits"].items()}
    return Profile(
        name=raw["profile"],
        limits=Limits(**limits),
        functions=_functions(raw["functions"]),
        casts=_casts(raw["casts"]),
        fallbacks=frozenset(raw["fallbacks"]["ops"]),
        host_kernels=frozenset(raw["fallbacks"]["kernels"]),
        decompositions=frozenset(raw["decompositions"]["ops"]),
        restickify_formats=frozenset(DataFormat(f) for f in raw["restickify"]["formats"]),
        gaps=_notes(raw.get("gaps")),
        faults=_notes(raw.get("faults")),
        numeric=_numeric(raw["numeric"]),
        unknowns=tuple(raw.get("unknown", ())),
        raw=raw,
    )
