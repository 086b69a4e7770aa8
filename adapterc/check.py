"""`adapterc check`: every rule of the given specs with its verdict, or what is wrong with the spec."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from adapterc.dsl.adapter import Adapter, Replace, Rule
from adapterc.dsl.ast import Span
from adapterc.dsl.check import check_types
from adapterc.dsl.diagnostics import Diagnostic, SpecError, did_you_mean
from adapterc.dsl.loader import load_all
from adapterc.problems import Problem, of_diagnostic
from adapterc.spyre_runtime.profile import load_profile, profile_names
from adapterc.stock_modules import replace_verdict
from adapterc.verify import Verdict, check_rule, problems
from adapterc.verify.render import render_verdict

_STYLE = {"PROVED": "green", "TESTED": "cyan", "REFUTED": "bold red", "UNDECIDED": "yellow"}


@dataclass(frozen=True)
class RuleReport:
    adapter: Adapter
    rule: Rule
    verdict: Verdict
    problems: tuple[Problem, ...]

    @property
    def name(self) -> str:
        return f"{self.adapter.name}.{self.rule.header.name}"

    @property
    def ok(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)

    def to_json(self) -> Mapping[str, object]:
        verdict = self.verdict
        span = self.rule.header.span
        return {
            "rule": self.name,
            "kind": type(self.rule).__name__.lower(),
            "file": span.file,
            "line": span.line,
            "ok": self.ok,
            "class": verdict.klass,
            "status": verdict.status,
            "how": verdict.how,
            "sizes": verdict.scope,
            "formats": dict(verdict.formats),
            "edges": list(verdict.edges),
            "evidence": [{"rung": e.rung, "detail": e.detail, **dict(e.numbers)} for e in verdict.evidence],
            "suggested_guard": verdict.suggested_guard,
            "seconds": round(verdict.seconds, 4),
            "problems": [p.to_json() for p in self.problems],
        }


@dataclass(frozen=True)
class CheckReport:
    rules: tuple[RuleReport, ...]
    warnings: tuple[Problem, ...] = ()  # of the specs' form and types

    @property
    def ok(self) -> bool:
        return all(rule.ok for rule in self.rules)

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        return tuple(dict.fromkeys(rule.adapter for rule in self.rules))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(rule.verdict for rule in self.rules)

    def to_json(self) -> Mapping[str, object]:
        return {"rules": [rule.to_json() for rule in self.rules], "errors": [p.to_json() for p in self.problems()]}

    def problems(self) -> Iterator[Problem]:
        return itertools.chain(self.warnings, (problem for rule in self.rules for problem in rule.problems))

    def show(self, console: Console) -> None:
        console.print(verdict_table(self.rules))
        for warning in self.warnings:
            console.print(f"\n{warning.shown}", markup=False, soft_wrap=True)
        for report in self.rules:
            for problem in report.problems:
                console.print()
                console.print(problem.shown, markup=False, soft_wrap=True)
            if not report.ok:
                console.print(render_verdict(report.verdict), markup=False, soft_wrap=True)
        failed = sum(not rule.ok for rule in self.rules)
        console.print(
            f"\n{len(self.rules)} rules in {len(self.adapters)} adapters: {'all hold' if not failed else f'{failed} may not be built'}"
        )


def verdict_table(rules: Sequence[RuleReport]) -> Table:
    """Rule, kind, class, status and how it is known."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("rule", "kind", "class", "verdict"):
        table.add_column(heading, no_wrap=True)
    table.add_column("how", overflow="fold")
    for report in rules:
        verdict = report.verdict
        style = _STYLE[verdict.status] if report.ok else "bold red"
        table.add_row(report.name, type(report.rule).__name__.lower(), verdict.klass, f"[{style}]{verdict.status}[/]", verdict.how)
    return table


def check_specs(paths: Sequence[Path], examples: int | None = None) -> CheckReport:
    """Check spec files; Hypothesis draws `examples` for each rule (None: the checker's own number). Raises SpecError with every fault of form, grammar, types and shapes; verdicts are in the report."""
    adapters = load_all(paths)
    faults = [diagnostic for adapter in adapters for diagnostic in (*check_types(adapter), *_unknown_gap(adapter))]
    if any(fault.severity == "error" for fault in faults):
        raise SpecError(*faults)
    return CheckReport(tuple(report for adapter in adapters for report in _check(adapter, examples)), tuple(map(of_diagnostic, faults)))


def _unknown_gap(adapter: Adapter) -> Iterator[Diagnostic]:
    """A gap that no profile lists can never be closed, and `adapterc audit` would keep its adapter for ever."""
    known = {gap for name in profile_names() for gap in load_profile(name).gaps}
    if adapter.gap is not None and adapter.gap not in known:
        message = f"No backend profile lists the gap `{adapter.gap}`."
        hint = did_you_mean(adapter.gap, known) or f"The profiles list {', '.join(sorted(known))}."
        yield Diagnostic("ADC310", message, Span(adapter.file, *_place_of_gap(adapter)), hint)


def _place_of_gap(adapter: Adapter) -> tuple[int, int, int, int]:
    for number, line in enumerate(Path(adapter.file).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("gap:"):
            return number, line.index(adapter.gap or "") + 1, number, len(line) + 1
    return 1, 1, 1, 1


def _check(adapter: Adapter, examples: int | None) -> Iterator[RuleReport]:
    for rule in adapter.rules:
        # A replaced module is measured against Transformers' own, which the checker knows nothing of.
        verdict = replace_verdict(rule, adapter) if isinstance(rule, Replace) else check_rule(rule, adapter, examples=examples)
        yield RuleReport(adapter, rule, verdict, tuple(map(of_diagnostic, problems(verdict, rule.header))))
