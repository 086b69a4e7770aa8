"""A small builder of lowered graphs, so that tests of the planning passes need no front-end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import sympy
import torch

from adapterc.spyre_runtime.capture import capture
from adapterc.spyre_runtime.execute_fast import compile_program
from adapterc.spyre_runtime.execute_tiled import TiledProgram, link
from adapterc.spyre_runtime.formats import DEFAULT_RULES
from adapterc.spyre_runtime.frontend import Compilation, compile_graph
from adapterc.spyre_runtime.ir import Access, Buffer, BufferRole, DeviceLayout, LoweredGraph, Op, OpKind, Origin, Step
from adapterc.spyre_runtime.layouts import contiguous_strides, tiled
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.rounding_points import as_device_computes
from adapterc.spyre_runtime.tiled_options import TiledOptions

Size = tuple[int, ...]


def loop_symbols(count: int) -> tuple[sympy.Symbol, ...]:
    return sympy.symbols([f"d{i}" for i in range(count)])


@dataclass
class GraphBuilder:
    """Adds buffers and ops in order; every buffer is contiguous and has the default tiling unless another is given."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def buffer(
        self,
        name: str,
        size: Size,
        role: BufferRole,
        dtype: torch.dtype = torch.float16,
        order: Size | None = None,
        alias: str | None = None,
    ) -> str:
        stride = contiguous_strides(size)
        layout = tiled(size, stride, dtype, order or tuple(range(len(size))))
        self.buffers[name] = Buffer(name, role, dtype, size, stride, layout=layout if alias is None else None, alias=alias)
        return name

    def input(self, name: str, size: Size, dtype: torch.dtype = torch.float16, order: Size | None = None) -> str:
        self.inputs.append(name)
        return self.buffer(name, size, BufferRole.INPUT, dtype, order)

    def access(self, name: str, dims: tuple[int | None, ...], loops: Size, offset: int = 0) -> Access:
        """Dimension i of `name` is walked by loop dims[i] (None: by none)."""
        symbols = loop_symbols(len(loops))
        stride = self.buffers[name].stride
        index = sympy.Integer(offset) + sum(symbols[d] * s for d, s in zip(dims, stride, strict=True) if d is not None and loops[d] > 1)
        return Access(name, index, tuple((s, n) for s, n in zip(symbols, loops, strict=True) if n > 1))

    def pointwise(
        self, function: str, name: str, size: Size, *reads: str, order: Size | None = None, dtype: torch.dtype = torch.float16
    ) -> str:
        """One op over the whole of `size`; operands have its size, size-1 dimensions broadcast."""
        self.buffer(name, size, BufferRole.COMPUTED, dtype, order)
        accesses = []
        for read in reads:
            own = self.buffers[read].size
            shift = len(size) - len(own)
            accesses.append(self.access(read, tuple(None if n == 1 else i + shift for i, n in enumerate(own)), size))
        return self.op(function, OpKind.POINTWISE, name, self.access(name, tuple(range(len(size))), size), accesses)

    def op(self, function: str, kind: OpKind, name: str, write: Access, reads: Sequence[Access], aten: str | None = None) -> str:
        loads = [Step("load", buffer=r.buffer, index=r.index) for r in reads]
        compute = [] if function == "identity" else [Step(function, tuple(range(len(reads))))]
        origin = Origin(name, aten or f"aten.{function}.default", f"model.py:{len(self.ops) + 1}")
        reads = tuple(dict.fromkeys(reads))
        self.ops.append(
            Op(f"op_{name}", kind, function, name, write, reads, body=(*loads, *compute), origin=origin, result_of=origin.target)
        )
        return name

    def reduction(self, function: str, name: str, source: str, dim: int) -> str:
        """Reduce `source` along `dim`, which stays with size 1."""
        size = self.buffers[source].size
        kept = [i for i in range(len(size)) if i != dim]
        loops = (*(size[i] for i in kept), size[dim])
        self.buffer(name, tuple(1 if i == dim else n for i, n in enumerate(size)), BufferRole.COMPUTED)
        place = {d: kept.index(d) if d != dim else len(kept) for d in range(len(size))}
        read = self.access(source, tuple(place[d] for d in range(len(size))), loops)
        written = self.access(name, tuple(None if d == dim else place[d] for d in range(len(size))), loops)
        write = Access(name, written.index, tuple(r for r in written.ranges if r[0] in written.index.free_symbols))
        return self.op(function, OpKind.REDUCTION, name, write, [read])

    def matmul(self, name: str, x: str, y: str) -> str:
        """[…, M, K] @ [K, N] or [B, K, N]."""
        (*batch, m, k), n = self.buffers[x].size, self.buffers[y].size[-1]
        self.buffer(name, (*batch, m, n), BufferRole.COMPUTED)
        loops = (*batch, m, n, k)
        b = tuple(range(len(batch)))
        m_loop, n_loop, k_loop = len(batch), len(batch) + 1, len(batch) + 2
        y_batch = b if len(self.buffers[y].size) > 2 else ()
        written = self.access(name, (*b, m_loop, n_loop), loops)
        write = Access(name, written.index, tuple(r for r in written.ranges if r[0] != loop_symbols(len(loops))[k_loop]))
        reads = [self.access(x, (*b, m_loop, k_loop), loops), self.access(y, (*y_batch, k_loop, n_loop), loops)]
        return self.op("batchmatmul", OpKind.MATMUL, name, write, reads)

    def fallback(self, function: str, name: str, size: Size, *reads: str) -> str:
        self.buffer(name, size, BufferRole.FALLBACK)
        self.ops.append(Op(f"op_{name}", OpKind.FALLBACK, function, name, host_reads=reads))
        return name

    def graph(self, *outputs: str) -> LoweredGraph:
        return LoweredGraph(tuple(self.inputs), outputs, tuple(self.buffers.values()), tuple(self.ops))

    def layout(self, name: str) -> DeviceLayout:
        found = self.buffers[name].layout
        assert found is not None
        return found

    def bytes(self, name: str) -> int:
        return math.prod(self.layout(name).device_size[:-1]) * 128


@pytest.fixture
def build() -> GraphBuilder:
    return GraphBuilder()


@dataclass(frozen=True)
class Compiled:
    """A compiled function, the carriers of its inputs, and its outputs by either executor."""

    compilation: Compilation
    inputs: tuple[torch.Tensor, ...]

    def tiled(self, options: TiledOptions | None = None) -> TiledProgram:
        return link(self.compilation, load_profile(), options or TiledOptions(), DEFAULT_RULES)

    def run(self, options: TiledOptions | None = None) -> tuple[torch.Tensor, ...]:
        found = self.tiled(options).run([x.clone() for x in self.inputs])
        return tuple(x for x in found if x is not None)

    def fast(self) -> tuple[torch.Tensor, ...]:
        graph = as_device_computes(self.compilation.functional, DEFAULT_RULES)
        found = compile_program(graph, DEFAULT_RULES.op_rounding).run(*(x.clone() for x in self.inputs))
        return tuple(x for x in found if isinstance(x, torch.Tensor))


def compile_function(function: Callable[..., object], *inputs: torch.Tensor) -> Compiled:
    """Compile a function of tensors (host tensors go to the device first)."""
    on_device = [x.to("spyre") for x in inputs]
    with torch.no_grad():
        captured = capture(torch.fx.symbolic_trace(function), on_device)
    return Compiled(compile_graph(captured.module, load_profile()), tuple(x.raw for x in on_device))


def compile_module(module: torch.nn.Module, *inputs: torch.Tensor) -> Compiled:
    """Compile a module through Dynamo, as torch.compile does; its weights become inputs."""
    graphs: list[tuple[torch.fx.GraphModule, list[torch.Tensor]]] = []

    def keep(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append((graph, examples))
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module.to("spyre"), backend=keep, dynamic=False)(*(x.to("spyre") for x in inputs))
    ((graph, examples),) = graphs
    captured = capture(graph, examples)
    return Compiled(compile_graph(captured.module, load_profile()), tuple(x.raw for x in examples if isinstance(x, torch.Tensor)))


@pytest.fixture
def compiled() -> Callable[..., Compiled]:
    torch.manual_seed(0)
    return compile_function


@pytest.fixture
def compiled_module() -> Callable[..., Compiled]:
    torch.manual_seed(0)
    return compile_module
