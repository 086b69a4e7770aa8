"""`adapterc gaps`: everything in a model that does not lower, falls back to the CPU or hits a known fault of the release, in one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from adapterc.capturing import ModelGraph, graphs_of_loaded
from adapterc.coverage import Coverage, Library, apply_library, coverage, ops_of
from adapterc.dsl.adapter import Adapter
from adapterc.dsl.loader import load_all
from adapterc.errors import UserError
from adapterc.inputs import seeded_inputs
from adapterc.models import Loaded, load
from adapterc.obstacles import FALLBACK, Compiler, Place, find
from adapterc.population import models_with, population, representative
from adapterc.reproducer import Reproducer, reproduce
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.subgraph import shape_text

FORMS = ("table", "issue")


@dataclass(frozen=True)
class Gap:
    """One obstacle of one model. `blocks`: models of the population whose graph has its ops, so the most that it can block."""

    id: str
    model: str
    place: Place
    shapes: tuple[str, ...]
    blocks: int
    coverage: Coverage
    reproducer: Reproducer

    @property
    def blocking(self) -> bool:
        """Whether it stops the model, as opposed to slowing it down."""
        return not self.place.obstacle.kind.startswith(FALLBACK)

    def to_json(self) -> Mapping[str, object]:
        obstacle = self.place.obstacle
        return {
            "id": self.id,
            "model": self.model,
            "kind": obstacle.kind,
            "verdict": obstacle.verdict,
            "op": obstacle.op,
            "ops": list(ops_of(self.place)),
            "shapes": list(self.shapes),
            "why": obstacle.message,
            "source": obstacle.source,
            "places": len(self.place.sites),
            "profile_gap": obstacle.gap,
            "profile_fault": obstacle.fault,
            "blocks_models": self.blocks,
            "covered_by": list(self.coverage.by),
            "template": self.coverage.template,
            "template_because": self.coverage.near,
            "reproducer": self.reproducer.text,
            "reproducer_confirmed": self.reproducer.confirmed,
        }


@dataclass(frozen=True)
class GapsReport:
    """`remaining`: per model, what the compiler still has against it once all adapters are applied."""

    profile: str
    gaps: tuple[Gap, ...]
    remaining: Mapping[str, tuple[str, ...]]
    as_issue: bool = False

    @property
    def ok(self) -> bool:
        return True  # a list of gaps is an answer, not a failure

    def to_json(self) -> Mapping[str, object]:
        remaining = {model: list(texts) for model, texts in self.remaining.items()}
        return {"profile": self.profile, "gaps": [gap.to_json() for gap in self.gaps], "remaining_with_adapters": remaining}

    def show(self, console: Console) -> None:
        if self.as_issue:
            for gap in self.gaps:
                console.print(issue_text(gap, self.profile), markup=False, soft_wrap=True)
            return
        console.print(gap_table(self.gaps))
        for gap in self.gaps:
            console.print(f"\n[bold]{gap.id}[/] {gap.place.obstacle.message}", soft_wrap=True)
            console.print(gap.reproducer.text, markup=False, soft_wrap=True)
        for model, texts in self.remaining.items():
            left = "nothing is left" if not texts else f"{len(texts)} left: {'; '.join(texts)}"
            console.print(f"\n{model} with all adapters: {left}", markup=False, soft_wrap=True)


def gaps_of(
    models: Sequence[str], specs: Sequence[Path], profile: str, *, form: str = "table", everything: bool = False, top: int = 20
) -> GapsReport:
    """Find the gaps of each model, or of the `top` architectures of the population. Raises UserError ADC508, ADC602, ADC603 and what loading raises."""
    if not models and not everything:
        raise UserError("ADC602", "no model is named", "name one, or use --all for the population")
    if form not in FORMS:
        raise UserError("ADC603", f"--as {form} is no form of the report", f"choose {' or '.join(FORMS)}")
    backend = profile_named(profile)
    adapters = load_all(specs)
    loaded = [load(text) for text in models]
    if everything:
        loaded += [representative(kind.architecture) for kind in population()[:top] if kind.ops]
    found: list[Gap] = []
    remaining: dict[str, tuple[str, ...]] = {}
    for model in loaded:
        gaps, left = model_gaps(model, adapters, backend)
        found += gaps
        remaining[model.source.text] = left
    ranked = ranking(found) if everything else tuple(found)
    return GapsReport(profile, ranked, remaining, form == "issue")


def profile_named(name: str) -> Profile:
    try:
        return load_profile(name)
    except FileNotFoundError as error:
        raise UserError("ADC508", str(error), "choose one of those") from None


def model_gaps(loaded: Loaded, adapters: Sequence[Adapter], profile: Profile) -> tuple[list[Gap], tuple[str, ...]]:
    """The gaps of one model in the order of the compiler, and what is left with the adapters."""
    compiler = Compiler(profile)
    gaps: list[Gap] = []
    left: list[str] = []
    for graph in graphs_of_loaded(loaded, seeded_inputs(loaded)):
        library = apply_library(graph, adapters, profile, compiler)
        places = find(graph.captured.module, graph.layouts, profile, compiler)
        gaps += _described(loaded.source.text, places, graph, library, profile, len(gaps))
        left += [f"{place.obstacle.kind} at {_short(place.obstacle.source)}" for place in library.left]
    return gaps, tuple(left)


def _described(model: str, places: Sequence[Place], graph: ModelGraph, library: Library, profile: Profile, before: int) -> Iterator[Gap]:
    for number, place in enumerate(places, before + 1):
        inputs = [node.meta.get("val") for node in place.module.graph.find_nodes(op="placeholder")]
        shapes = tuple(shape_text(value) for value in inputs if hasattr(value, "shape"))
        yield Gap(
            f"G{number}", model, place, shapes, models_with(ops_of(place)), coverage(place, graph, library), reproduce(place, profile.name)
        )


def ranking(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """One gap a kind and ops, weighed by the models of the architectures that it was found in, the heaviest first."""
    weight = {f"config:{kind.architecture}": kind.models for kind in population()}
    groups: dict[tuple[object, ...], list[Gap]] = {}
    for gap in gaps:
        groups.setdefault((gap.place.obstacle.kind, ops_of(gap.place)), []).append(gap)
    merged = []
    for group in groups.values():
        names = sorted({gap.model for gap in group})
        covered = (
            group[0].coverage if all(gap.coverage.covered for gap in group) else next(g for g in group if not g.coverage.covered).coverage
        )
        merged.append(replace(group[0], model=", ".join(names), blocks=sum(weight.get(name, 0) for name in names), coverage=covered))
    ordered = sorted(merged, key=lambda gap: (not gap.blocking, -gap.blocks))
    return tuple(replace(gap, id=f"G{number}") for number, gap in enumerate(ordered, 1))


def gap_table(gaps: Sequence[Gap]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("gap", "kind", "×", "at", "models"):
        table.add_column(heading, no_wrap=heading != "kind", overflow="fold")
    table.add_column("covered by", overflow="fold")
    for gap in gaps:
        obstacle = gap.place.obstacle
        who = ", ".join(gap.coverage.by) if gap.coverage.covered else f"[yellow]none[/]; nearest {gap.coverage.template or '–'}"
        table.add_row(gap.id, obstacle.kind, str(len(gap.place.sites)), _short(obstacle.source), f"≤ {gap.blocks}", who)
    return table


def issue_text(gap: Gap, profile: str) -> str:
    """A report for the tracker of the compiler."""
    obstacle = gap.place.obstacle
    title = f"{obstacle.op}: {obstacle.kind} for {', '.join(gap.shapes)}"
    confirmed = (
        "The program below was run by itself and gives this answer." if gap.reproducer.confirmed else "Seen in the whole graph only."
    )
    return "\n".join(
        (
            f"### {title}",
            "",
            f"{obstacle.message[:1].upper()}{obstacle.message[1:]}.",
            "",
            f"- From: {_short(obstacle.source)} (Transformers), {len(gap.place.sites)} place(s) in {gap.model}",
            f"- Profile: {profile}; stage: {obstacle.stage or 'unknown'}; verdict: {obstacle.verdict}",
            f"- Models among the 20,000 most downloaded with these ops: up to {gap.blocks}",
            f"- Workaround: {', '.join(gap.coverage.by) if gap.coverage.covered else 'none known'}",
            "",
            confirmed,
            "```python",
            gap.reproducer.text,
            "```",
            "",
        )
    )


def _short(source: str) -> str:
    return "/".join(source.rsplit("/", 2)[-2:])
