"""Steps that run on the host between bundles: CPU fallbacks, literals, allocations. As data in a plan, and what running one means.

A fallback is a call tree: an op with its arguments, where a tensor argument is a buffer of the plan or another call (a view of one).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch import Tensor

from .formats import NumberRules, device_to_host, host_to_device
from .ir import LoweredGraph, Op, OpKind
from .profile import Profile

Read = Callable[[str], Tensor]
GETITEM = "getitem"
NAMESPACES = ("aten", "prims", "spyre_sim")


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer as an argument: its host copy in `dtype`, seen in `size`."""

    buffer: str
    size: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class HostCall:
    """An op by name ("aten.cumsum.default", or "getitem") with arguments: numbers, dtypes, devices, slots, calls, and tuples of these."""

    function: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class HostStep:
    """What the host does between bundles.

    kind: FALLBACK runs `call`, CONSTANT uploads `value`, EMPTY allocates, OUTPUT uploads result number `item` of the fallback that it reads.
    """

    name: str
    kind: OpKind
    function: str
    output: str
    reads: tuple[str, ...] = ()
    node: str = ""
    source: str = ""
    call: HostCall | None = None
    value: float | None = None
    item: int = 0


class _Calls:
    """Reads call trees out of the functional graph."""

    def __init__(self, module: torch.fx.GraphModule, graph: LoweredGraph) -> None:
        self.graph = graph
        self.nodes: Mapping[str, torch.fx.Node] = {n.name: n for n in module.graph.nodes}
        self.buffers = self._buffers(module)

    def _buffers(self, module: torch.fx.GraphModule) -> dict[str, str]:
        """Node name → buffer, for placeholders and for the nodes that buffers are known by."""
        tensors = [n for n in module.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), Tensor)]
        found = {name.node: name.buffer for name in reversed(self.graph.names)}
        for op in self.graph.ops:
            if not op.on_device and op.origin.node in self.nodes and op.output in self.graph.by_name:
                found[op.origin.node] = op.output
        return {**found, **{n.name: name for n, name in zip(tensors, self.graph.inputs, strict=False)}}

    def of(self, op: Op) -> HostCall | None:
        node = self.nodes.get(op.origin.node)
        return None if node is None or node.op != "call_function" else self._call(node)

    def _call(self, node: torch.fx.Node) -> HostCall:
        args, kwargs = cast(Any, torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: cast(Any, self._value(n))))
        return HostCall(_name_of(node.target), _frozen(args), tuple((name, _frozen(value)) for name, value in kwargs.items()))

    def _value(self, node: torch.fx.Node) -> Slot | HostCall:
        sample, buffer = node.meta.get("val"), self.buffers.get(node.name)
        if buffer is not None and isinstance(sample, Tensor):
            return Slot(buffer, tuple(int(n) for n in sample.shape), sample.dtype)
        if node.op == "call_function":
            return self._call(node)
        raise KeyError(f"{node.name} is neither a buffer nor computed from one")

    def item(self, op: Op) -> int:
        """Which result of its fallback an OUTPUT op stands for; 0 for a fallback with one result."""
        picks = (self.nodes.get(name.node) for name in self.graph.names if name.buffer == op.output)
        return next((int(cast(int, node.args[1])) for node in picks if node is not None and node.target is operator.getitem), 0)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _name_of(target: Any) -> str:
    if target is operator.getitem:
        return GETITEM
    if not isinstance(target, torch._ops.OpOverload):
        raise KeyError(f"{target} is no op that a plan can name")
    return str(target)


def host_steps(graph: LoweredGraph, module: torch.fx.GraphModule | None) -> tuple[HostStep, ...]:
    """The host steps of a lowered graph, in order. module: the functional graph that it comes from; without it fallbacks have no call."""
    calls = _Calls(module, graph) if module is not None else None
    return tuple(
        HostStep(
            op.name,
            op.kind,
            op.function,
            op.output,
            op.host_reads,
            op.origin.node,
            op.origin.source,
            calls.of(op) if calls is not None and op.kind is OpKind.FALLBACK else None,
            op.info["value"] if op.kind is OpKind.CONSTANT else None,
            calls.item(op) if calls is not None and op.kind is OpKind.OUTPUT else 0,
        )
        for op in graph.ops
        if not op.on_device
    )


def resolve(function: str) -> Callable[..., Any]:
    """The op of a call. Raises KeyError for a name that is no op of the namespaces that graphs are made of."""
    if function == GETITEM:
        return operator.getitem
    namespace, _, rest = function.partition(".")
    packet, _, overload = rest.partition(".")
    if namespace not in NAMESPACES:
        raise KeyError(function)
    found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise KeyError(function)
    return found


def functions_of(call: HostCall) -> tuple[str, ...]:
    """Every op that a call runs, its own last."""
    inner = [
        f for leaf in pytree.tree_leaves((call.args, [v for _, v in call.kwargs])) if isinstance(leaf, HostCall) for f in functions_of(leaf)
    ]
    return (*inner, call.function)


def allowed(function: str, outermost: bool, profile: Profile) -> bool:
    """Whether a plan may run an op on the host: a fallback of the release, or inside a call a view or a pick of one result."""
    if not outermost and function == GETITEM:
        return True
    try:
        op = cast(Any, resolve(function))
    except KeyError:
        return False
    public = function.replace("spyre_sim.", "spyre.", 1)
    view = any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns) if function != GETITEM else False
    return profile.runs_on_host(public) or (not outermost and view)


def run_call(call: HostCall, read: Read, rules: NumberRules | None) -> Any:
    """The result of a fallback: carrier values in the sizes that torch gives them, or a tuple of such.

    read: a buffer's host copy in its carrier dtype (formats.py). rules: None carries values unrounded.
    """

    def arrive(x: Tensor) -> Tensor:
        if rules is None:
            return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
        return host_to_device(x, x.dtype, rules)

    return pytree.tree_map_only(Tensor, arrive, _run(call, read))


def _run(call: HostCall, read: Read) -> Any:
    kwargs = {name: _argument(value, read) for name, value in call.kwargs}
    if "device" in kwargs:
        kwargs["device"] = torch.device("cpu")
    return resolve(call.function)(*(_argument(a, read) for a in call.args), **kwargs)


def _argument(value: Any, read: Read) -> Any:
    if isinstance(value, Slot):
        return device_to_host(read(value.buffer), value.dtype).reshape(value.size)
    if isinstance(value, HostCall):
        return _run(value, read)
    return [_argument(v, read) for v in value] if isinstance(value, tuple) else value
