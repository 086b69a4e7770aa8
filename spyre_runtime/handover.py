"""With the real device installed: the same patches and stages, and the device's own compiler for what remains."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import fx

from .capture import CapturedGraph, capture
from .patches import active_handles, apply_patches
from .stages import Part, partition

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def hand_on(gm: fx.GraphModule, example_inputs: Sequence[Any], compiler: Compiler | None = None) -> Callable[..., Any]:
    """Rewrite one of Dynamo's graphs with the active patches and hand it on to ``compiler``, by default Inductor."""
    captured, _ = apply_patches(capture(gm, example_inputs), active_handles(example_inputs))
    return HandedOn(captured, compiler or _inductor)


class HandedOn:
    """Runs the load and host stages on CPU copies with torch's own ops, the device stage as ``compiler`` compiled it at the first call."""

    def __init__(self, captured: CapturedGraph, compiler: Compiler) -> None:
        self.staged = partition(captured)
        self.compiler = compiler
        self.compiled: Callable[..., Any] | None = None
        self.names = [node.name for node in captured.module.graph.find_nodes(op="placeholder")]
        self.twins: dict[str, torch.Tensor] = {}
        self.made_from: list[tuple[weakref.ref[torch.Tensor], int]] = []

    def __call__(self, *args: Any) -> Any:
        values = dict(zip(self.names, args, strict=True))
        values.update(self._load(values))
        values.update(_on_host(self.staged.host, values))
        inputs = [values[name] for name in self.staged.device.inputs]
        if self.compiled is None:
            self.compiled = self.compiler(self.staged.device.module, inputs)
        return self.compiled(*inputs)

    def _load(self, values: dict[str, Any]) -> dict[str, torch.Tensor]:
        weights = [values[name] for name in self.staged.load.inputs]
        fresh = len(self.made_from) == len(weights) and all(
            ref() is weight and weight is not None and version == weight._version
            for (ref, version), weight in zip(self.made_from, weights, strict=True)
        )
        if not (fresh and self.twins.keys() == set(self.staged.load.outputs)):
            self.twins = _on_host(self.staged.load, values)
            self.made_from = [(weakref.ref(weight), weight._version) for weight in weights]
        return self.twins


def _on_host(part: Part, values: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Run a stage on CPU copies; its results on the device that the graph says for each."""
    if not part.outputs:
        return {}
    with torch.no_grad():
        results = part.module(
            *[value.cpu() if isinstance(value, torch.Tensor) else value for value in (values[name] for name in part.inputs)]
        )
    (end,) = part.module.graph.find_nodes(op="output")
    places = [node.meta["val"].device for node in end.args[0]]
    return {name: result.to(place) for name, result, place in zip(part.outputs, results, places, strict=True)}


def _inductor(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx

    return cast(Callable[..., Any], compile_fx(module, list(inputs)))
