"""`adapterc run plan:FILE`: plans that an earlier run wrote, without their model and without the compiler.

Weights are not in the file, so the inputs are drawn from a seed: what is shown is whether the plan runs, whether its result changes with the order of the
cores or with what unused lanes hold, and what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from adapterc.plan_file import SavedPlan, read_plans
from adapterc.run_facts import GraphFacts
from adapterc.run_setup import AS_IT_IS, Setup, checked_setup
from adapterc.run_show import cost_table, graph_lines, unknown_lines
from adapterc.spyre_runtime.cost import price
from adapterc.spyre_runtime.execute_tiled import execute_plan
from adapterc.spyre_runtime.findings import FindingError
from adapterc.spyre_runtime.host_steps import HostStep
from adapterc.spyre_runtime.ir import OpKind
from adapterc.spyre_runtime.plan import Plan
from adapterc.spyre_runtime.plan_json import PlanError
from adapterc.spyre_runtime.plan_use import leanings
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.tiled_options import TiledOptions

PREFIX = "plan:"
SEED = 0


@dataclass(frozen=True)
class PlanRun:
    """`problem`: what a check of the executor found, None where all is well. `finite`: whether every floating output is."""

    graph: GraphFacts
    problem: str | None
    finite: bool


@dataclass(frozen=True)
class PlanReport:
    file: str
    runs: tuple[PlanRun, ...]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(run.problem is None for run in self.runs)

    def to_json(self) -> Mapping[str, object]:
        runs = [{**run.graph.to_json(), "problem": run.problem, "finite": run.finite} for run in self.runs]
        return {"plan": self.file, "faults": list(self.faults), "graphs": runs}

    def show(self, console: Console) -> None:
        console.print(f"[bold]{self.file}[/] on inputs from seed {SEED}, cores in random order, unused lanes poisoned")
        for run in self.runs:
            for line in graph_lines([run.graph]):
                console.print(line, soft_wrap=True)
            result = "runs; the result does not depend on the order of cores or on unused lanes" if run.problem is None else run.problem
            console.print(f"    {result}", markup=False, soft_wrap=True)
            console.print(cost_table(run.graph))
        for line in unknown_lines([run.graph for run in self.runs]):
            console.print(f"unknowns:{line}", soft_wrap=True)


def run_plans(text: str, setup: Setup = AS_IT_IS) -> PlanReport:
    """Run every plan of the file behind `plan:`. Raises UserError ADC510 for a file that is none, and what `checked_setup` raises."""
    saved = read_plans(Path(text.removeprefix(PREFIX)).expanduser())
    for plan in saved:
        checked_setup(setup, load_profile(plan.plan.profile))
    return PlanReport(text.removeprefix(PREFIX), tuple(_run(plan, setup.faults) for plan in saved), setup.injected)


def _run(saved: SavedPlan, faults: Sequence[str]) -> PlanRun:
    plan, generator = saved.plan, torch.Generator().manual_seed(SEED)
    options = TiledOptions(leaks=True, shuffle=SEED, faults=frozenset(faults))
    problem: str | None = None
    outputs: tuple[Tensor | None, ...] = ()
    try:
        outputs = execute_plan(plan, {name: _drawn(plan, name, generator) for name in plan.inputs}, options=options)
    except (FindingError, PlanError) as error:
        problem = str(error)
    finite = all(bool(value.isfinite().all()) for value in outputs if value is not None and value.is_floating_point())
    return PlanRun(_facts(saved), problem, finite)


def _drawn(plan: Plan, name: str, generator: torch.Generator) -> Tensor:
    """Normal numbers; zeros for whole numbers, which may be rows to select; true for conditions."""
    buffer = plan.buffer(name)
    if buffer.dtype.is_floating_point:
        return torch.randn(buffer.size, generator=generator).to(buffer.dtype)
    return torch.ones(buffer.size, dtype=buffer.dtype) if buffer.dtype is torch.bool else torch.zeros(buffer.size, dtype=buffer.dtype)


def _facts(saved: SavedPlan) -> GraphFacts:
    plan, profile = saved.plan, load_profile(saved.plan.profile)
    weights = {name for name, origin in saved.origins.items() if origin.kind == "weight"}
    fallbacks = tuple(step.function for step in plan.steps if isinstance(step, HostStep) and step.kind is OpKind.FALLBACK)
    return GraphFacts(
        saved.graph,
        tuple(plan.buffer(name).size for name in plan.inputs if name not in weights),
        0.0,
        {"device": len(plan.ops)},
        (),
        sum(op.kind is OpKind.RESTICKIFY for op in plan.ops),
        fallbacks,
        plan,
        price(plan, profile),
        leanings(plan, profile),
        origins=tuple(saved.origins.values()),
    )
