"""`adapterc list`: the adapters, their lifetime and gap, what their rules do, and the families that they were seen to fire in.

Families come from the record that `adapterc audit --record` makes (adapterc/stock.py): the Transformers functions that each rule rewrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adapterc.dsl.adapter import Adapter
from adapterc.dsl.loader import load_all


@dataclass(frozen=True)
class Listing:
    adapters: tuple[Adapter, ...]
    ok: bool = True

    def to_json(self) -> Mapping[str, object]:
        return {"adapters": [_entry(adapter) for adapter in self.adapters]}

    def show(self, console: Console) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("adapter", "lifetime", "gap", "rules", "fires in"):
            table.add_column(heading, no_wrap=heading not in ("rules", "fires in"))
        table.add_column("what for", overflow="fold")
        for adapter in self.adapters:
            rules = ", ".join(rule.header.name for rule in adapter.rules)
            table.add_row(
                adapter.name, adapter.lifetime, adapter.gap or "–", rules, ", ".join(families_of(adapter)) or "–", escape(adapter.summary)
            )
        console.print(table)


@cache
def _recorded() -> Mapping[str, Mapping[str, str]]:
    """The record's rules, read here as data: adapterc.stock loads Transformers, which a list does not need."""
    rules: Mapping[str, Mapping[str, str]] = json.loads((files("adapterc") / "data" / "stock_functions.json").read_text(encoding="utf-8"))[
        "rules"
    ]
    return rules


def families_of(adapter: Adapter) -> tuple[str, ...]:
    """Model types whose source the adapter's rules rewrote in the recorded audit; `shared` for functions that families share (activations, masks)."""
    names = {f"{adapter.name}.{rule.header.name}" for rule in adapter.rules}
    functions = (function for rule, found in _recorded().items() if rule in names for function in found)
    return tuple(sorted({f.split("/")[1] if f.startswith("models/") else "shared" for f in functions}))


def _entry(adapter: Adapter) -> dict[str, object]:
    return {
        "adapter": adapter.name,
        "summary": adapter.summary,
        "lifetime": adapter.lifetime,
        "gap": adapter.gap,
        "file": adapter.file,
        "families": list(families_of(adapter)),
        "rules": [{"rule": rule.header.name, "kind": type(rule).__name__.lower(), "reason": rule.header.reason} for rule in adapter.rules],
    }


def list_specs(paths: Sequence[Path]) -> Listing:
    """The adapters of the given spec files. Raises SpecError."""
    return Listing(load_all(paths))
