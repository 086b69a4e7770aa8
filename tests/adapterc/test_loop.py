"""The closed loop over JSON alone: a family that the library does not know is brought up from gaps to a run that agrees with stock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from families import register

from adapterc import specs
from adapterc.mcp_server import TOOLS


def call(tool: str, *arguments: Any, **named: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json.dumps(TOOLS[tool](*arguments, **named), default=str))
    return answer


def test_a_new_family_is_brought_up(tmp_path: Path) -> None:
    model = register()
    shipped = [str(path) for path in specs.find(()) if path.stem in ("prologue", "embedding")]
    found = call("gaps", model, spec_files=shipped)
    (open_gap,) = [gap for gap in found["gaps"] if gap["blocking"] and not gap["covered_by"]]
    assert "families.py" in open_gap["source"] and open_gap["reproducer_confirmed"]

    mine = str(tmp_path / "norm.yaml")
    drafted = call("draft", open_gap["id"], model, output=mine)
    assert drafted["ok"] and drafted["written"] == mine

    checked = call("check", [mine])
    assert checked["ok"] and {rule["status"] for rule in checked["rules"]} == {"PROVED"}

    assert list(call("gaps", model, spec_files=[*shipped, mine])["remaining_with_adapters"].values()) == [[]]
    assert call("why", "draft_layer_norm_by_var.layer_norm_by_var", model, spec_files=[mine])["graphs"][0]["fired"] == 1

    ran = call("run", model, [*shipped, mine])
    assert ran["ok"] and ran["refusal"] is None and ran["cpu_bitwise"] and ran["restored"]
    assert min(ran["comparison"]["cosines"]) > 0.999
    assert call("diagnose", model, (), [*shipped, mine])["graphs"][0]["class"] == "drift"


def test_errors_come_as_codes() -> None:
    answer = call("why", "no.rule", "config:bert")
    assert not answer["ok"] and answer["errors"][0]["code"] == "ADC604"
    assert call("explain", "ADC604")["ok"]
