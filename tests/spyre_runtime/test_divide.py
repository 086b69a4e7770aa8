"""Work division against splits that the public compiler chose (facts of its June 2026 front-end)."""

from __future__ import annotations

import math

import pytest
import sympy
import torch

from adapterc.spyre_runtime.divide import core_split, divide
from adapterc.spyre_runtime.ir import Access, BufferRole, OpKind
from adapterc.spyre_runtime.matmul_split import MatmulSize, best_split, estimate_us
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal

PROFILE = load_profile()


def splits_of(graph, op):
    return tuple(divide(graph, PROFILE).splits[op].values())


@pytest.mark.parametrize("size, cores, expected", [(48, 32, 24), (17, 32, 17), (37, 32, 1), (64, 32, 32), (6, 4, 3)])
def test_core_split_is_the_largest_divisor_that_fits(size, cores, expected):
    assert core_split(size, cores) == expected


@pytest.mark.parametrize(
    "size, expected",
    [
        ((31, 64), (31, 1)),
        ((33, 64), (11, 1)),
        ((64, 2048), (32, 1)),
        ((7, 4096), (1, 32)),
        ((2, 32, 64), (1, 32, 1)),
        ((2, 7, 4304), (1, 1, 17)),
    ],
)
def test_pointwise_gives_cores_to_the_largest_loop_first(build, size, expected):
    build.input("x", size)
    build.pointwise("exp", "y", size, "x")
    assert splits_of(build.graph("y"), "op_y") == expected


def test_a_stick_loop_is_counted_in_the_larger_of_two_sticks(build):
    build.input("x", (33, 64), torch.float32)
    build.pointwise("to_dtype", "y", (33, 64), "x")
    assert splits_of(build.graph("y"), "op_y") == (11, 1)  # in sticks of 32 the second loop would be split too
    build.input("a", (33, 64), torch.float32)
    build.pointwise("exp", "b", (33, 64), "a", dtype=torch.float32)
    assert splits_of(build.graph("b"), "op_b") == (11, 2)


def test_a_reduction_splits_one_reduction_loop_last(build):
    build.input("x", (2, 32, 64))
    build.reduction("sum", "y", "x", 1)
    assert splits_of(build.graph("y"), "op_y") == (2, 1, 16)


@pytest.mark.parametrize(
    "m, k, n, expected",
    [
        (512, 4096, 4096, (4, 8, 1)),
        (2048, 4096, 4096, (4, 8, 1)),
        (128, 4096, 4096, (32, 1, 1)),
        (64, 4096, 4096, (32, 1, 1)),
        (128, 14336, 4096, (2, 8, 2)),
    ],
)
def test_matmul_takes_the_cheapest_split(build, m, k, n, expected):
    build.input("x", (m, k))
    build.input("w", (k, n))
    build.matmul("y", "x", "w")
    assert splits_of(build.graph("y"), "op_y") == expected


def test_matmul_of_one_row_keeps_the_greedy_split(build):
    build.input("x", (1, 768))
    build.input("w", (768, 768))
    build.matmul("y", "x", "w")
    assert splits_of(build.graph("y"), "op_y") == (12, 2)


def test_matmul_with_a_weight_shared_by_the_batch_keeps_the_greedy_split(build):
    build.input("x", (4, 128, 4096))
    build.input("w", (4096, 4096))
    build.matmul("y", "x", "w")
    assert splits_of(build.graph("y"), "op_y") == (1, 32, 1, 1)


def test_the_cost_model_never_exceeds_the_cores_and_prefers_no_batch_split():
    size = MatmulSize((8,), 512, 64, 64, 64)
    best = best_split(size, 32)
    assert best is not None
    assert math.prod(best.batch) * best.m * best.n * best.k <= 32
    assert best.batch == (1,)
    everything = [s for s in (best_split(size, c) for c in (1, 2, 4, 8, 16, 32)) if s]
    costs = [estimate_us(size, s) for s in everything]
    assert costs == sorted(costs, reverse=True)


def test_top_k_runs_on_one_core(build):
    build.input("x", (128, 64))
    build.buffer("y", (128, 64), BufferRole.COMPUTED)
    access = build.access("x", (0, 1), (128, 64))
    build.op("topkvalue", OpKind.REDUCTION, "y", build.access("y", (0, 1), (128, 64)), [access])
    assert splits_of(build.graph("y"), "op_y") == (1, 1)


def test_a_span_above_the_limit_forces_splits_and_is_reported(build):
    """A transpose of 4096 × 769 × 63: no split of 769 helps, so a finding remains; the public front-end splits the other loop in two."""
    size = (4096, 769, 63)
    build.input("x", (769, 4096, 63))
    build.buffer("y", size, BufferRole.COMPUTED)
    build.op("identity", OpKind.POINTWISE, "y", build.access("y", (0, 1, 2), size), [build.access("x", (1, 0, 2), size)])
    division = divide(build.graph("y"), PROFILE)
    assert tuple(division.splits["op_y"].values()) == (2, 1, 1)
    (finding,) = division.spans
    assert finding.buffer == "y"
    assert finding.bytes > finding.limit == 256 * 2**20
    assert "MiB" in str(finding)
    assert "model.py:1" in str(finding)


def test_a_large_tensor_within_the_span_of_its_cores_is_no_finding(build):
    build.input("x", (8192, 65536))
    build.pointwise("exp", "y", (8192, 65536), "x")
    division = divide(build.graph("y"), PROFILE)
    assert division.cores("op_y") == 32
    assert not division.spans


def test_a_write_to_rows_chosen_by_data_is_refused_by_the_planner(build):
    build.input("x", (4, 128))
    build.buffer("y", (16, 128), BufferRole.COMPUTED)
    d0, d1 = sympy.symbols("d0 d1")
    row = sympy.Symbol("tmp0")
    write = Access("y", row * 128 + d1, ((d0, 4), (d1, 128)), ((row, "rows"),))
    build.op("identity", OpKind.POINTWISE, "y", write, [build.access("x", (0, 1), (4, 128))])
    with pytest.raises(Refusal) as refused:
        divide(build.graph("y"), PROFILE)
    assert refused.value.kind == "KeyError@_inductor/work_division.py:_effective_size"
    assert refused.value.source == "model.py:1"
