"""What an editor shows of a spec: problems with their ranges, verdicts, explanations of words, completions. Functions of the text, without a protocol.

Lines and columns count from 1, columns in code points, as in all messages of adapterc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapterc.dsl.ast import Span
from adapterc.dsl.check import check_types
from adapterc.dsl.codes import CODES
from adapterc.dsl.diagnostics import Diagnostic, SpecError
from adapterc.dsl.loader import load_text
from adapterc.dsl.ops import ALIASES, KNOWN_NAMES, OPS
from adapterc.dsl.schema import RULE_KINDS, schema

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"^(?P<indent>\s*(?:- )?\s*)(?P<key>[A-Za-z_]\w*):(?=\s|$)")
_AT_KEY = re.compile(r"^(?P<indent>\s*)(?P<dash>- *)?(?P<typed>\w*)$")
_RULE_START = re.compile(rf"^\s*-\s+(?P<kind>{'|'.join(RULE_KINDS)}):\s*(?P<name>\w*)")
_TYPE_SAMPLES = ('"float[...]"', '"float[..., d]"', '"weight float[V, H]"', '"int[b, n]"', '"bool[...]"', "scalar", "size")
# What the schema says of values that are expressions; everything else is a word of its own or text.
_EXPRESSIONS = ("expression", "predicate", "size", "match", "bindings", "when")


@dataclass(frozen=True)
class Shown:
    """A verdict beside the rule that it is about: `label` in the line, `detail` when asked."""

    line: int
    label: str
    detail: str


@dataclass(frozen=True)
class Examined:
    """A spec's problems, and the verdicts where it could be checked. `rules`: `adapter.rule` to its verdict."""

    problems: tuple[Diagnostic, ...]
    verdicts: Mapping[str, Shown]


@dataclass(frozen=True)
class Completion:
    """`label` is inserted; `detail` says in a line what it is."""

    label: str
    kind: str  # op, name, key, value or variable
    detail: str


def form(text: str, file: str) -> tuple[Diagnostic, ...]:
    """What is wrong with the form, the grammar, the names and the types: fast enough for every key stroke."""
    try:
        return tuple(check_types(load_text(text, file)))
    except SpecError as error:
        return error.diagnostics


def examine(path: Path) -> Examined:
    """The same for the file as it is saved, and where that is well, the verdict of every rule; seconds for rules that are tested."""
    text = path.read_text(encoding="utf-8")
    warnings = form(text, str(path))
    if any(problem.severity == "error" for problem in warnings):
        return Examined(warnings, {})

    from adapterc.check import check_specs  # loads torch, which `form` need not wait for
    from adapterc.verify import problems

    try:
        report = check_specs([path])
    except SpecError as error:
        return Examined(error.diagnostics, {})
    found = [diagnostic for rule in report.rules for diagnostic in problems(rule.verdict, rule.rule.header)]
    shown = {
        rule.name: Shown(rule.rule.header.span.line, f"{rule.verdict.klass} {rule.verdict.status}", rule.verdict.how)
        for rule in report.rules
    }
    return Examined((*warnings, *found), shown)


def word_at(text: str, line: int, column: int) -> tuple[str, Span] | None:
    """The word under the cursor, or the one that ends there."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return None
    for match in _WORD.finditer(lines[line - 1]):
        if match.start() + 1 <= column <= match.end() + 1:
            return match.group(), Span("", line, match.start() + 1, line, match.end() + 1)
    return None


def hover(text: str, line: int, column: int, verdicts: Mapping[str, Shown]) -> tuple[str, Span] | None:
    """Markdown about the word at the cursor: an error code, a rule's name, a key of the schema, an op."""
    found = word_at(text, line, column)
    if found is None:
        return None
    word, span = found
    row = text.split("\n")[line - 1]
    start = _RULE_START.match(row)
    about = (
        _code(word)
        or (_verdict(word, verdicts) if start is not None and start["name"] == word else None)
        or (
            _key(text, line, word)
            if (key := _KEY.match(row)) is not None and key["key"] == word and span.column == key.start("key") + 1
            else None
        )
        or _op(word)
    )
    return (about, span) if about else None


def _code(word: str) -> str | None:
    entry = CODES.get(word)
    return f"**{entry.code}: {entry.title}**\n\n{entry.text}\n\nExample: `{entry.example}`\n\nMend: {entry.mend}" if entry else None


def _verdict(rule: str, verdicts: Mapping[str, Shown]) -> str:
    found = next((shown for name, shown in verdicts.items() if name.partition(".")[2] == rule), None)
    return f"**{found.label}**\n\n{found.detail}" if found else "No verdict yet: save the file to check it."


def _op(word: str) -> str | None:
    spec = OPS.get(ALIASES.get(word, word))
    if spec is None:
        return None
    defined = f"\n\nover the reals: `{spec.definition}`" if isinstance(spec.definition, str) else ""
    return f"```\n{spec.signature}\n```\n{spec.meaning}{defined}"


def _key(text: str, line: int, key: str) -> str | None:
    part = _part(text, line)
    found = part.get(key)
    return f"`{key}`: {_description(found)}" if found is not None and _description(found) else None


def completions(text: str, line: int, column: int) -> tuple[Completion, ...]:
    """What may stand at the cursor: keys of the schema, values of a key, or ops and names where an expression is written."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return ()
    row = lines[line - 1][: column - 1]
    at_key = _AT_KEY.match(row)
    if at_key is not None and not _inside_bindings(lines, line):
        return tuple(_keys(text, line, bool(at_key["dash"]), bool(at_key["indent"])))
    key = _key_of(lines, line, row)
    return tuple(_values(text, line, key)) if key else ()


def _keys(text: str, line: int, dash: bool, indented: bool) -> Iterator[Completion]:
    if dash:
        kinds: Mapping[str, Any] = schema()["$defs"]
        yield from (Completion(f"{kind}: ", "key", str(kinds[kind].get("title", ""))) for kind in RULE_KINDS)
        return
    part = _part(text, line) if indented else schema()["properties"]
    yield from (Completion(f"{key}: ", "key", _description(found)) for key, found in part.items() if key not in RULE_KINDS)


def _values(text: str, line: int, key: str) -> Iterator[Completion]:
    found = _part(text, line).get(key)
    if key == "gap":
        yield from (Completion(name, "value", summary) for name, summary in _gaps().items())
    elif key in ("where", "inputs"):
        yield from (Completion(sample, "value", "a type") for sample in _TYPE_SAMPLES)
    elif found is not None and (words := _enum(found)):
        yield from (Completion(word, "value", _description(found)) for word in words)
    elif found is not None and _is_expression(found):
        yield from (Completion(name, "variable", "a name of this rule") for name in _names_of_rule(text, line))
        yield from (Completion(name, "name", "means the same everywhere") for name in KNOWN_NAMES)
        yield from (Completion(spec.name, "op", spec.signature) for spec in OPS.values())


def _part(text: str, line: int) -> Mapping[str, Any]:
    """The schema's keys for the mapping around the line: those of a rule, or the file's own."""
    lines = text.split("\n")
    row = lines[line - 1]
    if row.strip() and not row.startswith((" ", "-")):
        return _properties(schema())
    for before in reversed(lines[:line]):
        start = _RULE_START.match(before)
        if start is not None:
            return _properties(schema()["$defs"][start["kind"]])
        if before.startswith("rules:"):
            break
    return _properties(schema())


def _properties(part: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = part["properties"]
    return found


def _inside_bindings(lines: Sequence[str], line: int) -> bool:
    """Whether the line belongs to a mapping of names (`let:`, `where:`) and so starts with a name of the author's."""
    indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    for before in reversed(lines[: line - 1]):
        key = _KEY.match(before)
        if key is not None and len(key["indent"]) < indent:
            return before.rstrip().endswith(":") and not before.startswith("rules:")
    return False


def _key_of(lines: Sequence[str], line: int, row: str) -> str | None:
    """The key whose value the cursor is in; for a line of a mapping of names, the key that the mapping belongs to."""
    inner = _inside_bindings(lines, line)
    if not inner:
        match = _KEY.match(row)
        return match["key"] if match is not None else None
    indent = len(row) - len(row.lstrip())
    for before in reversed(lines[: line - 1]):
        key = _KEY.match(before)
        if key is not None and len(key["indent"]) < indent:
            return key["key"]
    return None


def _names_of_rule(text: str, line: int) -> tuple[str, ...]:
    """The variables and sizes that the rule around the line binds, as far as it is written."""
    lines = text.split("\n")
    first = next((n for n in range(line, 0, -1) if _RULE_START.match(lines[n - 1])), 1)
    rows: list[str] = []
    for row in lines[first - 1 :]:
        if rows and _RULE_START.match(row):
            break
        rows.append(row)
    names: dict[str, None] = {}
    part = _part(text, line)
    for row in rows:
        key = _KEY.match(row)
        if key is not None and key["key"] not in part:
            names[key["key"]] = None  # a line of `let:` or `where:`
        if key is not None and key["key"] in ("match", "where", "let", "constants", "program", "inputs"):
            names.update(dict.fromkeys(_WORD.findall(row[key.end() :])))
    return tuple(
        n for n in names if n not in OPS and n not in ALIASES and n not in KNOWN_NAMES and n not in ("float", "int", "weight", "size")
    )


def _resolved(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A part of the schema and what it refers to."""
    while True:
        yield found
        if "$ref" not in found:
            return
        found = schema()["$defs"][str(found["$ref"]).rpartition("/")[2]]


def _description(found: Mapping[str, Any]) -> str:
    return next((str(part["description"]) for part in _resolved(found) if "description" in part), "")


def _enum(found: Mapping[str, Any]) -> tuple[str, ...]:
    return next((tuple(part["enum"]) for part in _resolved(found) if "enum" in part), ())


def _is_expression(found: Mapping[str, Any]) -> bool:
    words = {str(part["$ref"]).rpartition("/")[2] for part in _resolved(found) if "$ref" in part}
    return bool(words.intersection(_EXPRESSIONS))


def _gaps() -> dict[str, str]:
    from adapterc.spyre_runtime.profile import load_profile, profile_names

    return {name: note.summary for profile in profile_names() for name, note in load_profile(profile).gaps.items()}
