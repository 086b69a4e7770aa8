"""Rung 1: rules that move elements hold at all sizes, or the argument says that it cannot tell."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from adapterc.verify import index_smt
from adapterc.verify.compare import differing
from adapterc.verify.instances import instances
from adapterc.verify.ladder import decide
from adapterc.verify.mutants import mutants
from adapterc.verify.rung_index import all_sizes, sizes_play_no_part

_SPEC = importlib.util.spec_from_file_location("verify_claims", Path(__file__).with_name("claims.py"))
assert _SPEC is not None and _SPEC.loader is not None
_CLAIMS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CLAIMS)
claim = _CLAIMS.claim

MOVES: list[tuple[str, str, str | None, dict[str, str]]] = [
    ("cat([x[..., :k], x[..., k:]], dim=-1)", "x", None, {"x": "float[..., n]", "k": "size"}),
    ("reshape(reshape(x, [n * l, k]), [n, l, k])", "x", None, {"x": "float[n, l, k]"}),
    (
        "reshape(permute(reshape(x, [b, s, h, d]), [0, 2, 1, 3]), [b * h, s, d])",
        "reshape(transpose(unflatten(x, -1, [h, d]), 1, 2), [b * h, s, d])",
        None,
        {"x": "float[b, s, h * d]"},
    ),
    ("pad(x, -1, 0, p, 0)[..., :n]", "x", None, {"x": "float[..., n]", "p": "size"}),
    ("pad(pad(x, -1, 0, p, 0), -1, 0, q, 0)", "pad(x, -1, 0, p + q, 0)", None, {"x": "float[..., n]", "p": "size", "q": "size"}),
    ("cat([x, zeros([b, p])], dim=-1)", "pad(x, -1, 0, p, 0)", None, {"x": "float[b, n]", "p": "size"}),
    (
        "repeat_interleave(x, g, 1)",
        "reshape(expand(unsqueeze(x, 2), [b, h, g, d]), [b, h * g, d])",
        None,
        {"x": "float[b, h, d]", "g": "size"},
    ),
    ("flip(x, [0, 1])", "reshape(flip(reshape(x, [n * m]), [0]), [n, m])", None, {"x": "float[n, m]"}),
    ("roll(x, [k], [0])", "cat([x[n - k:], x[:n - k]], dim=0)", "k <= n", {"x": "float[n]", "k": "size"}),
    ("cat([-x[..., d/2:], x[..., :d/2]], dim=-1)", "rotate_half(x)", None, {"x": "float[..., d]"}),
    ("stack([x[..., ::2], x[..., 1::2]], dim=-1)", "unflatten(x, -1, [d/2, 2])", None, {"x": "float[..., d]"}),
    ("reshape(x, [-1, 4])", "reshape(x, [n / 4, 4])", None, {"x": "float[n]"}),
    ("split_piece(x, k, 1, 0)", "x[k:2 * k]", "n == 3 * k", {"x": "float[n, m]", "k": "size"}),
    ("index_select(x, 0, tensor([1, 0]))", "flip(x, [0])", None, {"x": "float[2, n]"}),
    ("relu(reshape(x, [n * l, k]))", "reshape(relu(x), [n * l, k])", None, {"x": "float[n, l, k]"}),
    ("tril(x)", "where(unsqueeze(arange(n), 1) >= arange(n), x, 0)", None, {"x": "float[n, n]"}),
]


@pytest.mark.parametrize(("left", "right", "guard", "where"), MOVES)
def test_moves_are_proved_at_all_sizes(left: str, right: str, guard: str | None, where: dict[str, str]) -> None:
    assert all_sizes(claim(left, right, guard, **where)) is not None


@pytest.mark.parametrize(("left", "right", "guard", "where"), MOVES)
def test_no_mutant_of_a_move_is_proved_that_differs_at_some_size(left: str, right: str, guard: str | None, where: dict[str, str]) -> None:
    original = claim(left, right, guard, **where)
    for mutant in mutants(original.right):
        changed = replace(original, right=mutant.expression)
        for real in (False, True):
            if all_sizes(changed, real) is not None:
                found = instances(changed, 4, stick_edges=False).found
                assert all(i.right is not None and not differing(i.pairs) for i in found), mutant.change


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        ("transpose(a @ b, 0, 1)", "transpose(b, 0, 1) @ transpose(a, 0, 1)", {"a": "float[m, k]", "b": "float[k, n]"}),
        ("cat([x @ a, x @ b], dim=1)", "x @ cat([a, b], dim=1)", {"x": "float[m, k]", "a": "float[k, n]", "b": "float[k, o]"}),
        (
            "a @ b",
            "pad(a, -1, 0, ceil_to(k, stick) - k) @ pad(b, -2, 0, ceil_to(k, stick) - k)",
            {"a": "float[m, k]", "b": "float[k, n]"},
        ),
        ("softmax(x, -1)", "softmax(pad(x, -1, 0, 4, -inf), -1)[..., :n]", {"x": "float[..., n]"}),
        (
            "layer_norm(reshape(x, [n * l, k]), [k], w, b, eps=e)",
            "reshape(layer_norm(x, [k], w, b, eps=e), [n * l, k])",
            {"x": "float[n, l, k]", "w": "float[k]", "b": "float[k]", "e": "scalar"},
        ),
        (
            "x * cos + cat([-x[..., d/2:], x[..., :d/2]], dim=-1) * sin",
            "x * cos + (x @ rotate_half_matrix(d)) * sin",
            {"x": "float[..., d]", "cos": "float[..., d]", "sin": "float[..., d]"},
        ),
    ],
)
def test_sums_over_moved_and_padded_operands_are_equal_at_all_sizes(left: str, right: str, where: dict[str, str]) -> None:
    assert all_sizes(claim(left, right, **where), real=True) is not None


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        ("reshape(permute(x, [1, 0]), [a * b])", "reshape(x, [a * b])", {"x": "float[a, b]"}),
        ("softmax(x, -1)", "softmax(pad(x, -1, 0, 4, 0), -1)[..., :n]", {"x": "float[..., n]"}),
        ("mean(x, -1)", "mean(pad(x, -1, 0, 4, 0), -1)", {"x": "float[..., n]"}),
        ("amax(x, -1)", "amax(pad(x, -1, 0, 4, 0), -1)", {"x": "float[..., n]"}),
        ("flip(x, [0])", "x", {"x": "float[n]"}),
        ("pad(x, -1, 0, p, -0.0)", "pad(x, -1, 0, p, 0.0)", {"x": "float[n]", "p": "size"}),
        ("x[..., :d - d % 4]", "x", {"x": "float[..., d]"}),
    ],
)
def test_wrong_moves_are_never_proved(left: str, right: str, where: dict[str, str]) -> None:
    assert all_sizes(claim(left, right, **where)) is None
    assert all_sizes(claim(left, right, **where), real=True) is None or "-0.0" in left


def test_a_rule_that_holds_only_where_the_sizes_tried_are_small_is_not_proved() -> None:
    # Equal up to nine elements, which is as far as small sizes go.
    assert all_sizes(claim("x", "cat([x, zeros([n // 80])], dim=0)[:n]", x="float[n]")) is not None
    assert all_sizes(claim("x", "flip(x, [0]) if n > 70 else x", x="float[n]")) is None


def test_the_verdict_says_whether_sizes_were_tried_or_are_all() -> None:
    moved = decide(claim("transpose(transpose(x, 0, 1), 0, 1)", "x", x="float[a, b]"))
    assert "at all sizes" in moved.how
    tried = decide(claim("exp(sum(x, -1))", "prod(exp(x), -1)", x="float[..., n]"))
    assert not any(name == "all_sizes" for e in tried.evidence for name, _ in e.numbers)


def test_without_z3_what_needs_it_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    tiled = claim("repeat(x, [1, 3])", "cat([x, x, x], dim=1)", x="float[b, n]")
    found = all_sizes(tiled)
    assert found is not None
    assert found.smt
    monkeypatch.setattr(index_smt, "available", lambda: False)
    assert all_sizes(tiled) is None
    assert decide(tiled).klass == "EXACT"


@pytest.mark.parametrize(
    ("left", "right", "where", "expected"),
    [
        ("pow(x, 3)", "x * x * x", {"x": "float[...]"}, True),
        ("x + y", "y + x", {"x": "float[a, b]", "y": "float[a, b]"}, True),
        ("x + y", "y + x", {"x": "float[a, b]", "y": "float[b]"}, False),
        ("x * n", "n * x", {"x": "float[n]"}, False),
        ("x[..., :1]", "x[..., :1] + 0", {"x": "float[n]"}, False),
    ],
)
def test_elementwise_rules_over_one_shape_are_about_elements_only(left: str, right: str, where: dict[str, str], expected: bool) -> None:
    assert sizes_play_no_part(claim(left, right, **where)) is expected
