"""The exp-ring decides identities of exp, log, sqrt and order, and accepts no false one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from adapterc.verify.field_elements import PRIMES, prime_check
from adapterc.verify.guards import positive_names
from adapterc.verify.instances import instances
from adapterc.verify.rung_algebra import prove

_SPEC = importlib.util.spec_from_file_location("verify_claims_field", Path(__file__).with_name("claims.py"))
assert _SPEC is not None and _SPEC.loader is not None
_CLAIMS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CLAIMS)

ROW = {"x": "float[n]"}


def holds(left: str, right: str, guard: str | None = None, **where: str) -> bool:
    claim = _CLAIMS.claim(left, right, guard, **where)
    found = [i for i in instances(claim, 3, stick_edges=False).found if i.right is not None]
    assert found
    return prove(found, [i.pairs for i in found], positive_names(claim.guard)).holds


def test_the_moduli_are_primes() -> None:
    assert prime_check(PRIMES)
    assert not prime_check((PRIMES[0] - 4,))


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        ("exp(x * (y + z))", "exp(x * y) * exp(x * z)", {"x": "float[]", "y": "float[]", "z": "float[]"}),
        ("logsumexp(x, -1)", "log(sum(exp(x - 3), -1)) + 3", ROW),
        ("x / sqrt(mean(x * x, -1, true))", "x * sqrt(n) / sqrt(sum(x * x, -1, true))", ROW),
        ("sin(x) * sin(x) + cos(x) * cos(x)", "1 + 0 * x", ROW),
        ("softmax(topk_values(x, 2), -1)", "topk_values(softmax(x, -1), 2) / sum(topk_values(softmax(x, -1), 2), -1, true)", ROW),
        ("maximum(maximum(a, b), c)", "maximum(a, maximum(b, c))", {"a": "float[]", "b": "float[]", "c": "float[]"}),
    ],
)
def test_shows_identities(left: str, right: str, where: dict[str, str]) -> None:
    assert holds(left, right, **where)


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        ("exp(x) * exp(y)", "exp(x * y)", {"x": "float[]", "y": "float[]"}),
        ("sqrt(x * y)", "sqrt(x) * sqrt(y)", {"x": "float[]", "y": "float[]"}),
        ("log(x * y)", "log(x) + log(y)", {"x": "float[]", "y": "float[]"}),
        ("abs(x)", "x", {"x": "float[]"}),
        ("softmax(x, -1)", "softmax(2 * x, -1)", ROW),
    ],
)
def test_accepts_no_false_identity(left: str, right: str, where: dict[str, str]) -> None:
    assert not holds(left, right, **where)


def test_positive_variables_obey_the_laws_of_logarithms() -> None:
    where = {"x": "float[]", "y": "float[]"}
    assert holds("sqrt(x * y)", "sqrt(x) * sqrt(y)", "x > 0 and y > 0", **where)
    assert holds("log(x * y)", "log(x) + log(y)", "x > 0 and y > 0", **where)
    assert holds("pow(x, y)", "exp(log(x) * y)", "x > 0", **where)
