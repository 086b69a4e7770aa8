"""`adapterc gaps`: everything in a model that does not lower, falls back to the CPU or hits a known fault of the release, in one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from adapterc.capturing import ModelGraph
from adapterc.coverage import Coverage, Library, apply_library, changed_by, coverage, ops_of
from adapterc.decoding import all_graphs
from adapterc.dsl.adapter import Adapter
from adapterc.dsl.loader import load_all
from adapterc.errors import UserError
from adapterc.gap_report import gap_table, issue_text, short
from adapterc.known_faults import FAULT
from adapterc.models import Loaded, load
from adapterc.obstacles import FALLBACK, Compiler, Place, all_places, known_faults
from adapterc.population import models_with
from adapterc.reproducer import Reproducer, reproduce
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.spyre_runtime.refusal import Obstacle
from adapterc.subgraph import shape_text

FORMS = ("table", "issue")


@dataclass(frozen=True)
class Gap:
    """One obstacle of one model. `graphs`: the steps that have it ("forward", "decode"). `places`: how often the graph has it.

    `blocks`: models of the population whose graph has its ops, so the most that it can block.
    """

    id: str
    model: str
    graphs: tuple[str, ...]
    obstacle: Obstacle
    ops: tuple[str, ...]
    shapes: tuple[str, ...]
    places: int
    blocks: int
    coverage: Coverage
    reproducer: Reproducer

    @property
    def blocking(self) -> bool:
        """Whether it stops the model, as opposed to slowing it down or making its numbers wrong."""
        return not self.obstacle.kind.startswith((FALLBACK, FAULT))

    def to_json(self) -> Mapping[str, object]:
        obstacle = self.obstacle
        return {
            "id": self.id,
            "model": self.model,
            "graphs": list(self.graphs),
            "kind": obstacle.kind,
            "verdict": obstacle.verdict,
            "blocking": self.blocking,
            "op": obstacle.op,
            "ops": list(self.ops),
            "shapes": list(self.shapes),
            "stage": obstacle.stage,
            "why": obstacle.message,
            "source": obstacle.source,
            "places": self.places,
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
class ModelGaps:
    """What one model gives. `left`: what the compiler still has against it with all adapters. `untraced`: why its decode step is missing, if it is."""

    model: str
    gaps: tuple[Gap, ...]
    left: tuple[str, ...]
    untraced: str = ""


@dataclass(frozen=True)
class GapsReport:
    profile: str
    models: tuple[ModelGaps, ...]
    as_issue: bool = False

    @property
    def ok(self) -> bool:
        return True  # a list of gaps is an answer, not a failure

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(gap for model in self.models for gap in model.gaps)

    @property
    def remaining(self) -> Mapping[str, tuple[str, ...]]:
        return {model.model: model.left for model in self.models}

    def to_json(self) -> Mapping[str, object]:
        return {
            "profile": self.profile,
            "gaps": [gap.to_json() for gap in self.gaps],
            "remaining_with_adapters": {model.model: list(model.left) for model in self.models},
            "untraced": {model.model: model.untraced for model in self.models if model.untraced},
        }

    def show(self, console: Console) -> None:
        if self.as_issue:
            for gap in self.gaps:
                console.print(issue_text(gap.to_json(), self.profile), markup=False, soft_wrap=True)
            return
        console.print(gap_table(self.gaps))
        for gap in self.gaps:
            console.print(f"\n[bold]{gap.id}[/] {gap.obstacle.message}", soft_wrap=True)
            console.print(gap.reproducer.text, markup=False, soft_wrap=True)
        for model in self.models:
            left = "nothing is left" if not model.left else f"{len(model.left)} left: {'; '.join(model.left)}"
            console.print(f"\n{model.model} with all adapters: {left}", markup=False, soft_wrap=True)
            if model.untraced:
                console.print(f"its decode step was not looked at: {model.untraced}", markup=False, soft_wrap=True)


def gaps_of(models: Sequence[str], specs: Sequence[Path], profile: str, *, form: str = "table", patched: bool = False) -> GapsReport:
    """Find the gaps of each model; `patched`: those that stay with all adapters. Raises UserError ADC508, ADC602, ADC603 and what loading raises."""
    if not models:
        raise UserError("ADC602", "no model is named", "name one, or use --all for the population")
    check_form(form)
    backend = profile_named(profile)
    adapters, compiler = load_all(specs), Compiler(backend)
    return GapsReport(profile, tuple(model_gaps(load(text), adapters, compiler, patched) for text in models), form == "issue")


def check_form(form: str) -> None:
    """Raises UserError ADC603."""
    if form not in FORMS:
        raise UserError("ADC603", f"--as {form} is no form of the report", f"choose {' or '.join(FORMS)}")


def profile_named(name: str) -> Profile:
    try:
        return load_profile(name)
    except FileNotFoundError as error:
        raise UserError("ADC508", str(error), "choose one of those") from None


def model_gaps(loaded: Loaded, adapters: Sequence[Adapter], compiler: Compiler, patched: bool = False) -> ModelGaps:
    """The gaps of one model: refusals and host steps in the order of the compiler, then known faults; with `patched` of the rewritten graphs."""
    graphs, untraced = all_graphs(loaded)
    found: list[Gap] = []
    left: list[str] = []
    for graph in graphs:
        library = apply_library(graph, adapters, compiler.profile, compiler)
        found += _of_patched(loaded, graph, library, compiler) if patched else _of_stock(loaded, graph, library, compiler)
        left += [f"{place.obstacle.kind} at {short(place.obstacle.source)}" for place in library.left]
    merged = [replace(gap, id=f"G{number}") for number, gap in enumerate(_merged(found), 1)]
    return ModelGaps(loaded.source.text, tuple(merged), tuple(dict.fromkeys(left)), untraced)


def _of_stock(loaded: Loaded, graph: ModelGraph, library: Library, compiler: Compiler) -> Iterator[Gap]:
    module = graph.captured.module
    after = known_faults(library.together.device, library.together.layouts, library.left, compiler)
    for place in all_places(module, graph.layouts, compiler):
        covered = coverage(place, graph, library)
        if place.obstacle.kind.startswith(FAULT):
            stands = any((p.obstacle.kind, p.obstacle.source) == (place.obstacle.kind, place.obstacle.source) for p in after)
            covered = Coverage() if stands else Coverage(by=changed_by(place, graph, library))
        yield _gap(loaded, graph, place, covered, compiler)


def _of_patched(loaded: Loaded, graph: ModelGraph, library: Library, compiler: Compiler) -> Iterator[Gap]:
    """What stays with the library: no adapter covers it."""
    faults = known_faults(library.together.device, library.together.layouts, library.left, compiler)
    for place in (*library.left, *faults):
        yield _gap(loaded, graph, place, Coverage(), compiler)


def _gap(loaded: Loaded, graph: ModelGraph, place: Place, covered: Coverage, compiler: Compiler) -> Gap:
    inputs = [node.meta.get("val") for node in place.module.graph.find_nodes(op="placeholder")]
    shapes = tuple(shape_text(value) for value in inputs if hasattr(value, "shape"))
    ops = ops_of(place)
    return Gap(
        "", loaded.source.text, (graph.step,), place.obstacle, ops, shapes, len(place.sites), models_with(ops), covered,
        reproduce(place, compiler.profile.name),
    )  # fmt: skip


def _merged(gaps: Sequence[Gap]) -> list[Gap]:
    """The decode step has most of the forward's gaps again, at other shapes: one gap for both, covered if both are."""
    found: dict[tuple[object, ...], Gap] = {}
    for gap in gaps:
        key = identity(gap.obstacle, gap.ops)
        before = found.get(key)
        if before is None:
            found[key] = gap
        else:
            graphs = tuple(dict.fromkeys((*before.graphs, *gap.graphs)))
            found[key] = replace(before, graphs=graphs, coverage=before.coverage if gap.coverage.covered else gap.coverage)
    return list(found.values())


def identity(obstacle: Obstacle, ops: Sequence[str]) -> tuple[object, ...]:
    """What makes two places of a model the same gap, and so gives them the same number."""
    return obstacle.kind, obstacle.source, tuple(ops)
