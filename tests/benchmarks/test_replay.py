"""Reading oracle rows: expressions, programs and layer names, without an oracle file."""

from __future__ import annotations

import json

import capture_rows
import fidelity
import oracle_rows
import programs
import pytest
import torch
from blocks import BlockError, parse_block
from oracle_rows import Argument, Row
from replay import Pool, answer


def run(text, *values):
    return programs.parse_program(text, len(values))(*values)


def test_a_program_means_what_it_says():
    x, y = torch.randn(4, 6), torch.randn(6, 4)
    text = "v0=t(x1); v1=add(x0,v0); v2=getitem(v1,(:,1:3)); v3=mul(2.0,v2); v4=reshape(v3,1,-1); ret (v4,v1)"
    first, second = run(text, x, y)
    assert torch.equal(first, (2.0 * (x + y.t())[:, 1:3]).reshape(1, -1))
    assert torch.equal(second, x + y.t())


@pytest.mark.parametrize(
    "text, expected",
    [
        ("v0=getitem(x0,(Ellipsis,:2)); ret (v0)", lambda x: x[..., :2]),
        ("v0=getitem(x0,(:,None)); ret (v0)", lambda x: x[:, None]),
        ("v0=getitem(x0,1); ret (v0)", lambda x: x[1]),
        ("v0=getitem(x0,0:1); ret (v0)", lambda x: x[0:1]),
        ("v0=layer_norm(x0,(6),None,None,1e-05); ret (v0)", lambda x: torch.nn.functional.layer_norm(x, (6,))),
        ("v0=einsum(ij, kj -> ik,x0,x0); ret (v0)", lambda x: x @ x.t()),
        ("v0=softmax(x0,-1,dtype=torch.float64); ret (v0)", lambda x: x.softmax(-1, dtype=torch.float64)),
        ("v0=cat([x0,x0],-1); ret (v0)", lambda x: torch.cat([x, x], -1)),
        ("v0=where(x0,x0,-inf); ret (v0)", lambda x: torch.where(x.bool(), x, float("-inf"))),
        ("v0=gelu(x0,approximate=tanh); ret (v0)", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
        ("v0=unfold(x0,1,3,1); ret (v0)", lambda x: x.unfold(1, 3, 1)),
        ("v0=dropout(x0,p=0.5,training=False,inplace=False); ret (v0)", lambda x: x),
        ("v0=linalg_norm(x0,ord=fro,dim=(0,1),keepdim=False); ret (v0)", lambda x: torch.linalg.norm(x, ord="fro", dim=(0, 1))),
        ("v0=sub(5.0,x0); ret (v0)", lambda x: 5.0 - x),
        ("v0=mul.Tensor(x0,0.5); ret (v0)", lambda x: x * 0.5),
    ],
)
def test_notation(text, expected):
    x = torch.randn(4, 6)
    if "where" in text:
        x = (x > 0).float()
        text = text.replace("where(x0,", "gt(x0,0); v1=where(v0,").replace("ret (v0)", "ret (v1)")
    (result,) = run(text, x)
    torch.testing.assert_close(result, expected(x), equal_nan=True)


def test_a_cut_off_list_of_results_keeps_the_complete_names():
    x = torch.randn(3, 2)
    results = run("v0=unbind(x0,dim=0); v1=getitem(v0,0); v2=getitem(v0,1); ret (v1,v2,v", x)
    assert [tuple(r.shape) for r in results] == [(2,), (2,)]


def test_an_unknown_op_is_named():
    with pytest.raises(programs.ProgramError, match="no_such_op"):
        programs.parse_program("v0=no_such_op(x0); ret (v0)", 1)


def test_arguments_of_every_notation():
    grid = Row("", "grid", "", "2x3;scalar", "f16/i64")
    assert grid.arguments == (Argument((2, 3), torch.float16), Argument((), torch.int64))
    test = Row("", "ts-tests", "", "2x3:f32:st1_2,5:bool", "f32/bool")
    assert test.arguments == (Argument((2, 3), torch.float32, (1, 2)), Argument((5,), torch.bool))
    assert Row("", "hf-block", "bert-layer-hd64-L7-sdpa", "bert-layer-hd64-L7-sdpa").arguments == ()


def test_layer_names():
    block = parse_block("x-llama-layer-torchRMSNorm-hd64-L128-sdpa")
    assert (block.family, block.kind, block.head_dim, block.length, block.attention) == ("llama", "layer", 64, 128, "sdpa")
    assert block.torch_rms_norm
    assert block.mask
    assert parse_block("x-gpt2-block-gelu_pytorch_tanh-hd64-L7-eager").activation == "gelu_pytorch_tanh"
    plain = parse_block("bert-layer-fp32-hd32-L1-sdpa")
    assert (plain.dtype, plain.mask, plain.activation) == (torch.float32, False, None)
    with pytest.raises(BlockError):
        parse_block("bert-hd64")


def test_marked_weights_get_their_rows_innermost():
    row = Row("r", "grid", "lambda x,w: F.linear(x,w.opt)", "7x128;256x128", "f16")
    (graph,) = capture_rows.graphs_of(row)
    (layout,) = graph.layouts.values()
    assert (layout.device_size, layout.stride_map) == ((4, 128, 64), (8192, 1, 128))


def test_an_answer_has_the_form_that_the_scorer_reads():
    got = answer(Row("r", "grid", "lambda x: F.softmax(x,-1)", "128x256", "f16"))
    assert got["verdict"] == "compiles"
    assert [op["op"] for op in got["ops"]] == ["max", "sub", "exp", "sum", "realdiv"]
    assert got["ops"][0]["it"] == [[128, 32], [256, 1]]
    assert [b["lx"] for b in got["bufs"]] == [True, True, True, True, False]
    assert got["bufs"][0] == {"ds": [1, 1, 128, 64], "sm": [-1, -1, 1, -1], "dt": "SEN169_FP16", "lx": True}
    json.dumps(got)


def test_a_program_that_is_called_twice_is_listed_once():
    got = answer(Row("r", "ts-tests", "v0=exp(x0); v1=sin(v0); v2=exp(v1); ret (v2)", "256x128:f16", "f16"))
    assert got["fallbacks"] == ["aten.sin.default"]
    assert [op["op"] for op in got["ops"]] == ["exp"]


def test_a_refusal_is_an_answer():
    got = answer(Row("r", "grid", "lambda x: x[...,::2]+1", "8x128", "f16"))
    assert (got["verdict"], got["error_kind"]) == ("error", "stick_expr_unsupported")


@pytest.mark.slow
def test_a_worker_that_fails_or_dies_does_not_stop_the_run(tmp_path):
    good = Row("good", "grid", "lambda x: x+1", "8x64", "f16")
    broken = Row("broken", "grid", "lambda x: nothing(x)", "8x64", "f16")
    deadly = Row("deadly", "grid", "lambda x: __import__('os')._exit(3)", "8x64", "f16")
    found = {a["id"]: a for a in Pool(1).run([broken, deadly, good])}
    assert found["good"]["verdict"] == "compiles"
    assert found["broken"]["error_kind"].startswith("replay:")
    assert found["deadly"]["error_kind"] == "replay:crash"


def test_a_missing_file_is_one_clear_sentence(tmp_path, capsys):
    assert fidelity.main(["--oracle", str(tmp_path / "none.csv"), "-o", str(tmp_path / "a.jsonl")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--oracle" in error


def test_rows_of_a_file(tmp_path):
    path = tmp_path / "o.csv"
    layouts = '{""inputs"":[{""device_size"":[1,8,64],""stride_map"":[64,64,1],""dt"":""SEN169_FP16""},null]}'
    path.write_text(f'id,source,expression,shapes,dtype,layouts\na,grid,lambda x: x,8x64,f16,"{layouts}"\nb,grid,lambda x: x,8x64,f16,\n')
    first, second = oracle_rows.read_rows(path)
    assert first.layouts[0] == oracle_rows.InputLayout((1, 8, 64), (64, 64, 1), "SEN169_FP16")
    assert first.layouts[1] is None
    assert second.layouts == ()
