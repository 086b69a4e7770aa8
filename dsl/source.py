"""From a position inside an expression to the place in the file that the expression was read from."""

from __future__ import annotations

from dataclasses import dataclass

from adapterc.dsl.ast import Span


@dataclass(frozen=True, slots=True)
class Origin:
    """`places[i]` is the (line, column) of character i of the text in `file`, both from 1; one more entry marks its end."""

    file: str
    places: tuple[tuple[int, int], ...]

    def span(self, start: int, end: int) -> Span:
        last = len(self.places) - 1
        line, column = self.places[min(start, last)]
        end_line, end_column = self.places[min(max(end, start), last)]
        return Span(self.file, line, column, end_line, end_column)


def inline_origin(text: str, file: str = "<expression>") -> Origin:
    """The origin of a text that stands alone: its own lines and columns."""
    places: list[tuple[int, int]] = []
    line, column = 1, 1
    for character in text:
        places.append((line, column))
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    return Origin(file, (*places, (line, column)))
