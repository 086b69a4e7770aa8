"""Device ops ready to run: each reads its operands' sticks, computes all cores' slices as one batch, rounds, and stores.

Pointwise ops work on whole padded sticks where they can, as the hardware does: what padding lanes hold goes through the op as well. Ops
that look across lanes (reductions, matmul, re-layout) take the lanes that hold elements, which is the hardware's masking of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from sympy import Symbol
from torch import Tensor

from .device_functions import COPIES, DIRECT, apply, convert, finish, merge_parts, reduce_part
from .formats import Rounding, round_dl16_
from .movers import Mover, SticksWalk
from .tiled_options import PartialSums


@dataclass(frozen=True)
class Target:
    """Memory that an op writes: storage name, carrier dtype, and how results are rounded (None: not at all)."""

    storage: str
    carrier: torch.dtype
    rounding: Rounding | None

    def settle(self, x: Tensor) -> Tensor:
        """The value in the output's carrier and format; `x` is overwritten when it is a fresh tensor of the right dtype."""
        x = convert(x, self.carrier)
        return x if self.rounding is None else round_dl16_(x, self.rounding)


Memory = dict[str, Tensor]
Change = Callable[[Tensor, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True)
class SticksOp:
    """A pointwise program over whole sticks."""

    program: str
    parameters: Mapping[str, Any]
    inputs: tuple[str, ...]
    walk: SticksWalk
    target: Target
    whole: bool  # the walk covers every stick of the output
    change: Change | None = None

    def run(self, memory: Memory) -> None:
        operands = tuple(view.of(memory[name], self.walk.sizes) for name, view in zip(self.inputs, self.walk.views[:-1], strict=True))
        flat = memory[self.target.storage]
        out = self.walk.views[-1].of(flat, self.walk.sizes)
        if self.program in DIRECT and self.whole and self.change is None and self._stays(operands):
            DIRECT[self.program](*operands, out=out)
            if self.target.rounding is not None:
                round_dl16_(flat, self.target.rounding)
            return
        if self.program not in COPIES:  # one stride pattern, whatever the layout: CPU kernels differ in the last bit between patterns
            operands = tuple(o if o.numel() == 1 else o.contiguous() for o in operands)
        result = apply(self.program, operands, self.parameters)
        if self.change is not None:
            result = self.change(result, operands)
        if self.program in COPIES and self.change is None:  # a copy has nothing to round, except when it narrows
            result = convert(result, self.target.carrier)
            if self.program == "fp32todl16" and self.target.rounding is not None:
                result = round_dl16_(result.clone(), self.target.rounding)
        else:
            result = self.target.settle(result)
        out.copy_(result)

    def _stays(self, operands: tuple[Tensor, ...]) -> bool:
        """Whether the result has the output's dtype already."""
        found = torch.bool if self.target.carrier is torch.bool else operands[0].dtype
        compares = self.program.startswith(("equal", "greater", "lesser", "not"))
        return found is self.target.carrier and compares == (self.target.carrier is torch.bool)


@dataclass(frozen=True)
class DenseOp:
    """A pointwise program over elements: tiles are gathered, computed and scattered.

    data: for each data-dependent symbol, the operand (by position in `indices`) whose values it takes.
    """

    program: str
    parameters: Mapping[str, Any]
    inputs: tuple[tuple[str, Mover], ...]
    target: Target
    output: Mover
    indices: Mapping[Symbol, tuple[str, Mover]] = field(default_factory=dict)
    watch: Callable[[Symbol, Tensor], Tensor] | None = None
    change: Change | None = None

    def run(self, memory: Memory) -> None:
        values = {symbol: mover.gather(memory[name]).long() for symbol, (name, mover) in self.indices.items()}
        if self.watch is not None:
            values = {symbol: self.watch(symbol, data) for symbol, data in values.items()}
        operands = tuple(mover.gather(memory[name], values) for name, mover in self.inputs)
        result = apply(self.program, operands, self.parameters)
        if self.change is not None:
            result = self.change(result, operands)
        if any(result is o for o in operands) and self.target.rounding is not None and self.program not in ("identity", "ReStickifyOpHBM"):
            result = result.clone()
        settled = convert(result, self.target.carrier) if self.program in ("identity", "ReStickifyOpHBM") else self.target.settle(result)
        self.output.scatter(memory[self.target.storage], settled, values)


def ring_sum(parts: Tensor, program: str, partial_sums: PartialSums, rounding: Rounding | None) -> Tensor:
    """Partial results of the cores that share a reduction (dimension 0, in the order in which they lie on the ring), passed on from core
    to core. partial_sums "dl16": what travels is rounded, which is one of the things that are not public.
    """
    total = parts[0]
    for part in parts[1:]:
        if partial_sums == "dl16" and rounding is not None:
            total = round_dl16_(total.clone(), rounding)
        total = merge_parts(program, total, part)
    return total


def in_slices(x: Tensor, dim: int, cores: int, width: int, pad: float) -> Tensor:
    """Dimension `dim` cut into `cores` slices of `width`, the slice number moved to the front; short slices are padded with `pad`."""
    missing = cores * width - x.shape[dim]
    if missing:
        shape = list(x.shape)
        shape[dim] = missing
        x = torch.cat([x, x.new_full(shape, pad)], dim)
    return x.reshape(*x.shape[:dim], cores, width, *x.shape[dim + 1 :]).movedim(dim, 0)


@dataclass(frozen=True)
class ReduceOp:
    """A reduction. dims: positions of the reduced loops in the gathered tile. split: (position, cores, width) of the one that cores share."""

    program: str
    parameters: Mapping[str, Any]
    input: tuple[str, Mover]
    dims: tuple[int, ...]
    split: tuple[int, int, int] | None
    mask: float
    target: Target
    outputs: tuple[Mover, ...]  # two lanes for exx2
    partial_sums: PartialSums = "float32"
    unmasked: Mover | None = None  # the tile with its padding, for a fault that forgets the mask
    change: Change | None = None

    def run(self, memory: Memory) -> None:
        name, mover = self.input
        x = (self.unmasked or mover).gather(memory[name], fresh=True)
        count = 1
        for dim in self.dims:
            count *= mover.shape[dim]
        if self.split is None:
            totals = reduce_part(self.program, x, self.dims)
        else:
            position, cores, width = self.split
            sliced = in_slices(x, position, cores, width, self.mask)
            parts = reduce_part(self.program, sliced, tuple(d + 1 for d in self.dims))
            totals = tuple(ring_sum(p, self.program, self.partial_sums, self.target.rounding) for p in parts)
        flat = memory[self.target.storage]
        for output, total in zip(self.outputs, finish(self.program, totals, self.parameters, count), strict=True):
            output.scatter(flat, self.target.settle(total if self.change is None else self.change(total, (x,))))


@dataclass(frozen=True)
class TopkOp:
    """topkvalue / topkindex over one loop, on one core. `places`: position of the loop over the k results in the output tile."""

    program: str
    k: int
    input: tuple[str, Mover]
    dim: int
    place: int
    target: Target
    output: Mover

    def run(self, memory: Memory) -> None:
        name, mover = self.input
        values, indices = torch.topk(mover.gather(memory[name], fresh=True), self.k, self.dim)
        result = (values if self.program == "topkvalue" else indices).movedim(self.dim, self.place)
        self.output.scatter(memory[self.target.storage], self.target.settle(result.reshape(self.output.shape)))


@dataclass(frozen=True)
class MatmulOp:
    """x [batch, M, K] by y [batch, K, N], all cores' tiles at once.

    Cores that differ in M or N only have tiles of one product over the same K: slices of x that several cores read are gathered once (the
    hardware sends them to all of these cores). split: (cores, width) when cores share K; then each of them makes a partial product.
    """

    x: tuple[str, Mover]
    y: tuple[str, Mover]
    sizes: tuple[int, int, int, int]  # batch, M, K, N
    split: tuple[int, int] | None
    target: Target
    output: Mover
    partial_sums: PartialSums = "float32"

    def run(self, memory: Memory) -> None:
        batch, m, k, n = self.sizes
        x = self.x[1].whole(memory[self.x[0]]).reshape(batch, m, k)
        y = self.y[1].whole(memory[self.y[0]]).reshape(batch, k, n)
        if self.split is None:
            product = torch.mm(x[0], y[0]) if batch == 1 else torch.bmm(x, y)
        else:
            cores, width = self.split
            parts = torch.matmul(in_slices(x, 2, cores, width, 0.0), in_slices(y, 1, cores, width, 0.0))
            product = ring_sum(parts, "sum", self.partial_sums, self.target.rounding)
        self.output.scatter(memory[self.target.storage], self.target.settle(product).reshape(self.output.shape))
