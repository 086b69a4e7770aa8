"""Moving an operand's tile between padded sticks and a dense tensor, by strided copies worked out once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from sympy import Symbol
from torch import Tensor

from .addressing import Addresses, Block, address_table, blocks, refine
from .layouts import contiguous_strides
from .tiles import Ownership

Loops = tuple[tuple[Symbol, int], ...]


@dataclass(frozen=True, eq=False)
class Mover:
    """`where` seen as a dense tensor over `loops`; loops that the access does not walk have size 1.

    data: values of data-dependent symbols are given at run time (`values`), so that addresses are looked up then.
    """

    where: Addresses
    loops: Loops
    data: bool = False

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(n if s in self.where.tables or self.data else 1 for s, n in self.loops)

    @cached_property
    def _walked(self) -> Loops:
        return tuple((s, n) for s, n in self.loops if s in self.where.tables)

    @cached_property
    def copies(self) -> tuple[Block, ...] | None:
        return None if self.data else blocks(self.where, self._walked, contiguous_strides([n for _, n in self._walked]))

    @cached_property
    def strides(self) -> tuple[int, ...] | None:
        """Strides of a view of the memory that already is the dense tensor, when there is one."""
        steps = []
        for symbol, n in self.loops:
            digits = self.where.digits.get(symbol, ())
            if digits is None or len(digits) > 1 or self.data:
                return None
            steps.append(int(self.where.tables[symbol][1]) if digits and n > 1 else 0)
        return tuple(steps)

    @cached_property
    def table(self) -> Tensor:
        return address_table(self.where, self._walked).reshape(self.shape)

    def gather(self, memory: Tensor, values: Mapping[Symbol, Tensor] | None = None, fresh: bool = False) -> Tensor:
        """The dense tile; a view of the memory where possible, unless `fresh` asks for a contiguous copy."""
        if self.data:
            return memory[address_table(self.where, self.loops, values)]
        if self.strides is not None:
            view = torch.as_strided(memory, self.shape, self.strides, self.where.base)
            return view.contiguous() if fresh else view
        if self.copies is None:
            return memory[self.table]
        dense = memory.new_empty(self.shape)
        for block in self.copies:
            torch.as_strided(dense, block.sizes, block.dense_strides, block.dense_offset).copy_(
                torch.as_strided(memory, block.sizes, block.device_strides, block.device_offset)
            )
        return dense

    def whole(self, memory: Tensor) -> Tensor:
        """The dense tile with every loop at its full extent."""
        return self.gather(memory).expand([n for _, n in self.loops])

    def scatter(self, memory: Tensor, dense: Tensor, values: Mapping[Symbol, Tensor] | None = None) -> None:
        """Write the tile (broadcast to `shape` first) to its lanes."""
        if self.data:
            memory[address_table(self.where, self.loops, values)] = dense
            return
        dense = dense.expand(self.shape)
        if self.copies is None:
            memory[self.table] = dense
            return
        dense = dense.contiguous()
        for block in self.copies:
            torch.as_strided(memory, block.sizes, block.device_strides, block.device_offset).copy_(
                torch.as_strided(dense, block.sizes, block.dense_strides, block.dense_offset)
            )

    def fill(self, memory: Tensor, value: bool) -> None:
        """Set every lane of the tile (marks in a bool memory)."""
        if self.copies is None:
            memory[self.table] = value
            return
        for block in self.copies:
            torch.as_strided(memory, block.sizes, block.device_strides, block.device_offset).fill_(value)


@dataclass(frozen=True)
class SticksView:
    """Whole padded sticks of an operand as one strided view, cores first: an element of the view is a lane, in use or padding."""

    strides: tuple[int, ...]
    offset: int

    def of(self, memory: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return torch.as_strided(memory, sizes, self.strides, self.offset)


@dataclass(frozen=True)
class SticksWalk:
    """A loop nest over sticks, the same for all operands: sizes of its digits, those that number the cores first."""

    sizes: tuple[int, ...]
    cores: int  # how many of the leading digits number cores
    views: tuple[SticksView, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


def whole_sticks(walks: Sequence[Addresses], loops: Loops, ownership: Ownership, whole_output: bool) -> SticksWalk | None:
    """One loop nest of digits that walks every operand (the last one is the output), padding lanes included.

    None where some operand has no digits, the operands cut a loop at places that do not nest, or the padding of a ragged loop is not
    the padding of the output's own sticks.
    """
    outer: list[tuple[int, ...]] = []  # per digit: (core digit?, size, step of each operand …)
    for symbol, extent in loops:
        cuts: list[int] = []
        for where in walks:
            digits = where.digits.get(symbol, ())
            if digits is None:
                return None
            cuts += [d.unit for d in digits]
        share = ownership.by_symbol.get(symbol)
        width = share.width if share is not None and share.cores > 1 else extent
        digits = refine([*cuts, width], extent) or refine(cuts, extent)
        if digits is None:
            return None
        padded = digits[-1].unit * digits[-1].size
        if padded != extent and not _pads_output(walks, symbol, extent, padded, whole_output):
            return None
        for digit in reversed(digits):
            if digit.size > 1:
                steps = [int(w.tables[symbol][digit.unit]) if symbol in w.tables else 0 for w in walks]
                outer.append((digit.unit < width, digit.size, *steps))
    outer.sort(key=lambda digit: digit[0])
    return SticksWalk(
        tuple(digit[1] for digit in outer),
        sum(not digit[0] for digit in outer),
        tuple(SticksView(tuple(digit[i + 2] for digit in outer), where.base) for i, where in enumerate(walks)),
    )


def _pads_output(walks: Sequence[Addresses], symbol: Symbol, extent: int, padded: int, whole_output: bool) -> bool:
    """Whether elements `extent..padded` of a loop are lanes of the output's last stick, and stay inside the last stick of every operand."""
    output = walks[-1]
    if not whole_output or symbol not in output.coordinates[-1]:
        return False
    stick = output.device_size[-1]
    if padded != -(-extent // stick) * stick:
        return False
    return all(not (symbol in where.tables and (symbol not in where.coordinates[-1] or where.device_size[-1] < stick)) for where in walks)
