"""What is read off a plan: LX lives, ownership pictures, unknowns that results lean on; and every stage as text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from adapterc.spyre_runtime import settings
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log
from adapterc.spyre_runtime.dumps import STAGES, stage_text
from adapterc.spyre_runtime.plan_use import MOST_CELLS, NOBODY, SEVERAL, leanings, lx_slots, ownerships
from adapterc.spyre_runtime.profile import load_profile

PROFILE = load_profile()


def half(*size: int) -> torch.Tensor:
    return torch.randn(*size).to(torch.float16)


def test_an_lx_life_reaches_from_the_op_that_writes_to_the_last_that_reads(compiled: Any) -> None:
    plan = compiled(lambda x: torch.softmax(x, -1), half(64, 256)).compilation.plan
    slots = {slot.storage: slot for slot in lx_slots(plan)}
    names = [step.output for step in plan.steps]
    assert slots and plan.lx_peak == max(s.address + s.bytes for s in slots.values())
    for name, slot in slots.items():
        assert names[slot.first] == name
        assert any(read.buffer == name for read in plan.steps[slot.last].reads)
        assert slot.bytes == -(-256 // 64) * 64 * 128 // 32 or slot.bytes == 64 * 128 // 32


def test_a_picture_shows_each_core_where_it_works(compiled: Any) -> None:
    plan = compiled(lambda a, b: a @ b, half(64, 128), half(128, 256)).compilation.plan
    (op,) = plan.ops
    pictures = {picture.buffer: picture for picture in ownerships(plan, PROFILE)}
    assert set(pictures) == {op.output, *plan.inputs}
    out = pictures[op.output]
    owners = {core for row in out.cells for core in row}
    assert out.writes and owners == set(range(op.cores))
    weight = pictures[plan.inputs[1]]
    assert not weight.writes and {core for row in weight.cells for core in row} <= {SEVERAL, *range(op.cores)}


def test_a_large_tensor_is_sampled_and_what_nobody_touches_is_empty(compiled: Any) -> None:
    plan = compiled(lambda x: x[:100] * 2, half(400, 6400)).compilation.plan
    pictures = {picture.buffer: picture for picture in ownerships(plan, PROFILE)}
    x = pictures[plan.inputs[0]]
    assert len(x.cells) <= MOST_CELLS and len(x.cells[0]) <= MOST_CELLS
    assert [all(core == NOBODY for core in row) for row in x.cells] == [row >= MOST_CELLS // 4 for row in range(len(x.cells))]


def names(graph: Any) -> set[str]:
    return {leaning.choice.name for leaning in leanings(graph.compilation.plan, PROFILE)}


def test_results_lean_on_what_their_ops_need(compiled: Any) -> None:
    always = {"host_rounding", "underflow"}
    assert names(compiled(lambda a: a + a, half(4, 64))) == always
    assert names(compiled(lambda a: torch.exp(a), half(4, 64))) == always | {"special_functions"}
    assert names(compiled(lambda a, b: a @ b, half(64, 64), half(64, 64))) == always | {"accumulator"}
    assert names(compiled(lambda a, b: a @ b, half(1, 3072), half(3072, 192))) == always | {"accumulator", "partial_sums"}


def test_an_older_release_leans_on_more(compiled: Any) -> None:
    plan = compiled(lambda a: a + a, half(4, 64)).compilation.plan
    older = {leaning.choice.name for leaning in leanings(plan, load_profile("torch-spyre-2025-11"))}
    assert {"op_rounding", "device_to_host", "overflow"} <= older


@pytest.fixture
def records() -> Any:
    clear_compile_log()
    torch._dynamo.reset()
    run = torch.compile(lambda x: torch.softmax(x * 2, -1), backend="spyre", dynamic=False)
    with torch.no_grad():
        run(half(64, 128).to("spyre"))
    return compile_log()


def test_every_stage_prints_itself(records: Any) -> None:
    assert STAGES == ("capture", "patches", "decompose", "lower", "propagate", "restickify", "pad", "divide", "scratchpad", "fuse", "plan")
    (record,) = records
    texts = {stage: stage_text(record, stage) for stage in STAGES}
    assert all(text.strip() for text in texts.values())
    assert "softmax" in texts["capture"] and "amax" in texts["decompose"] and "one of" in texts["propagate"]
    assert "32 cores" in texts["divide"] and "LX" in texts["scratchpad"] and "bundle 0" in texts["fuse"]
    with pytest.raises(KeyError):
        stage_text(record, "link")


def test_a_refused_graph_prints_its_refusal_where_a_stage_is_missing() -> None:
    clear_compile_log()
    torch._dynamo.reset()
    run = torch.compile(lambda x: torch.erf(x), backend="spyre", dynamic=False)
    with torch.no_grad(), settings(legality="report"):
        run(half(4, 64).to("spyre"))
    (record,) = compile_log()
    assert "erf" in stage_text(record, "capture") and stage_text(record, "plan").startswith("refused: unimplemented_op:erf")
