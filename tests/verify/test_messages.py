"""What the checker says of six slips that authors make: where the sides part, and the nearest rule that holds.

The snapshots stand in tests/verify/slips/*.txt; `python tests/verify/test_messages.py` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from adapterc.dsl.adapter import Adapter, Rule
from adapterc.dsl.loader import load
from adapterc.verify import check_rule, render_verdict
from adapterc.verify.certificate import certificate, replay

HERE = Path(__file__).resolve().parent
SLIPS = load(HERE / "slips.yaml")
SNAPSHOTS = HERE / "slips"


def message(rule: Rule, adapter: Adapter) -> str:
    """The message without what other versions of a library may count differently: how many samples were drawn."""
    lines = render_verdict(check_rule(rule, adapter)).splitlines()
    return "\n".join(line for line in lines if not line.startswith("  rung 6")) + "\n"


@pytest.mark.parametrize("rule", SLIPS.rules, ids=[r.header.name for r in SLIPS.rules])
def test_a_slip_is_refuted_with_the_rule_that_was_meant(rule: Rule) -> None:
    shown = message(rule, SLIPS)
    assert shown == (SNAPSHOTS / f"{rule.header.name}.txt").read_text(encoding="utf-8")
    assert "WRONG" in shown
    assert "nearest rule that holds: with " in shown


def test_the_rule_that_is_named_holds(tmp_path: Path) -> None:
    rule = SLIPS.rules[0]
    verdict = check_rule(rule, SLIPS)
    assert verdict.mend is not None
    mended = verdict.mend.split("substitute: ")[1]
    text = (HERE / "slips.yaml").read_text(encoding="utf-8").split("  - rewrite: softmax")[0]
    path = tmp_path / "mended.yaml"
    path.write_text(text.replace("substitute: x * x", f"substitute: {mended}"), encoding="utf-8")
    adapter = load(path)
    held = check_rule(adapter.rules[0], adapter)
    assert (held.klass, held.status) == ("REAL", "PROVED")
    assert replay(dict(certificate(held, adapter.rules[0], adapter)), adapter.rules[0], adapter) is None


def test_a_rule_that_holds_shows_its_sizes_its_formats_and_its_bounds(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    head = "adapter: sample\nsummary: A sample.\nlifetime: scaffold\nrules:\n"
    path.write_text(
        f'{head}  - rewrite: it\n    match: pow(x, 3)\n    where: {{x: "float[...]"}}\n    substitute: x * x * x\n    reason: A sample.\n',
        encoding="utf-8",
    )
    adapter = load(path)
    shown = render_verdict(check_rule(adapter.rules[0], adapter))
    assert "PROVED, at all sizes" in shown
    assert "formats: float16 REAL, bfloat16 REAL, dlfloat16 REAL, float32 REAL" in shown
    assert "float16: |match - substitute| <= (2 + 2)·u·S proved" in shown


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for slip in SLIPS.rules:
        (SNAPSHOTS / f"{slip.header.name}.txt").write_text(message(slip, SLIPS), encoding="utf-8")
