"""From Dynamo's graph of torch calls to one ATen graph on fake device tensors, composites whole, source lines kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .tensor import DEVICE_TYPE, SpyreTensor


@dataclass(frozen=True)
class CapturedGraph:
    """An ATen graph and what its inputs are.

    ``module``: placeholders in the order of ``examples``; composite ops (linear, scaled_dot_product_attention, softmax.int,
    layer_norm, …) are single nodes, writes to inputs stay in place; ``node.meta["val"]`` is a fake tensor with the logical dtype
    on device ``spyre``, ``node.meta["stack_trace"]`` the user's source lines.
    ``parameters``, ``buffers``: names of the placeholders that are weights. ``paths``: placeholder → path in the module that was
    compiled ("encoder.layer.0.output.dense.weight"), for parameters and buffers. ``examples``: the inputs that it was captured with.
    """

    module: fx.GraphModule
    parameters: frozenset[str]
    buffers: frozenset[str]
    examples: tuple[Any, ...]
    paths: Mapping[str, str] = field(default_factory=dict)


aten = torch.ops.aten
_AUTOCAST = (torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast)
_STEP = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")


def capture(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> CapturedGraph:
    """Capture a Dynamo graph for inputs of exactly these sizes (symbolic sizes are fixed, so Dynamo guards on them).

    Raises RuntimeError where the graph turns autocast on, which has no meaning on this device.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    attributes: dict[int, torch.Tensor] = {}
    with _disable_current_modes(), mode:
        fakes = [_fake(example, mode) for example in example_inputs]
        interpreter = _Capture(gm, mode, attributes)

        def run(*args: Any) -> Any:
            with fx.traceback.preserve_node_meta():
                return interpreter.run(*args)

        with torch.no_grad():
            module = make_fx(run, tracing_mode="real", pre_dispatch=True, _allow_non_fake_inputs=True)(*fakes)
    _rename_placeholders(module, [node.name for node in placeholders])
    _restore_attributes(module, attributes)
    _drop_modes(module)
    _drop_identities(module)
    module.graph.eliminate_dead_code()
    module.recompile()
    return CapturedGraph(module, *_roles(placeholders, example_inputs), tuple(example_inputs), _paths(placeholders))


def fake_like(value: torch.Tensor) -> torch.Tensor:
    """A fake tensor (of the active FakeTensorMode) with the sizes, strides, logical dtype and device of ``value``."""
    device = f"{DEVICE_TYPE}:0" if isinstance(value, SpyreTensor) else value.device
    return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device=device)


def _fake(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, torch.Tensor):
        return fake_like(value)
    return int(value) if isinstance(value, torch.SymInt) else value


class _Capture(fx.Interpreter):
    """Runs Dynamo's graph on fakes; tensors held by the graph itself become fakes that ``attributes`` leads back from."""

    def __init__(self, gm: fx.GraphModule, mode: FakeTensorMode, attributes: dict[int, torch.Tensor]) -> None:
        super().__init__(gm)
        self.mode = mode
        self.attributes = attributes
        self.fakes: dict[str, torch.Tensor] = {}

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.tensor and args and not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(args[0])):
            return self._literal(args[0], **kwargs)
        return super().call_function(target, args, kwargs)

    def _literal(self, data: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> torch.Tensor:
        # torch.tensor would make real device tensors while tracing; a constant that is copied to the device says the same.
        with _disable_current_modes():
            value = torch.tensor(data, dtype=dtype)
        target = torch.device("cpu") if device is None else torch.device(device)
        if value.dim() == 0:
            return torch.full((), value.item(), dtype=value.dtype, device=target)
        if value.numel() == 0:
            return torch.empty(value.shape, dtype=value.dtype, device=target)
        return self._held(value).to(target)

    def fetch_attr(self, target: str) -> Any:
        value = super().fetch_attr(target)
        if not isinstance(value, torch.Tensor):
            return value
        if target not in self.fakes:
            self.fakes[target] = self._held(value)
        return self.fakes[target]

    def _held(self, value: torch.Tensor) -> torch.Tensor:
        """A fake for a tensor that the graph holds, made behind the tracer's back: traced, it would be memory that nobody fills."""
        with _disable_current_modes(), self.mode:
            fake = fake_like(value)
        self.attributes[id(fake)] = value
        return fake


def _rename_placeholders(module: fx.GraphModule, names: list[str]) -> None:
    nodes = module.graph.find_nodes(op="placeholder")
    if len(nodes) != len(names):
        raise AssertionError(f"capture changed the number of inputs from {len(names)} to {len(nodes)}")
    for node, name in zip(nodes, names, strict=True):
        node.target = name
        node._rename(name)


def _restore_attributes(module: fx.GraphModule, attributes: Mapping[int, torch.Tensor]) -> None:
    for node in module.graph.find_nodes(op="get_attr"):
        held = getattr(module, cast(str, node.target), None)
        if id(held) in attributes:
            setattr(module, cast(str, node.target), attributes[id(held)])


def _drop_modes(module: fx.GraphModule) -> None:
    # Grad mode has no meaning for a forward graph, and neither has autocast that is off.
    for node in reversed(list(module.graph.nodes)):
        if node.target is torch._C._set_grad_enabled:
            module.graph.erase_node(node)
        elif node.target in _AUTOCAST:
            enabled = node.args[2] if len(node.args) > 2 else False
            if enabled:
                raise RuntimeError(
                    f"torch.autocast does nothing on {DEVICE_TYPE}; convert the model instead, for example model.to('{DEVICE_TYPE}', torch.float16)"
                )
            module.graph.erase_node(node)


_SAME_VALUE = (aten.alias.default, aten.detach.default, aten.lift_fresh.default, aten.contiguous.default)


def _drop_identities(module: fx.GraphModule) -> None:
    """Take out what returns its input unchanged (dropout in eval, .to() and .contiguous() without effect); real casts become _to_copy."""
    for node in module.graph.nodes:
        if node.op != "call_function" or not node.args:
            continue
        source, packet = node.args[0], getattr(node.target, "overloadpacket", None)
        if packet is aten.to:
            if _same_tensor(node, source):
                node.replace_all_uses_with(source)
                continue
            before, after = source.meta["val"], node.meta["val"]
            changes = {"dtype": after.dtype} if before.dtype != after.dtype else {}
            node.target, node.args = aten._to_copy.default, (source,)
            node.kwargs = {**changes, "device": after.device} if before.device != after.device else changes
        elif (packet is aten.dropout and node.args[2] is False and not _returns_input(node)) or (
            node.target in _SAME_VALUE and _same_tensor(node, source)
        ):
            node.replace_all_uses_with(source)


def _returns_input(node: fx.Node) -> bool:
    """Whether the graph would return one of its inputs as it came, which is a copy to torch and work for the device."""
    return node.all_input_nodes[0].op == "placeholder" and any(user.op == "output" for user in node.users)


def _same_tensor(node: fx.Node, source: fx.Node) -> bool:
    a, b = node.meta["val"], source.meta["val"]
    return (a.dtype, a.device, a.shape, a.stride()) == (b.dtype, b.device, b.shape, b.stride())


def _roles(placeholders: Sequence[fx.Node], examples: Sequence[Any]) -> tuple[frozenset[str], frozenset[str]]:
    parameters, buffers = set(), set()
    for node, example in zip(placeholders, examples, strict=True):
        source = _source(node)
        if isinstance(example, torch.nn.Parameter) or "._parameters[" in source:
            parameters.add(node.name)
        elif (
            "._buffers[" in source or "._modules[" in source
        ):  # a tensor that a module keeps as an attribute is no input of the call either
            buffers.add(node.name)
    return frozenset(parameters), frozenset(buffers)


def _paths(placeholders: Sequence[fx.Node]) -> dict[str, str]:
    paths = {}
    for node in placeholders:
        source = _source(node)
        if "._parameters[" in source or "._buffers[" in source:
            paths[node.name] = ".".join(_STEP.findall(source))
    return paths


def _source(node: fx.Node) -> str:
    """Dynamo's expression for an input: ``L['self']._modules['encoder']…``; empty for inputs that Dynamo made itself."""
    argument = node.meta.get("grapharg")
    source = getattr(argument, "source", None)
    return str(source.name) if source is not None else ""
