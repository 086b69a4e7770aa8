"""Graphs for the real device's compiler: what Dynamo keeps whole, which detours go, and where load-time weights lie."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import fx

from adapterc.spyre_runtime import install
from adapterc.spyre_runtime.capture import CapturedGraph, capture
from adapterc.spyre_runtime.handover import Target, hand_on, keep_graphs_whole, without_detours

aten = torch.ops.aten


@dataclass(frozen=True)
class AtLoad:
    """Marks an op for the load stage."""

    name: str
    op: Any

    def __call__(self, captured: CapturedGraph) -> tuple[CapturedGraph, int]:
        module = copy.deepcopy(captured.module)
        sites = module.graph.find_nodes(op="call_function", target=self.op)
        for node in sites:
            node.meta["stage"] = "load"
        return replace(captured, module=module), len(sites)


class Weights(torch.nn.Module):
    """Two weights made at load time: the first is a linear layer's, the second is multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(32, 64))
        self.second = torch.nn.Parameter(torch.randn(16, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, torch.exp(self.first)) * torch.exp(self.second)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def captured(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> CapturedGraph:
    found: list[CapturedGraph] = []

    def keep(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.append(capture(gm, example_inputs))
        return gm.forward

    with torch.no_grad():
        torch.compile(function, backend=keep, fullgraph=True)(*inputs)
    return found[0]


def calls(graph: CapturedGraph) -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(node.target), dict(node.kwargs)) for node in graph.module.graph.find_nodes(op="call_function", target=aten._to_copy.default)
    ]


def test_linear_weights_of_the_load_stage_are_moved_as_their_module_would_be() -> None:
    model, x = Weights(), torch.randn(16, 64)
    moved: list[tuple[int, ...]] = []

    def move_linear(weight: torch.Tensor, place: torch.device) -> torch.Tensor:
        moved.append(tuple(weight.shape))
        return weight.to(place)

    def compiler(module: fx.GraphModule, inputs: Any) -> Any:
        return module

    with torch.no_grad(), install(model, (AtLoad("twins", aten.exp.default),)):
        compiled = torch.compile(model, backend=lambda gm, inputs: hand_on(gm, inputs, Target(compiler, move_linear)))
        torch.testing.assert_close(compiled(x), model(x))
        torch.testing.assert_close(compiled(x), model(x))
    assert moved == [(32, 64)]


def test_a_change_of_dtype_by_way_of_the_cpu_is_one_on_the_device() -> None:
    x = torch.ones(4, 64, dtype=torch.float16).to("spyre")
    graph = captured(lambda x: x.to("cpu").to("spyre", torch.float32) + 1, x)
    assert len(calls(graph)) == 2
    short = without_detours(graph)
    assert calls(short) == [("aten._to_copy.default", {"dtype": torch.float32})]
    (end,) = short.module.graph.find_nodes(op="output")
    (before,) = graph.module.graph.find_nodes(op="output")
    assert [n.meta["val"].dtype for n in end.all_input_nodes] == [n.meta["val"].dtype for n in before.all_input_nodes]


def test_what_the_cpu_does_on_the_way_stays_there() -> None:
    x = torch.ones(4, 64, dtype=torch.float16).to("spyre")
    graph = captured(lambda x: x.to("cpu", torch.float32).to("spyre", torch.float16), x)  # another dtype rounds
    assert without_detours(graph) is graph
    graph = captured(lambda x: x.to("cpu").cumsum(-1).to("spyre", torch.float32), x)
    assert without_detours(graph) is graph


def test_warnings_do_not_break_graphs_for_the_real_device() -> None:
    graphs: list[fx.GraphModule] = []

    def count(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        warnings.warn("a change of dtype goes through the CPU", stacklevel=2)
        return y + 1

    with torch._dynamo.config.patch(ignore_logging_functions=set()):
        keep_graphs_whole()
        torch.compile(function, backend=count)(torch.ones(4))
    assert len(graphs) == 1
