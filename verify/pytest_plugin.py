"""Adapter specs as pytest tests: one test per rule and rung, so that a team keeps the checks in its own CI.

    # conftest.py
    pytest_plugins = ["adapterc.verify.pytest_plugin"]

Every `*.yaml` file that starts like a spec (a key `adapter:`) is then collected. `adapterc check --pytest` runs pytest with this plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapterc.dsl.adapter import Adapter, Rule
from adapterc.dsl.loader import load
from adapterc.verify.check import check_rule
from adapterc.verify.render import render_verdict
from adapterc.verify.verdict import Evidence, Verdict, problems

HEAD_BYTES = 4096


@dataclass(slots=True)
class Verdicts:
    """Verdicts of one file, each made once however many tests read it."""

    adapter: Adapter
    found: dict[str, Verdict] = field(default_factory=dict)

    def of(self, rule: Rule) -> Verdict:
        name = rule.header.name
        if name not in self.found:
            self.found[name] = check_rule(rule, self.adapter)
        return self.found[name]


def is_spec(path: Path) -> bool:
    """Whether a YAML file looks like an adapter spec, without parsing it."""
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    with path.open("rb") as handle:
        head = handle.read(HEAD_BYTES)
    return any(line.startswith(b"adapter:") for line in head.splitlines())


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return SpecFile.from_parent(parent, path=file_path) if is_spec(file_path) else None


class SpecFile(pytest.File):
    """One spec; its tests are `rule::policy` and `rule::<rung>`."""

    def collect(self) -> Iterator[pytest.Item]:
        verdicts = Verdicts(load(self.path))
        for rule in verdicts.adapter.rules:
            yield PolicyItem.from_parent(self, name=f"{rule.header.name}::policy", rule=rule, verdicts=verdicts)
            for evidence in verdicts.of(rule).evidence:
                if evidence.rung[:1].isdigit():
                    yield RungItem.from_parent(
                        self, name=f"{rule.header.name}::{evidence.rung}", rule=rule, verdicts=verdicts, evidence=evidence
                    )


class PolicyItem(pytest.Item):
    """The rule may be built: its class is allowed and no weaker than its claim."""

    def __init__(self, *, rule: Rule, verdicts: Verdicts, name: str, parent: pytest.Collector) -> None:
        super().__init__(name, parent)
        self.rule, self.verdicts = rule, verdicts

    def runtest(self) -> None:
        verdict = self.verdicts.of(self.rule)
        errors = [d for d in problems(verdict, self.rule.header) if d.severity == "error"]
        if errors:
            pytest.fail("\n".join([*map(str, errors), render_verdict(verdict)]), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.rule.header.span.line - 1, self.name


class RungItem(pytest.Item):
    """What one rung showed of a rule that was not refuted."""

    def __init__(self, *, rule: Rule, verdicts: Verdicts, evidence: Evidence, name: str, parent: pytest.Collector) -> None:
        super().__init__(name, parent)
        self.rule, self.verdicts, self.evidence = rule, verdicts, evidence

    def runtest(self) -> None:
        verdict = self.verdicts.of(self.rule)
        if verdict.status == "REFUTED":
            pytest.fail(f"rung {self.evidence.rung}: {self.evidence.detail}\n{render_verdict(verdict)}", pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.rule.header.span.line - 1, self.name
