"""Device layouts: the default tiling of a host tensor, and what becomes of a layout when its stick moves to another dimension.

The tiling rules are those of the public documentation (torch-spyre docs, "Tensors and layouts").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy
import torch

from .coordinates import Coordinates, device_coordinates, host_coordinates, is_whole_stick, matching_dim
from .ir import Access, Arrangement, Buffer, DeviceLayout, data_format, elements_per_stick
from .refusal import refuse

SPARSE = -1  # last entry of a dimension order: one valid element a stick
MAX_RANK = 6
_STAGE = "propagate"


def _device_dims(order: Sequence[int]) -> list[int]:
    """Host dimension behind each device dimension: all but the first, then the first, then the stick."""
    if len(order) == 1:
        return [order[0], order[0]]
    return [*order[1:], order[0], order[-1]]


@lru_cache(maxsize=65536)
def tiled(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    order: tuple[int, ...],
    arrangement: Arrangement = Arrangement.STANDARD,
) -> DeviceLayout:
    """Layout with the host dimensions in `order`, the last one on the stick (SPARSE: none).

    size, stride: host, in elements. Raises Refusal for an order that does not fit the rank, more than six dimensions, or a dtype
    without a device format.
    """
    fmt = data_format(dtype)
    if fmt is None:
        raise refuse("unsupported_dtype", f"{dtype} of shape {list(size)} has no device format", stage=_STAGE, sizes=size)
    sparse = bool(order) and order[-1] == SPARSE
    if len(order) != len(size) + sparse:
        raise refuse(
            "RuntimeError@_C.py:_init",
            f"a tensor of {len(size)} dimensions {list(size)} cannot be tiled in an order of {len(order)} dimensions",
            stage=_STAGE,
            sizes=size,
        )
    if len(order) > MAX_RANK:
        raise refuse(
            "RuntimeError@_C.py:_init",
            f"{list(size)} has {len(size)} dimensions; the device tiles at most {MAX_RANK}",
            stage=_STAGE,
            sizes=size,
        )
    stick = elements_per_stick(fmt)
    if not size:
        return DeviceLayout((1, stick), (-1, -1), fmt, arrangement)
    dims = _device_dims(order)
    device_size = [1 if d == SPARSE else -(-size[d] // stick) if d == order[-1] else size[d] for d in dims[:-1]] + [stick]
    stride_map = [-1] * len(dims)
    walked: dict[int, int] = {}
    for j in range(len(dims) - 1, -1, -1):
        dim = dims[j]
        if dim != SPARSE and size[dim] != 1:
            stride_map[j] = walked.get(dim, stride[dim])
            walked[dim] = stride_map[j] * device_size[j]
    return DeviceLayout(tuple(device_size), tuple(stride_map), fmt, arrangement)


def default_layout(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, order: tuple[int, ...] | None = None
) -> DeviceLayout:
    """The tiling that a tensor gets when it is moved to the device; `order` defaults to the host's, last dimension on the stick."""
    return tiled(size, stride, dtype, tuple(range(len(size))) if order is None else order)


def contiguous_strides(size: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(size):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def generic_layout(buffer: Buffer) -> DeviceLayout:
    """The default tiling of a tensor of these sizes as if it were contiguous."""
    return default_layout(buffer.size, contiguous_strides(buffer.size), buffer.dtype)


def moved_stick(layout: DeviceLayout, buffer: Buffer, target: sympy.Expr, host: Coordinates, device: Coordinates) -> DeviceLayout | None:
    """The layout after a restickify that puts the host dimension walked by `target` on the stick.

    host, device: coordinates of the access through `layout`. None when one of the two dimensions cannot be told.
    """
    old = device[-1]
    new_dim, old_dim = matching_dim(host, target), matching_dim(host, old)
    if new_dim is None or old_dim is None:
        return None
    old_symbol, new_symbol = next(iter(old.free_symbols)), next(iter(target.free_symbols))
    outer = range(len(device) - 1)
    empty = next((j for j in outer if device[j] == 0), None)
    old_outer = next((j for j in outer if old_symbol in device[j].free_symbols), empty)
    new_outer = next((j for j in outer if new_symbol in device[j].free_symbols), None)
    if old_outer is None or new_outer is None:
        return None
    stick = elements_per_stick(buffer.dtype)
    device_size, stride_map = list(layout.device_size), list(layout.stride_map)
    device_size[-1], stride_map[-1] = stick, buffer.stride[new_dim]
    device_size[old_outer], stride_map[old_outer] = -(-buffer.size[new_dim] // stick), buffer.stride[new_dim] * stick
    device_size[new_outer], stride_map[new_outer] = buffer.size[old_dim], buffer.stride[old_dim]
    return DeviceLayout(tuple(device_size), tuple(stride_map), layout.format)


def sticks_agree(*tensors: Coordinates) -> bool:
    """Whether loops over these tensors walk one stick dimension together."""
    on_stick: set[sympy.Symbol] = set()
    beside: set[sympy.Symbol] = set()
    for coords in tensors:
        own = coords[-1].free_symbols
        on_stick |= own
        for coord in coords[:-1]:
            beside |= coord.free_symbols - own
    return len(on_stick) <= 1 and not on_stick & beside


@dataclass(frozen=True, slots=True)
class Move:
    """What an operand needs before an op can read it: nothing, or a restickify to `layout` (None: impossible)."""

    needed: bool
    layout: DeviceLayout | None = None


@lru_cache(maxsize=65536)
def needed_move(layout: DeviceLayout, buffer: Buffer, access: Access, wanted: DeviceLayout, wanted_access: Access) -> Move:
    """How to bring an operand in `layout` to the stick of a tensor in `wanted` (their accesses may differ)."""
    device, target = device_coordinates(layout, access), device_coordinates(wanted, wanted_access)
    whole = is_whole_stick(device[-1], layout.stick)
    if whole and sticks_agree(device, target):
        return Move(False)
    goal = target[-1]
    if goal == 0 and not whole:
        reduced = sorted(access.symbols - wanted_access.symbols, key=str)
        if reduced:
            goal = sympy.Mod(reduced[0], layout.stick)
    return Move(True, moved_stick(layout, buffer, goal, host_coordinates(buffer, access), device))
