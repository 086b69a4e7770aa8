"""Names, arguments, kinds and shapes of rules, before any value is looked at."""

from __future__ import annotations

import contextlib
import random
import re

import pytest

from adapterc.dsl.adapter import Rewrite
from adapterc.dsl.ast import Call
from adapterc.dsl.check import attribute_variables, check_types, environment, sizes_of
from adapterc.dsl.diagnostics import Diagnostic, SpecError, render
from adapterc.dsl.infer import Inference
from adapterc.dsl.loader import load_text
from adapterc.dsl.ops import OPS, expand
from adapterc.dsl.parser import parse_expression, parse_type
from adapterc.dsl.sizes import derive
from adapterc.dsl.types import Type
from adapterc.dsl.values import TensorValue, shape_text

HEAD = "adapter: a\nsummary: s\nlifetime: scaffold\nrules:\n"


def rewrite(match: str, substitute: str, where: dict[str, str], *more: str) -> str:
    types = ", ".join(f'{name}: "{found}"' for name, found in where.items())
    lines = [
        "  - rewrite: r",
        f"    match: '{match}'",
        f"    where: {{{types}}}",
        f"    substitute: '{substitute}'",
        "    reason: r",
        *(f"    {m}" for m in more),
    ]
    return HEAD + "\n".join(lines) + "\n"


def checked(text: str) -> list[Diagnostic]:
    found = check_types(load_text(text, "spec.yaml"))
    for diagnostic in found:
        assert diagnostic.hint, diagnostic
        assert diagnostic.message.endswith("."), diagnostic
        assert "^" in render(diagnostic, text)
        assert diagnostic.span.file == "spec.yaml", "the fault is shown where the user wrote it"
    return list(found)


X = {"x": "float[...]"}
MK = {"x": "float[m, k]", "w": "float[k, n]"}


@pytest.mark.parametrize(
    ("match", "substitute", "where"),
    [
        ("pow(x, 3)", "x * x * x", X),
        (
            "x * cos + cat([-x[..., d/2:], x[..., :d/2]], dim=-1) * sin",
            "x * cos + (x @ rotate_half_matrix(d)) * sin",
            dict.fromkeys(("x", "cos", "sin"), "float[..., d]"),
        ),
        ("addmm(b, x, w)", "linear(x, transpose(w, 0, 1), b)", {**MK, "b": "float[n]"}),
        ("softmax(x, -1)", "exp(x - amax(x, -1, true)) / sum(exp(x - amax(x, -1, true)), -1, true)", {"x": "float[..., d]"}),
        ("x @ cat([u, v], 1)", "cat([x @ u, x @ v], 1)", {"x": "float[m, k]", "u": "float[k, a]", "v": "float[k, b]"}),
        (
            "cat([x, y], 1) @ cat([u, v], 0)",
            "x @ u + y @ v",
            {"x": "float[m, a]", "y": "float[m, b]", "u": "float[a, n]", "v": "float[b, n]"},
        ),
        ("transpose(x @ w, 0, 1)", "transpose(w, 0, 1) @ transpose(x, 0, 1)", MK),
        ("reshape(reshape(x, [a * b, c]), [a, b * c])", "reshape(x, [a, b * c])", {"x": "float[a, b, c]"}),
        ("permute(permute(x, [2, 0, 1]), [1, 2, 0])", "x", {"x": "float[a, b, c]"}),
        ("cat([x[:k], x[k:]], 0)", "x", {"x": "float[n]", "k": "size"}),
        ("pad(x, -1, l, h)[..., l:l + n]", "x", {"x": "float[m, n]", "l": "size", "h": "size"}),
        (
            "matmul(q, transpose(repeat_kv(k, g), -2, -1))",
            "reshape(reshape(q, [b, h, g * s, d]) @ transpose(k, -2, -1), [b, h * g, s, t])",
            {"q": "float[b, h * g, s, d]", "k": "float[b, h, t, d]", "g": "size"},
        ),
        ("mean(pow(x, 2), -1)", "mean(x * x, -1)", {"x": "float[..., d]"}),
        ("embedding(w, ids)", "to(one_hot(ids, V), dtype_of(w)) @ w", {"w": "float[V, H]", "ids": "int[b, n]"}),
        ("w[ids]", "index_select(w, 0, ids)", {"w": "float[V, H]", "ids": "int[n]"}),
        ('einsum("bhqd,bhkd->bhqk", [q, k])', "q @ transpose(k, -2, -1)", {"q": "float[b, h, s, d]", "k": "float[b, h, t, d]"}),
        ("logical_not(x)", "x == 0", X),
        ("relu(x)", "x * (x > 0)", X),
        ("sign(x)", "where(x > 0, 1.0, where(x < 0, -1.0, 0.0))", {"x": "float32[...]"}),
        ("to(to(x, float16), float32)", "x", {"x": "float32[n]"}),
        ("sum(sum(x, 0), 0)", "sum(x, [0, 1])", {"x": "float[a, b]"}),
        ("linear(h, w)", "linear(h, pad(w, 0, 0, ceil_to(V, stick) - V))[..., :V]", {"h": "float[b, s, H]", "w": "float[V, H]"}),
        (
            "conv2d(x, w, None, [p, p])",
            "permute(reshape(permute(reshape(x, [n, c, a, p, b, p]), [0, 2, 4, 1, 3, 5]), [n, a * b, c * p * p]) @ transpose(reshape(w, [o, c * p * p]), 0, 1), [0, 2, 1])",
            {"x": "float[n, c, a * p, b * p]", "w": "float[o, c, p, p]"},
        ),
        (
            "silu(x @ u) * (x @ v)",
            "silu((x @ cat([u, v], 1))[..., :n]) * (x @ cat([u, v], 1))[..., n:]",
            {"x": "float[m, k]", "u": "float[k, n]", "v": "float[k, n]"},
        ),
        (
            "rms_norm(x, [d], w, eps)",
            "x * rsqrt(mean(x * x, -1, true) + eps) * w",
            {"x": "float[..., d]", "w": "float[d]", "eps": "scalar"},
        ),
        (
            "layer_norm(x, [d], w, b, eps)",
            "(x - mean(x, -1, true)) * rsqrt(var(x, -1, 0, true) + eps) * w + b",
            {"x": "float[*B, d]", "w": "float[d]", "b": "float[d]", "eps": "scalar"},
        ),
        (
            "conv2d(x, w, None, 2)",
            "permute(linear(reshape(permute(unflatten(unflatten(x, 3, [v, 2]), 2, [u, 2]), [0, 2, 4, 1, 3, 5]), [n, u, v, c * 4]), reshape(w, [o, c * 4])), [0, 3, 1, 2])",
            {"x": "float[n, c, 2 * u, 2 * v]", "w": "float[o, c, 2, 2]"},
        ),
        ("chunk_piece(x, 2, 0, -1) * chunk_piece(x, 2, 1, -1)", "x[..., :d/2] * x[..., d/2:]", {"x": "float[..., d]"}),
        ("relu(clamp(x, lo, hi))", "clamp(x, max(lo, 0), hi)", {"x": "float[...]", "lo": "scalar", "hi": "scalar"}),
        (
            "sdpa(q, k, v, mask, scale=s, causal=c, enable_gqa=g)",
            "sdpa(q, k, v, mask * 1, scale=s, causal=c, enable_gqa=g)",
            {"q": "float[b, h, l, d]", "k": "float[b, g2, m, d]", "v": "float[b, g2, m, d]", "mask": "float[...]"},
        ),
        ("topk_values(softmax(x, -1), 2)", "softmax(topk_values(x, 2), -1)", {"x": "float[n, e]"}),
        (
            "index_copy(cache, 2, pos, new)",
            "where(unsqueeze(arange(C) == pos, 1), new, cache)",
            {"cache": "float[b, h, C, d]", "pos": "int[1]", "new": "float[b, h, 1, d]"},
        ),
        ("conv1d(x, w)", "conv1d(x, w * 1)", {"x": "float[n, c, l]", "w": "float[o, c, k]"}),
        ("flatten(x, 1)", "reshape(x, [a, -1])", {"x": "float[a, b, c]"}),
        ("x << 1", "x * 2", {"x": "int[...]"}),
    ],
)
def test_right_rules_have_no_faults(match: str, substitute: str, where: dict[str, str]) -> None:
    faults = [d for d in checked(rewrite(match, substitute, where)) if d.severity == "error"]
    if "p, p])" in match:
        # The patches are laid out as [n, o, a * b]: the rule needs a last reshape, and the checker says so.
        assert [d.code for d in faults] == ["ADC233"]
    else:
        assert not faults


@pytest.mark.parametrize(
    ("match", "substitute", "where", "code", "part"),
    [
        ("pow(x, 3)", "y * y * y", X, "ADC220", "`y` is not bound"),
        ("pow(vals, 3)", "vals * valus", {"vals": "float[...]"}, "ADC220", 'Did you mean "vals"?'),
        ("relu(x)", "maximum(x, 0)", {**X, "y": "float[...]"}, "ADC221", "`y` does not occur"),
        ("x + y", "y + x", X, "ADC223", "`y` has no type"),
        ("stick * x", "x * stick", {"x": "float[...]", "stick": "float[...]"}, "ADC222", "name of the language"),
        ("x * d", "d * x", {"x": "float[..., d]", "d": "float[...]"}, "ADC222", "name of a size"),
        ("softmax(x)", "x", X, "ADC211", "softmax(x, dim, dtype=None)"),
        ("relu(x, 1, 2)", "x", X, "ADC211", "at most 1 argument"),
        ("softmax(x, axle=-1)", "x", X, "ADC212", "no argument `axle`"),
        ("softmax(x, dim=-1, dmi=2)", "x", X, "ADC212", 'Did you mean "dim"?'),
        ("exp(x)", 'exp(cat([x], "a"))', X, "ADC230", "the number of a dimension"),
        ("x @ w", "transpose(w, 0, 1) @ x", MK, "ADC231", "contracts k with m"),
        ("x + y", "y + x", {"x": "float[..., a]", "y": "float[..., b]"}, "ADC231", "a is not b"),
        ("cat([x, y], 0)", "x", {"x": "float[m, a]", "y": "float[m, b]"}, "ADC231", "do not join"),
        ("reshape(x, [a, 7])", "x", {"x": "float[a, 8]"}, "ADC231", "has 8 * a elements"),
        ("expand(x, [4, 5])", "x", {"x": "float[3, 5]"}, "ADC231", "neither 1 nor 4"),
        ("sum(x, 2)", "sum(x, 1)", {"x": "float[m, n]"}, "ADC232", "no dimension 2"),
        ("sum(x, [0, 0])", "sum(x, 0)", {"x": "float[m, n]"}, "ADC232", "twice"),
        ("x[0, 0, 0]", "x[0, 0]", {"x": "float[m, n]"}, "ADC232", "3 subscripts"),
        ("x[..., 5]", "x[..., 0]", {"x": "float[m, 4]"}, "ADC232", "no index 5"),
        ("permute(x, [0, 0])", "x", {"x": "float[m, n]"}, "ADC232", "no order"),
        ("select(x, 0, 3)", "x[0]", {"x": "float[3, n]"}, "ADC232", "no index 3"),
        ("mean(x, -1)", "mean(x, -1, keepdim=true)", {"x": "float[..., d]"}, "ADC233", "shape"),
        ("transpose(x, 0, 1)", "x", {"x": "float[m, n]"}, "ADC233", "[n, m]"),
        ("x * 0", "0", X, "ADC233", "full_like"),
        ("x + y", "x", {"x": "float[...]", "y": "float[...]"}, "ADC233", "shape"),
        (
            "reshape(softmax(q @ k, -1), [a * b, c])",
            "softmax(q @ k, -1)",
            {"q": "float[a, b, d]", "k": "float[a, d, c]"},
            "ADC233",
            "[a, b, c]",
        ),
        ("softmax(x, -1)", "softmax(to(x, float32), -1)", {"x": "float16[n, d]"}, "ADC234", "float16"),
        ("x > 0", "x", X, "ADC234", "bool"),
        ("take(w, x)", "w[x]", {"w": "float[V, H]", "x": "float[n]"}, "ADC230", "whole numbers"),
        ("where(x, x, 0)", "x", X, "ADC230", "must be bool"),
        ("softmax(2, -1)", "x", X, "ADC230", "must be a tensor"),
        ("matmul(x, 2)", "x", X, "ADC230", "must be a tensor"),
        ("x @ i", "x", {"x": "float[n, n]", "i": "int[n, n]"}, "ADC230", "one kind"),
        ("x[..., d/0:]", "x", {"x": "float[..., d]"}, "ADC240", "divides by zero"),
        ("cat(x, 0)", "x", X, "ADC230", "a list of tensors"),
        ("x[y]", "x", {"x": "float[n]", "y": "float[m]"}, "ADC230", "whole numbers"),
        ("x.shape", "x", X, "ADC230", "has no fields"),
        ('einsum("ii->i", [x])', "x", {"x": "float[n, n]"}, "ADC213", "no letter twice"),
        ("relu(x)", "relu(x)", X, "ADC228", "match itself"),
        ("x", "x * 1", X, "ADC228", "match everything"),
        ("x[::0]", "x", {"x": "float[n]"}, "ADC232", "above 0"),
        ("avg_pool2d(x, 2, 0)", "x", {"x": "float[n, c, 4, 4]"}, "ADC232", "above 0"),
        ("linear(x, w)", "x @ w", {"x": "float[m, k]", "w": "float[n, k]"}, "ADC231", "contracts k with n"),
    ],
)
def test_wrong_rules(match: str, substitute: str, where: dict[str, str], code: str, part: str) -> None:
    found = [d for d in checked(rewrite(match, substitute, where)) if d.severity == "error"]
    assert code in [d.code for d in found]
    first = next(d for d in found if d.code == code)
    assert part in f"{first.message} {first.hint}"


def test_a_variable_that_the_substitute_drops_is_a_warning() -> None:
    found = checked(rewrite("x + 0 * y", "x", {"x": "float[*B]", "y": "float[*B]"}))
    assert [(d.code, d.severity) for d in found] == [("ADC224", "warning")]
    assert not checked(rewrite("x + s", "s + x", {"x": "float[*B]", "s": "scalar"}, "when: s > 0"))


@pytest.mark.parametrize(
    ("more", "code", "part"),
    [
        ("when: x > 0", "ADC226", "values of `x`"),
        ("when: d", "ADC244", "true or false"),
        ("when: d + zz > 0", "ADC220", "`zz`"),
        ("when: size(x, -1) > 64", "", ""),
        ('when: config.model_type == "gpt2" and d % stick != 0 and dtype == float16', "", ""),
        ('when: \'gap("x") or device == "spyre"\'', "", ""),
        ("let: {a: x * 2, x: x}", "ADC222", "bound already"),
        ("let: {a: x, a2: b}", "ADC220", "`b`"),
        ("let: {a: x * 2}", "ADC224", "plays no part"),
        ("constants: {c: 'x * 2'}", "ADC225", "cannot read `x`"),
        ("constants: {c: rotate_half_matrix(d)}", "ADC224", "`c`"),
        ("expect: [{fires: config.n_layer / 0}]", "ADC240", "zero"),
        ("expect: [{fires: 2 ** 3}]", "", ""),
        ("expect: [{fires: 10 ** 9}]", "ADC241", "span"),
        ("expect: [{fires: d}]", "ADC220", "`d`"),
        ("expect: [{when: 3, fires: 1}]", "", ""),
    ],
)
def test_the_other_parts_of_a_rule(more: str, code: str, part: str) -> None:
    text = rewrite("relu(x)", "maximum(x, 0)", {"x": "float[..., d]"}, more)
    if more.startswith("expect: [{when: 3"):
        text = text.replace("when: 3", "when: 'd2 > 3'")
        code, part = "ADC220", "`d2`"
    found = checked(text)
    if not code:
        assert not found
        return
    fault = next(d for d in found if d.code == code)
    assert part in f"{fault.message} {fault.hint}"


def test_weight_programs_read_weights_only() -> None:
    text = (
        HEAD
        + """\
  - weights: w
    match: x @ w
    where: {x: "float[m, k]", w: "weight float[k, n]"}
    program: {a: w * 2, b: sum(x)}
    substitute: x @ a + b
    reason: r
"""
    )
    (fault,) = checked(text)
    assert (fault.code, fault.span.line) == ("ADC225", 8)
    assert not checked(text.replace("sum(x)", "sum(w)"))


def test_replaced_modules() -> None:
    text = (
        HEAD
        + """\
  - replace: n
    module: "*RMSNorm"
    inputs: {x: "float[..., d]"}
    attributes: {w: {path: weight, type: "float[d]"}, eps: {path: variance_epsilon, type: scalar}}
    forward: x * rsqrt(mean(x * x, -1, keepdim=true) + eps) * w
    reason: r
"""
    )
    assert not checked(text)
    assert [d.code for d in checked(text.replace("float[d]", "float[e]"))] == ["ADC231"]
    assert [d.code for d in checked(text.replace("+ eps", "+ epsilon"))] == ["ADC220"]


PAD = (
    HEAD
    + """\
  - pad: head
    match: sdpa(q, k, v, mask)
    where: {q: "float[b, h, l, d]", k: "float[b, g, m, d]", v: "float[b, g, m, d]"}
    dim: d
    size: ceil_to(d, stick)
    fill: 0
    consumers: contract
    when: d % stick != 0
    reason: r
"""
)


@pytest.mark.parametrize(
    ("old", "new", "code", "part"),
    [
        ("dim: d", "dim: D", "ADC227", 'Did you mean "d"?'),
        ("fill: 0", "fill: {w: 0}", "ADC227", "Tensors with `d`: q, k, v"),
        ("fill: 0", "fill: q", "ADC230", "A fill is a number"),
        ("fill: 0", "fill: {k: -inf}", "", ""),
        ("ceil_to(d, stick)", "ceil_to(dd, stick)", "ADC220", "`dd`"),
        ("ceil_to(d, stick)", "d / 0", "ADC240", "zero"),
        ("ceil_to(d, stick)", "2 ** 40", "ADC241", "span"),
        ("ceil_to(d, stick)", "7 / 2", "ADC242", "whole"),
        ("ceil_to(d, stick)", "d > 3", "ADC242", "whole"),
        ("ceil_to(d, stick)", "q", "ADC242", "whole"),
        ('k: "float[b, g, m, d]"', 'k: "float[b, g, m, e]"', "ADC231", "d is not e"),
        ("head", "head2", "", ""),
    ],
)
def test_pads(old: str, new: str, code: str, part: str) -> None:
    found = checked(PAD.replace(old, new, 1))
    assert [d.code for d in found][:1] == ([code] if code else [])
    assert not found or part in f"{found[0].message} {found[0].hint}"


def test_conditions_of_requirements_and_adapters() -> None:
    text = (
        HEAD.replace("rules:", "when: x > 3\nrules:")
        + """\
  - require: r
    condition: config.a == None or confg.b
    message: m
    examples: {accepted: [{a: 1}], refused: [{a: 2}]}
"""
    )
    assert [(d.code, d.span.line) for d in checked(text)] == [("ADC220", 4), ("ADC220", 7)]


def test_boundaries_and_places_need_no_types() -> None:
    assert not checked(HEAD + "  - boundary: b\n    match: layer_norm(x, n, w, b, eps)\n    action: clone\n    reason: r\n")
    assert [d.code for d in checked(HEAD + "  - place: p\n    match: tril(x, 1, 2)\n    to: host\n    reason: r\n")] == ["ADC211"]


def test_attributes_of_a_pattern_need_no_type() -> None:
    match = parse_expression("sdpa(q, k, v, m, scale=s, enable_gqa=g) + softmax(x, d, dtype=t) * s2")
    assert {name: param.kind for name, param in attribute_variables(match).items()} == {
        "m": "tensor",
        "s": "number",
        "g": "bool",
        "d": "dim",
        "t": "dtype",
    }


def test_sizes_of_types_in_order() -> None:
    where: tuple[tuple[str, Type], ...] = (
        ("x", parse_type("float[b, 2 * d, stick]")),
        ("y", parse_type("int[*B, n, d]")),
        ("s", parse_type("scalar")),
    )
    assert list(sizes_of(where)) == ["b", "d", "n"]


@pytest.mark.parametrize(
    ("text", "where", "shape"),
    [
        ("x + y", {"x": "float[..., d]", "y": "float[d]"}, "float[..., d]"),
        ("x + y", {"x": "float[*B, d]", "y": "float[*B, d]"}, "float[*B, d]"),
        ("x + y", {"x": "float[*B, 1]", "y": "float[*B, d]"}, "float[*B, d]"),
        ("x + y", {"x": "float[..., d]", "y": "float[n, 1]"}, "float[..., n, d]"),
        ("x @ w", {"x": "float[..., k]", "w": "float[k, n]"}, "float[..., n]"),
        ("q @ transpose(k, -2, -1)", {"q": "float[*B, s, d]", "k": "float[*B, t, d]"}, "float[*B, s, t]"),
        ("x[..., :d / 2]", {"x": "float[*B, d]"}, "float[*B, d / 2]"),
        ("cat([x[..., d / 2:], x[..., :d / 2]], -1)", {"x": "float[*B, d]"}, "float[*B, d]"),
        ("x[None, ..., 0]", {"x": "float[*B, d]"}, "float[1, *B]"),
        ("x[:, None]", {"x": "float[a, b]"}, "float[a, 1, b]"),
        ("x[1:-1, ::2]", {"x": "float[a, 7]"}, "float[-2 + a, 4]"),
        ("flatten(x)", {"x": "float[a, b]"}, "float[a * b]"),
        ("unflatten(x, -1, [h, -1])", {"x": "float[*B, h * d]"}, "float[*B, h, d]"),
        ("reshape(x, [a, h, -1])", {"x": "float[a, h * d]"}, "float[a, h, d]"),
        ("unsqueeze(x, -1)", {"x": "float[*B]"}, "float[*B, 1]"),
        ("repeat_kv(x, g)", {"x": "float[b, h, s, d]", "g": "size"}, "float[b, g * h, s, d]"),
        ("x / 2", {"x": "int[n]"}, "float32[n]"),
        ("x * 2.5", {"x": "int[n]"}, "float32[n]"),
        ("sum(x > 0, -1)", {"x": "float[m, n]"}, "int64[m]"),
        ("argmax(x, -1)", {"x": "float[m, n]"}, "int64[m]"),
        ("stack([x, x], 1)", {"x": "float[m, n]"}, "float[m, 2, n]"),
        ("conv2d(x, w, None, 2, 1)", {"x": "float[n, 3, 8, 8]", "w": "float[o, 3, 3, 3]"}, "float[n, o, 4, 4]"),
        ("one_hot(i, V)", {"i": "int[b, n]", "V": "size"}, "int64[b, n, V]"),
    ],
)
def test_shapes(text: str, where: dict[str, str], shape: str) -> None:
    env = environment([(name, parse_type(found)) for name, found in where.items()])
    found = Inference(env).type_of(parse_expression(text))
    assert isinstance(found, TensorValue)
    expected = environment([("r", parse_type(shape.replace("-2 + a", "a - 2")))])["r"]
    assert isinstance(expected, TensorValue)
    if "..." in shape:
        # A rest without a name is called after its variable, which the expected type has not.
        assert f"{found.element}{shape_text(found.shape)}" == shape
    else:
        if "V" in where:
            assert found.shape is not None
        assert found == expected


def test_the_types_of_a_loaded_rule_are_those_of_its_file() -> None:
    rule = load_text(rewrite("relu(x)", "maximum(x, 0)", X), "a.yaml").rules[0]
    assert isinstance(rule, Rewrite)
    assert environment(rule.where)["x"] == TensorValue("float", environment([("x", parse_type("float[...]"))])["x"].shape)  # type: ignore[union-attr]


def test_random_arguments_give_a_type_or_a_diagnostic() -> None:
    chance = random.Random(3)
    where = {
        "x": "float[a, b]",
        "y": "float[..., b]",
        "z": "int[a]",
        "m": "bool[a, b]",
        "s": "scalar",
        "k": "size",
        "w": "float16[3, 4]",
        "r": "float[*B]",
    }
    env = environment([(name, parse_type(found)) for name, found in where.items()])
    texts = [
        *where,
        "a",
        "float16",
        "inf",
        "config",
        "config.q",
        "stick",
        "0",
        "1",
        "-1",
        "2",
        "7",
        "None",
        "true",
        '"ij,jk->ik"',
        "[]",
        "[1, -1]",
        "[0, a]",
        "[x, x]",
    ]
    atoms = [parse_expression(text) for text in texts]
    for spec in OPS.values():
        least = sum(p.default is None for p in spec.params)
        for _ in range(40):
            call = Call(spec.name, tuple(chance.choice(atoms) for _ in range(chance.randint(least, len(spec.params)))))
            for read in (Inference(env).type_of, expand, lambda e: derive(e, {"a": 3, "k": 2, "stick": 64, "config": {"q": 5}})):
                with contextlib.suppress(SpecError):
                    read(call)


def test_damaged_rules_that_load_are_checked_without_a_crash() -> None:
    chance = random.Random(4)
    text = (
        PAD
        + rewrite(
            "x * cos + cat([-x[..., d/2:], x[..., :d/2]], dim=-1) * sin",
            "x * cos + sin",
            dict.fromkeys(("x", "cos", "sin"), "float[..., d]"),
        )[len(HEAD) :]
    )
    words = re.findall(r"\w+", text)
    checks = 0
    for _ in range(400):
        damaged = text
        for _ in range(chance.randint(1, 3)):
            word = chance.choice(list(re.finditer(r"\w+", damaged)))
            damaged = damaged[: word.start()] + chance.choice([*words, "0", "None", "inf"]) + damaged[word.end() :]
        with contextlib.suppress(SpecError):
            for diagnostic in check_types(load_text(damaged, "spec.yaml")):
                assert render(diagnostic, damaged).startswith("spec.yaml:")
            checks += 1
    assert checks > 50


@pytest.mark.parametrize(
    "nested",
    [
        "softmax({}, -1)",
        "gelu({})",
        "layer_norm({}, [d])",
        "rotate_half({})",
        "sdpa({0}, {0}, {0})",
        "-{}",
        "{} + x",
        "mish({})",
        "x[..., :d] * {}",
    ],
)
def test_the_deepest_nesting_is_checked_and_expanded(nested: str) -> None:
    text = "x"
    while "{0}" not in nested and len(text) < 15_000:
        try:
            parse_expression(nested.format(text))
        except SpecError:
            break
        text = nested.format(text)
    tree = parse_expression(text if text != "x" else nested.format("x"))
    found = Inference(environment([("x", parse_type("float[b, l, d]"))])).type_of(tree)
    assert isinstance(found, TensorValue)
    assert found.shape is not None
    expand(tree)


@pytest.mark.parametrize("nested", ["softsign({})", "ceil_to({}, 2)", "abs({})", "-{}", "max({}, 1)", "square({})"])
def test_the_deepest_size_has_a_value_in_time(nested: str) -> None:
    text = "d"
    for _ in range(90):
        text = nested.format(text)
    assert derive(parse_expression(text), {"d": 1}).steps
