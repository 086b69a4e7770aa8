"""Certificates: what was found of a rule, so that it can be verified again without searching.

A certificate holds the verdict, the hash of what was checked (the rule's meaning, not its layout) and of the checker that did it. `replay`
looks at both hashes, runs the stored counterexample again where there is one, and verifies a proof cheaply: index algebra goes through again with
symbolic sizes; any other rule that holds is looked at at one small choice of sizes, where the sides must agree on a few samples and exact algebra must
show them equal. It never searches; a changed rule or checker makes the certificate worthless, which is said.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import numpy as np

from adapterc.dsl.adapter import Adapter, Pad, Rule
from adapterc.verify import rung_algebra, rung_index, rung_padding
from adapterc.verify.cases import spaced
from adapterc.verify.claim import Claim, attribute_choices, claim_of
from adapterc.verify.compare import admitted, differing, in_format, over_reals
from adapterc.verify.instances import Instance, instances, instantiate
from adapterc.verify.samples import NONFINITE, Batch, draw
from adapterc.verify.shrink import number_text
from adapterc.verify.tensors import ShapeError
from adapterc.verify.terms import TooLarge
from adapterc.verify.verdict import PROVED, REFUTED, UNDECIDED, Verdict

FORMAT = 2  # 2: the values of a counterexample are written exactly
SEED = 0
FEW_ROOTS, FEW_SAMPLES = 3, 24  # that a replay looks at
PACKAGES = ("numpy", "torch", "hypothesis", "z3-solver", "python-flint")


def certificate(verdict: Verdict, rule: Rule, adapter: Adapter) -> Mapping[str, object]:
    """The certificate of a verdict, as plain JSON values in a fixed order."""
    return {
        "format": FORMAT,
        "adapter": verdict.adapter,
        "rule": verdict.rule,
        "class": verdict.klass,
        "status": verdict.status,
        "how": verdict.how,
        "evidence": [{"rung": e.rung, "detail": e.detail, "numbers": dict(e.numbers)} for e in verdict.evidence],
        "formats": dict(verdict.formats),
        "edges": list(verdict.edges),
        "bound": verdict.bound,
        "guard": verdict.suggested_guard,
        "counterexample": None if verdict.counterexample is None else dataclasses.asdict(verdict.counterexample),
        "seed": SEED,
        "rule_sha256": rule_hash(rule, adapter),
        "checker_sha256": checker_hash(),
        "versions": versions(),
    }


def to_json(found: Mapping[str, object]) -> str:
    """Canonical text: same certificate, same bytes."""
    return json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def certificate_hash(found: Mapping[str, object]) -> str:
    return hashlib.sha256(to_json(found).encode()).hexdigest()


def rule_hash(rule: Rule, adapter: Adapter) -> str:
    """A hash of everything that a verdict rests on. Spans take no part, so moving a rule in its file changes nothing."""
    return hashlib.sha256(f"{rule_text(rule)}|{adapter.when!r}".encode()).hexdigest()


def rule_text(rule: Rule) -> str:
    header = dataclasses.replace(rule.header, reason="", expect=())
    parts = [f"{f.name}={getattr(rule, f.name)!r}" for f in dataclasses.fields(rule) if f.name != "header"]
    shown = [f"{f.name}={getattr(header, f.name)!r}" for f in dataclasses.fields(header) if f.name not in ("span", "reason", "expect")]
    return ";".join([type(rule).__name__, *shown, *parts])


@cache
def checker_hash() -> str:
    """A hash of the checker's own source and of the op table: another checker, another certificate."""
    digest = hashlib.sha256()
    for package in ("adapterc.verify", "adapterc.dsl"):
        for entry in sorted(files(package).iterdir(), key=lambda e: e.name):
            if entry.name.endswith((".py", ".lark", ".json")):
                digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return digest.hexdigest()


@cache
def versions() -> Mapping[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def replay(found: Mapping[str, object], rule: Rule, adapter: Adapter) -> str | None:
    """Verify a certificate again, in milliseconds. None when it stands; otherwise one sentence that says why it does not."""
    if found.get("format") != FORMAT:
        return f"the certificate has format {found.get('format')}, this checker reads {FORMAT}"
    if found.get("rule_sha256") != rule_hash(rule, adapter):
        return "the rule was changed after it was checked"
    if found.get("checker_sha256") != checker_hash():
        return "the checker was changed after the rule was checked"
    status = str(found.get("status"))
    if status == UNDECIDED:
        return None
    claims = _claims(rule, adapter)
    if not claims:
        return None
    example = found.get("counterexample")
    if isinstance(example, Mapping):
        problem = _rerun(example, claims)
        if problem is not None:
            return problem
    if status == REFUTED:
        return None if isinstance(example, Mapping) else "the certificate refutes the rule without a counterexample"
    if _by_index(found):
        real = str(found.get("class")) not in ("EXACT", "EXACT-Z") or isinstance(rule, Pad)
        proof = rung_index.all_sizes(claims[0], real, ranks=1)
        return None if proof is not None else "index algebra no longer shows the sides equal at all sizes"
    return _recheck(claims[0], status, str(found.get("class")))


def _claims(rule: Rule, adapter: Adapter) -> tuple[Claim, ...]:
    """What the rule asserts, the claim that is proved first; a vocabulary's also that the token chosen stays."""
    if isinstance(rule, Pad):
        claims = rung_padding.pad_claims(rule, adapter)
        chosen = rung_padding.vocabulary_claim(rule, claims[0])
        return claims if chosen is None else (*claims, chosen)
    claim = claim_of(rule, adapter)
    return () if claim is None else attribute_choices(claim)


def _by_index(found: Mapping[str, object]) -> bool:
    """Whether index algebra proved it, by itself and at all sizes (then its evidence counts the cases)."""
    evidence = found.get("evidence")
    rows = evidence if isinstance(evidence, list) else []
    return any(isinstance(e, Mapping) and e.get("rung") == rung_index.RUNG and "cases" in e.get("numbers", {}) for e in rows)


def _rerun(example: Mapping[str, object], claims: Sequence[Claim]) -> str | None:
    """Run the stored counterexample: some claim of the rule must part there again, as it did."""
    sizes = {str(k): int(v) for k, v in _rows(example.get("sizes"))}
    rest = tuple(int(n) for n in _items(example.get("rest")))
    for claim in claims:
        try:
            instance = instantiate(claim, sizes, rest)
        except (ShapeError, TooLarge):
            continue
        if instance is not None and _parts_again(instance, example):
            return None
    where = ", ".join(f"{k}={v}" for k, v in sizes.items()) or "its values"
    return f"the counterexample at {where} does not part the sides any more"


def _parts_again(instance: Instance, example: Mapping[str, object]) -> bool:
    if instance.right is None:
        return example.get("format") == "shapes"
    try:
        values = {str(name): np.array(_numbers(str(text)), dtype=np.longdouble).reshape(-1) for name, text in _rows(example.get("values"))}
    except ValueError:
        return False
    if {name: tensor.cells.size for name, tensor in instance.inputs.items()} != {name: row.size for name, row in values.items()}:
        return False
    cells = {t.serial: values[name][i : i + 1] for name, tensor in instance.inputs.items() for i, t in enumerate(tensor.cells.reshape(-1))}
    sample = Batch(cells, np.zeros(1, dtype=np.int8))
    place = tuple(int(n) for n in _items(example.get("place")))
    shape = instance.left.shape
    flat = int(np.ravel_multi_index(place, shape)) if place else 0
    pair = instance.pairs[flat : flat + 1]
    format_name = str(example.get("format"))
    parted = over_reals(instance, pair, sample) if format_name == "real" else in_format(pair, sample, format_name)
    return bool(parted.apart.any()) and number_text(parted.left[0, 0]) == example.get("left")


def _numbers(text: str) -> object:
    """The values of a tensor as they are written in a counterexample."""
    return json.loads(re.sub(r"\binf\b", "Infinity", re.sub(r"\bnan\b", "NaN", text)).replace("True", "1").replace("False", "0"))


def _rows(found: object) -> list[tuple[object, Any]]:
    return [(row[0], row[1]) for row in _items(found) if isinstance(row, list | tuple) and len(row) == 2]


def _items(found: object) -> list[Any]:
    return list(found) if isinstance(found, list | tuple) else []


def _recheck(claim: Claim, status: str, klass: str) -> str | None:
    """A rule that holds, at one small choice of sizes: the sides agree on a few samples, and the algebra goes through again."""
    small = [i for i in instances(claim, 1, stick_edges=False).found if i.left.cells.size]
    for instance in small[:1]:
        if instance.right is None:
            return f"the right side does not fit at {instance.describe()}"
        problem = _agrees(instance, status, klass)
        if problem is not None:
            return problem
    return None


def _agrees(instance: Instance, status: str, klass: str) -> str | None:
    pairs = differing(instance.pairs)
    if not pairs or klass == "APPROX":
        return None
    few = spaced(instance.pairs, FEW_ROOTS)
    batch = draw(instance, SEED, 1)
    batch = batch.only(np.arange(batch.count) % max(1, batch.count // FEW_SAMPLES) == 0)
    finite = admitted(instance, batch) & (batch.kind != NONFINITE)
    if (over_reals(instance, few, batch).apart.any(axis=0) & finite).any():
        return f"the sides part at {instance.describe()}"
    if status == PROVED and klass in ("REAL", "EDGE"):
        proof = rung_algebra.prove([instance], [pairs[:FEW_ROOTS]])
        if not proof.holds and proof.points:
            return f"exact algebra no longer shows the sides equal at {instance.describe()}"
    return None
