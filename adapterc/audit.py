"""`adapterc audit`: each adapter against backend releases and the installed Transformers: needed, retired, partial, changed underneath, or dead."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import transformers
from rich.console import Console
from rich.table import Table

from adapterc.attach import attach, rules_of
from adapterc.capturing import ModelGraph
from adapterc.coverage import Library, apply_library
from adapterc.decoding import all_graphs
from adapterc.dsl.adapter import Adapter, Require
from adapterc.dsl.loader import load_all
from adapterc.gaps import profile_named
from adapterc.models import load
from adapterc.obstacles import Compiler
from adapterc.population import population, representative
from adapterc.spyre_runtime.profile import Profile
from adapterc.stock import difference, fingerprint, functions_of, recorded, write_record

NEEDED, RETIRED, PARTIAL, CHANGED, DEAD, STAYS, UNKNOWN, UNSURE = (
    "needed", "retired", "partial", "changed", "dead", "stays", "unknown-gap", "unsure",
)  # fmt: skip
_STYLE = {
    NEEDED: "green",
    STAYS: "green",
    RETIRED: "yellow",
    PARTIAL: "yellow",
    CHANGED: "bold red",
    DEAD: "bold red",
    UNKNOWN: "bold red",
    UNSURE: "yellow",
}


@dataclass(frozen=True)
class Finding:
    """One adapter on one profile. `diff`: what to apply where the adapter is retired; what is new where stock has changed."""

    adapter: str
    profile: str
    state: str
    because: str
    diff: str = ""


@dataclass(frozen=True)
class AuditReport:
    findings: tuple[Finding, ...]
    families: tuple[str, ...]
    recorded_at: str | None = None

    @property
    def ok(self) -> bool:
        return all(finding.state not in (CHANGED, DEAD, UNKNOWN) for finding in self.findings)

    def to_json(self) -> Mapping[str, object]:
        return {"families": list(self.families), "recorded": self.recorded_at, "adapters": [vars(finding) for finding in self.findings]}

    def show(self, console: Console) -> None:
        profiles = list(dict.fromkeys(finding.profile for finding in self.findings))
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("adapter", no_wrap=True)
        for profile in profiles:
            table.add_column(profile.removeprefix("torch-spyre-"), no_wrap=True)
        table.add_column("because", overflow="fold")
        for adapter in dict.fromkeys(finding.adapter for finding in self.findings):
            rows = {f.profile: f for f in self.findings if f.adapter == adapter}
            states = [f"[{_STYLE[rows[p].state]}]{rows[p].state}[/]" for p in profiles]
            table.add_row(adapter, *states, rows[profiles[-1]].because)
        console.print(table)
        for finding in self.findings:
            if finding.diff and finding.profile == profiles[-1]:
                console.print(finding.diff, markup=False, soft_wrap=True)
        console.print(f"families asked: {', '.join(self.families)}", markup=False, soft_wrap=True)
        if self.recorded_at:
            console.print(f"stock functions recorded in {self.recorded_at}", markup=False)


def profile_names() -> tuple[str, ...]:
    """All profiles that ship, oldest first."""
    folder = files("adapterc.spyre_runtime") / "profiles"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def audit_specs(
    specs: Sequence[Path], profiles: Sequence[str], models: Sequence[str] = (), *, families: int = 24, record: bool = False
) -> AuditReport:
    """Audit the adapters on each profile, with `models`, or else the `families` most frequent architectures, as the known families."""
    adapters = load_all(specs)
    backends = [profile_named(name) for name in profiles or profile_names()]
    graphs, names = _graphs(models, families)
    fired, functions = _sites(adapters, graphs, backends[-1])
    left = {backend.name: _left(adapters, graphs, backend) if models else {} for backend in backends}
    findings = tuple(
        _finding(adapter, backend, fired, functions, left[backend.name], asked_all=not models)
        for adapter in adapters
        for backend in backends
    )
    return AuditReport(findings, names, str(write_record(functions)) if record else None)


def _graphs(models: Sequence[str], families: int) -> tuple[list[ModelGraph], tuple[str, ...]]:
    loaded = [load(text) for text in models] if models else [representative(k.architecture) for k in population() if k.ops][:families]
    graphs = [graph for model in loaded for graph in all_graphs(model)[0]]
    return graphs, tuple(model.source.text.removeprefix("config:") for model in loaded)


def _sites(adapters: Sequence[Adapter], graphs: Sequence[ModelGraph], profile: Profile) -> tuple[dict[str, int], dict[str, dict[str, str]]]:
    """How often each adapter fires by itself in the families, and the stock functions that each rule fires in."""
    fired: dict[str, int] = {}
    functions: dict[str, dict[str, str]] = {}
    for adapter in adapters:
        rules = rules_of(adapter)
        for graph in graphs:
            attached = attach(graph, rules, profile)
            fired[adapter.name] = fired.get(adapter.name, 0) + sum(attached.fired.values())
            for node in attached.whole.graph.nodes:
                if "adapter_rule" in node.meta:
                    functions.setdefault(node.meta["adapter_rule"], {}).update(functions_of([node]))
    return fired, functions


def _left(adapters: Sequence[Adapter], graphs: Sequence[ModelGraph], profile: Profile) -> dict[str, list[str]]:
    """Obstacles that stand with all adapters applied, by the gap that the profile gives them."""
    compiler = Compiler(profile)
    left: dict[str, list[str]] = {}
    for graph in graphs:
        library: Library = apply_library(graph, adapters, profile, compiler)
        for place in library.left:
            if place.obstacle.gap:
                left.setdefault(place.obstacle.gap, []).append(f"{place.obstacle.kind} at {place.obstacle.source.rpartition('/')[2]}")
    return left


def _finding(
    adapter: Adapter,
    profile: Profile,
    fired: Mapping[str, int],
    functions: Mapping[str, Mapping[str, str]],
    left: Mapping[str, Sequence[str]],
    asked_all: bool,
) -> Finding:
    def found(state: str, because: str, diff: str = "") -> Finding:
        return Finding(adapter.name, profile.name, state, because, diff)

    if adapter.gap is not None and adapter.gap not in profile.gaps:
        return found(UNKNOWN, f"the profile has no gap `{adapter.gap}`; correct the id, or add the gap to the profile")
    if adapter.gap is not None and profile.gaps[adapter.gap].state == "closed":
        return found(RETIRED, f"{profile.name} closed {adapter.gap}: {profile.gaps[adapter.gap].summary}", removal(adapter))
    changed = changed_functions(adapter)
    if changed:
        record = recorded()
        because = (
            f"Transformers {transformers.__version__} has other text than it was proved against with {record.version}: {', '.join(changed)}"
        )
        return found(CHANGED, because, "\n".join(difference(name, record.statements.get(name, ())) for name in changed))
    quiet = not fired.get(adapter.name) and not has_fired(adapter)
    if asked_all and quiet and not all(isinstance(rule, Require) for rule in adapter.rules):
        return found(
            DEAD,
            "it fires in the forward and the decode step of none of the families asked, nor did it when stock was recorded; name another with --model",
        )
    if adapter.gap is None:
        return found(STAYS, "hardware: it is for no gap that a release closes")
    if profile.gaps[adapter.gap].state != "open":
        return found(
            UNSURE, f"whether {profile.name} still has {adapter.gap} is not public, so it stays: {profile.gaps[adapter.gap].summary}"
        )
    if left.get(adapter.gap):
        return found(PARTIAL, f"{adapter.gap} still stands: {'; '.join(left[adapter.gap])}")
    carried = "; carried over from another release, for nothing of this one's gaps is public" if profile.unknown("gaps") else ""
    return found(NEEDED, f"{adapter.gap} is open: {profile.gaps[adapter.gap].summary}{carried}")


def has_fired(adapter: Adapter) -> bool:
    """Whether a rule of the adapter fired when stock was recorded: perhaps on a family, or at widths, that are not among those asked now."""
    return any(f"{adapter.name}.{rule.header.name}" in recorded().rules for rule in adapter.rules)


def changed_functions(adapter: Adapter) -> tuple[str, ...]:
    """Stock functions recorded for the adapter's rules whose text is another now, or which are gone."""
    names = {f"{adapter.name}.{rule.header.name}" for rule in adapter.rules}
    record = recorded()
    pairs = {(name, digest) for rule, functions in record.rules.items() if rule in names for name, digest in functions.items()}
    return tuple(sorted(name for name, digest in pairs if fingerprint(name) != digest))


def removal(adapter: Adapter) -> str:
    """The patch that removes the spec."""
    path = Path(adapter.file)
    shown = f"{path.parent.name}/{path.name}"
    text = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(text, [], f"a/{shown}", "/dev/null"))
