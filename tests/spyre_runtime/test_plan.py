"""The plan as data: round trip, order, places, refusals."""

from __future__ import annotations

import dataclasses
import json

import pytest

from adapterc.spyre_runtime.ir import BufferRole, OpKind
from adapterc.spyre_runtime.plan_json import PlanError, dumps, from_json
from adapterc.spyre_runtime.planner import build_plan
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal

PROFILE = load_profile()


@pytest.fixture
def block(build):
    """x → exp → sum → host step → neg → matmul with a weight: every part of a plan is in it."""
    build.input("x", (128, 256))
    build.input("w", (256, 512), order=(1, 0))
    build.pointwise("exp", "a", (128, 256), "x")
    build.pointwise("add", "b", (128, 256), "a", "x")
    build.fallback("aten.cumsum", "c", (128, 256), "b")
    build.pointwise("neg", "d", (128, 256), "c")
    build.matmul("y", "d", "w")
    return build.graph("y")


def test_a_plan_comes_back_from_json_as_it_was(block):
    plan = build_plan(block, PROFILE)
    text = dumps(plan)
    assert from_json(text) == plan
    assert dumps(from_json(text)) == text


def test_a_plan_has_every_step_in_order_and_every_place(block):
    plan = build_plan(block, PROFILE)
    assert plan.order == tuple(op.output for op in block.ops)
    assert [b.ops for b in plan.bundles] == [("op_a", "op_b"), ("op_d", "op_y")]
    assert [h.function for h in plan.host_steps] == ["aten.cumsum"]
    assert plan.buffer("a").lx_address == 0
    assert plan.buffer("d").pool_offset == 0
    assert plan.pool_bytes > 0
    assert plan.lx_peak == plan.buffer("a").lx_address + 128 * 256 * 2 // 32
    for buffer in plan.buffers:
        assert buffer.lx_address is None or buffer.pool_offset is None


def test_a_planned_matmul_names_its_operands_and_their_loops(block):
    plan = build_plan(block, PROFILE)
    matmul = plan.ops[-1]
    assert matmul.kernel == "batchmatmul"
    assert [o.buffer for o in matmul.inputs] == ["d", "w"]
    assert {loop.size for loop in matmul.loops} == {128, 512, 256}
    assert matmul.cores == 32
    assert "batchmatmul" in str(plan)
    assert matmul.source.startswith("model.py:")


def test_the_final_split_is_the_planned_one_cut_to_the_elements(build):
    build.input("x", (1, 4304))
    build.pointwise("exp", "y", (1, 4304), "x")
    op = build_plan(build.graph("y"), PROFILE).ops[0]
    assert [loop.cores for loop in op.planned] == [17]
    assert op.cores == 1


def test_buffers_of_a_plan_leave_out_inputs_aliases_and_host_results(build):
    build.input("x", (4, 64))
    build.buffer("e", (8, 64), BufferRole.EMPTY)
    build.buffer("m", (8, 64), BufferRole.COMPUTED, alias="e")
    build.op("identity", OpKind.POINTWISE, "m", build.access("m", (0, 1), (4, 64)), [build.access("x", (0, 1), (4, 64))])
    assert [b.name for b in build_plan(build.graph("e"), PROFILE).intermediates] == ["e"]


@pytest.mark.parametrize("text", ["{}", "[]", '{"version": 0}'])
def test_text_that_is_no_plan_is_refused(text):
    with pytest.raises(PlanError, match=r"no plan|version"):
        from_json(text)


def test_another_format_version_is_refused(block):
    data = json.loads(dumps(build_plan(block, PROFILE)))
    data["version"] += 1
    with pytest.raises(PlanError, match="version"):
        from_json(json.dumps(data))


def test_an_op_without_a_program_compiles_alone_and_raises_when_run(build):
    build.input("x", (4, 64))
    build.pointwise("erf", "y", (4, 64), "x")
    with pytest.raises(Refusal) as refused:
        build_plan(build.graph("y"), PROFILE)
    assert (refused.value.verdict, refused.value.kind) == ("unimplemented", "unimplemented_op:erf")


def test_an_op_without_a_program_breaks_a_bundle_that_goes_on_behind_it(build):
    build.input("x", (4, 64))
    build.pointwise("erf", "a", (4, 64), "x")
    build.pointwise("exp", "y", (4, 64), "a")
    with pytest.raises(Refusal) as refused:
        build_plan(build.graph("y"), PROFILE)
    assert (refused.value.verdict, refused.value.kind) == ("error", "codegen_syntax_error_unimplemented_in_fused")


def test_a_format_that_a_program_does_not_take_is_refused(build):
    import torch

    build.input("x", (4, 64), torch.float32)
    build.pointwise("tanh", "y", (4, 64), "x", dtype=torch.float32)
    with pytest.raises(Refusal) as refused:
        build_plan(build.graph("y"), PROFILE)
    assert refused.value.kind == "op_dtype:tanh@IEEE_FP32"


def test_a_copy_that_moves_the_stick_is_a_restickify(build):
    build.input("x", (128, 64))
    build.buffer("y", (64, 128), BufferRole.COMPUTED)
    build.op("identity", OpKind.POINTWISE, "y", build.access("y", (0, 1), (64, 128)), [build.access("x", (1, 0), (64, 128))])
    assert build_plan(build.graph("y"), PROFILE).ops[0].kernel == "ReStickifyOpHBM"


def test_span_findings_travel_with_the_plan(build):
    size = (4096, 769, 63)
    build.input("x", (769, 4096, 63))
    build.buffer("y", size, BufferRole.COMPUTED)
    build.op("identity", OpKind.POINTWISE, "y", build.access("y", (0, 1, 2), size), [build.access("x", (1, 0, 2), size)])
    plan = build_plan(build.graph("y"), PROFILE)
    assert plan.spans == from_json(dumps(plan)).spans != ()
    assert "span" in str(plan)


def test_plans_are_values(block):
    plan = build_plan(block, PROFILE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.pool_bytes = 0
