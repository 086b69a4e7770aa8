"""LX eligibility and greedy placement."""

from __future__ import annotations

import dataclasses

import torch

from adapterc.spyre_runtime.divide import divide
from adapterc.spyre_runtime.ir import BufferRole, OpKind
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.scratchpad import _free_address, core_view, place

PROFILE = load_profile()


def placed(graph, profile=PROFILE):
    return {r.buffer: (r.address, r.bytes) for r in place(graph, divide(graph, profile), profile).residents}


def test_a_result_that_the_next_op_reads_alike_stays_and_an_output_does_not(build):
    build.input("x", (128, 256))
    build.pointwise("exp", "a", (128, 256), "x")
    build.pointwise("neg", "y", (128, 256), "a")
    assert placed(build.graph("y")) == {"a": (0, build.bytes("a") // 32)}


def test_ops_off_the_planner_list_do_not_pin_their_result(build):
    build.input("x", (128, 256))
    build.pointwise("neg", "a", (128, 256), "x")
    build.pointwise("exp", "y", (128, 256), "a")
    assert placed(build.graph("y")) == {}


def test_a_reader_that_slices_differently_keeps_the_buffer_in_memory(build):
    """Softmax over the first of two long dimensions: the maximum is made with a split reduction, so only some cores hold it."""
    build.input("x", (2, 32, 64))
    build.reduction("max", "m", "x", 1)
    build.pointwise("sub", "s", (2, 32, 64), "x", "m")
    build.pointwise("neg", "y", (2, 32, 64), "s")
    assert set(placed(build.graph("y"))) == {"s"}


def test_a_reduction_along_the_stick_is_pinned_when_rows_are_split_alike(build):
    build.input("x", (128, 256))
    build.reduction("sum", "m", "x", 1)
    build.pointwise("sub", "y", (128, 256), "x", "m")
    assert placed(build.graph("y")) == {"m": (0, 128 * 128 // 32)}


def test_a_host_reader_keeps_the_buffer_in_memory(build):
    build.input("x", (128, 256))
    build.pointwise("exp", "a", (128, 256), "x")
    build.fallback("aten.cumsum", "c", (128, 256), "a")
    build.pointwise("add", "y", (128, 256), "a", "c")
    assert placed(build.graph("y")) == {}


def test_an_op_takes_the_place_of_an_operand_that_dies(build):
    build.input("x", (128, 256))
    build.pointwise("exp", "a", (128, 256), "x")
    build.pointwise("add", "b", (128, 256), "a", "x")
    build.pointwise("mul", "c", (128, 256), "b", "x")
    build.pointwise("neg", "y", (128, 256), "c")
    assert {address for address, _ in placed(build.graph("y")).values()} == {0}


def test_an_operand_that_lives_on_is_not_overwritten(build):
    build.input("x", (128, 256))
    build.pointwise("exp", "a", (128, 256), "x")
    build.pointwise("add", "b", (128, 256), "a", "x")
    build.pointwise("mul", "c", (128, 256), "b", "a")
    build.pointwise("neg", "y", (128, 256), "c")
    found = placed(build.graph("y"))
    assert found["a"][0] == 0
    assert found["b"][0] == found["a"][1]


def test_a_reduction_does_not_overwrite_its_operand(build):
    build.input("x", (128, 64))
    build.pointwise("exp", "a", (128, 64), "x")
    build.reduction("sum", "m", "a", 1)
    build.pointwise("neg", "y", (128, 1), "m")
    found = placed(build.graph("y"))
    assert found["m"][0] == found["a"][0] + found["a"][1]


def test_what_does_not_fit_stays_in_memory(build):
    build.input("x", (128, 256))
    build.pointwise("exp", "a", (128, 256), "x")
    build.pointwise("neg", "y", (128, 256), "a")
    graph = build.graph("y")
    need = build.bytes("a") // 32
    exact = dataclasses.replace(PROFILE, limits=dataclasses.replace(PROFILE.limits, lx_bytes=need, lx_reserved=0.0))
    short = dataclasses.replace(PROFILE, limits=dataclasses.replace(PROFILE.limits, lx_bytes=need - 1, lx_reserved=0.0))
    assert set(placed(graph, exact)) == {"a"}
    assert placed(graph, short) == {}


def test_free_address_prefers_the_bottom_then_the_top_then_a_gap():
    assert _free_address([], 100, 1000) == 0
    assert _free_address([(512, 128)], 512, 1000) == 0
    assert _free_address([(0, 100)], 200, 1000) == 128
    assert _free_address([(0, 128), (512, 256)], 300, 800) == 128
    assert _free_address([(0, 128), (512, 256)], 400, 800) is None
    assert _free_address([], 1001, 1000) is None


def test_views_name_device_dimensions_not_loops(build):
    """A 64 × 128 buffer read with its loops exchanged is sliced the same way."""
    build.input("x", (64, 128))
    build.buffer("y", (64, 128), BufferRole.COMPUTED, torch.float16)
    build.op("exp", OpKind.POINTWISE, "y", build.access("y", (0, 1), (64, 128)), [build.access("x", (0, 1), (64, 128))])
    build.buffer("z", (128, 64), BufferRole.COMPUTED, torch.float16)
    build.op("exp", OpKind.POINTWISE, "z", build.access("z", (0, 1), (128, 64)), [build.access("x", (1, 0), (128, 64))])
    graph = build.graph("y", "z")
    first, second = graph.ops
    d0, d1 = first.iteration_space
    layout = build.layout("x")
    rows = core_view(first, first.reads[0], {d0: 32, d1: 1}, layout)
    also_rows = core_view(second, second.reads[0], {d0: 1, d1: 32}, layout)
    sticks = core_view(second, second.reads[0], {d0: 2, d1: 1}, layout)
    assert rows == also_rows != sticks
    assert sticks.slices == ((0, 2),)


def test_a_split_that_no_device_dimension_holds_gives_the_empty_view(build):
    build.input("x", (64, 128))
    build.pointwise("exp", "y", (64, 128), "x")
    op = build.graph("y").ops[0]
    d0, d1 = op.iteration_space
    assert core_view(op, op.reads[0], {d0: 1, d1: 5}, build.layout("x")).slices == ()
