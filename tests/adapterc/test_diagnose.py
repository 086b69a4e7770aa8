"""Diagnosis on small graphs with one fault each: the op, the class, the proof, and the number of runs; nobody is accused without a fault."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from adapterc.diagnose import DRIFT, FUSION, LAYOUT, LEAK, LOWERING, ORIGIN, TRANSFER, Diagnosis, bars, diagnose_subject
from adapterc.diagnose_model import diagnose_source
from adapterc.errors import UserError
from adapterc.spyre_runtime.execute_tiled import link
from adapterc.spyre_runtime.formats import DEFAULT_RULES, NumberRules
from adapterc.spyre_runtime.frontend import Compilation, compile_graph
from adapterc.spyre_runtime.plan_json import to_json
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.tiled_options import TiledOptions
from adapterc.subject import GARBAGE, QUIET, Subject, made, subject_of

Function = Callable[..., torch.Tensor]
PROFILE = load_profile()


def compiled(function: Function, *values: torch.Tensor) -> Compilation:
    mode = FakeTensorMode()
    with mode, torch.no_grad():
        fakes = [torch.empty(value.shape, dtype=torch.float16, device="spyre") for value in values]
        module = make_fx(lambda *args: (function(*args),), pre_dispatch=True)(*fakes)
    return compile_graph(module, PROFILE)


def diagnosed(function: Function, *values: torch.Tensor, faults: tuple[str, ...] = ()) -> Diagnosis:
    return diagnose_subject(subject_of(compiled(function, *values), values, PROFILE, DEFAULT_RULES, frozenset(faults)))


def normal(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).half().float()


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(12):
        x = torch.relu(x * 1.5) - 0.25
    return torch.exp(x - x.amax(-1, keepdim=True) - 9) + x.neg()


@pytest.mark.parametrize(
    ("fault", "klass", "function", "values"),
    [
        ("exp-floor", LOWERING, lambda x: torch.exp(x - 30) * 1e6 + x * 0, (normal(4, 64),)),
        ("storage-offset-dropped", LAYOUT, lambda x: x[1:].clone(), (normal(4, 64),)),
        ("padding-not-masked", LEAK, lambda x: torch.relu(x).sum(-1), (normal(4, 20),)),
        ("broadcast-result-misread", FUSION, lambda x, b, w: (x + b) @ w, (normal(64, 64), normal(64, seed=1), normal(64, 64, seed=2))),
        (
            "layernorm-constant-rows-nan",
            ORIGIN,
            lambda x: torch.nn.functional.layer_norm(x, [64], torch.ones_like(x[0]), torch.zeros_like(x[0])),
            (torch.full((4, 64), 3.1).half().float(),),
        ),
    ],
)
def test_names_the_class(fault: str, klass: str, function: Function, values: tuple[torch.Tensor, ...]) -> None:
    found = diagnosed(function, *values, faults=(fault,))
    assert found.klass == klass and len(found.culprits) == 1
    (culprit,) = found.culprits
    assert culprit.error_before > found.bound >= culprit.error_after
    assert culprit.certainty > 0.9


def test_a_fault_of_the_bus_is_no_fault_of_an_op() -> None:
    found = diagnosed(lambda x: x * 1024, normal(4, 64) * 2.0**-20, faults=("subnormals-halved",))
    assert found.klass == TRANSFER and found.culprits[0].op == "transfer"


@pytest.mark.parametrize("rules", [DEFAULT_RULES, NumberRules("nearest_even")])
def test_accuses_nobody_without_a_fault(rules: NumberRules) -> None:
    values = (normal(64, 128), normal(128, 64, seed=1))
    graph = compiled(lambda x, w: torch.softmax(chain(x) @ w, -1), *values)
    expected = link(graph, PROFILE, TiledOptions(checks=QUIET, padding=GARBAGE), DEFAULT_RULES)
    device = link(graph, PROFILE, TiledOptions(checks=QUIET, padding=GARBAGE, partial_sums="dl16"), rules)
    found = diagnose_subject(made(graph, values, PROFILE, DEFAULT_RULES, expected, device))
    assert found.klass == DRIFT and not found.culprits


@pytest.mark.parametrize("fault", ["exp-floor", "broadcast-result-misread", None])
def test_a_fault_is_found_on_a_device_that_rounds_otherwise_everywhere(fault: str | None) -> None:
    """Every op differs then, and end to end the fault is one difference among many."""
    values = (normal(64, 128), normal(128, seed=2), normal(128, 64, seed=1))
    graph = compiled(lambda x, b, w: (chain(x + b) + torch.exp(x - 14) * 60000.0) @ w + (x + b) @ w, *values)
    expected = link(graph, PROFILE, TiledOptions(checks=QUIET, padding=GARBAGE), DEFAULT_RULES)
    rules = NumberRules("nearest_even")
    options = TiledOptions(checks=QUIET, padding=GARBAGE, partial_sums="dl16", faults=frozenset({fault} if fault else ()))
    device = link(graph, PROFILE, options, rules)
    found = diagnose_subject(made(graph, values, PROFILE, DEFAULT_RULES, expected, device))
    assert found.error > 2.0**-12
    wrong = {name for _, name in device.faults.fired}
    assert {culprit.op for culprit in found.culprits} <= wrong
    assert bool(found.culprits) == bool(fault) == bool(wrong)
    assert all(culprit.certainty > 0.5 for culprit in found.culprits)


def test_runs_grow_with_the_logarithm() -> None:
    values = (normal(8, 64),)
    graph = compiled(chain, *values)
    whole = subject_of(graph, values, PROFILE, DEFAULT_RULES, frozenset({"exp-floor"}))
    name = next(name for _, name in whole.device.faults.fired)
    steps = tuple(d if getattr(e, "name", "") == name else e for e, d in zip(whole.expected.steps, whole.device.steps, strict=True))
    subject: Subject = dataclasses.replace(whole, device=dataclasses.replace(whole.device, steps=steps, residents={}), runs=0)
    found = diagnose_subject(subject, picture=False)
    assert found.ops > 30 and found.runs <= 2 * math.log2(found.ops) + 12


def test_the_picture_shows_where_the_error_begins() -> None:
    values = (normal(64, 64), normal(64, seed=1), normal(64, 64, seed=2))
    found = diagnosed(lambda x, b, w: torch.relu((x + b) @ w) * 2 + 1, *values, faults=("broadcast-result-misread",))
    errors = [error for _, _, error in found.errors]
    first = next(i for i, error in enumerate(errors) if error > 0)
    assert found.errors[first][0] == found.culprits[0].op
    assert all(error == 0 for error in errors[:first])
    assert len(list(bars(found.errors, rows=3))) == 3


def test_a_saved_plan_is_diagnosed_without_its_graph(tmp_path: Path) -> None:
    plan = compiled(lambda x: torch.exp(x - 30) * 1e6 + x, normal(4, 64)).plan
    path = tmp_path / "plan.json"
    entry = {"graph": "g0", "inputs": [{"name": name, "kind": "input", "path": ""} for name in plan.inputs], "plan": to_json(plan)}
    path.write_text(json.dumps({"format": "adapterc-plans", "version": 1, "model": "made by the test", "graphs": [entry]}))
    (right,) = diagnose_source(f"plan:{path}", (), "").graphs
    assert right.klass == DRIFT and not right.culprits
    (wrong,) = diagnose_source(f"plan:{path}", (), "", ("exp-floor",)).graphs
    (culprit,) = wrong.culprits
    assert (culprit.klass, culprit.function) == (LOWERING, "exp")
    with pytest.raises(UserError) as error:
        diagnose_source(f"plan:{path}", (), "", ("exp-flor",))
    assert error.value.code == "ADC608"
