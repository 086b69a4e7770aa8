"""What went wrong, in one shape for people and for `--json`: code, sentence, place, next step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from adapterc.codegen.patch_error import PatchError
from adapterc.dsl.diagnostics import Diagnostic, SpecError, render
from adapterc.errors import UserError

EXPECTED = (SpecError, UserError, PatchError)
"""The exceptions that are answers to the user. Anything else is a fault of ours and keeps its traceback."""


@dataclass(frozen=True)
class Problem:
    code: str
    message: str
    next_step: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    severity: str = "error"
    shown: str = ""  # as the terminal shows it, with the source line and a caret where there is one

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if name != "shown" and value is not None}


def of_diagnostic(diagnostic: Diagnostic) -> Problem:
    span = diagnostic.span
    return Problem(
        diagnostic.code, diagnostic.message, diagnostic.hint, span.file, span.line, span.column, diagnostic.severity, _rendered(diagnostic)
    )


def of_error(error: BaseException) -> tuple[Problem, ...]:
    """The problems of one of the EXPECTED exceptions."""
    match error:
        case SpecError():
            return tuple(map(of_diagnostic, error.diagnostics))
        case UserError():
            return (Problem(error.code, error.message, error.next_step, shown=f"error {error.code}: {error.message}; {error.next_step}"),)
        case PatchError():
            file, line, column = _place(error.place)
            return (Problem(error.code, error.message, error.hint, file, line, column, shown=str(error)),)
    raise error


def _rendered(diagnostic: Diagnostic) -> str:
    path = Path(diagnostic.span.file)
    try:
        # A file that was refused for its size or encoding has no line to show.
        source = path.read_text(encoding="utf-8") if path.is_file() and path.stat().st_size < 2**21 else None
    except (OSError, UnicodeDecodeError):
        source = None
    return render(diagnostic, source)


def _place(place: str) -> tuple[str | None, int | None, int | None]:
    file, _, rest = place.partition(":")
    line, _, column = rest.partition(":")
    return file or None, int(line) if line.isdigit() else None, int(column) if column.isdigit() else None
