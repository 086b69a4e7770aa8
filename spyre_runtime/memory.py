"""Device memory: every tensor a flat buffer of padded sticks, and the conversion from and to the host's strided form.

A buffer is dense row-major over its layout's `device_size`. Values are carried as the device tensor carries them (formats.py): float32 for the
half-precision formats, otherwise the tensor's own dtype. Lanes that hold no element are *padding*: undefined on the device, so a run may
fill them with poison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import sympy
import torch
from torch import Tensor

from .addressing import Addresses, Block, address_table, addresses_of, blocks
from .formats import carrier_dtype
from .ir import Access, DeviceLayout
from .plan import PlannedBuffer
from .tiled_options import Padding

_LARGE = 12345.0


def filler(dtype: torch.dtype, padding: Padding) -> float | int | bool:
    """The padding value of a carrier dtype."""
    if padding is Padding.ZERO:
        return False if dtype is torch.bool else 0
    if dtype.is_floating_point:
        return math.nan if padding is Padding.NAN else _LARGE
    if dtype is torch.bool:
        return padding is Padding.NAN
    return 101 if padding is Padding.NAN else 77


def allocate(layout: DeviceLayout, dtype: torch.dtype, padding: Padding = Padding.ZERO) -> Tensor:
    """Flat memory for a tensor of logical `dtype`, every lane filled with the padding value."""
    carrier = carrier_dtype(dtype)
    return torch.full((math.prod(layout.device_size),), filler(carrier, padding), dtype=carrier)


@lru_cache(maxsize=8192)
def host_walk(layout: DeviceLayout, size: tuple[int, ...], stride: tuple[int, ...]) -> tuple[Addresses, tuple[Block, ...] | None]:
    """Device addresses of a host tensor's elements, loops in the order of its dimensions, and the strided copies (None: there are none)."""
    loops = _host_loops(size, stride)
    index = sympy.Add(*(symbol * step for symbol, _, step in loops))
    ranges = tuple((symbol, extent) for symbol, extent, _ in loops)
    where = addresses_of(layout, Access("", index, ranges))
    return where, blocks(where, ranges, [step for _, _, step in loops])


def _host_loops(size: Sequence[int], stride: Sequence[int]) -> list[tuple[sympy.Symbol, int, int]]:
    """(symbol, extent, host stride) of each dimension that holds more than one element."""
    return [(sympy.Symbol(f"h{i}"), n, step) for i, (n, step) in enumerate(zip(size, stride, strict=True)) if n > 1 and step > 0]


def to_sticks(host: Tensor, layout: DeviceLayout, memory: Tensor) -> None:
    """Write the elements of `host` (carrier dtype, any strides; those of the layout's buffer) to their lanes of `memory`."""
    where, copies = host_walk(layout, tuple(host.shape), tuple(host.stride()))
    if copies is not None:
        for block in copies:
            source = torch.as_strided(host, block.sizes, block.dense_strides, host.storage_offset() + block.dense_offset)
            torch.as_strided(memory, block.sizes, block.device_strides, block.device_offset).copy_(source)
        return
    loops = _host_loops(tuple(host.shape), tuple(host.stride()))
    table = address_table(where, [(symbol, extent) for symbol, extent, _ in loops])
    source = torch.as_strided(host, [n for _, n, _ in loops], [step for _, _, step in loops], host.storage_offset())
    memory[table] = source


def from_sticks(memory: Tensor, layout: DeviceLayout, host: Tensor) -> None:
    """Read the elements of `host` (overwritten; its strides are those of the layout's buffer) from their lanes of `memory`."""
    where, copies = host_walk(layout, tuple(host.shape), tuple(host.stride()))
    if copies is not None:
        for block in copies:
            target = torch.as_strided(host, block.sizes, block.dense_strides, host.storage_offset() + block.dense_offset)
            target.copy_(torch.as_strided(memory, block.sizes, block.device_strides, block.device_offset))
        return
    loops = _host_loops(tuple(host.shape), tuple(host.stride()))
    table = address_table(where, [(symbol, extent) for symbol, extent, _ in loops])
    torch.as_strided(host, [n for _, n, _ in loops], [step for _, _, step in loops], host.storage_offset()).copy_(memory[table])


def host_tensor(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An empty host tensor in the carrier of logical `dtype`."""
    return torch.empty_strided(tuple(size), tuple(stride), dtype=carrier_dtype(dtype))


def valid_lanes(layout: DeviceLayout, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """bool [elements of the device buffer]: lanes that hold an element of the host tensor; the others are padding."""
    mask = torch.zeros(math.prod(layout.device_size), dtype=torch.bool)
    where, copies = host_walk(layout, tuple(size), tuple(stride))
    if copies is not None:
        for block in copies:
            torch.as_strided(mask, block.sizes, block.device_strides, block.device_offset).fill_(True)
        return mask
    loops = [(symbol, extent) for symbol, extent, _ in _host_loops(tuple(size), tuple(stride))]
    mask[address_table(where, loops)] = True
    return mask


def layout_of(buffer: PlannedBuffer) -> DeviceLayout:
    """The device layout of a planned buffer. Raises ValueError for one that has none."""
    if buffer.layout is None:
        raise ValueError(f"{buffer.name} has no device layout")
    return buffer.layout
