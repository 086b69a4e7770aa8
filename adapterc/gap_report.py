"""Gaps for people: the table, and the report for the tracker of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from adapterc.gaps import Gap


def gap_table(gaps: Sequence[Gap]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("gap", "kind", "graph", "×", "at", "models"):
        table.add_column(heading, no_wrap=heading != "kind", overflow="fold")
    table.add_column("covered by", overflow="fold")
    for gap in gaps:
        who = ", ".join(gap.coverage.by) if gap.coverage.covered else f"[yellow]none[/]; nearest {gap.coverage.template or '–'}"
        table.add_row(gap.id, gap.obstacle.kind, "+".join(gap.graphs), str(gap.places), short(gap.obstacle.source), f"≤ {gap.blocks}", who)
    return table


def issue_text(gap: Gap, profile: str) -> str:
    """A report for the tracker of the compiler."""
    obstacle = gap.obstacle
    title = f"{obstacle.op}: {obstacle.kind} for {', '.join(gap.shapes)}"
    confirmed = (
        "The program below was run by itself and gives this answer." if gap.reproducer.confirmed else "Seen in the whole graph only."
    )
    return "\n".join(
        (
            f"### {title}",
            "",
            f"{obstacle.message[:1].upper()}{obstacle.message[1:]}.",
            "",
            f"- From: {short(obstacle.source)} (Transformers), {gap.places} place(s) in {gap.model}, graph: {' and '.join(gap.graphs)}",
            f"- Profile: {profile}; stage: {obstacle.stage or 'unknown'}; verdict: {obstacle.verdict}",
            f"- Models among the 20,000 most downloaded with these ops: up to {gap.blocks}",
            f"- Workaround: {', '.join(gap.coverage.by) if gap.coverage.covered else 'none known'}",
            "",
            confirmed,
            "```python",
            gap.reproducer.text,
            "```",
            "",
        )
    )


def short(source: str) -> str:
    """`llama/modeling_llama.py:64`."""
    return "/".join(source.rsplit("/", 2)[-2:])
