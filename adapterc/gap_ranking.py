"""`adapterc gaps --all`: the gaps of the most downloaded architectures, ranked by the models that they block. Kept in a file, so that it goes on where it stood."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import transformers
from rich.console import Console
from rich.table import Table

from adapterc.dsl.loader import load_all
from adapterc.errors import UserError
from adapterc.gap_report import issue_text, short
from adapterc.gaps import ModelGaps, check_form, model_gaps, profile_named
from adapterc.obstacles import Compiler
from adapterc.population import Kind, population, representative

_ANSWER = b"2"  # changes with the form of an answer
_TABLE = "CREATE TABLE IF NOT EXISTS gaps (subject TEXT, architecture TEXT, answer TEXT, PRIMARY KEY (subject, architecture))"


@dataclass(frozen=True)
class Ranked:
    """One kind of obstacle at one op sequence. `blocks`: models of the architectures that it was found in. `sample`: the gap of the heaviest of them."""

    id: str
    architectures: tuple[str, ...]
    blocks: int
    covered: bool
    sample: Mapping[str, Any]

    def to_json(self) -> Mapping[str, object]:
        return {
            **self.sample,
            "id": self.id,
            "architectures": list(self.architectures),
            "blocks_models": self.blocks,
            "covered": self.covered,
        }


@dataclass(frozen=True)
class RankingReport:
    """`failed`: architectures that could not be looked at, and why. `pending`: those that the time did not suffice for."""

    profile: str
    patched: bool
    ranked: tuple[Ranked, ...]
    asked: tuple[str, ...]
    failed: Mapping[str, str]
    pending: tuple[str, ...]
    as_issue: bool = False

    @property
    def ok(self) -> bool:
        return True

    def to_json(self) -> Mapping[str, object]:
        return {
            "profile": self.profile,
            "patched": self.patched,
            "gaps": [gap.to_json() for gap in self.ranked],
            "architectures": list(self.asked),
            "failed": dict(self.failed),
            "pending": list(self.pending),
        }

    def show(self, console: Console) -> None:
        if self.as_issue:
            for gap in self.ranked:
                console.print(issue_text(gap.to_json(), self.profile), markup=False, soft_wrap=True)
            return
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("gap", "models", "kind", "op", "first at"):
            table.add_column(heading, no_wrap=heading != "kind", overflow="fold")
        table.add_column("covered by", overflow="fold")
        for gap in self.ranked:
            by = ", ".join(gap.sample["covered_by"]) if gap.covered else f"[yellow]none[/]; nearest {gap.sample['template'] or '–'}"
            source = short(str(gap.sample["source"]))
            table.add_row(gap.id, str(gap.blocks), str(gap.sample["kind"]), str(gap.sample["op"]), source, by)
        console.print(table)
        what = "what stays with the library" if self.patched else "stock models"
        console.print(f"\n{what} on {self.profile}, {len(self.asked)} architectures: {', '.join(self.asked)}", soft_wrap=True)
        for name, why in self.failed.items():
            console.print(f"{name} was not looked at: {why}", markup=False, soft_wrap=True)
        if self.pending:
            console.print(f"{len(self.pending)} more are left: run the command again to go on", soft_wrap=True)


def rank_gaps(
    specs: Sequence[Path],
    profile: str,
    *,
    top: int = 20,
    patched: bool = False,
    store: Path = Path("gaps.sqlite"),
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    kinds: Sequence[Kind] | None = None,
    form: str = "table",
) -> RankingReport:
    """Look at the `top` architectures that the store does not have yet, and rank the gaps of all of them.

    `seconds`: no further architecture is begun after that. An answer holds for the profile, the specs and the Transformers that it was given
    with; others are looked at anew. Raises UserError ADC508, ADC603 and ADC614.
    """
    check_form(form)
    backend = profile_named(profile)
    chosen = [kind for kind in (population() if kinds is None else kinds) if kind.ops][:top]
    subject, adapters, compiler = _subject(specs, profile, patched), load_all(specs), Compiler(backend)
    start, answers = clock(), dict[str, Mapping[str, Any]]()
    with closing(_opened(store)) as rows:
        for kind in chosen:
            known = rows.execute("SELECT answer FROM gaps WHERE subject = ? AND architecture = ?", (subject, kind.architecture)).fetchone()
            if known is None and seconds is not None and clock() - start >= seconds:
                continue
            if known is None:
                answer = json.dumps(_answer(kind.architecture, lambda a: model_gaps(representative(a), adapters, compiler, patched)))
                with rows:
                    rows.execute("INSERT INTO gaps VALUES (?, ?, ?)", (subject, kind.architecture, answer))
            answers[kind.architecture] = json.loads(known[0] if known is not None else answer)
    failed = {name: str(answer["failed"]) for name, answer in answers.items() if "failed" in answer}
    pending = tuple(kind.architecture for kind in chosen if kind.architecture not in answers)
    asked = tuple(name for name in answers if name not in failed)
    weights = {kind.architecture: kind.models for kind in chosen}
    ranked = ranking({a: answers[a]["gaps"] for a in asked}, weights)
    return RankingReport(profile, patched, ranked, asked, failed, pending, form == "issue")


def _answer(architecture: str, look: Callable[[str], ModelGaps]) -> Mapping[str, Any]:
    try:
        found = look(architecture)
    except UserError as error:
        return {"failed": f"{error.code}: {error.message}"}
    except Exception as error:  # a fault of ours in one architecture must not cost the list of all others; it is listed with its reason
        return {"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    return {"gaps": [gap.to_json() for gap in found.gaps], "untraced": found.untraced}


def ranking(gaps: Mapping[str, Sequence[Mapping[str, Any]]], weights: Mapping[str, int]) -> tuple[Ranked, ...]:
    """One entry a kind and ops; what blocks before what slows or misleads, the heaviest first. `gaps`: by architecture; `weights`: its models."""
    groups: dict[tuple[str, tuple[str, ...]], dict[str, Mapping[str, Any]]] = {}
    for architecture, found in gaps.items():
        for gap in found:
            groups.setdefault((gap["kind"], tuple(gap["ops"])), {}).setdefault(architecture, gap)
    entries = []
    for members in groups.values():
        names = sorted(members, key=lambda name: -weights[name])
        open_one = next((members[name] for name in names if not members[name]["covered_by"]), None)
        sample = members[names[0]] if open_one is None else open_one
        entries.append(Ranked("", tuple(names), sum(weights[name] for name in names), open_one is None, sample))
    entries.sort(key=lambda entry: (not entry.sample["blocking"], -entry.blocks))
    return tuple(Ranked(f"G{n}", e.architectures, e.blocks, e.covered, e.sample) for n, e in enumerate(entries, 1))


def _subject(specs: Sequence[Path], profile: str, patched: bool) -> str:
    """A name for everything that an answer depends on."""
    text = (files("adapterc.spyre_runtime") / "profiles" / f"{profile}.yaml").read_bytes()
    parts: Iterator[bytes] = iter((_ANSWER, text, *(path.read_bytes() for path in specs)))
    return hashlib.sha256(b"\0".join((transformers.__version__.encode(), str(patched).encode(), *parts))).hexdigest()


def _opened(store: Path) -> sqlite3.Connection:
    try:
        rows = sqlite3.connect(store)
        rows.execute(_TABLE)
    except sqlite3.Error as error:
        raise UserError("ADC614", f"{store}: {error}", "name another --store") from None
    return rows
