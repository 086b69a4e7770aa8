"""The cost report against the published model and published measurements."""

from __future__ import annotations

import dataclasses

import pytest

from adapterc.spyre_runtime.cost import constants, price
from adapterc.spyre_runtime.planner import build_plan
from adapterc.spyre_runtime.profile import load_profile, profile_names

PROFILE = load_profile()


def report(build, *outputs):
    return price(build_plan(build.graph(*outputs), PROFILE), PROFILE)


@pytest.mark.parametrize("m, k, n, published_us", [(512, 512, 512, 13.5), (1024, 1024, 1024, 54.0)])
def test_matmuls_cost_what_the_published_formula_says(build, m, k, n, published_us):
    build.input("x", (m, k))
    build.input("w", (k, n))
    build.matmul("y", "x", "w")
    (op,) = report(build, "y").ops
    assert op.us == pytest.approx(published_us, rel=0.01)
    assert op.macs == m * k * n
    assert op.bound == "memory"


def test_a_measured_matmul_lies_within_the_error_band(build):
    """512 × 4096 × 4096 was measured at 331 µs on a card."""
    build.input("x", (512, 4096))
    build.input("w", (4096, 4096))
    build.matmul("y", "x", "w")
    (op,) = report(build, "y").ops
    assert op.low < 331 < op.high


def test_a_copy_sized_op_is_bound_by_balanced_memory_traffic(build):
    """Reading and writing as much halves the one-way rate's gain: about 105 GB/s over both directions."""
    build.input("x", (512, 4096))
    build.pointwise("exp", "y", (512, 4096), "x")
    (op,) = report(build, "y").ops
    assert op.read_bytes == op.written_bytes == 512 * 4096 * 2
    assert (op.read_bytes + op.written_bytes) / op.us / 1000 == pytest.approx(105, rel=0.01)
    assert op.padded == 0
    assert op.compute_us == 0


def test_what_stays_in_lx_is_free(build):
    build.input("x", (512, 4096))
    build.pointwise("exp", "a", (512, 4096), "x")
    build.pointwise("add", "b", (512, 4096), "a", "a")
    build.pointwise("neg", "y", (512, 4096), "b")
    first, second, third = report(build, "y").ops
    assert (second.us, second.bound, second.lx_bytes) == (0, "nothing", 2 * 512 * 4096 * 2)
    assert first.written_bytes == third.read_bytes == 0
    assert first.us > 0


def test_padding_is_paid_for_and_the_floor_does_not_pay_it(build):
    build.input("x", (512, 1))
    build.pointwise("exp", "y", (512, 1), "x")
    (op,) = report(build, "y").ops
    assert op.read_bytes == 512 * 128
    assert op.padded == 2 * 512 * (128 - 2)
    assert op.distance > 50


def test_a_broadcast_operand_is_read_once_and_has_its_own_rate(build):
    build.input("x", (512, 4096))
    build.input("b", (4096,))
    build.pointwise("add", "y", (512, 4096), "x", "b")
    (op,) = report(build, "y").ops
    assert op.read_bytes == (512 * 4096 + 4096) * 2
    assert op.kind == "broadcast"


def test_reductions_along_and_across_the_stick_differ(build):
    build.input("x", (4096, 4096))
    build.reduction("sum", "rows", "x", 1)
    build.reduction("sum", "columns", "x", 0)
    along, across = report(build, "rows", "columns").ops
    assert along.us < across.us
    assert along.kind == across.kind == "reduction"


def test_a_batched_matmul_on_many_cores_runs_at_its_measured_low_rate(build):
    build.input("x", (8, 512, 512))
    build.input("y", (8, 512, 512))
    build.matmul("z", "x", "y")
    (op,) = report(build, "z").ops
    assert op.kind == "batched_matmul"
    assert op.compute_us == pytest.approx(8 * 512**3 / op.cores / 160 / 1000)
    assert op.bound == "compute"


def test_short_tiles_slow_arithmetic_down(build):
    build.input("x", (32, 4096))
    build.input("w", (4096, 4096))
    build.matmul("y", "x", "w")
    (op,) = report(build, "y").ops
    assert op.compute_us > op.macs / op.cores / constants(PROFILE).mac / 1000


def test_the_whole_is_the_sum_and_says_what_it_leaves_out(build):
    build.input("x", (512, 4096))
    build.pointwise("exp", "a", (512, 4096), "x")
    build.fallback("aten.cumsum", "c", (512, 4096), "a")
    build.pointwise("neg", "y", (512, 4096), "c")
    whole = report(build, "y")
    assert whole.us == sum(op.us for op in whole.ops)
    assert whole.low < whole.us < whole.high
    assert whole.floor_us < whole.us
    assert whole.host_steps == ("aten.cumsum",)
    assert "not priced: 1 host steps (aten.cumsum)" in str(whole)


def test_no_op_beats_its_floor(build):
    build.input("x", (100, 1000))
    build.input("w", (1000, 300))
    build.pointwise("exp", "a", (100, 1000), "x")
    build.matmul("y", "a", "w")
    assert all(op.distance >= 1 or op.bound == "nothing" for op in report(build, "y").ops)


def test_a_profile_without_constants_says_so(build):
    bare = dataclasses.replace(PROFILE, raw={k: v for k, v in PROFILE.raw.items() if k != "cost"})
    with pytest.raises(ValueError, match="no cost constants"):
        constants(bare)


def test_a_release_without_constants_of_its_own_is_marked(build):
    build.input("x", (512, 4096))
    build.pointwise("exp", "y", (512, 4096), "x")
    plan = build_plan(build.graph("y"), PROFILE)
    known = {name: price(plan, load_profile(name)).known for name in profile_names()}
    assert known == {"torch-spyre-2025-11": False, "torch-spyre-2026-06": True, "torch-spyre-2026-09": True}


def test_rows_that_data_selects_are_read_and_no_others(compiled):
    """An embedding reads its rows, not its table, and no op or graph beats its floor."""
    import torch

    plan = compiled(lambda i, w: w[i] * 2, torch.zeros(6, dtype=torch.int64), torch.zeros(5000, 256, dtype=torch.float16)).compilation.plan
    whole = price(plan, PROFILE)
    gather = whole.ops[0]
    row = 256 * 2
    assert 6 * row <= gather.read_bytes <= 6 * row + 6 * 128  # and the index data, a stick a row at most
    assert gather.distance >= 1 and whole.distance >= 1
