"""Every fault of the compiler itself: the smallest graph that it refuses, one beside it that it takes, and what becomes of the first without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from adapterc.spyre_runtime.capture import capture
from adapterc.spyre_runtime.execute_fast import compile_program
from adapterc.spyre_runtime.execute_tiled import link
from adapterc.spyre_runtime.formats import DEFAULT_RULES
from adapterc.spyre_runtime.frontend import compile_graph
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.rounding_points import as_device_computes
from adapterc.spyre_runtime.settings import settings

PROFILE = load_profile()
Graph = Callable[..., Any]


def half(*size: int) -> Tensor:
    return torch.randn(*size).to(torch.float16)


def rows() -> Tensor:
    return torch.tensor([1, 3])


@dataclass(frozen=True)
class Case:
    """kind: of the refusal with the fault. without: of the refusal that is left when the fault is off, None where the graph then runs."""

    kind: str
    shows: Graph
    inputs: tuple[Callable[[], Tensor], ...]
    spares: Graph
    spared_inputs: tuple[Callable[[], Tensor], ...]
    without: str | None = None


def square() -> Tensor:
    return torch.ones(128, 128, dtype=torch.int64)


CASES: dict[str, Case] = {
    "pad-after-restickify": Case(
        "pad_K_after_restickify(KeyError val)",
        lambda a, b: a @ b.t(),
        (lambda: half(64, 100), lambda: half(200, 100)),
        lambda a, b: a @ b,
        (lambda: half(64, 100), lambda: half(100, 200)),
    ),
    "pad-of-nameless-buffer": Case(
        "RuntimeError@_inductor/padding.py:_find_arg_fx_node",
        lambda a, b, c: a @ torch.cat([b, c], 0),
        (lambda: half(64, 129), lambda: half(128, 64), lambda: half(1, 64)),
        lambda a, b, c: a @ torch.cat([b, c], 0),
        (lambda: half(64, 192), lambda: half(128, 64), lambda: half(64, 64)),
    ),
    "restickify-of-nameless-buffer": Case(
        "StopIteration@_inductor/insert_restickify.py:_create_restickify_node",
        lambda a, b: a.t() + b,
        (square, square),
        lambda a, b: a + b,
        (square, square),
        without="op_dtype:ReStickifyOpHBM@IEEE_FP32",
    ),
    "stub-not-last": Case(
        "codegen_syntax_error_unimplemented_in_fused",
        lambda x: torch.erf(x) * 2,
        (lambda: half(4, 64),),
        lambda x: torch.exp(x) * 2,
        (lambda: half(4, 64),),
        without="unimplemented_op:erf",
    ),
    "index-data-in-division": Case(
        "KeyError@_inductor/work_division.py:_effective_size",
        lambda a, i, v: a.index_copy(0, i, v),
        (lambda: half(8, 64), rows, lambda: half(2, 64)),
        lambda a, i, v: a[i] + v,
        (lambda: half(8, 64), rows, lambda: half(2, 64)),
    ),
    "gather-along-stick": Case(
        "KeyError@_inductor/codegen/superdsc.py:_create_sdsc_tensors",
        lambda a, i: a[:, i],
        (lambda: half(8, 64), rows),
        lambda a, i: a[i],
        (lambda: half(8, 64), rows),
    ),
    "index-data-stays": Case(
        "op_dtype:ReStickifyOpHBM@IEEE_INT32",
        lambda a, i: a[i].permute(2, 0, 1).contiguous(),
        (lambda: half(32, 12), lambda: torch.arange(49).reshape(7, 7) % 32),
        lambda a, i: a[i].permute(1, 0, 2).contiguous(),
        (lambda: half(32, 12), lambda: torch.arange(49).reshape(7, 7) % 32),
    ),
}


def run(function: Graph, inputs: tuple[Callable[[], Tensor], ...], profile: Profile) -> None:
    """Compile and run both ways; the results have to agree to the bit."""
    torch.manual_seed(0)
    on_device = [make().to("spyre") for make in inputs]
    with torch.no_grad():
        captured = capture(torch.fx.symbolic_trace(function), on_device)
    compilation = compile_graph(captured.module, profile)
    carriers = [x.raw for x in on_device]
    tiled = link(compilation, profile, rules=DEFAULT_RULES).run([x.clone() for x in carriers])
    fast = compile_program(as_device_computes(compilation.functional, DEFAULT_RULES), DEFAULT_RULES.op_rounding).run(*carriers)
    assert all(torch.equal(a, b) for a, b in zip(tiled, fast, strict=True) if a is not None)


def test_every_compiler_fault_has_a_case_and_is_on_in_its_release() -> None:
    assert set(CASES) == set(PROFILE.compiler_faults)
    assert all(PROFILE.has_fault(name) for name in CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_smallest_graph_is_refused_for_it(name: str) -> None:
    case = CASES[name]
    with pytest.raises(Refusal) as refused:
        run(case.shows, case.inputs, PROFILE)
    assert (refused.value.kind, refused.value.obstacle.fault) == (case.kind, name)


@pytest.mark.parametrize("name", CASES)
def test_a_graph_beside_it_is_taken(name: str) -> None:
    run(CASES[name].spares, CASES[name].spared_inputs, PROFILE)


@pytest.mark.parametrize("name", CASES)
def test_switched_off_it_refuses_nothing(name: str) -> None:
    case, profile = CASES[name], PROFILE.with_faults({name: False})
    if case.without is None:
        run(case.shows, case.inputs, profile)
        return
    with pytest.raises(Refusal) as refused:
        run(case.shows, case.inputs, profile)
    assert refused.value.kind == case.without


def test_settings_switch_them_and_name_those_there_are() -> None:
    with settings(switched=(("gather-along-stick", False),)) as now:
        assert not now.backend.has_fault("gather-along-stick") and now.backend.has_fault("stub-not-last")
    with pytest.raises(KeyError, match="no compiler fault 'exp-floor'; there are pad-after-restickify"):
        PROFILE.with_faults({"exp-floor": True})
