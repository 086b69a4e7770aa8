"""Splits a captured graph by when and where it runs: once at load time, on the host before each call, on the device."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from .capture import CapturedGraph
from .tensor import DEVICE_TYPE

Stage = Literal["load", "host", "device"]
STAGES: tuple[Stage, ...] = ("load", "host", "device")


@dataclass(frozen=True)
class Part:
    """One stage's graph. ``inputs`` and ``outputs`` name values of the whole graph: placeholders, or nodes of an earlier stage.

    The module takes ``inputs`` in order and returns a tuple: ``outputs`` in order, or, for the device part, the graph's own outputs.
    """

    module: fx.GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.outputs)


@dataclass(frozen=True)
class StagedGraph:
    """``load`` needs weights only and its outputs are kept as twins on the device; ``host`` runs on the CPU for each call and its
    outputs move to the device; ``device`` is what is compiled, and takes both as further inputs. ``captured``: the whole.
    """

    captured: CapturedGraph
    load: Part
    host: Part
    device: Part


class StageError(ValueError):
    """A node is marked for a stage that it cannot run in."""


def stage_of(node: fx.Node) -> Stage:
    """The stage that patches marked a node for; "device" unless they did."""
    stage: Stage = node.meta.get("stage", "device")
    if stage not in STAGES:
        raise StageError(f"node {node.name} is marked for stage {stage!r}; the stages are {', '.join(STAGES)}")
    return stage


def partition(captured: CapturedGraph) -> StagedGraph:
    """Split by ``node.meta["stage"]``. Raises StageError where a load node needs more than weights, or a host node a device result."""
    graph = captured.module.graph
    weights = captured.parameters | captured.buffers
    stages: dict[fx.Node, Stage] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            stages[node] = stage_of(node)
            _check(node, stages, weights)
    return StagedGraph(
        captured,
        _early_part(captured, "load", stages),
        _early_part(captured, "host", stages),
        _device_part(captured, stages),
    )


def _check(node: fx.Node, stages: Mapping[fx.Node, Stage], weights: frozenset[str]) -> None:
    mine = stages[node]
    if mine == "device":
        return
    for source in node.all_input_nodes:
        theirs = stages.get(source)
        if source.op == "placeholder" and mine == "load" and source.name not in weights:
            raise StageError(f"node {node.name} shall run at load time but needs the input {source.name}, which is no weight")
        if theirs is not None and STAGES.index(theirs) > STAGES.index(mine):
            raise StageError(
                f"node {node.name} shall run in the {mine} stage but needs {source.name} from the {theirs} stage, which comes later"
            )


def _early_part(captured: CapturedGraph, stage: Stage, stages: Mapping[fx.Node, Stage]) -> Part:
    """The load or host graph, with CPU in place of the device. Its outputs are what later stages, or the graph's output, use."""
    mine = [node for node, where in stages.items() if where == stage]
    kept = [node for node in mine if any(stages.get(user) != stage for user in node.users) and _is_tensor(node)]
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = _inputs(graph, copies, mine, stages, stage)
    for node in mine:
        copies[node] = graph.node_copy(node, _finder(captured, graph, copies))
        copies[node].args = fx.map_arg(copies[node].args, lambda n: n)
        copies[node].kwargs = {name: _on_host(value) for name, value in copies[node].kwargs.items()}
        copies[node].args = tuple(_on_host(value) for value in copies[node].args)
    graph.output(tuple(copies[node] for node in kept))
    return Part(fx.GraphModule(captured.module, graph), inputs, tuple(node.name for node in kept))


def _device_part(captured: CapturedGraph, stages: Mapping[fx.Node, Stage]) -> Part:
    mine = [node for node, where in stages.items() if where == "device"]
    (end,) = captured.module.graph.find_nodes(op="output")
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = _inputs(graph, copies, [*mine, end], stages, "device")
    for node in mine:
        copies[node] = graph.node_copy(node, _finder(captured, graph, copies))
    copied = graph.node_copy(end, _finder(captured, graph, copies))
    outputs = tuple(node.name for node in end.all_input_nodes)
    copied.meta.update(end.meta)
    return Part(fx.GraphModule(captured.module, graph), inputs, outputs)


def _inputs(
    graph: fx.Graph, copies: dict[fx.Node, fx.Node], nodes: Iterable[fx.Node], stages: Mapping[fx.Node, Stage], stage: Stage
) -> tuple[str, ...]:
    """Placeholders for what ``nodes`` use from outside their stage, in the order of the whole graph."""
    needed = {source for node in nodes for source in node.all_input_nodes if source.op != "get_attr" and stages.get(source) != stage}
    chosen = sorted(needed)
    for node in chosen:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    return tuple(node.name for node in chosen)


def _finder(captured: CapturedGraph, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> Callable[[fx.Node], fx.Node]:
    def find(node: fx.Node) -> fx.Node:
        if node not in copies:
            if node.op != "get_attr":
                raise AssertionError(f"{node.name} ({node.op}) has no copy in this stage")
            copies[node] = graph.node_copy(node)
        return copies[node]

    return find


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _on_host(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == DEVICE_TYPE else value
