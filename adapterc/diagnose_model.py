"""The workflow of `adapterc diagnose MODEL`: the patched model's graphs with the values that reach the device, each diagnosed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from adapterc.build import built
from adapterc.diagnose import Diagnosis, bars, diagnose_subject, to_json
from adapterc.errors import UserError
from adapterc.gaps import profile_named
from adapterc.inputs import choose
from adapterc.models import Loaded, load
from adapterc.plan_file import read_plans
from adapterc.run_plan import PREFIX, SEED
from adapterc.spyre_runtime.backend import CompiledGraph, clear_compile_log, compile_log, spyre
from adapterc.spyre_runtime.faults import FAULTS
from adapterc.spyre_runtime.formats import DEFAULT_RULES
from adapterc.spyre_runtime.frontend import Compilation
from adapterc.spyre_runtime.memory import host_tensor
from adapterc.spyre_runtime.plan import Plan
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.settings import settings
from adapterc.subject import subject_of

DEVICE = "spyre"


@dataclass(frozen=True)
class DeviceGraph:
    """A compiled graph and the carriers of its tensor inputs in one call, in the plan's order."""

    compilation: Compilation
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class DiagnoseReport:
    model: str
    profile: str
    faults: tuple[str, ...]
    graphs: tuple[Diagnosis, ...]

    @property
    def ok(self) -> bool:
        return not any(graph.culprits for graph in self.graphs)

    def to_json(self) -> Mapping[str, object]:
        return {
            "model": self.model,
            "profile": self.profile,
            "faults": list(self.faults),
            "graphs": [to_json(graph) for graph in self.graphs],
        }

    def show(self, console: Console) -> None:
        for graph in self.graphs:
            for line in lines(graph):
                console.print(line, markup=False, soft_wrap=True)


def lines(found: Diagnosis) -> Iterator[str]:
    yield f"{found.klass}: the output differs by {found.error:.2e} of its largest value; rounding explains up to {found.bound:.2e}"
    for culprit in found.culprits:
        where = f" at {culprit.source.rpartition('/')[2]}" if culprit.source else ""
        yield f"  {culprit.klass} in {culprit.op} {culprit.function} ({culprit.node}){where}"
        yield f"    undoing it takes the error from {culprit.error_before:.2e} to {culprit.error_after:.2e}; alone it makes {culprit.error_alone:.2e}; certainty {culprit.certainty:.0%}"
        yield f"    {culprit.evidence}"
        yield from (f"    | {line}" for line in culprit.reproducer.splitlines())
    yield f"  try: {found.advice}"
    yield f"  {found.runs} runs for {found.ops} ops"
    yield from (f"  {bar}" for bar in bars(found.errors))


def diagnose_source(
    text: str, specs: Sequence[Path], profile: str, faults: Sequence[str] = (), *, texts: Sequence[str] = (), ids: str | None = None
) -> DiagnoseReport:
    """Diagnose a model's graphs, or with `plan:FILE` those of a file that `adapterc run --plan` wrote, on the inputs that `adapterc run plan:` draws.

    Raises UserError ADC607 where the device refuses the model, ADC608 for an unknown fault, ADC510 for a file that is no plan, and what loading and building raise.
    """
    if text.startswith(PREFIX):
        return _plans(text, faults)
    backend = profile_named(profile)
    _check_faults(backend, faults)
    loaded = load(text)
    with built(specs) as (_, package):
        graphs = device_graphs(loaded, choose(loaded, texts, ids), package.patched, backend)
    diagnoses = (diagnose_subject(subject_of(g.compilation, g.inputs, backend, DEFAULT_RULES, frozenset(faults))) for g in graphs)
    return DiagnoseReport(text, profile, tuple(faults), tuple(diagnoses))


def _check_faults(profile: Profile, faults: Sequence[str]) -> None:
    unknown = sorted(set(faults) - (FAULTS.keys() & profile.faults.keys()))
    if unknown:
        known = ", ".join(name for name in FAULTS if name in profile.faults)
        raise UserError("ADC608", f"{profile.name} has no fault `{unknown[0]}`", f"choose among {known}")


def _plans(text: str, faults: Sequence[str]) -> DiagnoseReport:
    """The graphs of a file. Each is judged by the profile that it was planned for; weights are not in it, so inputs are drawn."""
    saved = read_plans(Path(text.removeprefix(PREFIX)).expanduser())
    found = []
    for entry in saved:
        profile = load_profile(entry.plan.profile)
        _check_faults(profile, faults)
        subject = subject_of(entry.plan, drawn_carriers(entry.plan), profile, DEFAULT_RULES, frozenset(faults))
        found.append(diagnose_subject(subject))
    return DiagnoseReport(text, saved[0].plan.profile if saved else "", tuple(faults), tuple(found))


def drawn_carriers(plan: Plan) -> list[Tensor]:
    """Seeded inputs as the device carries them, in the plan's order."""
    generator = torch.Generator().manual_seed(SEED)
    carriers = []
    for name in plan.inputs:
        buffer = plan.buffer(name)
        carrier = host_tensor(buffer.size, buffer.stride, buffer.dtype)
        if buffer.dtype.is_floating_point:
            carrier.copy_(
                torch.randn(buffer.size, generator=generator).half()
            )  # half precision's values, which every float format here holds
        else:
            carrier.fill_(buffer.dtype is torch.bool)
        carriers.append(carrier)
    return carriers


def device_graphs(loaded: Loaded, inputs: Mapping[str, Tensor], patched: Callable[[Any], Any], profile: Profile) -> tuple[DeviceGraph, ...]:
    """Run the patched model once on the simulator and keep what each of its graphs is given. The model stays on the device.

    Raises UserError ADC607 where the device refuses a graph.
    """
    clear_compile_log()
    torch._dynamo.reset()
    model: Any = loaded.model
    model.to(DEVICE, torch.float16)
    given: dict[str, Any] = {
        name: value.to(DEVICE, torch.float16) if value.is_floating_point() else value.to(DEVICE) for name, value in inputs.items()
    }
    if hasattr(model.config, "use_cache"):
        given["use_cache"] = False
    spy = _Spy()
    with settings(profile=profile.name), torch.no_grad(), patched(model), _fresh():
        try:
            forward: Callable[..., Any] = torch.compile(model, backend=spy, dynamic=False)
            forward(**given)
        except Refusal as refusal:
            raise UserError("ADC607", f"{loaded.source.text} does not run on the device: {refusal}", "see `adapterc gaps`") from None
    compilations = [record.compilation for record in compile_log() if record.compilation is not None]
    return tuple(DeviceGraph(c, _tensors(c, values)) for c, values in zip(compilations, spy.calls, strict=True))


@contextmanager
def _fresh() -> Iterator[None]:
    try:
        yield
    finally:
        torch._dynamo.reset()


class _Spy:
    """The backend, with what its device programs are given kept aside."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled = spyre(module, inputs)
        if isinstance(compiled, CompiledGraph) and compiled.current is not None:
            ready = compiled.current
            run = ready.device.run

            def keep(*carriers: Any) -> Sequence[Any]:
                self.calls.append(tuple(c.clone() if isinstance(c, Tensor) else c for c in carriers))
                return run(*carriers)

            compiled.current = dataclasses.replace(ready, device=dataclasses.replace(ready.device, run=keep))
        return compiled


def _tensors(compilation: Compilation, carriers: Sequence[Any]) -> tuple[Tensor, ...]:
    placeholders = compilation.functional.graph.find_nodes(op="placeholder")
    return tuple(c for c, node in zip(carriers, placeholders, strict=True) if isinstance(node.meta.get("val"), Tensor))
