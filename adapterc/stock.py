"""Fingerprints of the stock functions that rules rewrite: a rule was proved against that text, and a new Transformers may have another.

Only hashes are kept (`data/stock_functions.json`, made by `adapterc audit --record`), with the version that they were taken from.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import transformers
from torch import fx

from adapterc.spyre_runtime.source_lines import source_line

RECORD = "stock_functions.json"


@dataclass(frozen=True)
class Recorded:
    """What a record says: the Transformers version, and per rule the hash of each function that it fired in."""

    version: str
    rules: Mapping[str, Mapping[str, str]]


def record_path() -> Path:
    return Path(str(files("adapterc"))) / "data" / RECORD


def recorded() -> Recorded:
    data = json.loads(record_path().read_text(encoding="utf-8"))
    return Recorded(data["transformers"], data["rules"])


def write_record(rules: Mapping[str, Mapping[str, str]]) -> Path:
    text = json.dumps(
        {"transformers": transformers.__version__, "rules": {k: dict(sorted(v.items())) for k, v in sorted(rules.items())}}, indent=1
    )
    record_path().write_text(text + "\n", encoding="utf-8")
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
