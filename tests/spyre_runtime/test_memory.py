"""Host tensors become padded sticks and come back; address tables are what the coordinates say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Mod, Symbol, floor
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from adapterc.spyre_runtime.addressing import Digit, boxes_of, digits_of, evaluate, refine
from adapterc.spyre_runtime.ir import DeviceLayout
from adapterc.spyre_runtime.layouts import contiguous_strides, tiled
from adapterc.spyre_runtime.memory import Padding, allocate, filler, from_sticks, to_sticks, valid_lanes

X = Symbol("x", integer=True, nonnegative=True)


def layout_for(size: tuple[int, ...], dtype: torch.dtype, order: tuple[int, ...] | None = None) -> DeviceLayout:
    return tiled(size, contiguous_strides(size), dtype, order or tuple(range(len(size))))


def by_definition(memory: torch.Tensor, layout: DeviceLayout, host: torch.Tensor) -> torch.Tensor:
    """Element by element: a device place holds host element Σ coordinate · stride (torch-spyre docs, tensors_and_layouts.md)."""
    out = torch.empty_like(host).reshape(-1)
    walked = [dim for dim, stride in enumerate(layout.stride_map) if stride > 0]
    for place in range(memory.numel()):
        rest, where, inside = place, 0, True
        coordinates = []
        for size in reversed(layout.device_size):
            coordinates.append(rest % size)
            rest //= size
        coordinates.reverse()
        where = sum(coordinates[d] * layout.stride_map[d] for d in walked)
        inside = all(coordinates[d] == 0 for d in range(len(layout.device_size)) if d not in walked) and _in_row(layout, coordinates, host)
        if inside and where < host.numel():
            out[where] = memory[place]
    return out.reshape(host.shape)


def _in_row(layout: DeviceLayout, coordinates: list[int], host: torch.Tensor) -> bool:
    """Whether the stick lane lies inside the host dimension that is on the stick."""
    stride = layout.stride_map[-1]
    if stride <= 0:
        return True
    dim = next(d for d, s in enumerate(host.stride()) if s == stride and host.shape[d] > 1)
    if host.shape[dim] <= layout.stick:
        return coordinates[-1] < host.shape[dim]
    tile = layout.stride_map.index(stride * layout.stick)
    return coordinates[tile] * layout.stick + coordinates[-1] < host.shape[dim]


@pytest.mark.parametrize(
    ("size", "dtype", "order", "device_size"),
    [
        ((3, 5), torch.float16, None, (1, 3, 64)),
        ((3, 5), torch.float32, None, (1, 3, 32)),
        ((4, 8, 64), torch.float16, None, (8, 1, 4, 64)),
        ((5, 10, 150), torch.float16, (1, 0, 2), (5, 3, 10, 64)),
        ((100,), torch.float16, None, (2, 64)),
        ((1, 32, 5, 96), torch.float16, None, (32, 5, 2, 1, 64)),
        ((70, 100), torch.float16, (1, 0), (2, 100, 64)),
        ((1, 1, 41), torch.int64, None, (1, 2, 1, 32)),
    ],
)
def test_published_layouts_round_trip(
    size: tuple[int, ...], dtype: torch.dtype, order: tuple[int, ...] | None, device_size: tuple[int, ...]
) -> None:
    layout = layout_for(size, dtype, order)
    assert layout.device_size == device_size
    host = torch.arange(math.prod(size)).reshape(size).to(torch.int64 if dtype is torch.int64 else torch.float32)
    memory = allocate(layout, dtype, Padding.NAN)
    to_sticks(host, layout, memory)
    back = torch.zeros_like(host)
    from_sticks(memory, layout, back)
    assert torch.equal(back, host)
    assert torch.equal(by_definition(memory, layout, host), host)
    if dtype.is_floating_point:
        assert torch.equal(memory.isnan(), ~valid_lanes(layout, size, contiguous_strides(size)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(size=st.lists(st.sampled_from([1, 2, 3, 31, 64, 65, 100]), min_size=1, max_size=4), data=st.data())
def test_any_layout_round_trips(size: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(size))))
    layout = layout_for(tuple(size), torch.float16, tuple(order))
    host = torch.randn(size)
    memory = allocate(layout, torch.float16)
    to_sticks(host, layout, memory)
    back = torch.empty(size)
    from_sticks(memory, layout, back)
    assert torch.equal(back, host)
    assert int(valid_lanes(layout, size, contiguous_strides(size)).sum()) == host.numel()


def test_a_transposed_host_tensor_keeps_its_strides() -> None:
    host = torch.randn(70, 30).t()
    layout = tiled((30, 70), (1, 30), torch.float16, (0, 1))
    memory = allocate(layout, torch.float16)
    to_sticks(host, layout, memory)
    assert memory.view(layout.device_size)[1, 4, 3] == host[4, 67]


@pytest.mark.parametrize("padding", Padding)
def test_fillers_fit_their_dtype(padding: Padding) -> None:
    for dtype in (torch.float32, torch.bool, torch.int64):
        assert torch.full((1,), filler(dtype, padding), dtype=dtype).dtype is dtype
    assert math.isnan(filler(torch.float32, padding)) == (padding is Padding.NAN)


@pytest.mark.parametrize(
    ("expr", "function"),
    [
        (3 * X + 5, lambda v: 3 * v + 5),
        (Mod(X, 7) + 2, lambda v: v % 7 + 2),
        (floor(X / 64), lambda v: v // 64),
        (FloorDiv(X, 5) * 3, lambda v: v // 5 * 3),
        (ModularIndexing(X, 4, 6), lambda v: v // 4 % 6),
        (Mod(2 * X, 9), lambda v: 2 * v % 9),
    ],
)
def test_coordinates_are_evaluated(expr: object, function: object) -> None:
    values = torch.arange(200)
    assert torch.equal(evaluate(expr, X, values), function(values))  # type: ignore[operator]


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(TypeError, match="broken fraction"):
        evaluate(X / 2, X, torch.arange(3))


def test_digits() -> None:
    lanes = torch.arange(150)
    assert digits_of(lanes * 3) == (Digit(1, 150),)
    assert digits_of(lanes % 64 + lanes // 64 * 4096) == (Digit(1, 64), Digit(64, 3))
    assert digits_of(torch.tensor([0, 1, 5, 2, 7])) is None
    assert refine([64, 32], 150) == (Digit(1, 32), Digit(32, 2), Digit(64, 3))
    assert refine([48, 64], 150) is None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(lanes=st.integers(2, 8), inner=st.integers(1, 4), extent=st.integers(1, 100))
def test_boxes_cover_each_value_once(lanes: int, inner: int, extent: int) -> None:
    digits = refine([lanes, lanes * inner], extent)
    assert digits is not None
    covered: list[int] = []
    for box in boxes_of(digits, extent):
        values = [box.start]
        for digit, size in zip(digits, box.sizes, strict=True):
            values = [v + i * digit.unit for i in range(size) for v in values]
        covered += values
    assert sorted(covered) == list(range(extent))
