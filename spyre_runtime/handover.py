"""With the real device installed: the same patches and stages, and the device's own compiler for what remains."""

import importlib
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch._dynamo
from torch import fx

from .capture import CapturedGraph, capture
from .patches import active_handles, apply_patches
from .stages import Part, partition
from .tensor import DEVICE_TYPE
from .weight_layouts import linear_layouts

aten = torch.ops.aten
Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
Mover = Callable[[torch.Tensor, torch.device], torch.Tensor]


@dataclass(frozen=True)
class Target:
    """The device that graphs are handed on to. ``compiler``: what compiles a device graph, given its real inputs. ``move_linear``: moves the
    [out, in] weight of a linear layer from the CPU to where products read it without a restickify.
    """

    compiler: Compiler
    move_linear: Mover


def hand_on(gm: fx.GraphModule, example_inputs: Sequence[Any], target: Target | None = None) -> Callable[..., Any]:
    """Rewrite one of Dynamo's graphs with the active patches and hand it on to ``target``, by default torch_spyre and Inductor."""
    captured = without_detours(capture(gm, example_inputs))
    captured, _ = apply_patches(captured, active_handles(example_inputs))
    return HandedOn(captured, target or Target(_inductor, _with_its_module))


def keep_graphs_whole() -> None:
    """Let Dynamo pass over warnings. torch_spyre's own ``Tensor.to`` warns when it changes a dtype on the device, and Dynamo would break the graph
    at each such call: in the mask and the rotary tables of a stock model, which patches need to see whole.
    """
    ignored = torch._dynamo.config.ignore_logging_functions
    torch._dynamo.config.ignore_logging_functions = {*ignored, warnings.warn}


def without_detours(captured: CapturedGraph) -> CapturedGraph:
    """The graph with each copy device -> CPU -> device made one cast on the device: torch_spyre's ``Tensor.to`` writes a change of dtype so."""
    found = [node for node in captured.module.graph.find_nodes(op="call_function", target=aten._to_copy.default) if _is_detour(node)]
    if not found:
        return captured
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(captured.module.graph, copies)
    (end,) = captured.module.graph.find_nodes(op="output")
    graph.output(output)
    (ended,) = graph.find_nodes(op="output")
    ended.meta.update(end.meta)
    for node in found:
        (there,) = node.all_input_nodes
        (source,) = there.all_input_nodes
        copies[node].args, copies[node].kwargs = (copies[source],), {"dtype": node.meta["val"].dtype}
    graph.eliminate_dead_code()
    return replace(captured, module=fx.GraphModule(captured.module, graph))


def _is_detour(node: fx.Node) -> bool:
    """Whether a copy to the device reads a copy to the CPU that left the dtype of a device tensor alone."""
    (there,) = node.all_input_nodes
    if there.target is not aten._to_copy.default:
        return False
    (source,) = there.all_input_nodes
    here, between, before = (n.meta["val"] for n in (node, there, source))
    devices = (here.device.type, between.device.type, before.device.type)
    return devices == (DEVICE_TYPE, "cpu", DEVICE_TYPE) and between.dtype == before.dtype


class HandedOn:
    """Runs the load and host stages on CPU copies with torch's own ops, the device stage as the target compiled it at the first call."""

    def __init__(self, captured: CapturedGraph, target: Target) -> None:
        self.staged = partition(captured)
        self.target = target
        self.compiled: Callable[..., Any] | None = None
        self.names = [node.name for node in captured.module.graph.find_nodes(op="placeholder")]
        layouts = linear_layouts(self.staged)
        placeholders = self.staged.device.module.graph.find_nodes(op="placeholder")
        self.linear = frozenset(name for name, node in zip(self.staged.device.inputs, placeholders, strict=True) if node.name in layouts)
        self.twins: dict[str, torch.Tensor] = {}
        self.made_from: list[tuple[weakref.ref[torch.Tensor], int]] = []

    def __call__(self, *args: Any) -> Any:
        values = dict(zip(self.names, args, strict=True))
        values.update(self._load(values))
        values.update(self._early(self.staged.host, values))
        inputs = [values[name] for name in self.staged.device.inputs]
        if self.compiled is None:
            self.compiled = self.target.compiler(self.staged.device.module, inputs)
        return self.compiled(*inputs)

    def _load(self, values: dict[str, Any]) -> dict[str, torch.Tensor]:
        weights = [values[name] for name in self.staged.load.inputs]
        fresh = len(self.made_from) == len(weights) and all(
            ref() is weight and weight is not None and version == weight._version
            for (ref, version), weight in zip(self.made_from, weights, strict=True)
        )
        if not (fresh and self.twins.keys() == set(self.staged.load.outputs)):
            self.twins = self._early(self.staged.load, values)
            self.made_from = [(weakref.ref(weight), weight._version) for weight in weights]
        return self.twins

    def _early(self, part: Part, values: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Run a stage on CPU copies; its results on the device that the graph says for each."""
        if not part.outputs:
            return {}
        with torch.no_grad():
            results = part.module(
                *[value.cpu() if isinstance(value, torch.Tensor) else value for value in (values[name] for name in part.inputs)]
            )
        (end,) = part.module.graph.find_nodes(op="output")
        places = [node.meta["val"].device for node in end.args[0]]
        return {
            name: self.target.move_linear(result, place) if name in self.linear else result.to(place)
            for name, result, place in zip(part.outputs, results, places, strict=True)
        }


def _inductor(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx

    return cast(Callable[..., Any], compile_fx(module, list(inputs)))


def _with_its_module(weight: torch.Tensor, place: torch.device) -> torch.Tensor:
    """As ``Module.to(device)`` moves a Linear's weight: dim_order [1, 0], so that the rows lie along the sticks (torch-spyre model_utils.py).

    torch_spyre gives ``Tensor.to`` the argument ``device_layout``; a layout names no device of its own, there is one.
    """
    if place.type != DEVICE_TYPE:
        return weight.to(place)
    native: Any = importlib.import_module("torch_spyre._C")
    whole = weight.contiguous()
    layout = native.SpyreTensorLayout(list(whole.shape), list(whole.stride()), whole.dtype, [1, 0])
    return cast(torch.Tensor, cast(Any, whole).to(device_layout=layout))
