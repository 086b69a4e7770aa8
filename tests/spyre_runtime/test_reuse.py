"""An elementwise op may write over an operand that nothing needs any more, and over nothing else."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from adapterc.spyre_runtime.execute_fast import compile_program
from adapterc.spyre_runtime.reuse import out_overload

aten = torch.ops.aten


def _program(function, *inputs):
    return compile_program(make_fx(function, tracing_mode="fake")(*inputs), None)


def _agrees(function, *inputs) -> str:
    """Run a function's program on copies of the inputs; the program's source. Neither the result nor the inputs may differ from torch's own."""
    program = _program(function, *inputs)
    mine, theirs = [i.clone() for i in inputs], [i.clone() for i in inputs]
    found, expected = program.run(*mine), function(*theirs)
    for a, b in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b)
    return program.code


def test_a_chain_of_elementwise_ops_keeps_to_one_piece_of_memory():
    code = _agrees(lambda x, y: torch.exp((x @ y - 1.0) * 0.5), torch.randn(8, 8), torch.randn(8, 8))
    assert code.count("out=") == 3


def test_inputs_are_not_written_over():
    assert "out=" not in _agrees(lambda x: torch.exp(x), torch.randn(4, 4))


def test_a_value_with_a_later_use_is_not_written_over():
    def function(x):
        a = x @ x
        b = torch.exp(a)
        return b + a

    code = _agrees(function, torch.randn(4, 4))
    assert code.count("out=") == 1  # the sum, not the exponential


def test_a_value_with_a_live_view_is_not_written_over():
    def function(x):
        a = x @ x
        row = a[0]
        return torch.exp(a) + row

    _agrees(function, torch.randn(4, 4))


def test_the_source_of_a_copy_that_is_not_made_is_not_written_over():
    def function(x):
        a = x @ x
        kept = a.clone()
        return torch.exp(a) * 2.0 + kept

    _agrees(function, torch.randn(4, 4))


def test_an_output_is_not_written_over():
    def function(x):
        a = x @ x
        return a, torch.exp(a)

    _agrees(function, torch.randn(4, 4))


def test_an_operand_of_another_shape_or_dtype_takes_no_result():
    def function(x):
        row = (x @ x).sum(0)
        grown = row + x  # [4] cannot hold [4, 4]
        return (grown @ grown) > 0.5  # nor float32 a truth value

    assert "out=" not in _agrees(function, torch.randn(4, 4))


def test_constants_are_not_written_over():
    def function(x):
        ones = torch.full((4, 4), 2.0)
        return (ones * 3.0) * x

    program = _program(function, torch.randn(4, 4))
    for _ in range(2):
        x = torch.randn(4, 4)
        assert torch.equal(program.run(x)[0], 6.0 * x)


def test_a_buffer_that_the_graph_writes_is_not_scratch_memory():
    def function(cache, x):
        cache.copy_(x @ x)
        return torch.exp(cache) + 1.0

    _agrees(function, torch.zeros(4, 4), torch.randn(4, 4))


def test_the_overload_with_a_result_is_found_by_its_arguments():
    assert out_overload(aten.add.Tensor) is aten.add.out
    assert out_overload(aten.pow.Tensor_Scalar) is aten.pow.Tensor_Scalar_out
    assert out_overload(aten.bmm.default) is None  # not elementwise
    assert out_overload(torch.ops.spyre_sim.gelu.default) is None


def test_attention_written_out_reuses_its_scores():
    def attention(q, k, v, mask):
        scores = q @ k.transpose(-1, -2) * 0.25 + mask
        exponents = torch.exp(scores - scores.amax(-1, keepdim=True))
        return (exponents / exponents.sum(-1, keepdim=True)) @ v

    code = _agrees(attention, *(torch.randn(2, 8, 16) for _ in range(3)), torch.randn(2, 8, 8))
    assert code.count("out=") == 5
