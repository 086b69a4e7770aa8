"""From a stock model to the graphs that the device compiler would be given: traced on fake tensors, so widths cost nothing and the model stays untouched."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from adapterc.errors import UserError
from adapterc.models import Loaded
from adapterc.spyre_runtime import DEVICE_TYPE
from adapterc.spyre_runtime.capture import CapturedGraph, capture, fake_like
from adapterc.spyre_runtime.ir import DeviceLayout
from adapterc.spyre_runtime.layouts import tiled

DEVICE = f"{DEVICE_TYPE}:0"
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class ModelGraph:
    """One graph of a model. `layouts`: device layouts of the inputs that do not have the default one, by placeholder name.

    `step`: "forward" for a whole input without a cache, "decode" for one token on a filled static cache.
    """

    captured: CapturedGraph
    layouts: Mapping[str, DeviceLayout]
    config: transformers.PretrainedConfig
    step: str = "forward"


@dataclass
class _Recorder:
    """A Dynamo backend that captures what it is given and compiles nothing."""

    graphs: list[CapturedGraph] = field(default_factory=list)

    def __call__(self, module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(capture(module, inputs))
        return module.forward


def graphs_of_loaded(loaded: Loaded, inputs: Mapping[str, torch.Tensor]) -> tuple[ModelGraph, ...]:
    return model_graphs(loaded.model, inputs, loaded.source.text)


def model_graphs(model: transformers.PreTrainedModel, inputs: Mapping[str, torch.Tensor], name: str) -> tuple[ModelGraph, ...]:
    """The graphs of one forward pass in half precision, weights laid out as `Module.to` does. `model` may live on any device, meta included.

    Raises UserError ADC601 where the forward cannot be traced.
    """
    failure = ""
    for dtype in HALVES:  # some models branch on float16 values (clamps against overflow), which no graph can hold
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        twin = fake_twin(model, mode, dtype)
        try:
            with mode, torch.no_grad(), fresh_dynamo():
                return traced(twin, fake_inputs(twin, inputs, dtype), model.config)
        except Exception as error:  # a model's own forward may raise anything
            failure = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    raise UserError("ADC601", f"{name}: its forward cannot be traced to a graph: {failure}", "run it on CPU first with the same inputs")


def traced(twin: nn.Module, given: Mapping[str, Any], config: transformers.PretrainedConfig) -> tuple[ModelGraph, ...]:
    """The graphs of one call on fakes, inside their mode. Raises whatever the model's forward does."""
    recorder = _Recorder()
    torch.compile(twin, backend=recorder, dynamic=False)(**given)
    return tuple(ModelGraph(graph, weight_layouts(graph, twin), config) for graph in recorder.graphs if _has_work(graph))


@contextlib.contextmanager
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()


def _has_work(graph: CapturedGraph) -> bool:
    return any(node.op == "call_function" for node in graph.module.graph.nodes)


def fake_twin(model: nn.Module, mode: FakeTensorMode, dtype: torch.dtype) -> nn.Module:
    """A copy whose parameters and buffers are fake tensors of the device; floating ones in `dtype`."""
    twins: dict[int, Any] = {}
    with mode:
        for tensor in (*model.parameters(), *model.buffers()):
            kind = dtype if tensor.is_floating_point() else tensor.dtype
            twin = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=kind, device=DEVICE)
            twins[id(tensor)] = nn.Parameter(twin, requires_grad=False) if isinstance(tensor, nn.Parameter) else twin
    return copy.deepcopy(model, twins)


def fake_inputs(model: Any, inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, Any]:
    """Fakes of the inputs on the device, with what the forward needs besides: decoder ids of an encoder-decoder, no cache."""
    accepted = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {name: _moved(value, dtype) for name, value in inputs.items()}
    if "decoder_input_ids" in accepted and "decoder_input_ids" not in given and "input_ids" in given:
        given["decoder_input_ids"] = fake_like(given["input_ids"])
    if "pixel_values" in accepted and "pixel_values" not in given and _sees(model):
        vision: Any = model.config.vision_config
        given["pixel_values"] = torch.empty(len(given["input_ids"]), 3, vision.image_size, vision.image_size, dtype=dtype, device=DEVICE)
    if "use_cache" in accepted:
        given["use_cache"] = False
    return given


def _sees(model: Any) -> bool:
    """Whether the forward always takes an image with the text, as CLIP's does; a generating model takes one only where the text has a place for it."""
    return hasattr(model.config, "vision_config") and hasattr(model.config, "projection_dim") and not model.can_generate()


def _moved(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    kind = dtype if value.is_floating_point() else value.dtype
    return torch.empty_strided(tuple(value.shape), value.stride(), dtype=kind, device=DEVICE)


def weight_layouts(graph: CapturedGraph, model: nn.Module) -> dict[str, DeviceLayout]:
    """`Module.to(device)` lays the [out, in] weight of a Linear with dim_order [1, 0], sticks along `out` (torch-spyre model_utils.py)."""
    modules = dict(model.named_modules())
    values = {node.name: node.meta["val"] for node in graph.module.graph.find_nodes(op="placeholder")}
    layouts = {}
    for name, path in graph.paths.items():
        owner, _, leaf = path.rpartition(".")
        if leaf == "weight" and isinstance(modules.get(owner), nn.Linear):
            layouts[name] = linear_layout(values[name])
    return layouts


def linear_layout(weight: torch.Tensor) -> DeviceLayout:
    """The layout of a Linear weight [out, in] that was moved with its module."""
    return tiled(tuple(weight.shape), tuple(weight.stride()), weight.dtype, (1, 0))
