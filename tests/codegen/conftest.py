"""Small captured graphs, made as `spyre_runtime.capture` makes them: make_fx before dispatch, on fake tensors, weights named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from adapterc.codegen.runtime import Config, Context, GraphReport, Rule, rewrite_graph
from adapterc.spyre_runtime.capture import CapturedGraph
from adapterc.spyre_runtime.profile import load_profile


@dataclasses.dataclass(frozen=True)
class Graphed:
    """A captured function and what it needs to be compared with its rewritten form."""

    captured: CapturedGraph
    inputs: tuple[torch.Tensor, ...]

    def apply(self, *rules: Rule, config: object = None, dtype: torch.dtype = torch.float32) -> tuple[CapturedGraph, GraphReport]:
        return rewrite_graph(self.captured, rules, wide_sticks(config, dtype))

    def difference(self, rewritten: CapturedGraph) -> float:
        """The largest difference of all outputs, each side on its own copies of the inputs."""
        mine = self.captured.module(*(x.clone() for x in self.inputs))
        theirs = rewritten.module(*(x.clone() for x in self.inputs))
        pairs = zip(torch.utils._pytree.tree_leaves(mine), torch.utils._pytree.tree_leaves(theirs), strict=True)
        return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


def wide_sticks(config: object = None, dtype: torch.dtype = torch.float32) -> Context:
    """A context whose stick has 64 elements also in float32, so that numbers can be compared to the last digits."""
    profile = load_profile()
    limits = dataclasses.replace(profile.limits, stick_bytes=64 * dtype.itemsize)
    return Context(Config(config), dataclasses.replace(profile, limits=limits), dtype)


@pytest.fixture
def graphed() -> Callable[..., Graphed]:
    def make(function: Callable[..., Any], *inputs: torch.Tensor, weights: tuple[int, ...] = ()) -> Graphed:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fakes = [mode.from_tensor(x) for x in inputs]
        with mode, torch.no_grad():
            module = make_fx(function, pre_dispatch=True)(*fakes)
        names = [node.name for node in module.graph.find_nodes(op="placeholder")]
        return Graphed(CapturedGraph(module, frozenset(names[i] for i in weights), frozenset(), inputs), inputs)

    return make
