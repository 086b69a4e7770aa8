"""Reads the body of one Inductor loop nest into our steps and accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch._inductor import ir as inductor_ir
from torch._inductor.dependencies import index_vars_squeeze
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.utils import sympy_index_symbol
from torch._inductor.virtualized import V

from .ir import Access, Ranges, Step


@dataclass(frozen=True)
class Value:
    """Result of one recorded step."""

    step: int


@dataclass
class Body:
    """What a loop nest does: its steps, each distinct load in order, and the store."""

    steps: list[Step] = field(default_factory=list)
    reads: dict[tuple[str, sympy.Expr], Access] = field(default_factory=dict)
    write: Access | None = None
    store_mode: str | None = None


def _access(buffer: str, index: Any, ranges: dict[sympy.Symbol, int], indirect: dict[sympy.Symbol, str]) -> Access:
    """Trailing loops that the index does not use are not part of an access; loops of one iteration never are."""
    index = sympy.sympify(index)
    used = index.free_symbols
    kept = [(s, n) for s, n in ranges.items() if n != 1]
    while kept and kept[-1][0] not in used:
        kept.pop()
    return Access(buffer, index, tuple(kept), tuple((s, b) for s, b in indirect.items() if s in used))


class Recorder(DefaultHandler):
    """Ops handler that turns each call into a step."""

    def __init__(self, ranges: dict[sympy.Symbol, int]) -> None:
        self.ranges = ranges
        self.body = Body()
        self.indirect: dict[sympy.Symbol, str] = {}

    def _add(self, step: Step) -> Value:
        self.body.steps.append(step)
        return Value(len(self.body.steps) - 1)

    def _operand(self, value: Any) -> Value:
        if isinstance(value, Value):
            return value
        dtype = torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, int) else torch.float32
        return self.constant(value, dtype)

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operands, attributes = [], []
        for position, arg in enumerate(args):
            if isinstance(arg, Value | bool | int | float):
                operands.append(self._operand(arg).step)
            elif isinstance(arg, tuple) and arg and all(isinstance(a, Value) for a in arg):
                operands += [a.step for a in arg]
            else:
                attributes.append((f"arg{position}", arg))
        attributes += list(kwargs.items())
        return self._add(Step(name, tuple(operands), attributes=tuple(attributes)))

    def constant(self, value: Any, dtype: torch.dtype) -> Value:
        return self._add(Step("constant", value=value, dtype=dtype))

    def load(self, name: str, index: Any) -> Value:
        access = _access(name, index, self.ranges, self.indirect)
        self.body.reads.setdefault((name, access.index), access)
        return self._add(Step("load", buffer=name, index=access.index))

    def store(self, name: str, index: Any, value: Any, mode: str | None = None) -> None:
        self.body.write = _access(name, index, self.ranges, self.indirect)
        self.body.store_mode = mode
        result = self._operand(value)
        if result.step != len(self.body.steps) - 1:  # the stored value is what the body ends with
            self._add(Step("identity", (result.step,)))

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        self.store(name, index, value)

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any) -> Value:
        values = value if isinstance(value, tuple) else (value,)
        operands = tuple(self._operand(v).step for v in values)
        return self._add(Step("reduction", operands, dtype=dtype, attributes=(("type", reduction_type),)))

    def masked(self, mask: Any, body: Callable[[], Any], other: Any) -> Value:
        inner = self._operand(body())
        return self._add(Step("masked", (self._operand(mask).step, inner.step, self._operand(other).step)))

    def indirect_indexing(self, index_var: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Symbol:
        step = self._operand(index_var).step
        symbol = sympy_index_symbol(f"tmp{step}")
        if self.body.steps[step].function == "load":
            self.indirect[symbol] = self.body.steps[step].buffer
        return symbol


def record(buffer: inductor_ir.ComputedBuffer) -> Body:
    """Steps and accesses of a realised buffer, over loop symbols d0, d1, … (outputs first, then reductions)."""
    data = buffer.data
    sizes = [data.get_pointwise_size(), data.get_reduction_size()] if data.get_reduction_type() else [data.get_size()]
    args, ranges = index_vars_squeeze(*sizes, prefix="d")
    recorder = Recorder({s: int(n) for s, n in ranges.items()})
    with patch.object(inductor_ir.FlexibleLayout, "allow_indexing", True), V.set_ops_handler(recorder):
        buffer.get_store_function()(*args)
    return recorder.body


def whole_ranges(sizes: list[int]) -> Ranges:
    """Loop symbols over a tensor of these sizes, loops of one iteration left out."""
    extents = [n for n in sizes if n != 1]
    return tuple((sympy_index_symbol(f"d{i}"), n) for i, n in enumerate(extents))
