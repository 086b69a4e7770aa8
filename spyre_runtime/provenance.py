"""Where a device program comes from: the graph as captured, as the patches left it, and the origin of each of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import fx

from .capture import CapturedGraph
from .stages import StagedGraph

Kind = Literal["weight", "input", "load", "host"]


@dataclass(frozen=True, slots=True)
class InputOrigin:
    """An input of the device program. kind: a weight (`path` in the module), an input of the call, or a result of the load or host stage."""

    name: str
    kind: Kind
    path: str = ""


@dataclass(frozen=True)
class Provenance:
    """`inputs`: origins of the tensors that the device program takes, in its order. `given`: sizes of the call's tensors, weights left out."""

    captured: fx.GraphModule
    patched: fx.GraphModule
    inputs: tuple[InputOrigin, ...]
    given: tuple[tuple[int, ...], ...]


def provenance(captured: CapturedGraph, staged: StagedGraph) -> Provenance:
    """captured: before the patches; staged: after them. Weights themselves are not kept."""
    origins = tuple(_origin(staged, name) for name in _tensor_inputs(staged))
    return Provenance(captured.module, staged.captured.module, origins, _given(captured))


def _given(captured: CapturedGraph) -> tuple[tuple[int, ...], ...]:
    weights = captured.parameters | captured.buffers
    values = (node.meta.get("val") for node in captured.module.graph.find_nodes(op="placeholder") if node.name not in weights)
    return tuple(tuple(int(n) for n in value.shape) for value in values if isinstance(value, torch.Tensor))


def _tensor_inputs(staged: StagedGraph) -> tuple[str, ...]:
    nodes = staged.device.module.graph.find_nodes(op="placeholder")
    return tuple(name for name, node in zip(staged.device.inputs, nodes, strict=True) if isinstance(node.meta.get("val"), torch.Tensor))


def _origin(staged: StagedGraph, name: str) -> InputOrigin:
    whole = staged.captured
    if name in staged.load.outputs:
        return InputOrigin(name, "load")
    if name in staged.host.outputs:
        return InputOrigin(name, "host")
    weight = name in whole.parameters or name in whole.buffers
    return InputOrigin(name, "weight" if weight else "input", whole.paths.get(name, ""))
