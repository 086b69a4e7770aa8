"""What a store says: models that attach, lower and pass, by family and by reason. Every number is weighed by the models that a group stands for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from adapterc import sweep_store
from adapterc.sweep_row import STAGES, Outcome
from adapterc.sweep_store import StoredGroup, Unrunnable

WIDTHS = ("tiny", "real")


@dataclass(frozen=True)
class Share:
    """Models that reach at least a stage at one width, or at every width that has run (`all`). `ran`: models of groups with a row."""

    ran: int = 0
    attached: int = 0
    lowered: int = 0
    passed: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.ran + other.ran, self.attached + other.attached, self.lowered + other.lowered, self.passed + other.passed)


@dataclass(frozen=True)
class Family:
    """One model type. `shares`: by width, and `all`."""

    model_type: str
    models: int
    groups: int
    shares: Mapping[str, Share]


@dataclass(frozen=True)
class Reason:
    """Rows that ended for one reason at one place. `models`: of their groups, each counted once."""

    kind: str
    place: str
    message: str
    models: int
    groups: tuple[str, ...]
    widths: tuple[str, ...]


@dataclass(frozen=True)
class SweepReport:
    """A store, read. `ok` says only that there is a result: a family that does not pass yet is an answer."""

    path: Path
    meta: Mapping[str, str]
    models: int
    groups: tuple[StoredGroup, ...]
    families: tuple[Family, ...]
    reasons: tuple[Reason, ...]
    unrunnable: tuple[Unrunnable, ...]
    html: Path | None = None

    @property
    def ok(self) -> bool:
        return True

    @property
    def totals(self) -> Mapping[str, Share]:
        return {width: sum((family.shares[width] for family in self.families), Share()) for width in (*WIDTHS, "all")}

    @property
    def rows(self) -> int:
        return sum(len(group.outcomes) for group in self.groups)

    def to_json(self) -> Mapping[str, object]:
        return {
            "store": str(self.path),
            "population": self.meta["name"],
            "models": self.models,
            "groups": len(self.groups),
            "rows": self.rows,
            "totals": {width: asdict(share) for width, share in self.totals.items()},
            "families": [asdict(family) for family in self.families],
            "reasons": [asdict(reason) for reason in self.reasons],
            "not_run": [asdict(group) for group in self.unrunnable],
        }

    def show(self, console: Console) -> None:
        console.print(
            f"[bold]{self.meta['name']}[/]: {self.models} models, {len(self.groups)} groups that can run, {self.rows} rows so far"
        )
        console.print(family_table(self))
        if self.reasons:
            console.print("\n[bold]why the others do not pass[/]")
            console.print(reason_table(self.reasons))
        if self.unrunnable:
            console.print("\n[bold]not run[/]: the list says that these do not load from Transformers alone")
            for group in self.unrunnable:
                console.print(f"  {group.models:>6}  {group.why}, {group.example} among them", markup=False, soft_wrap=True)
        if self.html is not None:
            console.print(f"\nwrote {self.html}")


def read_report(path: Path, html: Path | None = None) -> SweepReport:
    """Read a store; write its page to `html`. Raises UserError ADC614 for a file that is no store."""
    with sweep_store.open_store(path, must_exist=True) as store:
        report = report_of(store, path, html)
    if html is not None:
        from adapterc.sweep_page import page

        html.write_text(page(report), encoding="utf-8")
    return report


def report_of(store: sqlite3.Connection, path: Path, html: Path | None = None) -> SweepReport:
    groups, others = sweep_store.groups(store), sweep_store.unrunnable(store)
    models = sum(g.models for g in groups) + sum(g.models for g in others)
    return SweepReport(path, sweep_store.meta(store), models, groups, families(groups), reasons(groups), others, html)


def families(groups: Iterable[StoredGroup]) -> tuple[Family, ...]:
    by_type: dict[str, list[StoredGroup]] = {}
    for group in groups:
        by_type.setdefault(group.model_type, []).append(group)
    found = [
        Family(name, sum(g.models for g in of), len(of), {w: sum((share(g, w) for g in of), Share()) for w in (*WIDTHS, "all")})
        for name, of in by_type.items()
    ]
    return tuple(sorted(found, key=lambda family: (-family.models, family.model_type)))


def share(group: StoredGroup, width: str) -> Share:
    outcomes = [o for w, o in group.outcomes.items() if width in (w, "all")]
    if not outcomes:
        return Share()
    reached = min(STAGES.index(outcome.stage) for outcome in outcomes)
    return Share(group.models, *(group.models * (reached >= STAGES.index(stage)) for stage in ("attached", "lowered", "passed")))


def reasons(groups: Sequence[StoredGroup]) -> tuple[Reason, ...]:
    """By kind and place, the one that costs most models first."""
    found: dict[tuple[str, str], list[tuple[StoredGroup, Outcome]]] = {}
    for group in groups:
        for outcome in group.outcomes.values():
            if not outcome.passed:
                found.setdefault((outcome.kind, outcome.place), []).append((group, outcome))
    listed = []
    for (kind, place), rows in found.items():
        distinct = {group.key: group for group, _ in rows}
        widths = tuple(sorted({outcome.width for _, outcome in rows}))
        listed.append(Reason(kind, place, rows[0][1].message, sum(g.models for g in distinct.values()), tuple(distinct), widths))
    return tuple(sorted(listed, key=lambda r: (-r.models, r.kind, r.place)))


def family_table(report: SweepReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_footer=True)
    totals = report.totals
    table.add_column("family", footer="all", no_wrap=True)
    table.add_column("models", justify="right", footer=str(sum(f.models for f in report.families)))
    for width in (*WIDTHS, "all"):
        for column in ("attached", "passed"):
            label = f"{width} {column}" if width != "all" else column
            table.add_column(label, justify="right", footer=f"{getattr(totals[width], column)}")
    for family in report.families:
        cells = (_cell(family.shares[w], c) for w in (*WIDTHS, "all") for c in ("attached", "passed"))
        table.add_row(family.model_type, str(family.models), *cells)
    return table


def _cell(share: Share, column: str) -> str:
    value: int = getattr(share, column)
    if not share.ran:
        return "[dim]–[/]"
    return str(value) if value == share.ran else f"[yellow]{value}[/]"


def reason_table(found: Sequence[Reason]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("models", justify="right", no_wrap=True)
    for heading in ("reason", "at", "first group"):
        table.add_column(heading, overflow="fold")
    table.add_column("because", overflow="fold", ratio=2)
    for reason in found:
        more = f" (+{len(reason.groups) - 1})" if len(reason.groups) > 1 else ""
        table.add_row(str(reason.models), reason.kind, reason.place, f"{reason.groups[0]}{more}", reason.message)
    return table
