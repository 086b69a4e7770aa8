"""Load-time twins of weights: shared between graphs, made again when a weight changes, no copy of what is the weight already."""

from collections.abc import Callable

import torch
from torch import Tensor

from adapterc.spyre_runtime.capture import CapturedGraph, capture
from adapterc.spyre_runtime.execute_fast import compile_program
from adapterc.spyre_runtime.settings import Numerics, Settings
from adapterc.spyre_runtime.stages import partition
from adapterc.spyre_runtime.tensor import SpyreTensor
from adapterc.spyre_runtime.twins import LoadStage, Twins, recipes

aten = torch.ops.aten


def stage(function: Callable[[Tensor], Tensor], weight: Tensor, numerics: Numerics = "device") -> LoadStage:
    """The load stage of a function of one weight whose result the device multiplies by two."""
    with torch.no_grad():
        module = capture(torch.fx.symbolic_trace(lambda w: function(w) * 2), [weight]).module
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is not aten.mul.Tensor:
            node.meta["stage"] = "load"
    names = frozenset(node.name for node in module.graph.find_nodes(op="placeholder"))
    part = partition(CapturedGraph(module, names, frozenset(), (weight,))).load
    return LoadStage(compile_program(part.module, "host"), (0,), recipes(part), Settings(numerics=numerics))


def twin(stage: LoadStage, weight: SpyreTensor, twins: Twins | None = None) -> Tensor:
    (value,) = (twins or Twins()).get(stage, [weight], [weight.raw])
    return value


def weights(count: int = 1) -> list[SpyreTensor]:
    generator = torch.Generator().manual_seed(0)
    found = [torch.randn(64, 128, generator=generator).to("spyre", torch.float16) for _ in range(count)]
    return [weight for weight in found if isinstance(weight, SpyreTensor)]


def padded(w: Tensor) -> Tensor:
    return torch.nn.functional.pad(w, (0, 64))


def test_graphs_with_the_same_load_stage_share_its_result() -> None:
    (weight,) = weights()
    first = twin(stage(padded, weight), weight)
    assert first is twin(stage(padded, weight), weight)
    assert first is not twin(stage(lambda w: torch.nn.functional.pad(w, (64, 0)), weight), weight)
    assert first is not twin(stage(padded, weight, "fp32"), weight)


def test_a_twin_is_of_one_weight_at_one_time() -> None:
    weight, other = weights(2)
    mine, twins = stage(padded, weight), Twins()
    first = twin(mine, weight, twins)
    assert twin(mine, weight, twins) is first
    assert not torch.equal(twin(mine, other), first)
    before = first.clone()
    weight.mul_(2)
    assert torch.equal(twin(mine, weight, twins), before * 2)
    assert torch.equal(twin(stage(padded, weight), weight), before * 2)


def test_what_only_looks_at_the_weight_takes_no_memory_and_leaves_it_as_it_is() -> None:
    (weight,) = weights()
    values = weight.raw.clone()
    turned = twin(stage(lambda w: w.transpose(0, 1), weight), weight)
    assert turned.data_ptr() == weight.raw.data_ptr()
    weight[0, 0] = 2.0**20  # the device holds it, the host's float16 does not
    turned = twin(stage(lambda w: w.transpose(0, 1), weight), weight)
    assert (turned[0, 0].item(), weight.raw[0, 0].item()) == (float("inf"), 2.0**20)
    assert torch.equal(turned.t()[1:], values[1:])
