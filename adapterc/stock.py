"""Fingerprints of the stock functions that rules rewrite: a rule was proved against that text, and a new Transformers may have another.

Only hashes are kept (`data/stock_functions.json`, made by `adapterc audit --record`), with the version that they were taken from: one of each function,
and one of each of its statements, so that a later text can be told apart line by line without keeping the earlier one.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import transformers
from torch import fx

from adapterc.spyre_runtime.source_lines import source_line

RECORD = "stock_functions.json"


@dataclass(frozen=True)
class Recorded:
    """What a record says: the Transformers version, per rule the hash of each function that it fired in, and per function those of its statements."""

    version: str
    rules: Mapping[str, Mapping[str, str]]
    statements: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """One statement of a function without the blocks inside it. `line`, `text`: where it begins and its first line there."""

    digest: str
    line: int
    text: str


def record_path() -> Path:
    return Path(str(files("adapterc"))) / "data" / RECORD


def recorded() -> Recorded:
    data = json.loads(record_path().read_text(encoding="utf-8"))
    return Recorded(data["transformers"], data["rules"], data["statements"])


def write_record(rules: Mapping[str, Mapping[str, str]]) -> Path:
    names = sorted({name for functions in rules.values() for name in functions})
    data = {
        "transformers": transformers.__version__,
        "rules": {rule: dict(sorted(functions.items())) for rule, functions in sorted(rules.items())},
        "statements": {name: [statement.digest for statement in statements_of(name)] for name in names},
    }
    record_path().write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return record_path()


def functions_of(nodes: Iterable[fx.Node]) -> dict[str, str]:
    """The Transformers functions that the nodes come from, with the hash of each."""
    found = {}
    for node in nodes:
        file, _, line = source_line(node).rpartition(":")
        if "/transformers/" in file and line.isdigit():
            name = enclosing(file, int(line))
            if name is not None:
                found[name] = fingerprint(name) or ""
    return found


def enclosing(file: str, line: int) -> str | None:
    """`models/llama/modeling_llama.py:LlamaRMSNorm.forward`, the innermost function around the line."""
    best: tuple[int, str] | None = None
    for name, first, last, _ in _functions(file):
        if first <= line <= last and (best is None or first >= best[0]):
            best = (first, name)
    return f"{file.rpartition('/transformers/')[2]}:{best[1]}" if best else None


def fingerprint(name: str) -> str | None:
    """The hash of a function's syntax tree, comments and layout left out; None where this Transformers has no such function."""
    file, _, function = name.partition(":")
    path = Path(transformers.__file__).parent / file
    if not path.is_file():
        return None
    return next((text for found, _, _, text in _functions(str(path)) if found == function), None)


def statements_of(name: str) -> tuple[Statement, ...]:
    """The statements of a function in the installed Transformers, in order; none where it is gone."""
    file, _, function = name.partition(":")
    path = Path(transformers.__file__).parent / file
    if not path.is_file():
        return ()
    text = path.read_text(encoding="utf-8")
    lines, node = text.splitlines(), _node(ast.parse(text), function.split("."))
    if node is None:
        return ()
    found = [child for child in ast.walk(node) if isinstance(child, ast.stmt)]
    return tuple(
        Statement(_digest(_head(child)), child.lineno, lines[child.lineno - 1].strip()) for child in sorted(found, key=lambda n: n.lineno)
    )


def difference(name: str, before: Sequence[str]) -> str:
    """A diff of a function against its recorded statements: new ones with their text, and how many of the recorded ones are gone at each place."""
    now = statements_of(name)
    rows = [f"--- {name} as recorded", f"+++ {name} in Transformers {transformers.__version__}"]
    matcher = difflib.SequenceMatcher(None, list(before), [statement.digest for statement in now], autojunk=False)
    for tag, first, last, start, stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        if last > first:
            rows.append(f"- {last - first} recorded statement{'s' if last - first > 1 else ''}")
        rows += [f"+ {statement.line}: {statement.text}" for statement in now[start:stop]]
    return "\n".join(rows)


def _node(tree: ast.AST, path: Sequence[str]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for child in ast.walk(tree):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and child.name == path[0]:
            if len(path) > 1:
                return _node(child, path[1:])
            if not isinstance(child, ast.ClassDef):
                return child
    return None


def _head(statement: ast.stmt) -> str:
    """The statement without the statements inside it."""
    parts = [type(statement).__name__]
    for key, value in ast.iter_fields(statement):
        nested = isinstance(value, list) and any(isinstance(item, ast.stmt | ast.excepthandler | ast.match_case) for item in value)
        if not nested:
            parts.append(
                f"{key}={ast.dump(value) if isinstance(value, ast.AST) else [ast.dump(v) if isinstance(v, ast.AST) else v for v in value] if isinstance(value, list) else value}"
            )
    return " ".join(parts)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def _functions(file: str) -> tuple[tuple[str, int, int, str], ...]:
    """Qualified name, first and last line, and hash of every function of a file."""
    found = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                digest = hashlib.sha256(ast.dump(child).encode()).hexdigest()[:16]
                found.append((f"{prefix}{child.name}", child.lineno, child.end_lineno or child.lineno, digest))
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            else:
                visit(child, prefix)

    visit(ast.parse(Path(file).read_text(encoding="utf-8")), "")
    return tuple(found)
