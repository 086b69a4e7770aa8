"""Cores own equal slices in whole sticks, and their ids count as the device counts them."""

from __future__ import annotations

import torch
from sympy import Mod, Symbol, floor

from adapterc.spyre_runtime.addressing import walk
from adapterc.spyre_runtime.tiles import lane_granules, own, slices_of, span_elements, touched

M, N, K = Symbol("d0"), Symbol("d1"), Symbol("d2")


def matrix(rows: int = 64, columns: int = 256):  # type: ignore[no-untyped-def]
    return walk("buf", (columns // 64, rows, 64), (floor(N / 64), M, Mod(N, 64)), ((M, rows), (N, columns)))


def test_the_first_loop_varies_fastest() -> None:
    ownership = own([(M, 64, 8), (N, 256, 4)], {N: 64})
    m, n = ownership.shares
    assert (m.width, m.weight, n.width, n.weight, ownership.cores) == (8, 1, 64, 8, 32)
    assert m.owners[[0, 7, 8, 63]].tolist() == [0, 0, 1, 7]
    assert n.owners[[0, 63, 64, 255]].tolist() == [0, 0, 8, 24]


def test_a_split_reduction_lies_on_neighbouring_cores() -> None:
    ownership = own([(M, 1, 1), (N, 768, 12), (K, 768, 2)], {N: 64, K: 64}, fastest=K)
    assert [s.weight for s in ownership.shares] == [2, 2, 1]
    assert slices_of(ownership.by_symbol[K]) == [(0, 384), (384, 768)]


def test_slices_are_whole_sticks_of_the_padded_extent() -> None:
    # 30522 elements are 477 sticks; three cores take 159 each, and the last one ends early.
    (share,) = own([(N, 30522, 3)], {N: 64}).shares
    assert share.width == 159 * 64
    assert slices_of(share)[-1] == (20352, 30522)


def test_granules_are_the_largest_stick() -> None:
    narrow = walk("f32", (8, 64, 32), (floor(N / 32), M, Mod(N, 32)), ((M, 64), (N, 256)))
    assert lane_granules([(matrix(), 64), (narrow, 32)]) == {N: 64}


def test_every_core_touches_its_own_sticks() -> None:
    ownership = own([(M, 64, 8), (N, 256, 4)], {N: 64})
    pairs = touched(matrix(), 64, ownership)
    assert len(pairs.cores) == 256
    assert pairs.cores_at(0) == (0,)
    assert pairs.cores_at(3 * 64 + 63) == (31,)


def test_a_broadcast_operand_is_touched_by_all_who_share_it() -> None:
    bias = walk("bias", (4, 64), (floor(N / 64), Mod(N, 64)), ((M, 64), (N, 256)))
    pairs = touched(bias, 64, own([(M, 64, 8), (N, 256, 1)], {N: 64}))
    assert pairs.cores_at(2) == tuple(range(8))


def test_spans_shrink_with_a_split_of_the_outer_loop() -> None:
    whole, _ = span_elements(matrix(), own([(M, 64, 1), (N, 256, 1)], {N: 64}))
    split, core = span_elements(matrix(), own([(M, 64, 1), (N, 256, 4)], {N: 64}))
    assert whole == 64 * 256
    assert split == 64 * 64
    assert torch.tensor(core).item() in range(4)
