"""Certificates: what was found of a rule, so that it can be verified again without searching.

A certificate holds the verdict, the hash of what was checked (the rule's meaning, not its layout) and of the checker that did it. `replay`
looks at both hashes and, for a rule that holds, at one small choice of sizes: the sides must agree on a few samples, and a proof by algebra must go
through again. Of a refuted rule only identity of the sides is looked for; its counterexample is not run again. It never searches; a changed
rule or checker makes the certificate worthless, which is said.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from adapterc.dsl.adapter import Adapter, Pad, Rule
from adapterc.verify import rung_algebra, rung_padding
from adapterc.verify.claim import Claim, attribute_choices, claim_of
from adapterc.verify.compare import admitted, differing, over_reals
from adapterc.verify.instances import Instance, instances
from adapterc.verify.samples import NONFINITE, draw
from adapterc.verify.verdict import PROVED, REFUTED, UNDECIDED, Verdict

FORMAT = 1
SEED = 0
PACKAGES = ("numpy", "torch", "z3-solver", "python-flint")


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
            if entry.name.endswith((".py", ".lark")):
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
    status = found.get("status")
    if status == UNDECIDED:
        return None
    claims = (
        rung_padding.pad_claims(rule, adapter)
        if isinstance(rule, Pad)
        else attribute_choices(found_claim)
        if (found_claim := claim_of(rule, adapter))
        else ()
    )
    if not claims:
        return None
    return _recheck(claims[0], str(status), str(found.get("class")))


def _recheck(claim: Claim, status: str, klass: str) -> str | None:
    small = [i for i in instances(claim, 1, stick_edges=False).found if i.left.cells.size]
    if status == REFUTED:
        # A refuted rule may part at sizes that are not tried again here; only agreement by identity would contradict it.
        same = bool(small) and all(i.right is not None and not differing(i.pairs) for i in small)
        return "the sides of this refuted rule are the same" if same else None
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
    batch = draw(instance, SEED, 1)
    finite = admitted(instance, batch) & (batch.kind != NONFINITE)
    if (over_reals(instance, instance.pairs[:16], batch).apart.any(axis=0) & finite).any():
        return f"the sides part at {instance.describe()}"
    if status == PROVED and klass in ("REAL", "EDGE"):
        proof = rung_algebra.prove([instance], [pairs])
        if not proof.holds and proof.points:
            return f"exact algebra no longer shows the sides equal at {instance.describe()}"
    return None
