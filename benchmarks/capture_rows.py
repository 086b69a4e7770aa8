"""An oracle row as the ATen graphs that the compiler would be given.

Grid rows are Python lambdas and layers are modules: Dynamo traces them, as `torch.compile` would, on fake tensors of the device, so nothing is
allocated. Straight-line programs are what Dynamo already recorded, and become FX graphs directly.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as functional
from blocks import build_block, linear_weights
from oracle_rows import Argument, InputLayout, Row
from programs import DEVICE, parse_program
from torch._subclasses.fake_tensor import FakeTensorMode

from adapterc.spyre_runtime.capture import capture
from adapterc.spyre_runtime.ir import DataFormat, DeviceLayout
from adapterc.spyre_runtime.layouts import tiled

BETWEEN_GRAPHS = " || "


@dataclass(frozen=True)
class DynamoGraph:
    """What Dynamo hands a backend. `rows_innermost`: positions of inputs that are Linear weights moved with their module."""

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    rows_innermost: frozenset[int] = frozenset()


@dataclass
class _Recorder:
    """A Dynamo backend that only keeps what it is given."""

    weights: set[int] = field(default_factory=set)
    graphs: list[DynamoGraph] = field(default_factory=list)

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        marked = frozenset(i for i, value in enumerate(inputs) if id(value) in self.weights)
        self.graphs.append(DynamoGraph(module, tuple(inputs), marked))
        return module.forward


@dataclass(frozen=True)
class CapturedRow:
    """One ATen graph of a row, and the device layouts of its inputs by placeholder name."""

    module: torch.fx.GraphModule
    layouts: dict[str, DeviceLayout]


class _StripMarks(ast.NodeTransformer):
    """Turns `w.opt` into `w`, remembering `w`."""

    def __init__(self) -> None:
        self.marked: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr == "opt" and isinstance(node.value, ast.Name):
            self.marked.add(node.value.id)
            return node.value
        return node


def _lambda(text: str) -> tuple[Callable[..., Any], frozenset[int]]:
    """The function, and the positions of the arguments that the text marks with `.opt`."""
    tree = ast.parse(text, mode="eval")
    marks = _StripMarks()
    tree = ast.fix_missing_locations(marks.visit(tree))
    if not isinstance(tree.body, ast.Lambda):
        raise ValueError(f"not a lambda: {text!r}")
    names = [a.arg for a in tree.body.args.args]
    function = eval(compile(tree, "<oracle row>", "eval"), {"torch": torch, "F": functional})
    return function, frozenset(i for i, name in enumerate(names) if name in marks.marked)


def _fake(argument: Argument) -> Any:
    if argument.size is None:
        return 0  # a symbolic size that no op of these graphs reads
    if argument.stride is not None:
        return torch.empty_strided(argument.size, argument.stride, dtype=argument.dtype, device=DEVICE)
    return torch.empty(argument.size, dtype=argument.dtype, device=DEVICE)


def _trace(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], recorder: _Recorder) -> None:
    torch._dynamo.reset()
    try:
        torch.compile(function, backend=recorder, dynamic=False)(*args, **kwargs)
    except Exception:
        # A graph break on a value (an `if` on a tensor) cannot go on without data; what was recorded before it is the answer.
        if not recorder.graphs:
            raise


def _grid_graphs(row: Row) -> list[DynamoGraph]:
    function, marked = _lambda(row.expression)
    args = tuple(_fake(a) for a in row.arguments)
    recorder = _Recorder(weights={id(args[i]) for i in marked})
    _trace(function, args, {}, recorder)
    return recorder.graphs


def _block_graphs(row: Row) -> list[DynamoGraph]:
    model, inputs = build_block(row.expression, DEVICE)
    recorder = _Recorder(weights=linear_weights(model))
    _trace(model, (), inputs, recorder)
    return recorder.graphs


def _program_graphs(row: Row) -> list[DynamoGraph]:
    args = tuple(_fake(a) for a in row.arguments)
    graphs = []
    for text in filter(None, row.expression.split(BETWEEN_GRAPHS)):
        module = parse_program(text, len(args))
        weights = frozenset(_linear_weight_positions(module))
        graphs.append(DynamoGraph(module, args, weights if _moved_by_module(row, weights) else frozenset()))
    return graphs


def _linear_weight_positions(module: torch.fx.GraphModule) -> Iterator[int]:
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node in module.graph.nodes:
        if node.target is torch._C._nn.linear or node.target is functional.linear:
            for argument in node.args[1:2]:
                if argument in placeholders:
                    yield placeholders.index(argument)


def _rows_innermost(layout: InputLayout | None) -> bool:
    return layout is not None and len(layout.stride_map) == 3 and layout.stride_map[1] == 1 != layout.stride_map[2]


def _moved_by_module(row: Row, weights: frozenset[int]) -> bool:
    """The table lists only the first inputs of long programs: the weights that it does list speak for the others."""
    listed = [row.layouts[i] for i in weights if i < len(row.layouts)]
    return any(_rows_innermost(layout) for layout in listed)


def _given(layout: InputLayout) -> DeviceLayout:
    return DeviceLayout(layout.device_size, layout.stride_map, DataFormat(layout.format))


def _weight_layout(value: torch.Tensor) -> DeviceLayout:
    """`nn.Module.to(device)` lays a [out, in] weight with dim_order [1, 0]: sticks along `out`."""
    return tiled(tuple(value.shape), tuple(value.stride()), value.dtype, (1, 0))


def _fits(layout: InputLayout, value: torch.Tensor) -> bool:
    """Whether the table's layout can be this tensor's: its strides are among the tensor's own."""
    stick = layout.device_size[-1]
    strides = {s for size, s in zip(value.shape, value.stride(), strict=True) if size > 1}
    within = [s for s in layout.stride_map if s > 0]
    return all(s in strides or any(s == t * stick for t in strides) or s == 1 for s in within)


def _graph_layouts(row: Row, graph: DynamoGraph) -> dict[int, DeviceLayout]:
    tensors = [(i, v) for i, v in enumerate(graph.inputs) if isinstance(v, torch.Tensor)]
    complete = row.source != "hf-block" and len(row.layouts) <= len(graph.inputs)
    layouts: dict[int, DeviceLayout] = {}
    for position, value in tensors:
        if value.device.type != DEVICE:
            continue
        listed = row.layouts[position] if complete and position < len(row.layouts) else None
        if listed is not None and _fits(listed, value):
            layouts[position] = _given(listed)
        elif position in graph.rows_innermost and value.dim() == 2:
            layouts[position] = _weight_layout(value)
    return layouts


@contextlib.contextmanager
def fake_device() -> Iterator[FakeTensorMode]:
    """Everything made inside is a fake tensor; gradients are off."""
    with FakeTensorMode() as mode, torch.no_grad():
        yield mode


def graphs_of(row: Row) -> list[CapturedRow]:
    """The ATen graphs of a row, in order; none when the row compiles nothing. Raises what Dynamo or the capture raises."""
    makers = {"grid": _grid_graphs, "hf-block": _block_graphs}
    with fake_device():
        recorded = makers.get(row.source, _program_graphs)(row)
        captured = []
        for graph in recorded:
            module = capture(graph.module, list(graph.inputs)).module
            names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
            layouts = {names[i]: layout for i, layout in _graph_layouts(row, graph).items()}
            captured.append(CapturedRow(module, layouts))
    return captured
