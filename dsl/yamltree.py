"""YAML text to a tree that remembers where each value stands, with bounds on everything that a hostile file could make grow.

PyYAML's event parser does the reading (it does not recurse); anchors work, expanded size is bounded, tags and several documents are refused.
Plain scalars follow the YAML 1.2 core rules: `true`, `null` and numbers are values, `yes`, `on` and dates are text.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from adapterc.dsl.ast import Span
from adapterc.dsl.diagnostics import Diagnostic, SpecError, shorten
from adapterc.dsl.source import Origin

MAX_BYTES = 256 * 1024
MAX_NESTING = 40
MAX_NODES = 20_000  # counted after aliases are followed

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as text; `start` and `end` are offsets in the file, `style` is YAML's (None for plain, else one of ' " | >)."""

    text: str
    style: str | None
    start: int
    end: int
    span: Span

    @property
    def value(self) -> str | int | float | bool | None:
        """The value as YAML reads it."""
        if self.style is not None:
            return self.text
        if self.text in _NULL:
            return None
        if self.text in _TRUE or self.text in _FALSE:
            return self.text in _TRUE
        if _INT.fullmatch(self.text):
            return int(self.text)
        return float(self.text) if _FLOAT.fullmatch(self.text) else self.text


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys (always text) and values, in the order of the file."""

    entries: tuple[tuple[Scalar, Node], ...]
    span: Span
    weight: int = 1

    def get(self, key: str) -> Node | None:
        return next((value for name, value in self.entries if name.text == key), None)

    def key(self, key: str) -> Scalar | None:
        return next((name for name, _ in self.entries if name.text == key), None)


@dataclass(frozen=True, slots=True)
class List:
    """Values in order."""

    items: tuple[Node, ...]
    span: Span
    weight: int = 1


Node: TypeAlias = Scalar | Mapping | List


def read_source(path: Path | str) -> str:
    """The text of a spec file with line ends made `\\n`. Raises SpecError ADC101 to ADC104; reads at most MAX_BYTES."""
    name = str(path)
    place = Span(name, 1, 1, 1, 1)

    def refuse(code: str, message: str, hint: str) -> SpecError:
        return SpecError(Diagnostic(code, message, place, hint))

    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise refuse("ADC102", "This is a folder, not a spec file.", "Name the YAML files in it.")
        if not stat.S_ISREG(status.st_mode):
            raise refuse("ADC102", "This is not a regular file.", "Name a YAML file.")
        if status.st_size > MAX_BYTES:
            message = f"The file has {status.st_size:,} bytes; a spec has at most {MAX_BYTES:,}."
            raise refuse("ADC103", message, "One file holds one adapter: check that it is the right file, or split it.")
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise refuse("ADC101", "There is no such file.", "Check the path.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refuse("ADC102", f"The file cannot be read: {reason}.", "Check its permissions and the path.") from None
    if len(data) > MAX_BYTES:
        raise refuse("ADC103", f"The file grew beyond {MAX_BYTES:,} bytes while it was read.", "Check what writes to it.")
    return decode(data, name)


def decode(data: bytes, name: str) -> str:
    """UTF-8 bytes to text with line ends made `\\n`. Raises SpecError ADC104 at the first byte that is not text."""
    hint = "Save it as UTF-8 text."
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SpecError(Diagnostic("ADC104", "The file is UTF-16, not UTF-8.", Span(name, 1, 1, 1, 1), hint))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = f"The byte 0x{data[error.start]:02x} is not UTF-8."
        raise SpecError(Diagnostic("ADC104", message, _place(before, len(before), name), hint)) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for offset, character in enumerate(text):
        if (character < " " and character not in "\t\n") or character in "\x7f\x85\u2028\u2029\ufeff\ufffe\uffff":
            message = f"The character U+{ord(character):04X} does not belong in a text file."
            raise SpecError(Diagnostic("ADC104", message, _place(text, offset, name), "Remove it; is this a binary file?"))
    return text


def _place(text: str, offset: int, name: str) -> Span:
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return Span(name, line, column, line, column + 1)


def parse_yaml(text: str, name: str) -> Node:
    """The tree of a YAML text. Raises SpecError ADC105 to ADC109."""
    composer = _Composer(text, name)
    try:
        return composer.document()
    except yaml.MarkedYAMLError as error:
        raise SpecError(_yaml_error(error, text, name)) from None
    except yaml.YAMLError as error:
        raise SpecError(Diagnostic("ADC105", f"This is not YAML: {error}.", Span(name, 1, 1, 1, 1), "Mend it here.")) from None


def _yaml_error(error: yaml.MarkedYAMLError, text: str, name: str) -> Diagnostic:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    span = Span(name, line, column, line, column + 1)
    row = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    problem = (error.problem or "").replace("found ", "").strip() or "the text ends here"
    problem = shorten(problem, 120)
    if "\t" in row[: column + 1]:
        return Diagnostic("ADC105", "A tab stands in the indentation; YAML indents with spaces.", span, "Replace it by spaces.")
    if "mapping values are not allowed" in problem:
        return Diagnostic("ADC105", "A `:` cannot stand here.", span, "Indent the line as its neighbours, or quote the text.")
    if "undefined alias" in problem:
        return Diagnostic("ADC109", f"This alias names no anchor: {problem}.", span, "Define it with `&name` before its use.")
    return Diagnostic(
        "ADC105", f"This is not YAML: {problem}.", span, "Quote texts that hold `: `, `#`, `{`, `[` or `*` and check the indentation."
    )


class _Composer:
    """Events to nodes. Depth is checked before each descent, so the recursion stays below MAX_NESTING."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        self._anchors: dict[str, Node | None] = {}

    def _span(self, event: yaml.Event) -> Span:
        start, end = _mark(event.start_mark), _mark(event.end_mark)
        return Span(self._name, start.line + 1, start.column + 1, end.line + 1, end.column + 1)

    def _fail(self, code: str, message: str, event: yaml.Event, hint: str) -> SpecError:
        return SpecError(Diagnostic(code, message, self._span(event), hint))

    def document(self) -> Node:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise self._fail("ADC109", "A second document starts here.", event, "One file holds one adapter.")
                root = self._node(next(self._events), 0)
        if root is None or (isinstance(root, Scalar) and root.style is None and root.text == ""):
            raise SpecError(
                Diagnostic(
                    "ADC106",
                    "The file is empty.",
                    Span(self._name, 1, 1, 1, 1),
                    "Start with `adapter: name`; docs/spec-reference.md shows a whole one.",
                )
            )
        return root

    def _node(self, event: yaml.Event, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        assert isinstance(event, yaml.ScalarEvent | yaml.SequenceStartEvent | yaml.MappingStartEvent)
        if event.tag is not None:
            raise self._fail("ADC109", f"The YAML tag {shorten(event.tag)} has no meaning in a spec.", event, "Remove it.")
        if depth > MAX_NESTING:
            raise self._fail("ADC108", f"The file nests deeper than {MAX_NESTING} levels.", event, "A spec needs six at most.")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(event.value, event.style, _mark(event.start_mark).index, _mark(event.end_mark).index, self._span(event))
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._list(event, depth)
        else:
            node = self._mapping(event, depth)
        if _weight(node) > MAX_NODES:
            message = f"The file holds more than {MAX_NODES:,} values once its aliases are followed."
            raise self._fail("ADC108", message, event, "Write the values out, without nested aliases.")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: yaml.AliasEvent) -> Node:
        if event.anchor not in self._anchors:
            raise self._fail(
                "ADC109", f"The alias *{shorten(str(event.anchor))} names no anchor.", event, "Define it before, or quote the text."
            )
        node = self._anchors[event.anchor]
        if node is None:
            raise self._fail("ADC108", f"The alias *{shorten(str(event.anchor))} holds itself.", event, "Write the value out.")
        return node

    def _list(self, start: yaml.SequenceStartEvent, depth: int) -> List:
        items: list[Node] = []
        event = next(self._events)
        while not isinstance(event, yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
            event = next(self._events)
        return List(tuple(items), self._joined(start, event), 1 + sum(_weight(i) for i in items))

    def _mapping(self, start: yaml.MappingStartEvent, depth: int) -> Mapping:
        entries: list[tuple[Scalar, Node]] = []
        seen: dict[str, Scalar] = {}
        event = next(self._events)
        while not isinstance(event, yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise self._fail("ADC105", "A key must be a word.", event, "Quote it if it is meant as text.")
            if key.text in seen:
                first = seen[key.text].span.line
                raise self._fail(
                    "ADC107", f"The key `{shorten(key.text)}` stands twice; first in line {first}.", event, "Remove one of them."
                )
            seen[key.text] = key
            entries.append((key, self._node(next(self._events), depth + 1)))
            event = next(self._events)
        return Mapping(tuple(entries), self._joined(start, event), 1 + sum(_weight(value) for _, value in entries))

    def _joined(self, start: yaml.Event, end: yaml.Event) -> Span:
        first, last = self._span(start), self._span(end)
        return Span(self._name, first.line, first.column, last.end_line, last.end_column)


def _mark(mark: object) -> yaml.Mark:
    assert isinstance(mark, yaml.Mark)  # the parser of a text marks every event
    return mark


def _weight(node: Node) -> int:
    return 1 if isinstance(node, Scalar) else node.weight


def scalar_origin(scalar: Scalar, source: str) -> Origin:
    """Where each character of a scalar's text stands in the file, through quotes, escapes, folding and block indentation."""
    places: list[tuple[int, int]] = []
    starts = _line_starts(source)
    cursor = scalar.start
    if scalar.style in ("|", ">"):
        cursor = source.find("\n", scalar.start) + 1 or scalar.end
    elif scalar.style is not None:
        cursor += 1
    for character in scalar.text:
        if not character.isspace():
            # A backslash at the end of a line joins it with the next.
            while cursor < scalar.end and (source[cursor].isspace() or (scalar.style == '"' and source.startswith("\\\n", cursor))):
                cursor += 1
            # Inside quotes a backslash (or a doubled quote) stands before what it means.
            if scalar.style == '"' and source[cursor : cursor + 1] == "\\" and character != "\\":
                places.append(_line_column(starts, cursor))
                cursor += {"x": 4, "u": 6, "U": 10}.get(source[cursor + 1 : cursor + 2], 2)
                continue
        places.append(_line_column(starts, min(cursor, scalar.end)))
        doubled = (scalar.style == "'" and character == "'") or (scalar.style == '"' and character == "\\")
        if not character.isspace():
            cursor += 2 if doubled else 1
        elif source[cursor : cursor + 1] == character or (scalar.style != '"' and source[cursor : cursor + 1].isspace()):
            cursor += 1
    places.append(_line_column(starts, min(cursor, scalar.end)))
    return Origin(scalar.span.file, tuple(places))


def _line_starts(source: str) -> list[int]:
    return [0, *(i + 1 for i, character in enumerate(source) if character == "\n")]


def _line_column(starts: list[int], offset: int) -> tuple[int, int]:
    line = bisect.bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1


def plain(node: Node) -> object:
    """The tree as Python values (dict, list, str, int, float, bool, None), for the JSON Schema."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, List):
        return [plain(item) for item in node.items]
    return {key.text: plain(value) for key, value in node.entries}
