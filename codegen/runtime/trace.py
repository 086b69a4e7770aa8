"""Plain torch code becomes nodes of a captured graph: traced on the operands' fake tensors, inserted with values, source lines and a stage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from .graph import value

KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack", "original_aten")


def fake_mode(graph: Graph) -> FakeTensorMode:
    """The mode under which capture made the graph's values. Raises LookupError for a graph without tensors."""
    for node in graph.nodes:
        val = value(node)
        if isinstance(val, FakeTensor):
            return val.fake_mode
    raise LookupError("the graph holds no fake tensor, so nothing can be traced into it")


def wanted_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names that a generated function asks for, in order."""
    return tuple(inspect.signature(function).parameters)


class Tracer:
    """Traces each function once per signature of its operands; layers that repeat cost a copy."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.mode = fake_mode(graph)
        self._programs: dict[tuple[object, ...], GraphModule] = {}

    def insert(
        self, function: Callable[..., Any], operands: Mapping[str, Any], origin: Node, *, rule: str, stage: str | None = None
    ) -> Any:
        """Insert `function(**operands)` at the graph's insertion point. Node operands are traced, all else is a constant of the trace.

        Returns what the function returns with nodes in place of tensors.
        """
        program, nodes = self._program(function, operands)
        environment: dict[Node, Any] = {}
        sources = iter(nodes)
        result: Any = None
        for step in program.graph.nodes:
            if step.op == "placeholder":
                environment[step] = next(sources)
            elif step.op == "get_attr":
                raise TypeError(f"{rule} closes over a tensor; constants belong into its load function")
            elif step.op == "output":
                result = pytree.tree_map(lambda n: environment[n] if isinstance(n, Node) else n, step.args[0])
            else:
                environment[step] = self._copy(step, environment, origin, rule, stage)
        return result

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], origin: Node, *, rule: str, stage: str | None = None
    ) -> Node:
        """Insert one op at the graph's insertion point."""
        node = self.graph.create_node("call_function", target, args, dict(kwargs))
        annotate(node, origin, rule, stage)
        node.meta["val"] = self.evaluate(node)
        return node

    def evaluate(self, node: Node) -> Any:
        """The value of a node on the fake tensors of its operands."""
        assert callable(node.target)
        args, kwargs = pytree.tree_map(lambda a: a.meta["val"] if isinstance(a, Node) else a, (node.args, dict(node.kwargs)))
        with self.mode, torch.no_grad():
            return node.target(*args, **kwargs)

    def _copy(self, step: Node, environment: Mapping[Node, Any], origin: Node, rule: str, stage: str | None) -> Node:
        args, kwargs = pytree.tree_map(lambda a: environment[a] if isinstance(a, Node) else a, (step.args, dict(step.kwargs)))
        return self.call(step.target, args, kwargs, origin, rule=rule, stage=stage)

    def _program(self, function: Callable[..., Any], operands: Mapping[str, Any]) -> tuple[GraphModule, Sequence[Node]]:
        names = [name for name in operands if isinstance(operands[name], Node)]
        constants = {name: found for name, found in operands.items() if name not in names}
        nodes = [operands[name] for name in names]
        fakes = [node.meta["val"] for node in nodes]
        key = (
            function,
            tuple((name, tuple(f.shape), f.stride(), f.dtype, f.device) for name, f in zip(names, fakes, strict=True)),
            tuple(sorted((name, repr(found)) for name, found in constants.items())),
        )
        if key not in self._programs:

            def run(*tensors: torch.Tensor) -> Any:
                return function(**dict(zip(names, tensors, strict=True)), **constants)

            with self.mode, torch.no_grad():
                self._programs[key] = make_fx(run, pre_dispatch=True)(*fakes)
        return self._programs[key], nodes


def annotate(node: Node, origin: Node, rule: str, stage: str | None) -> None:
    """The new node carries the user's source line of what it replaces, so that a refusal names it, and the rule that made it."""
    for key in KEPT_META:
        if key in origin.meta:
            node.meta[key] = origin.meta[key]
    node.meta["adapter_rule"] = rule
    if stage is not None:
        node.meta["stage"] = stage


def refresh(graph: Graph, tracer: Tracer) -> None:
    """Recompute every value. A `view` that its operand's strides no longer allow becomes the `reshape` that it means."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is torch.ops.aten.view.default:
            try:
                node.meta["val"] = tracer.evaluate(node)
                continue
            except RuntimeError:
                node.target = torch.ops.aten.reshape.default
        node.meta["val"] = tracer.evaluate(node)
