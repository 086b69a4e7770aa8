"""`adapterc list`: the adapters, their lifetime and gap, and what their rules do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
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
        for heading in ("adapter", "lifetime", "gap", "rules"):
            table.add_column(heading, no_wrap=heading != "rules")
        table.add_column("what for", overflow="fold")
        for adapter in self.adapters:
            rules = ", ".join(rule.header.name for rule in adapter.rules)
            table.add_row(adapter.name, adapter.lifetime, adapter.gap or "–", rules, adapter.summary)
        console.print(table)


def _entry(adapter: Adapter) -> dict[str, object]:
    return {
        "adapter": adapter.name,
        "summary": adapter.summary,
        "lifetime": adapter.lifetime,
        "gap": adapter.gap,
        "file": adapter.file,
        "rules": [{"rule": rule.header.name, "kind": type(rule).__name__.lower(), "reason": rule.header.reason} for rule in adapter.rules],
    }


def list_specs(paths: Sequence[Path]) -> Listing:
    """The adapters of the given spec files. Raises SpecError."""
    return Listing(load_all(paths))
