"""Tiling of host tensors, coordinates of accesses, and what a restickify makes of a layout."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch._inductor.utils import sympy_index_symbol
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from adapterc.spyre_runtime.coordinates import coordinates, device_coordinates, is_whole_stick, matching_dim, simplified
from adapterc.spyre_runtime.ir import Access, Buffer, BufferRole, DeviceLayout, elements_per_stick
from adapterc.spyre_runtime.layouts import SPARSE, contiguous_strides, default_layout, needed_move, sticks_agree, tiled
from adapterc.spyre_runtime.refusal import Refusal

HALF, FULL = torch.float16, torch.float32
D0, D1, D2 = (sympy_index_symbol(f"d{i}") for i in range(3))


# Examples of the public documentation (torch-spyre docs/source/compiler/tensors_and_layouts.md).
@pytest.mark.parametrize(
    ("size", "dtype", "order", "device_size", "stride_map"),
    [
        ((3, 5), HALF, None, (1, 3, 64), (64, 5, 1)),
        ((3, 5), FULL, None, (1, 3, 32), (32, 5, 1)),
        ((4, 128, 64), HALF, None, (128, 1, 4, 64), (64, 64, 8192, 1)),
        ((1, 32, 50, 96), HALF, None, (32, 50, 2, 1, 64), (4800, 96, 64, -1, 1)),
        ((5, 100, 150), HALF, (1, 0, 2), (5, 3, 100, 64), (15000, 64, 150, 1)),
        ((100,), HALF, None, (2, 64), (64, 1)),
        ((64, 1), HALF, None, (1, 64, 64), (-1, 1, -1)),
        ((4096, 1024), HALF, (1, 0), (64, 1024, 64), (65536, 1, 1024)),
        ((3, 5), HALF, (0, 1, SPARSE), (5, 1, 3, 64), (1, -1, 5, -1)),
        ((1, 1, 41), torch.int64, None, (1, 2, 1, 32), (-1, 32, -1, 1)),
        ((), HALF, None, (1, 64), (-1, -1)),
    ],
)
def test_tiling(size, dtype, order, device_size, stride_map) -> None:
    layout = default_layout(size, contiguous_strides(size), dtype, order)
    assert (layout.device_size, layout.stride_map) == (device_size, stride_map)
    assert layout.stick == elements_per_stick(dtype)


@pytest.mark.parametrize(("size", "order"), [((3, 5), (0,)), ((2,) * 7, tuple(range(7)))])
def test_orders_that_cannot_be_tiled(size, order) -> None:
    with pytest.raises(Refusal) as refused:
        tiled(size, contiguous_strides(size), HALF, order)
    assert refused.value.kind == "RuntimeError@_C.py:_init" and refused.value.sizes == size


def test_a_dtype_without_device_format_is_refused() -> None:
    with pytest.raises(Refusal, match="unsupported_dtype"):
        default_layout((4,), (1,), torch.float64)


def test_a_stick_dimension_shows_as_tile_and_lane() -> None:
    access = Access("x", 96 * D0 + D1, ((D0, 8), (D1, 96)))
    layout = default_layout((8, 96), (96, 1), HALF)
    assert device_coordinates(layout, access) == (sympy.floor(D1 / 64), D0, sympy.Mod(D1, 64))


def test_an_offset_goes_to_the_lane_that_it_starts_at() -> None:
    shifted = device_coordinates(default_layout((8, 96), (96, 1), HALF), Access("x", 96 * D0 + D1 + 32, ((D0, 8), (D1, 64))))
    assert not is_whole_stick(shifted[-1], 64) and shifted[-1].subs(D1, 0) == 32


def test_splitting_heads_below_a_stick_is_refused_and_names_the_size() -> None:
    access = Access("x", 32 * D0 + 128 * D1 + D2, ((D0, 4), (D1, 8), (D2, 32)))
    with pytest.raises(Refusal) as refused:
        device_coordinates(default_layout((8, 128), (128, 1), HALF), access)
    assert refused.value.kind == "stick_expr_unsupported" and "64" in refused.value.message


def test_a_repeated_loop_keeps_its_remainder() -> None:
    ranges = ((D0, 256),)
    assert coordinates((64,), (1,), ModularIndexing(D0, 1, 64), ranges) == (sympy.Mod(D0, 64),)


def test_trivial_divisions_vanish_in_generated_kernels() -> None:
    assert simplified(ModularIndexing(D0, 1, 64), ((D0, 64),)) == D0
    assert simplified(FloorDiv(D0, 64), ((D0, 128),)) == FloorDiv(D0, 64)


def test_matching_needs_exactly_one_dimension() -> None:
    assert matching_dim((D0, D1), sympy.Mod(D1, 64)) == 1
    assert matching_dim((D0, D0), D0) is None
    assert matching_dim((D0, D1), sympy.S.Zero) is None


def _square(n: int, dtype: torch.dtype = HALF) -> tuple[Buffer, DeviceLayout]:
    return Buffer("x", BufferRole.INPUT, dtype, (n, n), (n, 1)), default_layout((n, n), (n, 1), dtype)


def test_a_transposed_operand_needs_its_stick_moved() -> None:
    buffer, layout = _square(128)
    ranges = ((D0, 128), (D1, 128))
    rows, columns = Access("x", 128 * D0 + D1, ranges), Access("x", D0 + 128 * D1, ranges)
    assert not needed_move(layout, buffer, rows, layout, rows).needed
    move = needed_move(layout, buffer, columns, layout, rows)
    assert move.needed and move.layout == DeviceLayout((2, 128, 64), (8192, 1, 128), layout.format)


def test_one_element_a_stick_cannot_be_gathered_into_a_stick() -> None:
    buffer = Buffer("x", BufferRole.COMPUTED, HALF, (128,), (1,))
    sparse, dense = tiled((128,), (1,), HALF, (0, SPARSE)), tiled((128,), (1,), HALF, (0,))
    access = Access("x", D0, ((D0, 128),))
    move = needed_move(sparse, buffer, access, dense, access)
    assert move.needed and move.layout is None


def test_sticks_agree_only_on_one_loop() -> None:
    assert sticks_agree((D0, sympy.Mod(D1, 64)), (D0, sympy.Mod(D1, 64)))
    assert not sticks_agree((D0, sympy.Mod(D1, 64)), (D1, sympy.Mod(D0, 64)))
