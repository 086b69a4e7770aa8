"""Verdicts of every rule kind, the policy, the message, certificates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from adapterc.dsl.adapter import Adapter, Replace
from adapterc.dsl.loader import load
from adapterc.verify import check_adapter, problems, render_verdict
from adapterc.verify.certificate import certificate, replay, to_json
from adapterc.verify.rung_model import check_replace

HEAD = "adapter: sample\nsummary: A sample.\nlifetime: scaffold\nrules:\n"


def spec(folder: Path, rules: str) -> Adapter:
    path = folder / "sample.yaml"
    path.write_text(HEAD + rules, encoding="utf-8")
    return load(path)


PAD = """
  - pad: it
    match: {match}
    where: {where}
    dim: {dim}
    size: ceil_to({dim}, stick)
    fill: {fill}
    consumers: {consumers}
    when: {when}
    reason: A sample.
"""


@pytest.mark.parametrize(
    ("match", "where", "dim", "fill", "consumers", "mend"),
    [
        ("linear(h, w)", '{h: "float[..., H]", w: "weight float[V, H]"}', "V", "0", "contract", "consumers: crop"),
        ("linear(h, w)", '{h: "float[..., H]", w: "weight float[V, H]"}', "V", "-10000", "mask", "consumers: crop"),
        ("softmax(x, -1)", '{x: "float[..., n]"}', "n", "0", "crop", "fill: -inf"),
        ("layer_norm(x, [n])", '{x: "float[..., n]"}', "n", "0", "crop", "divide by n"),
        ("rms_norm(x, [n], eps=0.001)", '{x: "float[..., n]"}', "n", "0", "crop", "sqrt(n / size)"),
    ],
)
def test_unsound_padding_is_refuted_with_its_mend(
    tmp_path: Path, match: str, where: str, dim: str, fill: str, consumers: str, mend: str
) -> None:
    when = "V == config.vocab_size" if dim == "V" else f"{dim} % stick != 0"
    adapter = spec(tmp_path, PAD.format(match=match, where=where, dim=dim, fill=fill, consumers=consumers, when=when))
    (verdict,) = check_adapter(adapter)
    assert (verdict.klass, verdict.status) == ("WRONG", "REFUTED")
    assert verdict.mend is not None
    assert mend in verdict.mend
    assert not verdict.ok(adapter.rules[0].header)


def test_sound_padding_is_proved_and_says_what_each_tensor_may_hold(tmp_path: Path) -> None:
    where = '{a: "float[m, k]", b: "float[k, n]"}'
    adapter = spec(tmp_path, PAD.format(match="a @ b", where=where, dim="k", fill="0", consumers="contract", when="k % stick != 0"))
    (verdict,) = check_adapter(adapter)
    assert (verdict.klass, verdict.status) == ("REAL", "PROVED")
    found = dict(next(e for e in verdict.evidence if e.rung == "7 padding").numbers)
    assert "1e4" in str(found["a_ignores"])
    assert "NaN" not in str(found["a_ignores"])


def test_a_guard_is_asked_for_and_accepted(tmp_path: Path) -> None:
    rule = '  - rewrite: it\n    match: s * masked_fill(x, m, -inf)\n    where: {x: "float[...]", m: "bool[...]", s: scalar}\n'
    rule += "    substitute: masked_fill(s * x, m, -inf)\n    reason: A sample.\n"
    adapter = spec(tmp_path, rule)
    (verdict,) = check_adapter(adapter)
    (problem,) = problems(verdict, adapter.rules[0].header)
    assert (verdict.klass, problem.code) == ("COND", "ADC302")
    assert verdict.suggested_guard == "s > 0"
    assert "when:" in render_verdict(verdict)
    guarded = spec(tmp_path, rule + f'    when: "{verdict.suggested_guard}"\n')
    (held,) = check_adapter(guarded)
    assert held.klass in ("EXACT", "EXACT-Z", "REAL", "EDGE")


def test_edges_must_be_accepted_by_name(tmp_path: Path) -> None:
    rule = '  - rewrite: it\n    match: where(m, x, 0)\n    where: {x: "float[...]", m: "bool[...]"}\n    substitute: x * m\n    reason: A sample.\n'
    adapter = spec(tmp_path, rule)
    (verdict,) = check_adapter(adapter)
    assert [d.code for d in problems(verdict, adapter.rules[0].header)] == ["ADC303"]
    accepting = spec(tmp_path, rule + "    accepts: {nonfinite: The mask hides nothing here.}\n")
    assert verdict.ok(accepting.rules[0].header)


def test_a_claim_that_is_too_strong_is_an_error_and_one_too_weak_a_warning(tmp_path: Path) -> None:
    rule = '  - rewrite: it\n    match: pow(x, 3)\n    where: {x: "float[...]"}\n    substitute: x * x * x\n    reason: A sample.\n'
    for given, code, severity in (("EXACT", "ADC307", "error"), ("APPROX", "ADC308", "warning")):
        adapter = spec(tmp_path, rule + f"    claim: {given}\n")
        (verdict,) = check_adapter(adapter)
        (problem,) = problems(verdict, adapter.rules[0].header)
        assert (problem.code, problem.severity) == (code, severity)


def test_a_rule_that_says_nothing_is_not_accepted(tmp_path: Path) -> None:
    adapter = spec(
        tmp_path, '  - rewrite: it\n    match: x * x\n    where: {x: "float[...]"}\n    substitute: x * x\n    reason: A sample.\n'
    )
    (verdict,) = check_adapter(adapter)
    assert verdict.status == "UNDECIDED"
    assert not verdict.ok(adapter.rules[0].header)


def test_requirements_are_shown_by_their_examples(tmp_path: Path) -> None:
    rule = "  - require: it\n    condition: config.heads != 7\n    message: Seven heads do not divide.\n    reason: A sample.\n"
    good = spec(tmp_path, rule + "    examples: {accepted: [{heads: 8}], refused: [{heads: 7}]}\n")
    bad = spec(tmp_path, rule + "    examples: {accepted: [{heads: 8}], refused: [{heads: 9}]}\n")
    assert check_adapter(good)[0].status == "PROVED"
    assert check_adapter(bad)[0].status == "REFUTED"


def test_a_certificate_is_replayed_until_the_rule_changes(tmp_path: Path) -> None:
    rule = '  - rewrite: it\n    match: pow(x, 3)\n    where: {x: "float[...]"}\n    substitute: x * x * x\n    reason: A sample.\n'
    adapter = spec(tmp_path, rule)
    (verdict,) = check_adapter(adapter)
    found = json.loads(to_json(certificate(verdict, adapter.rules[0], adapter)))
    assert replay(found, adapter.rules[0], adapter) is None
    moved = spec(tmp_path, "  # a comment\n" + rule)
    assert replay(found, moved.rules[0], moved) is None
    changed = spec(tmp_path, rule.replace("x * x * x", "x * x"))
    assert replay(found, changed.rules[0], changed) == "the rule was changed after it was checked"
    other = {**found, "checker_sha256": "0"}
    assert replay(other, adapter.rules[0], adapter) == "the checker was changed after the rule was checked"


@pytest.mark.parametrize(("forward", "klass"), [("0.5 * x * (1 + erf(x / sqrt(2)))", "REAL"), ("x * sigmoid(1.702 * x)", "WRONG")])
def test_a_replacement_is_compared_with_the_module_that_runs(tmp_path: Path, forward: str, klass: str) -> None:
    rule = f'  - replace: it\n    module: GELU\n    inputs: {{x: "float[..., d]"}}\n    forward: {forward}\n    reason: A sample.\n'
    adapter = spec(tmp_path, rule)
    replacement = adapter.rules[0]
    assert isinstance(replacement, Replace)
    assert check_replace(replacement, adapter, torch.nn.GELU(), [(2, 5)]).klass == klass


@pytest.mark.parametrize(
    ("budget", "accepted"), [("1e-5", True), ("1e-7", False), ("2 ulp", True), ("0.001 ulp", False), ("no worse than stock", False)]
)
def test_a_budget_must_cover_the_bound_in_its_own_unit(tmp_path: Path, budget: str, accepted: bool) -> None:
    rule = '  - rewrite: it\n    match: 0.5 * x * (1 + erf(x / 1.4142))\n    where: {x: "float[...]"}\n    substitute: gelu(x)\n    reason: A sample.\n'
    adapter = spec(tmp_path, rule + f"    budget: {budget}\n")
    (verdict,) = check_adapter(adapter)
    assert verdict.klass == "APPROX"
    assert verdict.ok(adapter.rules[0].header) is accepted
