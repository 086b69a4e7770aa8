"""A certificate stands as long as its rule, its checker, its counterexample and its proof do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapterc.dsl.adapter import Adapter
from adapterc.dsl.loader import load
from adapterc.verify import check_rule
from adapterc.verify.certificate import certificate, replay, to_json
from adapterc.verify.shrink import exact_text

HEAD = "adapter: sample\nsummary: A sample.\nlifetime: scaffold\nrules:\n"
RULE = "  - rewrite: it\n    match: {}\n    where: {}\n    substitute: {}\n    reason: A sample.\n"
ANY = '{x: "float[...]"}'


def checked(folder: Path, match: str, substitute: str, where: str = ANY) -> tuple[Adapter, dict[str, object]]:
    path = folder / "sample.yaml"
    path.write_text(HEAD + RULE.format(match, where, substitute), encoding="utf-8")
    adapter = load(path)
    found: dict[str, object] = json.loads(to_json(certificate(check_rule(adapter.rules[0], adapter), adapter.rules[0], adapter)))
    return adapter, found


@pytest.mark.parametrize(
    ("match", "substitute", "where", "klass"),
    [
        ("pow(x, 3)", "x * x * x", ANY, "REAL"),
        ("transpose(transpose(x, 0, 1), 0, 1)", "x", '{x: "float[a, b]"}', "EXACT"),
        ("exp(log(x))", "x", ANY, "COND"),
        ("x * 0", "zeros_like(x)", ANY, "EDGE"),
        ("pow(x, 3)", "x * x", ANY, "WRONG"),
        ("a @ b", "b @ a", '{a: "float[n, n]", b: "float[n, n]"}', "WRONG"),
        ("reshape(x, [-1, 2])", "reshape(x, [n // 2, 2])[:1]", '{x: "float[n]"}', "WRONG"),
    ],
)
def test_what_was_found_is_found_again(tmp_path: Path, match: str, substitute: str, where: str, klass: str) -> None:
    adapter, found = checked(tmp_path, match, substitute, where)
    assert found["class"] == klass
    assert (found["counterexample"] is not None) == (klass in ("COND", "EDGE", "WRONG"))
    assert set(dict(found["formats"])) == (set() if klass in ("COND", "WRONG") else {"float16", "bfloat16", "dlfloat16", "float32"})
    assert replay(found, adapter.rules[0], adapter) is None


def test_a_counterexample_that_does_not_part_the_sides_is_named(tmp_path: Path) -> None:
    adapter, found = checked(tmp_path, "pow(x, 3)", "x * x")
    example = {**dict(found["counterexample"]), "values": [["x", "1"]]}
    problem = replay({**found, "counterexample": example}, adapter.rules[0], adapter)
    assert problem is not None
    assert "does not part the sides" in problem
    bare = replay({**found, "counterexample": None}, adapter.rules[0], adapter)
    assert bare == "the certificate refutes the rule without a counterexample"


def test_a_proof_is_verified_and_not_believed(tmp_path: Path) -> None:
    _, found = checked(tmp_path, "flip(flip(x, [0]), [0])", "x", '{x: "float[n]"}')
    wrong, of_wrong = checked(tmp_path, "flip(x, [0])", "x", '{x: "float[n]"}')
    forged = {**found, "rule_sha256": of_wrong["rule_sha256"]}
    assert replay(forged, wrong.rules[0], wrong) == "index algebra no longer shows the sides equal at all sizes"
    _, of_real = checked(tmp_path, "exp(x + y)", "exp(x) * exp(y)", '{x: "float[...]", y: "float[...]"}')
    sums, of_sums = checked(tmp_path, "exp(x - y)", "exp(x) * exp(y)", '{x: "float[...]", y: "float[...]"}')
    forged = {**of_real, "rule_sha256": of_sums["rule_sha256"], "counterexample": None}
    assert "part at" in str(replay(forged, sums.rules[0], sums))


def test_another_form_of_certificate_is_not_read(tmp_path: Path) -> None:
    adapter, found = checked(tmp_path, "pow(x, 3)", "x * x * x")
    assert "format 1" in str(replay({**found, "format": 1}, adapter.rules[0], adapter))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 2.0**-24, 65504.0, 1e-45, 0.23974609375])
def test_values_read_back_as_they_were(value: float) -> None:
    assert float(exact_text(value)) == value
