"""Where commands write: tables for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Protocol

from rich.console import Console

from adapterc.problems import Problem

# A file or a pipe has no width of its own.
out = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Report(Protocol):
    """What a workflow returns: it knows whether all is well, its JSON form and how it looks on a terminal."""

    @property
    def ok(self) -> bool: ...
    def to_json(self) -> Mapping[str, object]: ...
    def show(self, console: Console) -> None: ...


def emit(command: str, report: Report, as_json: bool, lines: bool = False) -> None:
    """Print a report; `lines`: a JSON object on one line, for a command that goes on printing."""
    if as_json:
        _print_json({"command": command, "ok": report.ok, **report.to_json()}, lines)
    else:
        report.show(out)


def emit_problems(command: str, problems: Iterable[Problem], as_json: bool, lines: bool = False) -> None:
    listed = list(problems)
    if as_json:
        _print_json({"command": command, "ok": False, "errors": [p.to_json() for p in listed]}, lines)
        return
    for problem in listed:
        err.print(problem.shown, markup=False)
    codes = sorted({p.code for p in listed})
    if codes and sys.stderr.isatty():
        err.print(f"adapterc explain {codes[0]} says more.", style="dim")


def _print_json(found: Mapping[str, object], lines: bool) -> None:
    print(json.dumps(found, indent=None if lines else 2, default=str), flush=True)
