"""The tiled executor gives the fast executor's results, whatever padding holds and whichever core comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from adapterc.spyre_runtime.findings import Check, FindingError
from adapterc.spyre_runtime.settings import settings as device_settings
from adapterc.spyre_runtime.tile_ops import MatmulOp, ReduceOp
from adapterc.spyre_runtime.tiled_options import Padding, TiledOptions

Shape = tuple[int, ...]


def half(*size: int) -> Tensor:
    return torch.randn(*size).to(torch.float16)


def assign(cache: Tensor, rows: Tensor) -> Tensor:
    cache[:, :, 64:128].copy_(rows)
    return cache * 2


GRAPHS: dict[str, tuple[Callable[..., Any], tuple[Shape, ...]]] = {
    "add": (lambda a, b: a + b, ((100, 70), (100, 70))),
    "broadcast": (lambda a, b: a * b, ((4, 100, 70), (70,))),
    "column": (lambda a, b: a * b, ((100, 70), (100, 1))),
    "scalars": (lambda a: (a * 0.1 + 1e-6) / 30, ((33, 70),)),
    "softmax": (lambda a: torch.softmax(a, -1), ((64, 300),)),
    "sum of rows": (lambda a: a.sum(0), ((64, 320),)),
    "sum of all": (lambda a: a.sum(), ((64, 300),)),
    "maximum": (lambda a: a.amax(1), ((64, 300),)),
    "mean": (lambda a: a.mean(-1, keepdim=True), ((3, 64, 320),)),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (320,), w, b), ((64, 320), (320,), (320,))),
    "rms_norm": (lambda a, w: F.rms_norm(a, (320,), w, 1e-6), ((64, 320), (320,))),
    "matmul": (lambda a, b: a @ b, ((64, 128), (128, 256))),
    "matmul, padded K": (lambda a, b: a @ b, ((64, 100), (100, 200))),
    "batched matmul": (lambda a, b: torch.bmm(a, b), ((4, 70, 128), (4, 128, 200))),
    "linear": (lambda a, w, b: F.linear(a, w, b), ((2, 64, 128), (256, 128), (256,))),
    "transpose": (lambda a: a.t().contiguous(), ((128, 256),)),
    "cat": (lambda a, b: torch.cat([a, b], 1), ((128, 256), (128, 64))),
    "pad": (lambda a: F.pad(a, (0, 64)), ((70, 128),)),
    "slice": (lambda a: a[:, 64:] * 2, ((70, 192),)),
    "heads": (lambda a: a.view(2, 64, 4, 64).transpose(1, 2) * 2, ((2, 64, 256),)),
    "repeat": (lambda a: a.repeat(2, 1), ((70, 128),)),
    "where": (lambda a, b: torch.where(a > b, a, b), ((70, 100), (70, 100))),
    "gelu": (lambda a: F.gelu(a, approximate="tanh"), ((128, 100),)),
    "cube": (lambda a: a**3, ((70, 128),)),
    "cube of a slice": (lambda a: a[2:, 64:] ** 3, ((70, 128),)),
    "fourth power of a view": (lambda a: a.t() ** 4, ((64, 128),)),
    "glu": (lambda a: F.glu(a, -1), ((70, 256),)),
    "alpha": (lambda a, b: torch.add(a, b, alpha=0.3), ((70, 128), (70, 128))),
    "topk": (lambda a: torch.topk(a, 2)[0], ((64, 128),)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ((1, 4, 128, 64),) * 3),
    "attention, 7 positions": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ((1, 4, 7, 64),) * 3),
    "causal attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ((2, 4, 64, 64),) * 3),
    "grouped attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        ((1, 8, 128, 64), (1, 2, 128, 64), (1, 2, 128, 64)),
    ),
    "assignment": (assign, ((1, 2, 192, 64), (1, 2, 64, 64))),
}


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(torch.nan_to_num(a, nan=-7.0), torch.nan_to_num(b, nan=-7.0))


@pytest.mark.parametrize("name", GRAPHS)
def test_equals_the_fast_executor(name: str, compiled: Any) -> None:
    function, shapes = GRAPHS[name]
    graph = compiled(function, *(half(*s) for s in shapes))
    for tiled, fast in zip(graph.run(), graph.fast(), strict=True):
        assert same(tiled, fast)


@pytest.mark.parametrize(
    "name", ["softmax", "layer_norm", "matmul, padded K", "attention, 7 positions", "sum of all", "gelu", "assignment"]
)
@pytest.mark.parametrize(
    "options", [TiledOptions(padding=Padding.NAN), TiledOptions(leaks=True), TiledOptions(shuffle=5)], ids=["nan", "leaks", "shuffled"]
)
def test_padding_and_order_of_cores_do_not_matter(name: str, options: TiledOptions, compiled: Any) -> None:
    function, shapes = GRAPHS[name]
    graph = compiled(function, *(half(*s) for s in shapes))
    for changed, plain in zip(graph.run(options), graph.run(), strict=True):
        assert same(changed, plain)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    rank=st.integers(1, 3),
    sizes=st.tuples(*[st.sampled_from([1, 2, 3, 7, 31, 64, 65, 130])] * 3),
    function=st.sampled_from(
        [lambda a: a * a, lambda a: torch.exp(a) + 1, lambda a: a.sum(-1), lambda a: torch.softmax(a, -1), lambda a: a.amax(0)]
    ),
)
def test_any_size_equals_the_fast_executor(rank: int, sizes: Shape, function: Callable[[Tensor], Tensor], compiled: Any) -> None:
    graph = compiled(function, half(*sizes[:rank]))
    for tiled, fast in zip(graph.run(TiledOptions(padding=Padding.NAN)), graph.fast(), strict=True):
        assert same(tiled, fast)


def split_bound(k: int, x: Tensor, y: Tensor) -> Tensor:
    """Half a unit of DLFloat16 on either side for the last rounding, and float32 accumulation of k products in any order."""
    return (x @ y).abs() * 2.0**-9 + (x.abs() @ y.abs()) * (k * 2.0**-23)


@pytest.mark.parametrize("size", [(1, 768, 768), (4, 3072, 192), (1, 3072, 768)])
@pytest.mark.parametrize("partial_sums", ["float32", "dl16"])
def test_split_reductions_stay_within_the_bound(size: Shape, partial_sums: Any, compiled: Any) -> None:
    m, k, n = size
    graph = compiled(lambda a, b: a @ b, half(m, k), half(k, n))
    (split,) = [step.runner.split for step in graph.tiled().steps if isinstance(getattr(step, "runner", None), MatmulOp)]
    assert split is not None
    (tiled,), (fast,) = graph.run(TiledOptions(partial_sums=partial_sums)), graph.fast()
    x, y = graph.inputs
    bound = split_bound(k, x, y)
    if partial_sums == "dl16":  # each hop rounds a partial sum, which the sum of magnitudes bounds
        bound = bound + (x.abs() @ y.abs()) * (split[0] * 2.0**-10)
    assert bool(((tiled - fast).abs() <= bound).all())


def test_rounding_of_partial_sums_is_a_setting(compiled: Any) -> None:
    graph = compiled(lambda a, b: a @ b, half(1, 3072), half(3072, 192))
    (wide,), (narrow,) = graph.run(), graph.run(TiledOptions(partial_sums="dl16"))
    assert not same(wide, narrow)


def test_a_shared_reduction_of_float32_is_within_its_bound(compiled: Any) -> None:
    graph = compiled(lambda a: a.sum(-1), torch.randn(70, 4096))
    assert any(isinstance(getattr(s, "runner", None), ReduceOp) and s.runner.split for s in graph.tiled().steps)
    (tiled,), (fast,) = graph.run(), graph.fast()
    assert bool(((tiled - fast).abs() <= graph.inputs[0].abs().sum(-1) * 4096 * 2.0**-24).all())


def test_mutated_inputs_are_written_back(compiled: Any) -> None:
    graph = compiled(assign, half(1, 2, 192, 64), half(1, 2, 64, 64))
    cache, rows = (x.clone() for x in graph.inputs)
    graph.tiled().run([cache, rows])
    expected = graph.inputs[0].clone()
    expected[:, :, 64:128] = rows
    assert torch.equal(cache, expected)


def test_weights_stay_laid_out_until_they_are_written(compiled: Any) -> None:
    graph = compiled(lambda a, w: a @ w, half(64, 128), half(128, 64))
    program = graph.tiled()
    x, w = (t.clone() for t in graph.inputs)
    program.run([x, w])
    kept = [resident.sticks for resident in program.residents.values()]
    program.run([x, w])
    assert all(a is b.sticks for a, b in zip(kept, program.residents.values(), strict=True))
    w.zero_()
    (out,) = program.run([x, w])
    assert out is not None and not bool(out.any())


def test_index_data_outside_the_tensor_is_found(compiled: Any) -> None:
    graph = compiled(lambda a, i: a[i], half(70, 128), torch.tensor([3, 69, 0, -1]))
    (found,) = graph.run()
    assert torch.equal(found, graph.inputs[0][[3, 69, 0, -1]])
    with pytest.raises(FindingError, match=r"out-of-bounds.*index data 70") as caught:
        graph.tiled().run([graph.inputs[0], torch.tensor([3, 70, 0, 1])])
    assert caught.value.finding.check is Check.OUT_OF_BOUNDS


def test_fallbacks_run_on_the_host(compiled: Any) -> None:
    graph = compiled(lambda i, w: F.embedding(i, w) * 2, torch.randint(0, 30, (2, 7)), half(30, 128))
    (tiled,), (fast,) = graph.run(), graph.fast()
    assert same(tiled, fast)


def test_settings_choose_the_executor() -> None:
    x = half(64, 128).to("spyre")

    def f(a: Tensor) -> Tensor:
        return torch.softmax(a * 0.5, -1)

    torch._dynamo.reset()
    with torch.no_grad():
        run = torch.compile(f, backend="spyre", dynamic=False)
        fast = run(x).cpu()
        with device_settings(executor="tiled", tiled=TiledOptions(leaks=True)):
            tiled = run(x).cpu()
    assert torch.equal(fast, tiled)


def test_a_finding_reaches_the_caller_of_a_compiled_function() -> None:
    # Rows of 100 put the second tensor off a stick boundary; the June front-end compiles that all the same.
    torch._dynamo.reset()
    run = torch.compile(lambda a, b: torch.cat([a, b], 0), backend="spyre", dynamic=False)
    inputs = half(70, 100).to("spyre"), half(3, 100).to("spyre")
    with torch.no_grad(), device_settings(executor="tiled"), pytest.raises(FindingError, match="out-of-bounds at op2") as caught:
        run(*inputs)
    assert caught.value.finding.cores and caught.value.finding.stick is not None


def test_unrounded_numerics_run_tiled_as_well() -> None:
    torch._dynamo.reset()
    run = torch.compile(lambda a, b: torch.softmax(a @ b, -1), backend="spyre", dynamic=False)
    results = []
    for executor in ("fast", "tiled"):
        with torch.no_grad(), device_settings(executor=executor, numerics="fp32"):
            torch.manual_seed(0)
            inputs = torch.randn(64, 64).to("spyre", torch.float16), torch.randn(64, 64).to("spyre", torch.float16)
            results.append(run(*inputs).to("cpu", torch.float32))
    assert torch.allclose(results[0], results[1], atol=1e-6)


class TorchNorm(torch.nn.Module):
    """RMSNorm by torch's own function, which the device takes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)


@pytest.mark.slow
def test_a_bert_layer(compiled_module: Any) -> None:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    config = BertConfig(hidden_size=256, num_attention_heads=4, intermediate_size=512, attn_implementation="sdpa")
    graph = compiled_module(BertLayer(config).eval().half(), half(1, 128, 256))
    for tiled, fast in zip(graph.run(TiledOptions(leaks=True)), graph.fast(), strict=True):
        assert same(tiled, fast)


@pytest.mark.slow
def test_a_llama_layer(compiled_module: Any) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    size = 512
    config = LlamaConfig(
        hidden_size=size, num_attention_heads=4, num_key_value_heads=2, intermediate_size=768, head_dim=128, attn_implementation="sdpa"
    )
    layer = LlamaDecoderLayer(config, 0).eval()
    layer.input_layernorm, layer.post_attention_layernorm = TorchNorm(size), TorchNorm(size)
    x = torch.randn(1, 64, size)
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(64)[None])

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
            found = self.layer(x, position_embeddings=(cos, sin))
            return found[0] if isinstance(found, tuple) else found

    graph = compiled_module(Layer().half(), x.half(), cos.half(), sin.half())
    for tiled, fast in zip(graph.run(), graph.fast(), strict=True):
        assert same(tiled, fast)
