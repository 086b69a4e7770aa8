"""A plan that was written to JSON runs later to the same bits, without the compiler; what is no plan is refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import Tensor

from adapterc.spyre_runtime import plan_json
from adapterc.spyre_runtime.execute_tiled import execute_plan
from adapterc.spyre_runtime.formats import DEFAULT_RULES
from adapterc.spyre_runtime.index_json import read_index, write_index
from adapterc.spyre_runtime.plan_json import PlanError, dumps, from_json, to_json
from adapterc.spyre_runtime.tiled_options import Padding, TiledOptions


def half(*size: int) -> Tensor:
    return torch.randn(*size).to(torch.float16)


def assign(cache: Tensor, rows: Tensor) -> tuple[Tensor, None]:
    cache[:, :, 64:128].copy_(rows)
    return cache * 2, None


GRAPHS: dict[str, tuple[Callable[..., Any], tuple[Callable[[], Tensor], ...]]] = {
    "softmax": (lambda a: torch.softmax(a, -1), (lambda: half(64, 300),)),
    "layer norm": (lambda a, w, b: F.layer_norm(a, (320,), w, b), (lambda: half(64, 320), lambda: half(320), lambda: half(320))),
    "padded K": (lambda a, b: a @ b, (lambda: half(64, 100), lambda: half(100, 200))),
    "split K": (lambda a, b: a @ b, (lambda: half(1, 3072), lambda: half(3072, 192))),
    "causal attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (lambda: half(1, 4, 64, 64),) * 3),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, (lambda: torch.randint(0, 30, (2, 7)), lambda: half(30, 128))),
    "cumsum": (lambda a: torch.cumsum(a[1:], 0) + 1, (lambda: half(8, 64),)),
    "gather": (lambda a, i: a[2:][i] * 2, (lambda: half(8, 64), lambda: torch.tensor([0, 3, -1]))),
    "top k": (lambda a: torch.topk(a, 2), (lambda: half(64, 128),)),
    "assignment": (assign, (lambda: half(1, 2, 192, 64), lambda: half(1, 2, 64, 64))),
    "repeat": (lambda a: a.repeat(2, 3), (lambda: half(70, 128),)),
    "glu": (lambda a: F.glu(a, 0), (lambda: half(8, 64),)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_plan_read_back_is_the_same_and_runs_to_the_same_bits(name: str, compiled: Any) -> None:
    function, makers = GRAPHS[name]
    graph = compiled(function, *(make() for make in makers))
    plan = graph.compilation.plan
    later = from_json(dumps(plan))
    assert later == plan
    given = [x.clone() for x in graph.inputs]
    again = [x.clone() for x in graph.inputs]
    expected = graph.tiled().run(given)
    found = execute_plan(later, dict(zip(later.inputs, again, strict=True)), rules=DEFAULT_RULES)
    for a, b in zip([*expected, *given], [*found, *again], strict=True):
        assert (a is None) == (b is None)
        assert a is None or (a.dtype is b.dtype and torch.equal(a, b))


def test_a_plan_runs_in_another_process(compiled: Any, tmp_path: Path) -> None:
    function, makers = GRAPHS["causal attention"]
    graph = compiled(function, *(make() for make in makers))
    (expected,) = graph.run()
    plan = graph.compilation.plan
    (tmp_path / "plan.json").write_text(dumps(plan))
    torch.save(dict(zip(plan.inputs, graph.inputs, strict=True)), tmp_path / "inputs.pt")
    program = """
import sys, torch
from pathlib import Path
from adapterc.spyre_runtime.execute_tiled import execute_plan
from adapterc.spyre_runtime.plan_json import from_json
folder = Path(sys.argv[1])
(out,) = execute_plan(from_json((folder / "plan.json").read_text()), torch.load(folder / "inputs.pt"))
torch.save(out, folder / "out.pt")
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=120)
    assert torch.equal(torch.load(tmp_path / "out.pt"), expected)


def test_host_tensors_arrive_as_on_the_device(compiled: Any) -> None:
    host = half(4, 70), half(70)
    graph = compiled(lambda a, b: a + b, *host)
    plan = graph.compilation.plan
    (expected,) = graph.run(TiledOptions(padding=Padding.NAN))
    for given in (host, tuple(x.to("spyre") for x in host)):
        (found,) = execute_plan(plan, dict(zip(plan.inputs, given, strict=True)), options=TiledOptions(padding=Padding.NAN))
        assert found is not None and torch.equal(found, expected)


def test_inputs_take_the_strides_of_the_plan(compiled: Any) -> None:
    """A transposed and an expanded input, given with other strides of the same values."""
    graph = compiled(lambda a, b: a + b, half(70, 4).t(), half(1, 70).to("spyre").expand(4, 70))
    plan = graph.compilation.plan
    assert (0 in plan.buffer(plan.inputs[1]).stride) and plan.buffer(plan.inputs[0]).stride == (1, 4)
    (expected,) = graph.tiled().run(graph.inputs)
    (found,) = execute_plan(plan, {name: x.contiguous() for name, x in zip(plan.inputs, graph.inputs, strict=True)})
    assert found is not None and torch.equal(found, expected)


def test_inputs_that_are_missing_or_of_another_size_are_named(compiled: Any) -> None:
    plan = compiled(lambda a, b: a + b, half(4, 64), half(64)).compilation.plan
    with pytest.raises(PlanError, match=r"needs an input arg1_1 of torch.float16 \[64\], and there is none"):
        execute_plan(plan, {"arg0_1": half(4, 64)})
    with pytest.raises(PlanError, match=r"the given one has \[4, 65\]"):
        execute_plan(plan, {"arg0_1": half(4, 65), "arg1_1": half(64)})


def test_indices_are_written_as_data_and_nothing_is_evaluated() -> None:
    d0, plain = sympy.Symbol("d0", integer=True, nonnegative=True), sympy.Symbol("x")
    index = 128 * d0 + sympy.floor(sympy.Rational(3, 2) * plain) + sympy.Mod(d0, 64)
    assert read_index(json.loads(json.dumps(write_index(index)))) == index
    for text in ("__import__('os').system('true')", ["eval", "d0"], ["symbol", "a b"], {"d0": 1}, [], None, True, [["+"]]):
        with pytest.raises(ValueError):
            read_index(text)
    deep: Any = "d0"
    for _ in range(40):
        deep = ["+", deep, 1]
    with pytest.raises(ValueError):
        read_index(deep)


@pytest.fixture
def written(compiled: Any) -> dict[str, Any]:
    function, makers = GRAPHS["cumsum"]
    data = to_json(compiled(function, *(make() for make in makers)).compilation.plan)
    again: dict[str, Any] = json.loads(json.dumps(data))
    return again


def test_text_that_is_no_plan_gets_one_sentence_with_a_code(written: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        "": "no JSON: line 1, column 1",
        json.dumps(written)[:-1]: "no JSON: line 1, column",
        "[1, 2]": "no plan",
        "{}": "no plan",
        "[" * 100_000: "nested too deeply",
        "x" * (2**20 + 1): "1 MiB is more than the 1 MiB",
    }
    monkeypatch.setattr(plan_json, "MOST_BYTES", 2**20)
    for text, message in cases.items():
        with pytest.raises(PlanError, match=message) as caught:
            from_json(text)
        assert caught.value.code == "ADC510" and "\n" not in str(caught.value)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another version": (lambda d: d.update(version=3), "version '3'"),
    "another release": (lambda d: d.update(profile="torch-spyre-1999"), "release that is not known"),
    "a missing part": (lambda d: d.pop("ops"), "cannot be read: KeyError"),
    "a wrong kind of part": (lambda d: d.update(buffers=5), "cannot be read: TypeError"),
    "a further part": (lambda d: d.update(extra=1), "cannot be read: TypeError"),
    "an unknown buffer": (lambda d: d["outputs"].append("nowhere"), "buffer 'nowhere' that it does not have"),
    "a step left out": (lambda d: d["order"].pop(), "name each of its steps once"),
    "a buffer without end": (lambda d: d["buffers"][0]["layout"].update(device_size=[2**30, 2**30]), "no size that fits"),
    "its own alias": (lambda d: d["buffers"][0].update(alias=d["buffers"][0]["name"]), "its own alias"),
    "code for an index": (lambda d: d["ops"][0]["write"].update(index="print(1)"), "cannot be read: ValueError"),
    "an op of the system": (lambda d: d["host_steps"][0]["call"].update(call="os.system"), "'os.system' on the host"),
    "an op that opens files": (lambda d: d["host_steps"][0]["call"].update(call="aten.from_file.default"), "'aten.from_file.default' on the host"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_plan_that_was_tampered_with_is_refused(name: str, written: dict[str, Any]) -> None:
    change, message = CHANGES[name]
    fallbacks = [step for step in written["host_steps"] if step["call"]]
    written["host_steps"].sort(key=lambda step: step not in fallbacks)
    change(written)
    with pytest.raises(PlanError, match=message):
        from_json(written)
