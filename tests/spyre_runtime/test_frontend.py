"""The compiler from ATen graphs to plans: what it takes, what it refuses and why, and that nothing is left behind in Inductor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._inductor import ir as inductor_ir
from torch._inductor import lowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from adapterc.spyre_runtime.frontend import Compilation, compile_graph, refusals
from adapterc.spyre_runtime.ir import BufferRole, DeviceLayout, OpKind
from adapterc.spyre_runtime.layouts import default_layout
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal

PROFILE = load_profile("torch-spyre-2026-06")
HALF, FULL, LONG = torch.float16, torch.float32, torch.int64
Size = tuple[int, ...]


def graph_of(function: Callable[..., Any], *inputs: Size | tuple[Size, torch.dtype]) -> torch.fx.GraphModule:
    """ATen graph over fake tensors of the device; an input is a size (float16) or (size, dtype)."""
    with FakeTensorMode(), torch.no_grad():
        fakes = []
        for given in inputs:
            size, dtype = given if given and isinstance(given[0], tuple) else (given, HALF)
            fakes.append(torch.empty(size, dtype=dtype, device="spyre"))  # type: ignore[arg-type]
        return make_fx(function, tracing_mode="real", pre_dispatch=True)(*fakes)


def compiled(function: Callable[..., Any], *inputs: Any, layouts: dict[str, DeviceLayout] | None = None) -> Compilation:
    return compile_graph(graph_of(function, *inputs), PROFILE, layouts)


def kernels(result: Compilation) -> list[str]:
    return [op.kernel for op in result.plan.ops]


def kind_of(function: Callable[..., Any], *inputs: Any) -> str:
    with pytest.raises(Refusal) as refused:
        compiled(function, *inputs)
    return str(refused.value.kind)


def test_layer_norm_is_three_device_programs() -> None:
    assert kernels(compiled(lambda x, w, b: F.layer_norm(x, (96,), w, b), (4, 96), (96,), (96,))) == [
        "exx2",
        "layernormscale",
        "layernormnorm",
    ]


def test_rms_norm_stays_in_the_storage_dtype() -> None:
    assert kernels(compiled(lambda x, w: F.rms_norm(x, (96,), w, 1e-6), (4, 96), (96,))) == ["mul", "mean", "add", "rsqrt", "mul", "mul"]


def test_softmax_is_taken_apart_and_keeps_half() -> None:
    result = compiled(lambda x: F.softmax(x, -1), (4, 96))
    assert kernels(result) == ["max", "sub", "exp", "sum", "realdiv"]
    assert {b.dtype for b in result.padded.buffers if b.role is BufferRole.COMPUTED} == {HALF}


def test_attention_scales_both_factors_and_masks_on_the_host() -> None:
    result = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[(1, 4, 64, 64)] * 3)
    assert result.fallbacks == ("aten.triu.default",)
    assert kernels(result).count("batchmatmul") == 2 and result.restickifies == 1


def test_a_default_weight_is_restickified_and_a_moved_one_is_not() -> None:
    assert compiled(F.linear, (8, 128), (256, 128)).restickifies == 1
    graph = graph_of(F.linear, (8, 128), (256, 128))
    weight = [n.name for n in graph.graph.nodes if n.op == "placeholder"][1]
    moved = {weight: default_layout((256, 128), (128, 1), HALF, (1, 0))}
    assert compile_graph(graph, PROFILE, moved).restickifies == 0


def test_k_is_padded_with_zero_rows_under_the_right_operand() -> None:
    result = compiled(torch.matmul, (2, 7, 63), (63, 64))
    padded = next(b for b in result.padded.buffers if b.role is BufferRole.EMPTY)
    assert padded.size == (64, 64)
    assert kernels(result) == ["identity", "identity", "batchmatmul"]
    matmul = next(op for op in result.padded.ops if op.kind is OpKind.MATMUL)
    assert matmul.roles is not None and matmul.roles.y == padded.name and matmul.reduction_ranges == (63,)


def test_constants_are_uploaded_once_and_first() -> None:
    ops = compiled(lambda x: (x + 2) * 2, (4, 64)).padded.ops
    assert [op.kind for op in ops].count(OpKind.CONSTANT) == 1 and ops[0].kind is OpKind.CONSTANT


def test_an_op_with_a_decomposition_falls_back_where_ci_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor forbids such fallbacks under CI, a rule for its own repository; the answer of the simulator may not depend on it."""
    monkeypatch.setenv("CI", "true")
    assert compiled(lambda i, w: F.embedding(i, w), ((2, 7), LONG), (30, 128)).fallbacks == ("aten.embedding.default",)


def test_int64_arithmetic_goes_through_the_host() -> None:
    assert compiled(lambda x: x + 1, ((64, 128), LONG)).fallbacks == ("spyre.to_dtype_cpu.default",) * 2


def test_in_place_writes_become_copies_at_the_end() -> None:
    result = compiled(lambda cache, new: cache[:, 64:].copy_(new), (4, 128), (4, 64))
    alias = [result.padded.buffer(op.output).alias for op in result.padded.device_ops()]
    assert alias[-1] == result.padded.inputs[0]


def test_a_result_that_only_overwrites_an_input_is_computed_into_it() -> None:
    result = compiled(lambda out, a, b: (out.copy_(a + b), None)[1], (4, 64), (4, 64), (4, 64))
    assert kernels(result) == ["add"]
    (op,) = result.padded.device_ops()
    assert result.padded.storage(op.output).name == result.padded.inputs[0]


def test_an_input_that_is_read_keeps_its_copy() -> None:
    assert len(kernels(compiled(lambda out, a: (out.copy_(a + out), None)[1], (4, 64), (4, 64)))) == 2


# One graph a kind of refusal, and beside each the nearest one that is taken.
REFUSED: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("stick_expr_unsupported", lambda x: x.view(8, 4, 32).transpose(0, 1) + 1, ((8, 128),)),
    ("no_layout_single_arg", lambda x: x[:, 32:] + 1, ((8, 96),)),
    ("no_layout_multi_arg", lambda x, y: x[:, 32:] * y[:, 32:], ((8, 96), (8, 96))),
    ("restickify_infeasible", lambda x, y: x.sum(-1) + y, ((256, 128), (256,))),
    ("mixed_element_arrangement", lambda x, y: x.float() + y, ((4, 128), ((4, 128), FULL))),
    ("op_dtype:batchmatmul@IEEE_FP32", torch.matmul, (((8, 64), FULL), ((64, 64), FULL))),
    ("op_dtype:tanh@IEEE_FP32", torch.tanh, (((8, 64), FULL),)),
    ("matmul_inputs", lambda q, k: q @ k.transpose(-1, -2), ((1, 4, 1, 64), (1, 4, 1, 64))),
    ("topk_k_gt_4", lambda x: x.topk(8), ((64, 128),)),
    ("norm_multi_dim", lambda x: F.layer_norm(x, (4, 64)), ((2, 4, 64),)),
    ("unimplemented_op:erf", torch.erf, ((4, 64),)),
    ("codegen_syntax_error_unimplemented_in_fused", lambda x: torch.erf(x) + 1, ((4, 64),)),
    ("pad_K_after_restickify(KeyError val)", F.linear, ((8, 96), (64, 96))),
    ("split_multi_ops_no_fx_node", lambda x: F.avg_pool2d(x, 2), ((1, 64, 8, 8),)),
    ("fallback_without_kernel:aten.sort.stable", lambda x: x.sort(-1)[0], ((4, 64),)),
]
TAKEN: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: x.view(8, 2, 64).transpose(0, 1) + 1, ((8, 128),)),
    (lambda x: x[:, 64:] + 1, ((8, 96),)),
    (lambda x: x[:, 32:] + 1, ((64, 96),)),
    (lambda x, y: x.sum(-1, keepdim=True) + y, ((256, 128), (256, 128))),
    (lambda x, y: x.float() + y, (((4, 128), torch.bfloat16), ((4, 128), FULL))),
    (lambda q, k: q @ k.transpose(-1, -2), ((1, 4, 1, 64), (1, 4, 64, 64))),
    (lambda x: x.topk(4), ((64, 128),)),
    (F.linear, ((8, 128), (64, 128))),
]


@pytest.mark.parametrize(("kind", "function", "inputs"), REFUSED, ids=[kind for kind, _, _ in REFUSED])
def test_refused(kind, function, inputs) -> None:
    assert kind_of(function, *inputs) == kind


@pytest.mark.parametrize(("function", "inputs"), TAKEN)
def test_taken(function, inputs) -> None:
    assert compiled(function, *inputs).plan.ops


def test_every_obstacle_is_reported_with_its_gap() -> None:
    found = refusals(graph_of(lambda x: torch.topk(x[:, 32:] + 1, 8)[0].erf(), (2, 64)), PROFILE)
    assert [(o.kind, o.gap) for o in found] == [
        ("topk_k_gt_4", "topk-routing"),
        ("no_layout_single_arg", "sub-stick-rotary"),
        ("unimplemented_op:erf", None),
    ]
    assert found[1].sizes == (2, 32) and "[2, 64]" in found[1].message


def test_a_graph_that_compiles_has_no_obstacle() -> None:
    assert refusals(graph_of(lambda x: F.softmax(x, -1), (4, 96)), PROFILE) == ()


def test_inductor_is_as_it_was_after_compiling() -> None:
    table, loops = dict(lowering.lowerings), inductor_ir.Loops.has_large_inner_fn
    compiled(lambda x: F.gelu(x.sin()), (4, 64))
    assert lowering.lowerings == table and inductor_ir.Loops.has_large_inner_fn is loops
