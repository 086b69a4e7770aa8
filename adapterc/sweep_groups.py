"""The models of a population CSV, in groups that stand or fall together: one (model type, architecture, dimension class) each."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapterc.dimensions import DEFAULTS, Dimensions, dimensions_of
from adapterc.errors import UserError

NEEDED = ("model_id", "model_type", "architectures")
LOADABLE = "A"  # classes of the CSV's class column that load from Transformers alone begin with it
NO_TYPE = "no model_type"


@dataclass(frozen=True)
class Member:
    """One model of the population: its place in the list, and its group or the class why it cannot be run."""

    model_id: str
    downloads: int
    group: str | None
    unrunnable: str | None


@dataclass(frozen=True)
class Group:
    """`dimensions`: None for the defaults of the config class. `models`: how many it stands for."""

    key: str
    model_type: str
    architecture: str
    dimensions: Dimensions | None
    models: int
    downloads: int


@dataclass(frozen=True)
class Population:
    """`digest`: of the CSV's bytes, so that a store knows what it is of. `groups`: the one with most models first."""

    path: Path
    digest: str
    members: tuple[Member, ...]
    groups: tuple[Group, ...]


def read_population(path: Path) -> Population:
    """Read a CSV with the columns model_id, model_type, architectures, and optionally downloads and class. Raises UserError ADC611."""
    rows = _rows(path)
    found: dict[str, tuple[str, str, Dimensions | None]] = {}
    members = []
    for row in rows:
        key = unrunnable = None
        downloads = int(row.get("downloads") or 0)
        named = (row.get("class") or "").strip()
        if named and not named.startswith(LOADABLE):
            unrunnable = named
        elif not row["model_type"]:
            unrunnable = NO_TYPE
        else:
            architecture = row["architectures"].split(";")[0].split(",")[0].strip()
            widths = dimensions_of(row["model_type"], row["model_id"])
            key = group_key(row["model_type"], architecture, widths)
            found[key] = (row["model_type"], architecture, widths)
        members.append(Member(row["model_id"], downloads, key, unrunnable))
    return Population(path, hashlib.sha256(path.read_bytes()).hexdigest(), tuple(members), _groups(found, members))


def group_key(model_type: str, architecture: str, dimensions: Dimensions | None) -> str:
    return " | ".join((model_type, architecture or "-", DEFAULTS if dimensions is None else str(dimensions)))


def _groups(found: dict[str, tuple[str, str, Dimensions | None]], members: Iterable[Member]) -> tuple[Group, ...]:
    models: dict[str, int] = dict.fromkeys(found, 0)
    downloads: dict[str, int] = dict.fromkeys(found, 0)
    for member in members:
        if member.group is not None:
            models[member.group] += 1
            downloads[member.group] += member.downloads
    groups = [Group(key, *what, models[key], downloads[key]) for key, what in found.items()]
    return tuple(sorted(groups, key=lambda g: (-g.models, -g.downloads, g.key)))


def _rows(path: Path) -> Sequence[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            reader = csv.DictReader(handle)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise UserError("ADC611", f"{path}:1:1: no column `{missing[0]}`", f"the columns {', '.join(NEEDED)} are needed")
            rows: list[dict[str, str]] = []
            seen: dict[str, int] = {}
            for row in reader:
                line = reader.line_num
                if any(row[name] is None for name in NEEDED) or not row["model_id"]:
                    raise UserError("ADC611", f"{path}:{line}:1: the line has too few fields, or no model_id", "mend or remove the line")
                if not (row.get("downloads") or "0").isdigit():
                    raise UserError("ADC611", f"{path}:{line}:1: downloads is `{row['downloads']}`, not a whole number", "mend the line")
                first = seen.setdefault(row["model_id"], line)
                if first != line:
                    raise UserError("ADC611", f"{path}:{line}:1: {row['model_id']} stands on line {first} too", "remove one of the lines")
                rows.append(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError("ADC611", f"{path}: cannot be read as CSV: {error}", "give a UTF-8 file with a header line") from None
    if not rows:
        raise UserError("ADC611", f"{path}: the list holds no model", "give a CSV with a header and one line a model")
    return rows
