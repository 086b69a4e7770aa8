"""torch.compile(model, backend="spyre"): capture, patches, stages, refusals, recompilation and the fast executor."""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import fx

from adapterc.spyre_runtime import active_for, fired_report, install, settings
from adapterc.spyre_runtime.backend import clear_compile_log, compilations, compile_log
from adapterc.spyre_runtime.capture import CapturedGraph, capture
from adapterc.spyre_runtime.execute_fast import compile_program
from adapterc.spyre_runtime.formats import round_dl16
from adapterc.spyre_runtime.frontend import refusals
from adapterc.spyre_runtime.handover import Target, hand_on
from adapterc.spyre_runtime.patches import Handle
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.stages import StageError, partition

aten = torch.ops.aten


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 128)
        self.register_buffer("shift", torch.full((128,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(self.linear(x)) + self.shift


@dataclass(frozen=True)
class Replace:
    """A patch that swaps one op for another, and may mark what it finds for a stage."""

    name: str
    old: Any
    new: Any = None
    stage: str = "device"

    def __call__(self, captured: CapturedGraph) -> tuple[CapturedGraph, int]:
        module = copy.deepcopy(captured.module)
        sites = [node for node in module.graph.nodes if node.target is self.old]
        for node in sites:
            node.target = self.new or self.old
            node.meta["stage"] = self.stage
        module.recompile()
        return CapturedGraph(module, captured.parameters, captured.buffers, captured.examples, captured.paths), len(sites)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    clear_compile_log()


def graph_of(model: torch.nn.Module, *args: torch.Tensor) -> CapturedGraph:
    found: list[CapturedGraph] = []

    def keep(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.append(capture(gm, example_inputs))
        return gm.forward

    with torch.no_grad():
        torch.compile(model, backend=keep, fullgraph=True)(*args)
    return found[0]


def targets(captured: CapturedGraph) -> list[str]:
    return [str(node.target) for node in captured.module.graph.nodes if node.op == "call_function"]


def test_capture_keeps_composites_roles_paths_and_source_lines() -> None:
    net = Net().to("spyre", torch.float16)
    captured = graph_of(net, torch.randn(3, 64).to("spyre", torch.float16))
    assert targets(captured) == ["aten.linear.default", "aten.silu.default", "aten.add.Tensor"]
    assert {captured.paths[name] for name in captured.parameters} == {"linear.weight", "linear.bias"}
    assert {captured.paths[name] for name in captured.buffers} == {"shift"}
    last = [node for node in captured.module.graph.nodes if node.op == "call_function"][-1]
    assert (last.meta["val"].device.type, last.meta["val"].dtype) == ("spyre", torch.float16)
    assert "test_backend.py" in last.meta["stack_trace"]


def test_capture_drops_what_does_nothing_and_keeps_casts() -> None:
    class Idle(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.nn.functional.dropout(x.contiguous().to(x.dtype), 0.5, self.training)
            return x.float() * torch.tensor([1.0, 2.0], device=x.device) * torch.tensor(3.0, device=x.device)

    captured = graph_of(Idle().eval(), torch.randn(4, 2).to("spyre", torch.float16))
    kinds = targets(captured)
    assert kinds.count("aten.mul.Tensor") == 2
    assert "aten._to_copy.default" in kinds
    assert not any("dropout" in kind or "contiguous" in kind for kind in kinds)


def test_compiled_net_is_right_in_both_numerics() -> None:
    net, x = Net(), torch.randn(64, 64)
    with torch.no_grad():
        want = net(x)
        with settings(numerics="fp32"):
            exact = torch.compile(copy.deepcopy(net).to("spyre", torch.float16), backend="spyre")(x.to("spyre", torch.float16))
            torch.testing.assert_close(exact.to("cpu", torch.float32), want, atol=1e-5, rtol=1e-5)
        rounded = torch.compile(copy.deepcopy(net).to("spyre", torch.float16), backend="spyre")(x.to("spyre", torch.float16))
    assert (exact.device.type, exact.dtype) == ("spyre", torch.float16)
    values = rounded.to("cpu", torch.float32)
    assert torch.equal(values, round_dl16(values))
    torch.testing.assert_close(values, want, atol=2e-2, rtol=2e-2)


def test_settings_change_a_compiled_graph_without_dynamo() -> None:
    net, x = Net().to("spyre", torch.float16), torch.randn(64, 64).to("spyre", torch.float16)
    compiled = torch.compile(net, backend="spyre")
    with torch.no_grad():
        first = compiled(x).to("cpu", torch.float32)
        with settings(numerics="fp32"):
            exact = compiled(x).to("cpu", torch.float32)
        again = compiled(x).to("cpu", torch.float32)
    assert torch.equal(first, again)
    assert not torch.equal(first, exact)
    assert [record.settings.numerics for record in compile_log()] == ["device", "fp32"]


def test_each_shape_compiles_once_and_is_logged() -> None:
    compiled = torch.compile(Net().to("spyre", torch.float16), backend="spyre")
    with torch.no_grad():
        for rows in (64, 128, 192, 64, 128):
            assert compiled(torch.randn(rows, 64).to("spyre", torch.float16)).shape == (rows, 128)
    assert [record.shapes[0] for record in compile_log()] == [(64, 64), (128, 64), (192, 64)]
    assert all(record.compilation is not None and not record.refusals for record in compile_log())


def test_compilations_are_counted_by_model_and_length() -> None:
    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(x))

    model, other = Rows().to("spyre", torch.float16), Net().to("spyre", torch.float16)
    compiled = torch.compile(model, backend="spyre", dynamic=False)
    with torch.no_grad():
        for length in (64, 128, 64, 256):
            compiled(torch.randn(1, length, 64).to("spyre", torch.float16))
        torch.compile(other, backend="spyre")(torch.randn(64, 64).to("spyre", torch.float16))
    assert [record.length for record in compilations(model)] == [64, 128, 256]
    assert len(compilations(other)) == 1
    model.to("cpu")
    assert compilations(model) == ()


class SubStick(torch.nn.Module):
    """Half of a stick cannot be carried anywhere: the other dimension is no multiple of 64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[..., 32:] + 1


def test_a_refusal_reaches_the_user_as_itself() -> None:
    compiled = torch.compile(SubStick(), backend="spyre")
    x = torch.randn(4, 128).to("spyre", torch.float16)
    for _ in range(2):
        with torch.no_grad(), pytest.raises(Refusal) as caught:
            compiled(x)
        assert caught.value.kind
        assert caught.value.message
    assert len(compile_log()) == 1
    with torch.no_grad(), settings(legality="report"):
        assert torch.equal(compiled(x).to("cpu", torch.float32), round_dl16(x.to("cpu", torch.float32)[..., 32:] + 1))
    assert [refusal.kind for refusal in compile_log()[-1].refusals] == [caught.value.kind]


def test_inputs_are_written_in_place() -> None:
    class Write(torch.nn.Module):
        def forward(self, cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            cache.mul_(2).add_(x)
            return cache * 3

    cache = torch.ones(64, 64, device="spyre", dtype=torch.float16)
    before = cache._version
    with torch.no_grad():
        out = torch.compile(Write(), backend="spyre")(cache, torch.ones(64, 64, device="spyre", dtype=torch.float16))
    assert (cache == 3).all()
    assert (out == 9).all()
    assert cache._version > before


def test_patches_act_on_their_model_only_and_come_off() -> None:
    net, other = Net().to("spyre", torch.float16), Net().to("spyre", torch.float16)
    x = torch.randn(64, 64).to("spyre", torch.float16)
    compiled, untouched = torch.compile(net, backend="spyre"), torch.compile(other, backend="spyre")
    with torch.no_grad():
        stock = compiled(x).cpu()
        handle = install(net, [Replace("silu_to_relu", aten.silu.default, aten.relu.default), Replace("never", aten.erf.default)])
        patched = compiled(x).cpu()
        assert fired_report(net) == {"silu_to_relu": 1, "never": 0}
        assert compile_log()[-1].fired == {"silu_to_relu": 1, "never": 0}
        assert torch.equal(untouched(x).cpu(), stock)
        assert not torch.equal(patched, stock)
        handle.remove()
        assert torch.equal(compiled(x).cpu(), stock)
        with install(net, [Replace("silu_to_relu", aten.silu.default, aten.relu.default)]):
            assert torch.equal(compiled(x).cpu(), patched)
    assert fired_report(net) == {}


def test_installation_survives_the_move_and_refuses_nonsense() -> None:
    net = Net()
    handle = install(net, [Replace("p", aten.silu.default)])
    net.to("spyre", torch.float16)
    assert [patch.name for patch in active_for([net.linear.weight, torch.ones(1)])] == ["p"]
    assert [patch.name for patch in active_for([torch.ones(1)])] == ["p"]  # nobody's weights, and only one model is patched
    other = Net()
    with install(other, [Replace("p", aten.silu.default)]):
        assert active_for([torch.ones(1)]) == ()
    handle.remove()
    assert active_for([net.linear.weight]) == ()
    with pytest.raises(TypeError, match="is no graph patch"):
        install(net, [object()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="two patches are named 'p'"):
        install(net, [Replace("p", aten.silu.default), Replace("p", aten.silu.default)])


class Staged(torch.nn.Module):
    """One op for each stage: exp of a weight, cumsum of an integer input, the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64))

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return x * torch.exp(self.weight) + torch.cumsum(steps, -1).to(x.dtype)


PLACES = (Replace("load", aten.exp.default, stage="load"), Replace("host", aten.cumsum.default, stage="host"))


def staged_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(64, 64).to("spyre", torch.float16), torch.ones(64, dtype=torch.long).to("spyre")


def test_stages_split_run_and_cache_twins() -> None:
    model = Staged().to("spyre", torch.float16)
    x, steps = staged_inputs()
    with torch.no_grad(), install(model, PLACES), settings(numerics="fp32", legality="report"):
        compiled = torch.compile(model, backend="spyre")

        def want() -> torch.Tensor:
            return x.to("cpu", torch.float32) * model.weight.to("cpu", torch.float32).exp() + steps.cpu().cumsum(-1)

        torch.testing.assert_close(compiled(x, steps).to("cpu", torch.float32), want())
        assert compile_log()[-1].ops == {"load": 1, "host": 1, "device": 3}
        model.weight.mul_(0.5)  # a written weight makes its twin anew
        torch.testing.assert_close(compiled(x, steps).to("cpu", torch.float32), want())
        model.weight = torch.nn.Parameter(torch.zeros(64).to("spyre", torch.float16))  # and so does another tensor
        with install(model, PLACES):
            torch.testing.assert_close(compiled(x, steps).to("cpu", torch.float32), want())


def test_stage_marks_that_cannot_be() -> None:
    captured = graph_of(Staged().to("spyre", torch.float16), *staged_inputs())
    with pytest.raises(StageError, match="needs the input l_steps_, which is no weight"):
        partition(Replace("p", aten.cumsum.default, stage="load")(captured)[0])
    with pytest.raises(StageError, match="needs mul from the device stage, which comes later"):
        partition(Replace("p", aten.add.Tensor, stage="host")(captured)[0])
    with pytest.raises(StageError, match="stage 'moon'; the stages are load, host, device"):
        partition(Replace("p", aten.add.Tensor, stage="moon")(captured)[0])


def test_handing_on_rewrites_and_runs_the_early_stages() -> None:
    """The way of the real device, with another compiler in its place and a model on the CPU."""
    model, x, steps = Staged(), torch.randn(4, 64), torch.ones(64, dtype=torch.long)
    seen: list[list[str]] = []

    def compiler(module: fx.GraphModule, inputs: Any) -> Any:
        seen.append([str(node.target) for node in module.graph.nodes if node.op == "call_function"])
        return module

    with torch.no_grad(), install(model, PLACES):
        compiled = torch.compile(model, backend=lambda gm, example_inputs: hand_on(gm, example_inputs, Target(compiler, torch.Tensor.to)))
        torch.testing.assert_close(compiled(x, steps), model(x, steps))
        model.weight.add_(1)
        torch.testing.assert_close(compiled(x, steps), model(x, steps))
    assert seen == [["aten.mul.Tensor", "aten._to_copy.default", "aten.add.Tensor"]]


def test_program_text_folds_constants_frees_values_and_keeps_written_copies() -> None:
    class Program(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y.add_(torch.arange(4, device=x.device) * 2)
            return y * x

    captured = graph_of(Program(), torch.ones(4, device="spyre", dtype=torch.float16))
    program = compile_program(captured.module, "nearest_up")
    assert "arange" not in program.code  # computed at compile time
    assert "clone" in program.code  # not elided: the copy is written
    assert "del " in program.code
    x = torch.ones(4)
    assert program.run(x)[0].tolist() == [1.0, 3.0, 5.0, 7.0]
    assert x.tolist() == [1.0] * 4
    assert program.mutated == ()


def test_cast_pairs_cost_nothing_unless_they_show() -> None:
    class Casts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x.float() * 2).half(), x.float()

    program = compile_program(graph_of(Casts(), torch.ones(4, device="spyre", dtype=torch.float16)).module, "nearest_up")
    x = torch.ones(4)
    doubled, single = program.run(x)
    single.add_(1)  # an output is its own tensor
    assert x.tolist() == [1.0] * 4
    assert doubled.tolist() == [2.0] * 4


def test_handle_is_garbage_with_its_model() -> None:
    net = Net()
    handle: Handle = install(net, [Replace("p", aten.silu.default)])
    weight = net.linear.weight
    del net
    assert handle.model() is None
    assert active_for([weight]) == ()


EINSUMS = [
    ("bhqd,bhkd->bhqk", (2, 2, 64, 64), (2, 2, 64, 64)),
    ("bqhd,bkhd->bhqk", (2, 64, 2, 64), (2, 64, 2, 64)),
    ("bhqd,hde->bqe", (2, 2, 64, 64), (2, 64, 64)),
    ("...ij,...jk->...ik", (2, 2, 64, 64), (2, 2, 64, 64)),
    ("bij,bjk->bik", (2, 64, 64), (2, 64, 64)),
    ("bid,bjd->bij", (2, 64, 64), (2, 64, 64)),
    ("bqd,kd->bqk", (2, 64, 64), (64, 64)),
    ("ij,jk->ik", (64, 64), (64, 64)),
]


@pytest.mark.parametrize(("equation", "first", "second"), EINSUMS)
def test_einsum_runs_or_is_refused_as_the_public_compiler_refuses_it(
    equation: str, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    x, y = (torch.randn(size, generator=torch.Generator().manual_seed(3)).half() for size in (first, second))
    want = torch.einsum(equation, x.float(), y.float())
    with torch.no_grad(), settings(numerics="fp32"):
        on_device = (x.to("spyre"), y.to("spyre"))
        assert torch.allclose(torch.einsum(equation, *on_device).to("cpu", torch.float32), want, atol=1e-4)
        compiled = torch.compile(lambda a, b: torch.einsum(equation, a, b), backend="spyre", dynamic=False)
        with settings(legality="report"):
            assert torch.allclose(compiled(*on_device).to("cpu", torch.float32), want, atol=1e-4)
        refusals = compile_log()[-1].refusals
        if len(first) == 4:
            assert [refusal.kind for refusal in refusals] == ["LoweringException@_inductor/lowering.py:lower_bmm"]
            assert "test_backend.py" in refusals[0].source
            with pytest.raises(Refusal):
                compiled(*on_device)
        else:
            assert refusals == ()


def test_every_obstacle_is_named_when_an_einsum_is_one_of_them() -> None:
    module = graph_of(Scores(), *(torch.randn(2, 2, 64, 64).half().to("spyre") for _ in range(2))).module
    assert [obstacle.op for obstacle in refusals(module, load_profile())] == ["bmm", "bmm"]


class Scores(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bhqk,bhkd->bhqd", torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k), -1), k)
