"""The compiler's own intermediate representation: buffers, loop nests and how one reads and writes the other.

Everything is a frozen value. A pass takes a `LoweredGraph` and returns a new one; `str(graph)` is the readable dump.

Vocabulary
----------
- *host* size/stride/offset: the tensor as torch sees it, counted in elements.
- *device layout*: the padded, tiled copy in device memory. `device_size` is dense row-major, its last entry is the
  stick (elements per stick of the format); `stride_map[j]` is the host stride of one step along device dimension j,
  -1 for a dimension that no host dimension walks (size 1, or made up).
- *access*: one read or write inside a loop nest, as a flat host index over the loop symbols `d0, d1, …`.
  Loops of extent 1 have no symbol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import sympy
import torch

from .refusal import Obstacle


class DataFormat(StrEnum):
    """Number formats that device memory holds; the values are the names of the public compiler (csrc/types_mapping.h)."""

    DL16 = "SEN169_FP16"
    FP32 = "IEEE_FP32"
    INT32 = "IEEE_INT32"
    UINT32 = "SENUINT32"
    INT8 = "SENINT8"
    FP8_143 = "SEN143_FP8"
    FP8_152 = "SEN152_FP8"


STICK_BYTES = 128
_FORMATS: dict[torch.dtype, DataFormat] = {
    torch.float16: DataFormat.DL16,
    torch.bfloat16: DataFormat.DL16,
    torch.bool: DataFormat.DL16,
    torch.float32: DataFormat.FP32,
    torch.int32: DataFormat.INT32,
    torch.int64: DataFormat.INT32,
    torch.int8: DataFormat.INT8,
    torch.uint8: DataFormat.UINT32,
    torch.float8_e4m3fn: DataFormat.FP8_143,
    torch.float8_e5m2fnuz: DataFormat.FP8_152,
}
_FORMAT_BYTES: dict[DataFormat, int] = {
    DataFormat.DL16: 2,
    DataFormat.FP32: 4,
    DataFormat.INT32: 4,
    DataFormat.UINT32: 4,
    DataFormat.INT8: 1,
    DataFormat.FP8_143: 1,
    DataFormat.FP8_152: 1,
}


def data_format(dtype: torch.dtype) -> DataFormat | None:
    """Device format that holds `dtype`, or None where the device has none (float64, complex)."""
    return _FORMATS.get(dtype)


def elements_per_stick(what: torch.dtype | DataFormat) -> int:
    """Elements in one 128-byte stick. Raises KeyError for a dtype without a device format."""
    fmt = what if isinstance(what, DataFormat) else _FORMATS[what]
    return STICK_BYTES // _FORMAT_BYTES[fmt]


class Arrangement(StrEnum):
    """Order of the elements inside sticks; anything but STANDARD is readable by few ops only."""

    STANDARD = "STANDARD"
    DL16_TO_FP32 = "DL16_TO_FP32"
    QFP8CH = "QFP8CH"
    EXX2 = "EXX2"


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Where the elements of a host tensor lie in device memory (see the module text)."""

    device_size: tuple[int, ...]
    stride_map: tuple[int, ...]
    format: DataFormat
    arrangement: Arrangement = Arrangement.STANDARD

    @property
    def stick(self) -> int:
        return elements_per_stick(self.format)

    def __str__(self) -> str:
        tag = "" if self.arrangement is Arrangement.STANDARD else f" {self.arrangement}"
        return f"{list(self.device_size)}~{list(self.stride_map)} {self.format}{tag}"


class BufferRole(StrEnum):
    INPUT = "input"
    CONSTANT = "constant"  # a 0-d literal that the host uploads
    COMPUTED = "computed"  # written by a device op
    FALLBACK = "fallback"  # written by a CPU fallback
    EMPTY = "empty"  # allocated, filled by ops that mutate it
    HANDLE = "handle"  # the results of a fallback as one value; no memory


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory: host view and, once layouts are decided, its device layout.

    `alias` names the buffer whose memory this one is, when the op that writes it mutates that buffer in place.
    """

    name: str
    role: BufferRole
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    layout: DeviceLayout | None = None
    alias: str | None = None

    def __str__(self) -> str:
        device = f" @ {self.layout}" if self.layout else ""
        alias = f" -> {self.alias}" if self.alias else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.name}{alias}: {dtype}{list(self.size)} stride {list(self.stride)} [{self.role}]{device}"


Ranges = tuple[tuple[sympy.Symbol, int], ...]


@dataclass(frozen=True)
class Access:
    """One read or write: flat host index (elements) over `ranges`, which lists each loop symbol and its extent.

    `indirect` says which buffer each data-dependent symbol of the index is loaded from.
    """

    buffer: str
    index: sympy.Expr
    ranges: Ranges
    indirect: tuple[tuple[sympy.Symbol, str], ...] = ()

    @property
    def extents(self) -> dict[sympy.Symbol, int]:
        return dict(self.ranges)

    @property
    def symbols(self) -> frozenset[sympy.Symbol]:
        return frozenset(self.index.free_symbols)

    @property
    def is_indirect(self) -> bool:
        return bool(self.indirect) or any(str(s).startswith(("tmp", "indirect")) for s in self.symbols)

    def __str__(self) -> str:
        return f"{self.buffer}[{self.index}]"


@dataclass(frozen=True)
class Step:
    """One instruction of a loop body.

    `function` is "load" (buffer, index), "constant" (value, dtype), "index_expr" or a compute function;
    `operands` are positions of earlier steps.
    """

    function: str
    operands: tuple[int, ...] = ()
    buffer: str = ""
    index: sympy.Expr | None = None
    value: bool | int | float | None = None
    dtype: torch.dtype | None = None
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def computes(self) -> bool:
        return self.function not in ("load", "get_index")


class OpKind(StrEnum):
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    MATMUL = "matmul"
    CONSTANT = "constant"  # uploads a literal
    EMPTY = "empty"  # allocates without writing
    FALLBACK = "fallback"  # runs on the host
    OUTPUT = "output"  # a result that the host or a library call puts on the device
    RESTICKIFY = "restickify"


@dataclass(frozen=True)
class Origin:
    """The FX node that an op comes from, and the user's line."""

    node: str = ""
    target: str = ""
    source: str = ""

    def __str__(self) -> str:
        return f"{self.target} {self.source}".strip()


@dataclass(frozen=True)
class MatmulRoles:
    """Which operand of a matmul is which, by name of the buffer read, and its loop symbols.

    `x` carries K on its stick, `y` and the output carry N.
    """

    x: str
    y: str
    reduction: sympy.Symbol
    generated: sympy.Symbol


@dataclass(frozen=True)
class Op:
    """One loop nest over the device, or a host step.

    function: torch-level name of the last compute step ("add", "batchmatmul", "mean", "identity", …), or the ATen name of a fallback.
    output_ranges / reduction_ranges: host extents of the loop nest, size-1 loops included (so that they match ranks).
    reads: in order of first load, without duplicates. write: the store.
    result_of: ATen target of the graph node whose own result this op makes; empty for steps inside a lowering, and where a pass forgot it.
    attributes: what the kernel takes as constants (eps, clip bounds, scale, the unit-batch mark).
    """

    name: str
    kind: OpKind
    function: str
    output: str
    write: Access | None = None
    reads: tuple[Access, ...] = ()
    output_ranges: tuple[int, ...] = ()
    reduction_ranges: tuple[int, ...] = ()
    body: tuple[Step, ...] = ()
    origin: Origin = field(default_factory=Origin)
    result_of: str = ""
    attributes: tuple[tuple[str, Any], ...] = ()
    roles: MatmulRoles | None = None
    host_reads: tuple[str, ...] = ()  # buffers a fallback takes whole
    meant: tuple[tuple[Access, Access], ...] = ()  # reads that the release gets wrong, each with what it should have been
    obstacle: Obstacle | None = None  # why the loops could not be read; the op is refused when its layout is asked for

    @property
    def info(self) -> Mapping[str, Any]:
        return dict(self.attributes)

    @property
    def is_reduction(self) -> bool:
        return self.kind in (OpKind.REDUCTION, OpKind.MATMUL)

    @property
    def on_device(self) -> bool:
        return self.write is not None

    @property
    def iteration_space(self) -> dict[sympy.Symbol, int]:
        """Loop symbols and extents: those of the write, or of the first read for a reduction. Raises ValueError for host steps."""
        if self.write is None:
            raise ValueError(f"{self.name} runs on the host and has no loops")
        return dict(self.reads[0].ranges if self.is_reduction else self.write.ranges)

    @property
    def reduction_symbols(self) -> tuple[sympy.Symbol, ...]:
        written = self.write.symbols if self.write else frozenset()
        return tuple(s for s in self.iteration_space if s not in written) if self.is_reduction else ()

    def __str__(self) -> str:
        if self.write is None:
            return f"{self.name}: {self.output} = {self.kind} {self.function}({', '.join(self.host_reads)})"
        loops = ", ".join(f"{s}:{n}" for s, n in self.iteration_space.items())
        reads = ", ".join(map(str, self.reads))
        source = f"   # {self.origin}" if str(self.origin) else ""
        return f"{self.name}: {self.write} = {self.kind} {self.function}({reads}) over ({loops}){source}"


@dataclass(frozen=True, slots=True)
class GraphName:
    """The graph node that a buffer is known by, with that node's size and stride when it is a tensor of known shape."""

    buffer: str
    node: str
    size: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True)
class LoweredGraph:
    """A whole compile unit: buffers by name and ops in execution order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    ops: tuple[Op, ...]
    names: tuple[GraphName, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Op, ...]]:
        """Ops that read each buffer, in order."""
        result: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys([*(r.buffer for r in op.reads), *op.host_reads]):
                result.setdefault(name, []).append(op)
        return {name: tuple(ops) for name, ops in result.items()}

    @cached_property
    def writers(self) -> Mapping[str, Op]:
        """The op that writes each buffer (its own name, not its alias)."""
        return {op.output: op for op in self.ops}

    def buffer(self, name: str) -> Buffer:
        return self.by_name[name]

    def storage(self, name: str) -> Buffer:
        """The buffer whose memory `name` is, after following aliases."""
        found = self.by_name[name]
        while found.alias is not None:
            found = self.by_name[found.alias]
        return found

    def layout(self, name: str) -> DeviceLayout:
        """Device layout of the memory behind `name`. Raises ValueError before layouts are decided."""
        found = self.storage(name).layout
        if found is None:
            raise ValueError(f"{name} has no device layout yet")
        return found

    def device_ops(self) -> Iterator[Op]:
        return (op for op in self.ops if op.on_device)

    def with_layouts(self, layouts: Mapping[str, DeviceLayout]) -> LoweredGraph:
        return replace(self, buffers=tuple(replace(b, layout=layouts.get(b.name, b.layout)) for b in self.buffers))

    def __str__(self) -> str:
        lines = [
            f"inputs {', '.join(self.inputs)}",
            *(f"  {b}" for b in self.buffers),
            *map(str, self.ops),
            f"outputs {', '.join(self.outputs)}",
        ]
        return "\n".join(lines)
