"""`adapterc check --model MODEL` and `--families`: the last rung, whole models. Patched on the CPU bitwise stock, on the device within its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from adapterc import tiny
from adapterc.build import built
from adapterc.check import CheckReport
from adapterc.inputs import choose
from adapterc.models import Loaded, load
from adapterc.run import run_loaded
from adapterc.verify.rung_model import ModelRun, check_model
from adapterc.verify.verdict import REFUTED, Evidence, Verdict

# One of each kind that adapters speak of: post-norm encoder, Conv1D decoder, rotary decoders, alternating local and global attention.
FAMILIES = ("bert", "gpt2", "llama", "qwen3", "modernbert")
LEAST_COSINE = 0.99  # of a two-layer instance with lively random weights, against float32 on the CPU
PROFILE = "torch-spyre-2026-06"


@dataclass(frozen=True)
class ModelVerdict:
    """`fired`: how often each rule changed the model's graphs; `refusal`: why the device would not take it, which is no fault of a rule."""

    model: str
    verdict: Verdict
    fired: Mapping[str, int]
    refusal: str | None

    @property
    def ok(self) -> bool:
        return self.verdict.status != REFUTED


@dataclass(frozen=True)
class ModelsReport:
    checked: CheckReport
    models: tuple[ModelVerdict, ...]

    @property
    def ok(self) -> bool:
        return self.checked.ok and all(m.ok for m in self.models)

    def to_json(self) -> Mapping[str, object]:
        rows = [
            {
                "model": m.model,
                "ok": m.ok,
                "class": m.verdict.klass,
                "status": m.verdict.status,
                "how": m.verdict.how,
                "fired": {name: count for name, count in m.fired.items() if count},
                "refusal": m.refusal,
            }
            for m in self.models
        ]
        return {"models": rows, **self.checked.to_json()}

    def show(self, console: Console) -> None:
        if not self.checked.ok:
            self.checked.show(console)
            return
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("model", "verdict"):
            table.add_column(heading, no_wrap=True)
        table.add_column("how", overflow="fold")
        for m in self.models:
            fired = ", ".join(f"{name} ×{count}" for name, count in m.fired.items() if count) or "no rule"
            table.add_row(m.model, m.verdict.status, f"{m.verdict.how}; fired: {fired}", style=None if m.ok else "bold red")
        console.print(table)
        failed = sum(not m.ok for m in self.models)
        console.print(f"\n{len(self.models)} models: {'all stay what they were' if not failed else f'{failed} are changed by the rules'}")


def check_models(paths: Sequence[Path], models: Sequence[str] = (), families: Sequence[str] = ()) -> ModelsReport:
    """Check the specs, build them, and put the patches on each of the models (folders or `config:` specs) and tiny families.

    Raises UserError, SpecError or PatchError with the reason where it cannot start.
    """
    with built(paths) as (checked, package):
        found = tuple(_check(loaded, inputs, checked, package) for loaded, inputs in _subjects(models, families))
    return ModelsReport(checked, found)


def _subjects(models: Sequence[str], families: Sequence[str]) -> Iterator[tuple[Loaded, dict[str, torch.Tensor]]]:
    for text in models:
        loaded = load(text)
        yield loaded, choose(loaded, (), None)
    for family in families:
        loaded = tiny.recipe(family, "", "tiny").build(0)
        yield loaded, tiny.inputs_for(loaded)


def _check(loaded: Loaded, inputs: Mapping[str, torch.Tensor], checked: CheckReport, package: ModuleType) -> ModelVerdict:
    model = loaded.model
    name = loaded.source.text

    def patched() -> ModelRun:
        with package.patched(model):
            return _outputs(model, inputs)

    verdict = check_model(lambda: _outputs(model, inputs), patched, name, ", ".join(a.name for a in checked.adapters))
    if verdict.status == REFUTED:
        return ModelVerdict(name, verdict, {}, None)
    report = run_loaded(loaded, inputs, checked, package, PROFILE, "device", 0, look=False)
    if report.comparison is None:
        why = (report.refusal or "it gives no output").splitlines()[0]
        how = f"{verdict.how}; with these adapters alone the device refuses the model: {why}"
        return ModelVerdict(name, replace(verdict, how=how), report.fired, report.refusal)
    cosine = min(report.comparison.cosines, default=1.0)
    evidence = (*verdict.evidence, Evidence("8 whole model", f"cosine {cosine:.5f} on the device", (("cosine", cosine),)))
    if cosine < LEAST_COSINE:
        how = f"on the device its output has cosine {cosine:.4f} with stock, below {LEAST_COSINE}"
        return ModelVerdict(name, replace(verdict, klass="WRONG", status=REFUTED, how=how, evidence=evidence), report.fired, None)
    how = f"{verdict.how}, and cosine {cosine:.4f} on the device"
    return ModelVerdict(name, replace(verdict, how=how, evidence=evidence), report.fired, None)


def _outputs(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> ModelRun:
    """Every tensor of the output, caches left out: they are objects of the library's own."""
    with torch.no_grad():
        found: Any = model(**inputs)
    values = found.values() if isinstance(found, Mapping) else found
    return ModelRun(tuple(v for v in values if isinstance(v, torch.Tensor)))
