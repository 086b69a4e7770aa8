"""Traces a graph by its distinct nodes: layers repeat, so each kind of node is spelt out once and its spelling is copied to every place.

A kind is an op with the dtypes, sizes, strides and constants of its arguments. Nodes that write an input or fresh memory in full sight (a
cache) are functionalised here as AOTAutograd does it: the functional op, later reads see its result, and one copy_ an input at the end.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.fx.proxy import _COPY_META_FIELDS
from torch.utils import _pytree as pytree

from .aliasing import Aliases

Node = torch.fx.Node
Trace = Callable[[torch.fx.GraphModule, Sequence[Any]], torch.fx.GraphModule]
Key = tuple[Any, ...]

_COPIED_FIELDS = ("stack_trace", *_COPY_META_FIELDS)
# Kinds are traced with the price of a whole graph; below this repetition the graph itself is as cheap.
_LEAST_REPETITION = 2


@dataclass(frozen=True)
class _Slot:
    position: int


@dataclass(frozen=True)
class _Call:
    """One node: the functional op, its arguments with tensors as `_Slot`s into `operands`, and all that but the tensors as a key."""

    target: Any
    args: Any
    kwargs: Any
    operands: tuple[Node, ...]
    form: Key

    def key(self, values: Sequence[torch.Tensor]) -> Key:
        """What tells the kind of a call with these operands."""
        return (self.form, *map(_facts, values))


@dataclass(frozen=True)
class _Spelling:
    """Traced nodes of one kind in order, its placeholders by operand, and what it returns (nodes of either, or None)."""

    nodes: tuple[Node, ...]
    operands: tuple[Node, ...]
    results: tuple[Any, ...]
    single: bool


@dataclass(frozen=True)
class _Speller:
    """Traces kinds when they are first met and keeps their spellings."""

    root: torch.fx.GraphModule
    mode: FakeTensorMode
    trace: Trace
    known: dict[Key, _Spelling] = field(default_factory=dict)

    def learn(self, kinds: Mapping[Key, tuple[Node, _Call, Sequence[torch.Tensor]]]) -> None:
        """Trace kinds (an example node of each, its call and operands), all as one graph in which each has placeholders of its own."""
        graph = torch.fx.Graph()
        inputs = {key: [_fresh(value, self.mode) for value in values] for key, (_, _, values) in kinds.items()}
        slots = {key: [_placeholder(graph, value) for value in values] for key, values in inputs.items()}
        made: dict[Key, Node] = {}
        for key, (node, call, _) in kinds.items():
            args, kwargs = _filled(call, slots[key])
            made[key] = graph.call_function(call.target, args, kwargs)
            made[key].meta = dict(node.meta)
        graph.output(tuple(_outputs(node) for node in made.values()))
        traced = self.trace(torch.fx.GraphModule(self.root, graph), [value for values in inputs.values() for value in values])
        self.known.update(_spellings(traced, inputs, made))


class _NotByParts(Exception):
    """The graph has something that only a trace of the whole gets right."""


def trace_distinct(graph: torch.fx.GraphModule, mode: FakeTensorMode, trace: Trace) -> torch.fx.GraphModule | None:
    """What `trace` makes of the graph, or None where the graph has too little repetition or something that only a whole trace gets right.

    trace: functionalises and decomposes a graph with fake inputs. Every placeholder of `graph` has a fake tensor in meta["val"].
    """
    try:
        calls = _calls(graph.graph)
        kinds: dict[Key, tuple[Node, _Call, Sequence[torch.Tensor]]] = {}
        for node, call in calls.items():
            values = [operand.meta["val"] for operand in call.operands]
            kinds.setdefault(call.key(values), (node, call, values))
        if len(calls) < _LEAST_REPETITION * len(kinds):
            return None
        speller = _Speller(graph, mode, trace)
        speller.learn(kinds)
        return _assemble(graph, calls, speller)
    except _NotByParts:
        return None


def _calls(graph: torch.fx.Graph) -> dict[Node, _Call]:
    calls: dict[Node, _Call] = {}
    aliases = Aliases.of(graph)
    for node in graph.nodes:
        if node.op == "get_attr" or (node.op == "call_function" and not _is_plain(node, aliases)):
            raise _NotByParts
        if node.op == "call_function" and node.target is not operator.getitem:
            calls[node] = _call(node)
    return calls


def _is_plain(node: Node, aliases: Aliases) -> bool:
    if node.target is operator.getitem:
        return isinstance(node.args[1], int)
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return not node.target._schema.is_mutable or _writes_in_sight(node, aliases)


def _writes_in_sight(node: Node, aliases: Aliases) -> bool:
    """Whether the node writes a whole input or fresh memory that no other name than those of such writes leads to."""
    target = _written(node)
    if target is None or aliases.root[target] is not target:
        return False
    return all(other is target or _written(other) is target for other, root in aliases.root.items() if root is target)


def _written(node: Node) -> Node | None:
    """The value that the node writes as a whole and returns: one that is no name of another write."""
    target = node.args[0] if _functional_op(node.target) is not None and node.args else None
    return (_written(target) or target) if isinstance(target, Node) else None


def _functional_op(op: Any) -> Any:
    """`aten.index_copy.default` for `aten.index_copy_.default`; None where there is none that takes the same arguments."""
    schema = getattr(op, "_schema", None)
    if schema is None or not schema.is_mutable or not schema.name.endswith("_") or schema.name.endswith("__"):
        return None
    if [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write] != [0]:
        return None
    namespace, name = schema.name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    functional = getattr(packet, op._overloadname, None) if packet is not None else None
    if functional is None or [a.name for a in functional._schema.arguments] != [a.name for a in schema.arguments]:
        return None
    return functional


def _call(node: Node) -> _Call:
    operands: dict[Node, int] = {}
    key: list[Any] = []

    def convert(value: Any) -> Any:
        if isinstance(value, Node):
            key.append(operands.setdefault(value, len(operands)))
            return _Slot(operands[value])
        key.append((type(value), repr(value)))  # repr tells -0.0 from 0.0
        return value

    args, kwargs = pytree.tree_map(convert, (list(node.args), dict(node.kwargs)), is_leaf=lambda v: v is None)
    target = _functional_op(node.target) or node.target
    shape = pytree.tree_structure((list(node.args), dict(node.kwargs)))
    return _Call(target, tuple(args), kwargs, tuple(operands), (target, shape, tuple(key)))


def _facts(value: Any) -> Key:
    if isinstance(value, FakeTensor):
        sizes = (*value.shape, *value.stride(), value.storage_offset())
        if all(type(n) is int for n in sizes):
            return (value.dtype, value.device, value.dim(), sizes)
    raise _NotByParts


def _placeholder(graph: torch.fx.Graph, value: torch.Tensor) -> Node:
    made = graph.placeholder(f"operand_{len(graph.nodes)}")
    made.meta["val"] = value
    return made


def _filled(call: _Call, values: Sequence[Any]) -> tuple[Any, Any]:
    filled: tuple[Any, Any] = pytree.tree_map(lambda v: values[v.position] if isinstance(v, _Slot) else v, (call.args, call.kwargs))
    return filled


def _outputs(node: Node) -> Any:
    """The node, or its items where it returns several values."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return node
    return tuple(node.graph.call_function(operator.getitem, (node, i)) for i in range(len(value)))


def _spellings(traced: torch.fx.GraphModule, inputs: Mapping[Key, Sequence[Any]], made: Mapping[Key, Node]) -> dict[Key, _Spelling]:
    placeholders = traced.graph.find_nodes(op="placeholder")
    if len(placeholders) != sum(map(len, inputs.values())) or any(node.op in ("get_attr", "call_module") for node in traced.graph.nodes):
        raise _NotByParts
    order = {node: position for position, node in enumerate(traced.graph.nodes)}
    results, operands = iter(cast(tuple[Node, ...], traced.graph.output_node().args[0])), iter(placeholders)
    spellings = {}
    for key, node in made.items():
        value = node.meta["val"]
        single = isinstance(value, torch.Tensor)
        mine = tuple(itertools.islice(results, 1 if single else len(value)))
        spellings[key] = _Spelling(_behind(mine, order), tuple(itertools.islice(operands, len(inputs[key]))), mine, single)
    if sum(len(spelling.nodes) for spelling in spellings.values()) != sum(node.op == "call_function" for node in traced.graph.nodes):
        raise _NotByParts  # something is done for its effect only, as the assertions of one_hot
    return spellings


def _behind(results: Sequence[Any], order: Mapping[Node, int]) -> tuple[Node, ...]:
    """The calls that the results come from, in the order of the trace."""
    found: set[Node] = set()
    waiting = [result for result in results if isinstance(result, Node)]
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return tuple(sorted(found, key=order.__getitem__))


def _assemble(graph: torch.fx.GraphModule, calls: Mapping[Node, _Call], speller: _Speller) -> torch.fx.GraphModule:
    made = torch.fx.Graph()
    values: dict[Node, Any] = {}
    written: dict[Node, Node] = {}  # inputs and fresh memory, with the node that wrote each last

    def now(node: Node) -> Any:
        """Its value here: what is written, and every name that the writing gave it, has the newest one."""
        return values[_written(node) or node]

    for node in graph.graph.nodes:
        if node.op == "placeholder":
            values[node] = made.placeholder(f"arg{len(values)}_1")
            values[node].meta["val"] = node.meta.get("val", 0)
        elif node in calls:
            call = calls[node]
            operands = [now(operand) for operand in call.operands]
            examples = [operand.meta["val"] for operand in operands]
            key = call.key(examples)
            if key not in speller.known:  # the strides are others than in the graph before it was spelt out
                speller.learn({key: (node, call, examples)})
            values[node] = _splice(made, speller.known[key], operands, node, speller.mode)
            target = _written(node)
            if target is not None:
                if _facts(values[node].meta["val"]) != _facts(target.meta["val"]):
                    raise _NotByParts  # written with a cast
                values[target], written[target] = values[node], node
        elif node.op == "call_function":
            values[node] = values[node.args[0]][node.args[1]]
    for old, new in zip(graph.graph.find_nodes(op="placeholder"), made.find_nodes(op="placeholder"), strict=True):
        if old in written:
            copied = made.call_function(torch.ops.aten.copy_.default, (new, values[old]))
            copied.meta = {"stack_trace": written[old].meta.get("stack_trace"), "original_aten": copied.target, "val": new.meta["val"]}
    results = pytree.tree_leaves(graph.graph.output_node().args[0], is_leaf=lambda v: v is None)
    made.output(tuple(now(v) if isinstance(v, Node) else v for v in results))
    made.eliminate_dead_code()
    return torch.fx.GraphModule(graph, made)


def _splice(graph: torch.fx.Graph, spelling: _Spelling, operands: Sequence[Node], place: Node, mode: FakeTensorMode) -> Any:
    """Copy a spelling to where `place` stands; returns its result, or a tuple of them."""
    copies: dict[Node, Any] = dict(zip(spelling.operands, operands, strict=True))
    storages = {_storage(old.meta["val"]): new.meta["val"] for old, new in copies.items()}
    own = _own_meta(place)
    for node in spelling.nodes:
        copies[node] = made = graph.node_copy(node, copies.__getitem__)
        made.meta.update(own)
        if "original_aten" in node.meta:
            made.meta["original_aten"] = node.meta["original_aten"]
        made.meta["val"] = pytree.tree_map_only(FakeTensor, lambda v: _value(v, storages, mode), node.meta["val"])
    results = tuple(copies[r] if isinstance(r, Node) else r for r in spelling.results)
    return results[0] if spelling.single else results


def _own_meta(node: Node) -> dict[str, Any]:
    """What a trace carries over from a node to all that it becomes."""
    return {name: node.meta[name] for name in _COPIED_FIELDS if name in node.meta}


def _storage(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _value(like: FakeTensor, storages: dict[int, torch.Tensor], mode: FakeTensorMode) -> torch.Tensor:
    """A fake tensor like that of the trace: in the memory that stands for the same memory there, else in its own."""
    base = storages.get(_storage(like))
    made = _fresh(like, mode) if base is None else _view(base, like, mode)
    storages.setdefault(_storage(like), made)
    return made


def _fresh(like: torch.Tensor, mode: FakeTensorMode) -> FakeTensor:
    size, stride, offset, device = tuple(like.shape), like.stride(), like.storage_offset(), like.device
    reach = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if like.numel() else offset
    with in_kernel_invocation_manager(mode):  # inside, a fake tensor is the meta tensor that it is made of
        memory = torch.empty(reach, dtype=like.dtype, device="meta").as_strided(size, stride, offset)
    return FakeTensor(mode, memory, device)


def _view(base: torch.Tensor, like: torch.Tensor, mode: FakeTensorMode) -> FakeTensor:
    size, stride, offset, device = tuple(like.shape), like.stride(), like.storage_offset(), like.device
    with in_kernel_invocation_manager(mode):
        memory = torch.empty(0, dtype=like.dtype, device="meta")
        memory.set_(base.untyped_storage(), offset, size, stride)
    return FakeTensor(mode, memory, device)
