"""`adapterc sweep`: how much of a population the adapters reach. Each group runs once a width; what has run is kept and not run again."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adapterc import sweep_store
from adapterc.build import build_specs, require_package, versions
from adapterc.console import err
from adapterc.errors import UserError
from adapterc.gaps import profile_named
from adapterc.sweep_engine import engine
from adapterc.sweep_groups import Group, Population, read_population
from adapterc.sweep_report import WIDTHS, SweepReport, report_of
from adapterc.sweep_row import Outcome, Task
from adapterc.tiny import Width

TIMEOUT = 900.0
CHOICES = (*WIDTHS, "both")


@dataclass(frozen=True)
class Plan:
    """What the user asked for. `only`: model types, all where empty. `top`: groups, the ones with most models first. `memory`: GiB a row."""

    population: Path
    store: Path
    specs: tuple[Path, ...]
    patches: Path | None = None
    widths: str = "both"
    only: tuple[str, ...] = ()
    top: int | None = None
    jobs: int | None = None
    timeout: float = TIMEOUT
    memory: float | None = None
    engine: str = "local"
    profile: str = "torch-spyre-2026-06"
    retry: bool = False


def sweep(plan: Plan) -> SweepReport:
    """Run what has not run yet and report all that is in the store. Raises UserError ADC508, ADC609 and ADC611 to ADC614 before any row starts."""
    if plan.widths not in CHOICES:
        raise UserError("ADC612", f"--widths {plan.widths} is no choice", f"choose {', '.join(CHOICES)}")
    population = read_population(plan.population)
    groups = chosen(population, plan)
    run = engine(plan.engine)
    profile_named(plan.profile)
    with sweep_store.open_store(plan.store) as store, patches(plan) as folder:
        sweep_store.prepare(store, population, {"adapters": digest(folder), "profile": plan.profile, "versions": str(versions())})
        if plan.retry:
            sweep_store.forget_failures(store)
        jobs = plan.jobs or os.cpu_count() or 1
        tasks = tuple(pending(groups, plan, folder, sweep_store.done(store), jobs))
        _work(store, run(tasks, jobs, plan.timeout), tasks)
        return report_of(store, plan.store)


def chosen(population: Population, plan: Plan) -> tuple[Group, ...]:
    """The groups that the options leave. Raises UserError ADC612 for a model type that the population has not."""
    there = {group.model_type for group in population.groups}
    for name in plan.only:
        if name not in there:
            raise UserError(
                "ADC612",
                f"--only {name}: no model of this type in {plan.population} can run",
                f"there are {', '.join(sorted(there)[:12])} …",
            )
    return tuple(group for group in population.groups if not plan.only or group.model_type in plan.only)[: plan.top]


def pending(groups: Iterable[Group], plan: Plan, folder: Path, done: frozenset[tuple[str, str]], jobs: int) -> Iterator[Task]:
    """Tasks of the rows that are not in the store, tiny ones first: they are quick, and they find most."""
    memory = int(plan.memory * 2**30) if plan.memory is not None else _memory() // jobs
    widths: tuple[Width, ...] = ("tiny", "real")
    listed = tuple(groups)
    for width in widths:
        if plan.widths in (width, "both"):
            for group in listed:
                if (group.key, width) not in done:
                    yield Task(group.key, width, group.model_type, group.architecture, group.dimensions, str(folder), plan.profile, memory)


def _memory() -> int:
    """Bytes of this machine, less a quarter for everything else."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4


@contextmanager
def patches(plan: Plan) -> Iterator[Path]:
    """The folder of patches: the user's, or one that is checked and built here, once for all rows. Raises UserError ADC506 for a failed check."""
    if plan.patches is not None:
        require_package(plan.patches)  # the rows import it, each in its own process
        yield plan.patches.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="adapterc-sweep-") as temporary:
        folder = Path(temporary) / "adapterc_sweep_patches"
        report = build_specs(plan.specs, folder)
        if not report.ok:
            bad = next(rule for rule in report.checked.rules if not rule.ok)
            raise UserError("ADC506", f"{bad.name} may not be built: {bad.verdict.how}", "see `adapterc check`")
        yield folder


def digest(folder: Path) -> str:
    """Of the patches' code, so that results of other adapters are not mixed up with these."""
    text = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        text.update(file.name.encode() + b"\0" + file.read_bytes())
    return text.hexdigest()


def _work(store: sqlite3.Connection, outcomes: Iterator[Outcome], tasks: Sequence[Task]) -> None:
    """Keep each outcome as it comes, and show how far the sweep is."""
    with _progress() as progress:
        bar = progress.add_task("rows", total=len(tasks), note="")
        for number, outcome in enumerate(outcomes, 1):
            sweep_store.record(store, outcome)
            note = f"{outcome.key} ({outcome.width}): {outcome.stage}{f', {outcome.kind}' if outcome.kind else ''}"
            progress.update(bar, completed=number, note=note)
            if not sys.stderr.isatty():
                print(f"[{number}/{len(tasks)}] {note} {outcome.seconds:.0f} s", file=sys.stderr, flush=True)


def _progress() -> Progress:
    columns = (BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}", markup=False))
    return Progress(*columns, console=err, disable=not sys.stderr.isatty())
