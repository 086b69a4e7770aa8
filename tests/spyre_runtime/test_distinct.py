"""A graph traced by its distinct nodes is the graph that a trace of the whole gives: ops, arguments, values, shared memory, source lines."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from adapterc.spyre_runtime.capture import capture
from adapterc.spyre_runtime.decompose import _traced, fake_inputs, fake_mode_of, half_stays_half
from adapterc.spyre_runtime.distinct import trace_distinct
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.session import known_device

Function = Callable[..., object]


def captured(function: Function, *sizes: tuple[int, ...], index: bool = False) -> torch.fx.GraphModule:
    inputs = [torch.ones(size, dtype=torch.float16).to("spyre") for size in sizes]
    if index:
        inputs.append(torch.arange(4).to("spyre"))
    found: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        found.append(capture(gm, examples).module)
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=keep, fullgraph=True, dynamic=False)(*inputs)
    return found[0]


def both(graph: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule | None]:
    profile, mode = load_profile(), fake_mode_of(graph)
    with half_stays_half(), known_device():
        by_parts = trace_distinct(graph, mode, lambda kinds, inputs: _traced(kinds, inputs, mode, profile, None))
        return _traced(graph, fake_inputs(graph), mode, profile, None), by_parts


def description(graph: torch.fx.GraphModule) -> list[tuple[object, ...]]:
    """All that a later pass may ask of each node; names of nodes may differ, memory is told by who had it first."""
    place = {node: f"%{position}" for position, node in enumerate(graph.graph.nodes)}
    memory: dict[int, int] = {}

    def value(found: Any) -> object:
        if not isinstance(found, Tensor):
            return found
        shared = memory.setdefault(found.untyped_storage()._cdata, len(memory))
        return (found.dtype, found.device, tuple(found.shape), found.stride(), found.storage_offset(), shared)

    return [
        (
            node.op,
            str(node.target),
            str(torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: place[n])),
            [value(v) for v in pytree.tree_leaves(node.meta.get("val"))],
            [str(node.meta.get(name)) for name in ("stack_trace", "original_aten")] if node.op == "call_function" else None,
        )
        for node in graph.graph.nodes
    ]


def layers(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    for _ in range(4):
        heads = F.linear(F.layer_norm(x, (128,), scale, scale), weight).view(2, 16, 2, 64).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(2, 16, 128)
        low, high = x.chunk(2, -1)
        x = torch.cat([high, F.gelu(low)], -1)
    return x


def cached(x: Tensor, weight: Tensor, first: Tensor, second: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    for cache in (first, second, first, second):
        written = cache.index_copy_(0, rows, F.linear(x, weight))
        x = x + torch.softmax(written @ weight, -1)[:4]
    return x, first * 2


def filled(x: Tensor, weight: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    caches = []
    for _ in range(6):
        cache = torch.zeros(64, 128, dtype=x.dtype, device=x.device)
        cache.index_copy_(0, rows, F.linear(x, weight))
        x = x + torch.softmax(cache @ weight, -1)[:4]
        caches.append(cache)
    return x, *caches


@pytest.mark.parametrize(
    ("function", "sizes", "index"),
    [
        (layers, ((2, 16, 128), (128, 128), (128,)), False),
        (cached, ((4, 128), (128, 128), (64, 128), (64, 128)), True),
        (filled, ((4, 128), (128, 128)), True),
    ],
)
def test_the_same_graph_as_from_a_trace_of_the_whole(function: Function, sizes: tuple[tuple[int, ...], ...], index: bool) -> None:
    whole, by_parts = both(captured(function, *sizes, index=index))
    assert by_parts is not None
    assert description(by_parts) == description(whole)


def through_a_view(x: Tensor, cache: Tensor) -> Tensor:
    for _ in range(4):
        cache[:4].copy_(x)
        x = x + cache[4:8]
    return x


def several_names(x: Tensor, cache: Tensor) -> Tensor:
    row = cache[0]
    for _ in range(4):
        cache.add_(1)
        x = x + row
    return x


def asserted(x: Tensor, weight: Tensor) -> Tensor:
    for _ in range(4):
        x = x + F.one_hot(torch.argmax(x @ weight, -1), 64)
    return x


def unlike(x: Tensor) -> Tensor:
    return torch.tanh(torch.exp(x) + 1)


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (through_a_view, ((4, 64), (64, 64))),
        (several_names, ((64,), (64, 64))),
        (asserted, ((64, 64), (64, 64))),
        (unlike, ((64, 64),)),
    ],
)
def test_what_needs_a_trace_of_the_whole_gets_one(function: Function, sizes: tuple[tuple[int, ...], ...]) -> None:
    assert both(captured(function, *sizes))[1] is None
