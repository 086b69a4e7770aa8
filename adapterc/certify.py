"""Certificates on disk: `check --certificates FOLDER` writes one a rule, `check --replay FOLDER` verifies them again without searching."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from adapterc.check import CheckReport
from adapterc.dsl.loader import load_all
from adapterc.errors import UserError
from adapterc.verify.certificate import certificate, certificate_hash, replay, to_json


@dataclass(frozen=True)
class Replayed:
    """`problem` is None where the certificate stands."""

    rule: str
    claim: str
    problem: str | None


@dataclass(frozen=True)
class ReplayReport:
    folder: Path
    rules: tuple[Replayed, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return all(rule.problem is None for rule in self.rules)

    def to_json(self) -> Mapping[str, object]:
        rows = [{"rule": r.rule, "certified": r.claim, "problem": r.problem} for r in self.rules]
        return {"folder": str(self.folder), "rules": rows, "seconds": round(self.seconds, 3)}

    def show(self, console: Console) -> None:
        for rule in self.rules:
            console.print(f"{rule.rule}: {rule.claim if rule.problem is None else rule.problem}", markup=False, soft_wrap=True)
        worthless = sum(rule.problem is not None for rule in self.rules)
        state = f"{worthless} no longer stand; check again" if worthless else "all stand"
        console.print(f"\n{len(self.rules)} certificates replayed in {self.seconds:.1f} s: {state}")


def hashes(report: CheckReport) -> dict[str, str]:
    """The hash of each rule's certificate by `adapter.rule`, for the manifest."""
    return {rule.name: certificate_hash(certificate(rule.verdict, rule.rule, rule.adapter)) for rule in report.rules}


def write(report: CheckReport, folder: Path) -> None:
    """Write one JSON file a rule, `adapter.rule.json`. Raises UserError ADC407 where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for rule in report.rules:
            (folder / f"{rule.name}.json").write_text(to_json(certificate(rule.verdict, rule.rule, rule.adapter)), encoding="utf-8")
    except OSError as error:
        raise UserError("ADC407", f"the certificates were not written to {folder}: {error.strerror}", "name another folder") from error


def replay_all(paths: Sequence[Path], folder: Path) -> ReplayReport:
    """Replay the certificates of the specs. Raises SpecError for a spec that cannot be read; a missing certificate is a problem of its rule."""
    start = time.perf_counter()
    rules = tuple(_replay(paths, folder))
    return ReplayReport(folder, rules, time.perf_counter() - start)


def _replay(paths: Sequence[Path], folder: Path) -> Iterator[Replayed]:
    for adapter in load_all(paths):
        for rule in adapter.rules:
            name = f"{adapter.name}.{rule.header.name}"
            path = folder / f"{name}.json"
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                yield Replayed(name, "", f"{folder} holds no certificate for it")
                continue
            except (OSError, ValueError) as error:
                yield Replayed(name, "", f"{path} cannot be read: {type(error).__name__}")
                continue
            if not isinstance(found, dict):
                yield Replayed(name, "", f"{path} is no certificate")
                continue
            yield Replayed(name, f"{found.get('class')} {found.get('status')}", replay(found, rule, adapter))
