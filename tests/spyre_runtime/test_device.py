"""The device as a user meets it: moving, printing, views, in-place writes, dtypes, errors in sentences, stock CPU behaviour."""

import copy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from adapterc.spyre_runtime import SpyreTensor, settings
from adapterc.spyre_runtime.formats import host_to_device, round_dl16


def bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=100, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256)
    return BertModel(config).eval()


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=128, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)).eval()


def qwen3() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=100,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        intermediate_size=256,
    )
    return Qwen3ForCausalLM(config).eval()


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 100, (2, 16), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[0, :5] = 0
    return {"input_ids": ids, "attention_mask": mask}


def on_device(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to("spyre") for name, value in values.items()}


def test_to_and_back() -> None:
    x = torch.randn(3, 5)
    y = x.to("spyre")
    assert type(y) is SpyreTensor
    assert (y.device.type, y.dtype, y.shape, y.stride()) == ("spyre", torch.float32, x.shape, x.stride())
    back = y.cpu()
    assert type(back) is torch.Tensor
    assert torch.equal(back, x)


def test_half_is_cast_on_the_host_and_then_rounded() -> None:
    x = torch.randn(64) * 100
    y = x.to("spyre", torch.float16)
    assert y.dtype == torch.float16
    assert torch.equal(y.to("cpu", torch.float32), host_to_device(x, torch.float16))
    assert torch.equal(y.cpu(), host_to_device(x, torch.float16).half())


def test_fp32_numerics_carry_what_came_in() -> None:
    x = torch.randn(64)
    with settings(numerics="fp32"):
        y = x.to("spyre", torch.float16)
        assert y.dtype == torch.float16
        assert torch.equal(y.to("cpu", torch.float32), x)
        assert torch.equal((y * 3).to("cpu", torch.float32), x * 3)


def test_an_op_rounds_its_output_once() -> None:
    x, w = torch.randn(8, 64).to("spyre", torch.float16), torch.randn(64, 8).to("spyre", torch.float16)
    exact = x.to("cpu", torch.float32) @ w.to("cpu", torch.float32)
    assert torch.equal((x @ w).to("cpu", torch.float32), round_dl16(exact))


def test_values_beyond_float16_live_on_the_device() -> None:
    x = torch.tensor([60000.0]).to("spyre", torch.float16)
    assert ((x + x) / 2).to("cpu", torch.float32).item() == x.to("cpu", torch.float32).item()
    assert (x + x).cpu().isinf().all()


def test_promotion_is_torchs() -> None:
    half, single = torch.ones(3, device="spyre", dtype=torch.float16), torch.ones(3, device="spyre")
    whole = torch.arange(3, device="spyre")
    assert (half * 2.5).dtype == torch.float16
    assert (half + whole).dtype == torch.float16
    assert (half + single).dtype == torch.float32
    assert (half + single.sum()).dtype == torch.float16  # a tensor without dimensions does not promote
    assert half.sum(dtype=torch.float32).dtype == torch.float32
    assert (half > 1).dtype == torch.bool
    assert torch.softmax(half, -1).dtype == torch.float16
    assert [t.dtype for t in half.max(-1)] == [torch.float16, torch.int64]
    assert half[whole > 0].dtype == torch.float16  # its size depends on values
    assert half.bfloat16().dtype == torch.bfloat16


def test_split_lengths_may_differ_between_calls() -> None:
    x = torch.randn(6, device="spyre").half()
    assert [len(x.split(n)) for n in (3, 2, 6)] == [2, 3, 1]


def test_views_and_in_place() -> None:
    x = torch.zeros(2, 3, device="spyre", dtype=torch.float16)
    x[0].add_(1)
    x.t()[2] = 5
    x.view(-1)[3:4].copy_(torch.tensor([7.0]))
    assert x.tolist() == [[1.0, 1.0, 5.0], [7.0, 0.0, 5.0]]
    assert x.add_(1) is x
    y = x
    y += 1
    assert y is x


def test_copy_between_the_sides() -> None:
    x = torch.zeros(4, device="spyre", dtype=torch.float16)
    x.copy_(torch.full((4,), 0.1))
    assert torch.equal(x.to("cpu", torch.float32), host_to_device(torch.full((4,), 0.1), torch.float16))
    target = torch.zeros(4)
    target.copy_(x)
    assert torch.equal(target, x.to("cpu", torch.float32))


def test_printing() -> None:
    x = torch.tensor([1.0, 2.5]).to("spyre", torch.float16)
    assert repr(x) == "tensor([1.0000, 2.5000], dtype=torch.float16, device='spyre:0')"
    assert repr(torch.arange(2, device="spyre")) == "tensor([0, 1], device='spyre:0')"
    assert repr(torch.nn.Parameter(x)).startswith("Parameter containing:\ntensor([1.0000")
    assert f"{x.sum():.2f}" == "3.50"
    assert x.tolist() == [1.0, 2.5]


def test_attention_with_groups_and_masks() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    mask = torch.rand(2, 1, 6, 6) > 0.3
    mask[0, 0, 2] = False  # a row that may look nowhere
    attend = torch.nn.functional.scaled_dot_product_attention
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        want = attend(q, k, v, enable_gqa=True, **options)
        moved = {name: value.to("spyre") if isinstance(value, torch.Tensor) else value for name, value in options.items()}
        got = attend(q.to("spyre"), k.to("spyre"), v.to("spyre"), enable_gqa=True, **moved)
        torch.testing.assert_close(got.cpu(), want)


def test_gradients_flow() -> None:
    x = torch.randn(3).to("spyre").requires_grad_()
    (x * x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), 2 * x.detach().cpu())


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (lambda x: torch.save({"w": x}, "/dev/null"), "cannot be saved or pickled; move it first"),
        (lambda x: x.numpy(), r"no NumPy view; call .cpu\(\) first"),
        (lambda x: x + torch.ones(3), r"found spyre:0 and cpu; move the \(3,\) tensor"),
        (lambda x: torch.ones(3).double().to("spyre"), "no float64; convert to float32"),
        (lambda x: x.double(), "no float64; convert to float32"),
        (lambda x: torch.zeros(3, dtype=torch.complex64, device="spyre"), "no complex64"),
        (lambda x: x.view(torch.int16), r"cannot be viewed as torch.int16; go through .cpu\(\)"),
        (lambda x: x @ torch.ones(4, device="spyre"), "size"),
        (lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5), "has no dropout"),
        (lambda x: torch.spyre.set_device(1), "there is one spyre device"),
    ],
)
def test_errors_are_sentences(action: object, sentence: str) -> None:
    x = torch.ones(3, device="spyre")
    with pytest.raises((TypeError, RuntimeError, ValueError), match=sentence):
        action(x)  # type: ignore[operator]


def test_unknown_settings_are_named() -> None:
    with pytest.raises(ValueError, match="numerics='fp16' is not a setting; choose one of device, fp32"), settings(numerics="fp16"):
        pass
    with pytest.raises(ValueError, match=r"unknown setting among \['colour'\]"), settings(colour="red"):
        pass


def test_module_moves_keep_identity_ties_and_deepcopy() -> None:
    model = gpt2()
    embedding, head = model.transformer.wte.weight, model.lm_head.weight
    assert embedding is head
    model.to("spyre", torch.float16)
    assert model.transformer.wte.weight is embedding
    assert model.lm_head.weight is embedding
    assert isinstance(embedding, torch.nn.Parameter)
    assert embedding.device.type == "spyre"
    twin = copy.deepcopy(model)
    assert twin.lm_head.weight is twin.transformer.wte.weight
    assert twin.lm_head.weight is not embedding


@pytest.mark.parametrize("make", [bert, gpt2, qwen3])
def test_whole_models_eagerly(make: object) -> None:
    model = make()  # type: ignore[operator]
    with torch.no_grad():
        want = model(**inputs())[0]
        with settings(numerics="fp32"):
            exact = copy.deepcopy(model).to("spyre", torch.float16)(**on_device(inputs()))[0].to("cpu", torch.float32)
        torch.testing.assert_close(exact, want, atol=1e-5, rtol=1e-5)
        rounded = copy.deepcopy(model).to("spyre", torch.float16)(**on_device(inputs()))[0].to("cpu", torch.float32)
    assert not torch.equal(rounded, exact)
    assert torch.nn.functional.cosine_similarity(rounded.flatten(), want.flatten(), 0) > 0.999


@pytest.mark.parametrize("make", [gpt2, qwen3])
def test_generate_with_static_cache_eagerly(make: object) -> None:
    model = make()  # type: ignore[operator]
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static"}
    want = model.generate(**inputs(), **options)
    with settings(numerics="fp32"):
        got = copy.deepcopy(model).to("spyre", torch.float16).generate(**on_device(inputs()), **options)
    assert torch.equal(got.cpu(), want)


def test_import_leaves_cpu_alone() -> None:
    """In a fresh process: global switches are as before the import, and a CPU model gives the same bits."""
    program = """
        import torch
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).eval()
        x = torch.randn(2, 5, 32)
        before = layer(x)
        switches = lambda: (torch.__future__.get_swap_module_params_on_conversion(), torch.__future__.get_overwrite_module_params_on_conversion(),
            torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads())
        was = switches()
        import adapterc.spyre_runtime
        assert switches() == was
        assert torch.equal(layer(x), before)
        assert torch.equal(torch.compile(layer, backend="spyre")(x), before)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_real_device_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "torch_spyre.py").write_text("")
    program = """
        import torch, adapterc.spyre_runtime as s
        assert not s.SIMULATED
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        assert not hasattr(torch, "spyre")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, env={"PYTHONPATH": str(tmp_path), "PATH": ""})


def test_integers_are_counted() -> None:
    counts = torch.histc(torch.tensor([0, 1, 1, 3]).to("spyre").int(), bins=4, min=0, max=3)
    assert counts.tolist() == [1, 2, 0, 1]
    assert counts.dtype == torch.int32


def test_a_tensor_made_in_inference_mode_is_one_outside_of_it() -> None:
    x = torch.randn(4, 64).to("spyre")
    with torch.inference_mode():
        y = torch.einsum("ij,kj->ik", x, x)
    assert type(y.to("cpu")) is torch.Tensor
    assert torch.equal(torch.nn.functional.linear(y, y).cpu(), torch.nn.functional.linear(y.cpu(), y.cpu()))
