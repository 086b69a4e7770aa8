"""What a user is told: one sentence with a code, a place and a next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from adapterc.dsl.ast import Span


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """`message` is one sentence, `hint` the next step (may be empty), `code` an entry of dsl/codes.py; `severity` is "error" or "warning"."""

    code: str
    message: str
    span: Span
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.span}: {self.severity} {self.code}: {self.message}{hint}"


class SpecError(Exception):
    """A spec cannot be used; `diagnostics` says why, one entry a fault."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("\n".join(str(d) for d in diagnostics))
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics


def render(diagnostic: Diagnostic, source: str | None = None) -> str:
    """The diagnostic as shown in a terminal: the sentence, then the line of `source` with a caret under the span.

    `source` is the text of the file that the span points into; without it only the sentence is given.
    """
    lines = source.split("\n") if source is not None else []
    span = diagnostic.span
    if not 1 <= span.line <= len(lines):
        return str(diagnostic)
    text = lines[span.line - 1].rstrip("\r")
    first = min(max(span.column, 1), len(text) + 1)
    last = span.end_column if span.end_line == span.line else len(text) + 1
    width = max(1, min(last, len(text) + 1) - first)
    text, first = _clip(text, first)
    width = max(1, min(width, len(text) + 1 - first))
    # A tab under a tab keeps the caret in its column whatever the terminal's tab stops are.
    lead = "".join("\t" if c == "\t" else " " for c in text[: first - 1])
    number = str(span.line)
    bar = " " * len(number) + " |"
    return f"{diagnostic}\n{bar}\n{number} | {text}\n{bar} {lead}{'^' * width}"


def _clip(text: str, column: int, room: int = 160) -> tuple[str, int]:
    """Cut a long line to a window around the column; returns the window and the column inside it."""
    if len(text) <= room:
        return text, column
    start = max(0, column - room // 2)
    return text[start : start + room], column - start


def shorten(text: str, room: int = 60) -> str:
    """The text, cut to what a sentence can hold."""
    return text if len(text) <= room else f"{text[: room - 1]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean "x"?`, or nothing when no known word is near."""
    by_lower = {name.lower(): name for name in known}
    # Names of one or two letters are all near one another.
    if len(word) < 3 and word.lower() not in by_lower:
        return ""
    near = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return f'Did you mean "{by_lower[near[0]]}"?' if near and by_lower[near[0]] != word else ""
