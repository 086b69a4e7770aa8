"""Spec files in, rules or clear sentences out."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from adapterc.dsl.adapter import Boundary, Pad, Place, Replace, Require, Rewrite, Weights
from adapterc.dsl.ast import Call, Literal, Name
from adapterc.dsl.diagnostics import Diagnostic, SpecError, render
from adapterc.dsl.loader import load, load_all, load_text
from adapterc.dsl.parser import parse_expression
from adapterc.dsl.types import TensorType
from adapterc.dsl.yamltree import MAX_BYTES

HEAD = "adapter: a\nsummary: s\nlifetime: scaffold\nrules:\n"
RULE = """\
  - rewrite: cube
    match: pow(x, 3)
    where: {x: "float[...]"}
    substitute: x * x * x
    reason: r
"""
SPEC = HEAD + RULE
WHOLE = """\
adapter: everything
summary: One rule of each kind.
lifetime: hardware
gap: some-gap
when: dtype == float16
rules:
  - rewrite: rotate
    match: x * cos + cat([-x[..., d/2:], x[..., :d/2]], dim=-1) * sin
    where: {x: "float[..., d]", cos: "float[..., d]", sin: "float[..., d]"}
    constants: {R: rotate_half_matrix(d)}
    let: {turned: x @ R}
    substitute: x * cos + turned * sin
    reason: no layout below a stick
    claim: EDGE
    allow: [EXACT, EDGE]
    accepts: {nonfinite: stock keeps lanes apart}
    budget: 2 ulp
    when: d % stick != 0 and config.model_type == "gpt2"
    expect:
      - {when: config.model_type == "gpt2", fires: 2 * config.n_layer}
      - {fires: {at_least: 1}}
      - {fires: {at_most: 3}}
  - weights: conv1d
    match: addmm(b, x, w)
    where: {x: "float[m, k]", w: "weight float[k, n]", b: "weight float[n]"}
    program: {wt: "transpose(w, 0, 1)"}
    substitute: linear(x, wt, b)
    reason: r
  - replace: norm
    module: "*RMSNorm"
    inputs: {x: "float[..., d]"}
    attributes: {w: weight, eps: {path: variance_epsilon, type: scalar}}
    let: {scale: "rsqrt(mean(x * x, -1, keepdim=true) + eps)"}
    forward: x * scale * w
    reason: r
  - pad: head
    match: sdpa(q, k, v, mask)
    where: {q: "float[b, h, l, d]", k: "float[b, h, m, d]", v: "float[b, h, m, d]"}
    dim: d
    size: ceil_to(d, stick)
    fill: 0
    consumers: contract
    reason: r
  - pad: vocabulary
    match: linear(h, w)
    where: {h: "float[..., H]", w: "weight float[V, H]"}
    dim: V
    size: ceil_to(V, 16 * stick)
    fill: {w: -inf}
    consumers: crop
    reason: r
  - place: prologue
    what: parameter-free
    to: host
    reason: r
  - place: tables
    module: "*RotaryEmbedding"
    to: host
    reason: r
  - place: mask
    match: tril(x)
    to: host
    reason: r
  - boundary: out
    match: layer_norm(x, w, b, eps)
    action: clone
    reason: r
  - require: no_longrope
    condition: config.rope_scaling == None
    message: Longrope is not supported.
    examples: {accepted: [{rope_scaling: null}], refused: [{rope_scaling: {rope_type: longrope, factor: 2.5}}]}
"""


def faults(text: str) -> list[Diagnostic]:
    with pytest.raises(SpecError) as caught:
        load_text(text, "spec.yaml")
    for diagnostic in caught.value.diagnostics:
        assert diagnostic.hint, diagnostic
        assert diagnostic.message.endswith("."), diagnostic
        assert "^" in render(diagnostic, text)
        assert diagnostic.span.file == "spec.yaml"
    return list(caught.value.diagnostics)


def fault(text: str) -> tuple[str, int, int, str]:
    (diagnostic,) = faults(text)
    return diagnostic.code, diagnostic.span.line, diagnostic.span.column, f"{diagnostic.message} {diagnostic.hint}"


def test_one_rule_of_each_kind() -> None:
    adapter = load_text(WHOLE, "everything.yaml")
    assert (adapter.name, adapter.lifetime, adapter.gap, adapter.file) == ("everything", "hardware", "some-gap", "everything.yaml")
    assert adapter.when == parse_expression("dtype == float16")
    assert len(adapter.source_sha256) == 64
    rotate, conv1d, norm, head, vocabulary, prologue, tables, mask, out, longrope = adapter.rules

    assert isinstance(rotate, Rewrite)
    header = rotate.header
    assert (header.adapter, header.name, header.reason, header.claim, header.allow) == (
        "everything",
        "rotate",
        "no layout below a stick",
        "EDGE",
        ("EXACT", "EDGE"),
    )
    assert header.accepts == (("nonfinite", "stock keeps lanes apart"),)
    assert header.budget == "2 ulp"
    assert (header.span.line, header.span.column) == (7, 14)
    exact, some, few = header.expect
    assert exact.least == exact.most == parse_expression("2 * config.n_layer")
    assert (some.when, some.least, some.most) == (None, Literal(1), None)
    assert (few.least, few.most) == (Literal(0), Literal(3))
    assert rotate.constants == (("R", parse_expression("rotate_half_matrix(d)")),)
    assert rotate.lets == (("turned", parse_expression("x @ R")),)

    assert isinstance(conv1d, Weights)
    assert conv1d.program == (("wt", parse_expression("transpose(w, 0, 1)")),)
    weight = dict(conv1d.where)["w"]
    assert isinstance(weight, TensorType)
    assert weight.weight

    assert isinstance(norm, Replace)
    assert [(name, path, found is not None) for name, path, found in norm.attributes] == [
        ("w", "weight", False),
        ("eps", "variance_epsilon", True),
    ]

    assert isinstance(head, Pad)
    assert head.fill == (("q", Literal(0)), ("k", Literal(0)), ("v", Literal(0)))
    assert isinstance(vocabulary, Pad)
    assert vocabulary.fill == (("w", Call("neg", (Name("inf"),))),)

    assert [(p.what, p.module, p.match is not None) for p in (prologue, tables, mask) if isinstance(p, Place)] == [
        ("parameter-free", None, False),
        ("module", "*RotaryEmbedding", False),
        ("match", None, True),
    ]
    assert isinstance(out, Boundary)
    assert out.action == "clone"
    assert isinstance(longrope, Require)
    assert longrope.header.reason == longrope.message
    assert longrope.accepted == ((("rope_scaling", None),),)
    assert longrope.refused == ((("rope_scaling", {"rope_type": "longrope", "factor": 2.5}),),)


def test_aliases_and_tensor_subscripts_get_their_own_name() -> None:
    text = SPEC.replace("pow(x, 3)", "max(view(x, [2]), w[ids]) + ids[0]").replace(
        'x: "float[...]"', 'x: "float[n]", w: "float[n]", ids: "int[n]"'
    )
    rule = load_text(text, "a.yaml").rules[0]
    assert isinstance(rule, Rewrite)
    assert rule.match == parse_expression("maximum(reshape(x, [2]), take(w, ids)) + ids[0]")


def test_numbers_and_truth_values_are_expressions_too() -> None:
    rule = load_text(SPEC.replace("x * x * x", "0.5") + "    when: true\n", "a.yaml").rules[0]
    assert isinstance(rule, Rewrite)
    assert rule.substitute == Literal(Fraction(1, 2))
    assert rule.header.when == Literal(True)


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "part"),
    [
        ("", "ADC106", 1, 1, "empty"),
        ("\n\n# nothing\n", "ADC106", 1, 1, "empty"),
        ("a: [1, 2\nb: }", "ADC105", 2, 2, "not YAML"),
        ("adapter: a\n\tsummary: x\n", "ADC105", 2, 1, "tab"),
        (SPEC.replace("reason: r", "reason: a: b"), "ADC105", 9, 14, "`:`"),
        (SPEC.replace('"float[...]"', "float[...]"), "ADC105", 7, 21, "Quote"),
        ("@", "ADC105", 1, 1, "not YAML"),
        ("? [a]\n: b\n", "ADC105", 1, 3, "key must be a word"),
        (SPEC + "adapter: b\n", "ADC107", 10, 1, "twice; first in line 1"),
        (SPEC + "    reason: again\n", "ADC107", 10, 5, "first in line 9"),
        ("a: &a [*a]\n", "ADC108", 1, 8, "holds itself"),
        ("a: " + "[" * 100_000, "ADC108", 1, 44, "deeper"),
        (SPEC.replace("adapter: a", "adapter: !!python/name:os.system a"), "ADC109", 1, 10, "tag"),
        (SPEC + "---\na: b\n", "ADC109", 10, 1, "second document"),
        (SPEC.replace("adapter: a", "adapter: *b"), "ADC109", 1, 10, "no anchor"),
        (SPEC.replace("summary:", "sumary:"), "ADC110", 2, 1, 'Did you mean "summary"?'),
        (SPEC.replace("substitute:", "let: {a: x}\n    substitut:"), "ADC110", 9, 5, 'Did you mean "substitute"?'),
        (SPEC + "    expect: [{fires: {at_lest: 1}}]\n", "ADC110", 10, 23, 'Did you mean "at_least"?'),
        (SPEC.replace("    reason: r\n", ""), "ADC111", 5, 5, "`reason`"),
        (SPEC.replace("adapter: a\n", ""), "ADC111", 1, 1, "`adapter`"),
        (HEAD + "  - place: p\n    to: host\n    reason: r\n", "ADC111", 5, 5, "Exactly one of `what`, `match`, `module`"),
        (SPEC.replace("adapter: a", "adapter: 3"), "ADC112", 1, 10, "must be text, not the number 3"),
        (SPEC.replace("scaffold", "scafold"), "ADC112", 3, 11, 'Did you mean "scaffold"?'),
        (SPEC.replace("cube", "Cube!"), "ADC112", 5, 14, "Lower-case"),
        (SPEC.replace("{x:", '{"x y":'), "ADC112", 7, 13, "cannot be a name"),
        (SPEC.replace('"float[...]"', "[a]"), "ADC112", 7, 16, "must be text, not a list"),
        (SPEC.replace("pow(x, 3)", ""), "ADC112", 6, 11, "not empty"),
        (SPEC.replace("x * x * x", "{a: b}"), "ADC112", 8, 17, "not a mapping"),
        ("- a\n", "ADC112", 1, 1, "must be a mapping, not a list"),
        ("hello\n", "ADC112", 1, 1, "must be a mapping, not text"),
        (HEAD.replace("rules:", "rules: []"), "ADC112", 4, 8, "`rules` is empty"),
        (HEAD.replace("rules:", "rules: {}"), "ADC112", 4, 8, "must be a list, not a mapping"),
        (HEAD + "  - hello\n", "ADC112", 5, 5, "An entry of `rules`"),
        (SPEC + "    allow: [EXACT, EXACT]\n", "ADC112", 10, 12, "twice"),
        (SPEC + "    expect: [{fires: [1]}]\n", "ADC112", 10, 22, "must be text or a whole number or a mapping"),
        (SPEC.replace("adapter: a", "adapter: " + "a" * 81), "ADC112", 1, 10, "too long"),
        (SPEC + "    budget: 2 ulps\n", "ADC112", 10, 13, "`2 ulp`"),
        (SPEC.replace("rewrite:", "rewrit:"), "ADC113", 5, 5, 'Did you mean "rewrite"?'),
        (HEAD + "  - frobnicate: x\n", "ADC113", 5, 5, "Start it with one of rewrite"),
        (HEAD + "  - {}\n", "ADC113", 5, 5, "does not say its kind"),
        (SPEC.replace("cube\n", "cube\n    pad: x\n"), "ADC113", 6, 5, "one kind only"),
        (SPEC + RULE, "ADC114", 10, 14, "taken in line 5"),
        (SPEC.replace("    reason", "    constants: {wt: transpose(w, 0, 1)}\n    reason"), "ADC116", 9, 21, "quotes"),
        (SPEC.replace("float[...]", "flaot[...]"), "ADC204", 7, 17, 'Did you mean "float"?'),
        (SPEC.replace("pow(x", "pwo(x"), "ADC210", 6, 12, 'Did you mean "pow"?'),
    ],
)
def test_bad_specs(text: str, code: str, line: int, column: int, part: str) -> None:
    found = fault(text)
    assert found[:3] == (code, line, column)
    assert part in found[3]


def test_several_faults_are_reported_at_once() -> None:
    text = SPEC.replace("pow(x, 3)", "pow(x").replace("x * x * x", "x x").replace("float[...]", "flot[")
    assert [(d.span.line, d.code) for d in faults(text)] == [(6, "ADC201"), (7, "ADC201"), (8, "ADC201")]


@pytest.mark.parametrize(
    "text",
    [
        SPEC + "b" * 50_000 + ": 1\n",
        SPEC.replace("rewrite:", "q" * 50_000 + ":"),
        SPEC.replace("cube", "c" * 50_000),
        SPEC.replace("scaffold", "c" * 50_000),
        SPEC.replace("adapter: a", "adapter: *" + "c" * 50_000),
        SPEC.replace("adapter: a", "adapter: !" + "c" * 50_000 + " a"),
        SPEC.replace("float[...]", "c" * 15_000),
        SPEC.replace("x * x * x", "x" + " * x" * 2_000),
        "k" * 100 + ": 1\n" + "k" * 100 + ": 1\n",
        "[" * 30 + "'" + "x" * 50_000,
    ],
    ids=range(10),
)
def test_messages_fit_a_screen_whatever_the_file_holds(text: str) -> None:
    for diagnostic in faults(text):
        assert len(render(diagnostic, text)) < 900


def test_alias_bombs_are_bounded() -> None:
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]" for i in range(20)]
    assert fault("\n".join(lines))[0] == "ADC108"


def test_plain_aliases_work() -> None:
    text = SPEC.replace('{x: "float[...]"}', '&w {x: "float[...]"}') + RULE.replace("cube", "again").replace('{x: "float[...]"}', "*w")
    assert load_text(text, "a.yaml").rules[0].where == load_text(text, "a.yaml").rules[1].where  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "line", "column"),
    [
        ("pow(x, 3) ) + 1", 6, 22),
        ('"pow(x, 3) ) + 1"', 6, 23),
        ("'pow(x, 3) ) + 1'", 6, 23),
        ("'where(''a'' == x) ) + 1'", 6, 31),
        ('"where(\\"a\\" == x) ) + 1"', 6, 31),
        ('"\\x70ow(x, 3) ) + 1"', 6, 26),
        ('"\\u0070ow(x, 3) ) + 1"', 6, 28),
        ("|\n      pow(x,\n        3) ) + 1", 8, 12),
        (">\n      pow(x,\n      3) ) + 1", 8, 10),
        (">-  # folded\n\n      pow(x,\n\n      3) ) + 1", 10, 10),
        ("pow(x,\n        3) ) + 1", 7, 12),
        ('"pow(x,\n        3) ) + 1"', 7, 12),
        ('"pow(x, \\\n        3) ) + 1"', 7, 12),
        ("'pow(x,\n\n        3) ) + 1'", 8, 12),
    ],
)
def test_the_caret_stands_in_the_file_through_any_quoting(written: str, line: int, column: int) -> None:
    text = SPEC.replace("match: pow(x, 3)", f"match: {written}")
    found = fault(text)
    assert found[:3] == ("ADC201", line, column)
    assert text.split("\n")[line - 1][column - 1] == ")"


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SPEC.replace("pow(x, 3)", "pow(x, 3").replace("\n", "\r\n").encode())
    with pytest.raises(SpecError) as caught:
        load(path)
    assert (caught.value.diagnostics[0].span.line, caught.value.diagnostics[0].span.column) == (6, 20)


def _bytes(data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "a.yaml"
        path.write_bytes(data)
        return path

    return make


def _sparse(folder: Path) -> Path:
    path = folder / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 * 2**20)
    return path


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _loop(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda folder: folder / "missing.yaml", "ADC101"),
        (lambda folder: folder / "a\0b.yaml", "ADC102"),
        (lambda folder: folder / ("x" * 300), "ADC102"),
        (_loop, "ADC102"),
        (_pipe, "ADC102"),
        (lambda folder: Path("/dev/zero"), "ADC102"),
        (lambda folder: folder, "ADC102"),
        (_sparse, "ADC103"),
        (_bytes(b"x" * (MAX_BYTES + 1)), "ADC103"),
        (_bytes(b"adapter: a\0b\n"), "ADC104"),
        (_bytes(b"adapter: \xff\n"), "ADC104"),
        (_bytes("adapter: a".encode("utf-16")), "ADC104"),
        (_bytes(b"adapter: a\x1b[31m"), "ADC104"),
        (_bytes("adapter: a\u2028b".encode()), "ADC104"),
        (_bytes(b"\x7fELF\x02\x01\x01\x00" * 100), "ADC104"),
        (_bytes(b""), "ADC106"),
    ],
)
def test_bad_files(tmp_path: Path, make: Callable[[Path], Path], code: str) -> None:
    path = make(tmp_path)
    with pytest.raises(SpecError) as caught:
        load(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert diagnostic.hint
    assert "Traceback" not in str(diagnostic)


def test_a_file_without_permission_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SPEC)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Root, under whom tests may run, can read everything: so the refusal is the system call's.
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(SpecError) as caught:
        load(path)
    assert caught.value.diagnostics[0].code == "ADC102"
    assert "Permission denied" in caught.value.diagnostics[0].message


def test_folders_stand_for_their_specs(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(SPEC.replace("adapter: a", f"adapter: {name}"))
    assert [adapter.name for adapter in load_all([tmp_path])] == ["a", "b"]


def test_all_files_are_read_before_any_fault_is_reported(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.yaml").write_text(SPEC if name == "b" else "adapter: [")
    with pytest.raises(SpecError) as caught:
        load_all([tmp_path / f"{name}.yaml" for name in "abc"])
    assert [Path(d.span.file).name for d in caught.value.diagnostics] == ["a.yaml", "c.yaml"]


def test_names_of_adapters_are_unique_and_folders_not_empty(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(SpecError) as caught:
        load_all([tmp_path / "one"])
    assert caught.value.diagnostics[0].code == "ADC115"
    for name in ("x", "y"):
        (tmp_path / "one" / f"{name}.yaml").write_text(SPEC)
    with pytest.raises(SpecError) as caught:
        load_all([tmp_path / "one"])
    assert caught.value.diagnostics[0].code == "ADC114"


def test_damaged_specs_never_give_anything_but_diagnostics() -> None:
    random.seed(5)
    for _ in range(250):
        text = list(WHOLE)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(text))
            kind = random.random()
            if kind < 0.4:
                del text[at : at + random.randint(1, 5)]
            elif kind < 0.8:
                text.insert(at, random.choice("{}[]()'\":,*&!|>#%@`\t\n -?.0aé"))
            else:
                text[at] = random.choice("{}[]()'\":,*&!|>#%@`\t\n -?.0a")
        damaged = "".join(text)
        try:
            load_text(damaged, "damaged.yaml")
        except SpecError as error:
            for diagnostic in error.diagnostics:
                assert render(diagnostic, damaged).startswith("damaged.yaml:")
