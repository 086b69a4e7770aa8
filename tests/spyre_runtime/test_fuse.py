"""Bundles and the pool of intermediates."""

from __future__ import annotations

import dataclasses

import pytest

from adapterc.spyre_runtime.fuse import bundle, plan_pool
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.scratchpad import Placement

PROFILE = load_profile()
NOWHERE = Placement()


def bundles_of(graph, profile=PROFILE):
    return [b.ops for b in bundle(graph, NOWHERE, plan_pool(graph, NOWHERE, profile), profile)]


def chain(build, length):
    build.input("x", (8, 64))
    names = ["x"]
    for i in range(length):
        names.append(build.pointwise("neg", f"t{i}", (8, 64), names[-1]))
    return names


def test_a_chain_is_one_bundle_and_its_intermediates_need_no_segment(build):
    chain(build, 20)
    graph = build.graph("t19")
    (only,) = bundle(graph, NOWHERE, plan_pool(graph, NOWHERE, PROFILE), PROFILE)
    assert len(only.ops) == 20
    assert only.tensors == ("x", "t19")


@pytest.mark.parametrize("intermediates, most", [(False, 6), (True, 5)])
def test_a_bundle_addresses_at_most_as_many_outside_tensors_as_there_are_segments(build, intermediates, most):
    for i in range(12):
        build.input(f"x{i}", (8, 64))
    outputs = [build.pointwise("neg", f"y{i}", (8, 64), f"x{i}") for i in range(11)]
    if intermediates:
        build.pointwise("neg", "t", (8, 64), "x11")
        outputs.append(build.pointwise("neg", "z", (8, 64), "t"))
    graph = build.graph(*outputs)
    pool = plan_pool(graph, NOWHERE, PROFILE)
    assert bool(pool.bytes) is intermediates
    found = bundle(graph, NOWHERE, pool, PROFILE)
    assert max(len(b.tensors) for b in found) <= most
    assert len(found[0].ops) == most // 2
    assert sum(len(b.ops) for b in found) == len(graph.ops)


def test_a_host_step_ends_a_bundle(build):
    names = chain(build, 2)
    build.fallback("aten.cumsum", "c", (8, 64), names[-1])
    build.pointwise("neg", "y", (8, 64), "c")
    assert bundles_of(build.graph("y")) == [("op_t0", "op_t1"), ("op_y",)]


def test_without_a_limit_only_host_steps_cut(build):
    for i in range(12):
        build.input(f"x{i}", (8, 64))
    outputs = [build.pointwise("neg", f"y{i}", (8, 64), f"x{i}") for i in range(12)]
    unlimited = dataclasses.replace(PROFILE, limits=dataclasses.replace(PROFILE.limits, bundle_tensors=None))
    assert len(bundles_of(build.graph(*outputs), unlimited)) == 1


def test_the_pool_reuses_what_is_dead(build):
    chain(build, 5)
    graph = build.graph("t4")
    pool = plan_pool(graph, NOWHERE, PROFILE)
    size = build.bytes("t0")
    assert [b.buffer for b in pool.blocks] == ["t0", "t1", "t2", "t3"]
    assert pool.bytes == 2 * size
    assert {b.offset for b in pool.blocks} == {0, size}
    for one in pool.blocks:
        for other in pool.blocks:
            if one.buffer < other.buffer and one.last >= other.first:
                assert one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset


def test_inputs_and_outputs_are_not_pooled(build):
    build.input("x", (8, 64))
    build.pointwise("neg", "a", (8, 64), "x")
    build.pointwise("neg", "y", (8, 64), "a")
    assert [b.buffer for b in plan_pool(build.graph("a", "y"), NOWHERE, PROFILE).blocks] == []


def test_a_pool_beyond_a_segment_is_refused(build):
    chain(build, 3)
    tiny = dataclasses.replace(PROFILE, limits=dataclasses.replace(PROFILE.limits, segment_bytes=build.bytes("t0")))
    with pytest.raises(Refusal, match="memory segment"):
        plan_pool(build.graph("t2"), NOWHERE, tiny)
