"""Gaps for people: the table, and the report for the tracker of the compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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


def issue_text(gap: Mapping[str, Any], profile: str) -> str:
    """A report for the tracker of the compiler, of a gap in its JSON form; of a ranked one with the models of all its architectures."""
    title = f"{gap['op']}: {gap['kind']} for {', '.join(gap['shapes'])}"
    confirmed = (
        "The program below was run by itself and gives this answer." if gap["reproducer_confirmed"] else "Seen in the whole graph only."
    )
    architectures = gap.get("architectures", ())
    models = (
        f"- Blocks {gap['blocks_models']} of the 20,000 most downloaded models: {', '.join(architectures)}"
        if architectures
        else f"- Models among the 20,000 most downloaded with these ops: up to {gap['blocks_models']}"
    )
    return "\n".join(
        (
            f"### {title}",
            "",
            f"{gap['why'][:1].upper()}{gap['why'][1:]}.",
            "",
            f"- From: {short(gap['source'])} (Transformers), {gap['places']} place(s) in {gap['model']}, graph: {' and '.join(gap['graphs'])}",
            f"- Profile: {profile}; stage: {gap['stage'] or 'unknown'}; verdict: {gap['verdict']}",
            models,
            f"- Workaround: {', '.join(gap['covered_by']) or 'none known'}",
            "",
            confirmed,
            "```python",
            gap["reproducer"],
            "```",
            "",
        )
    )


def short(source: str) -> str:
    """`llama/modeling_llama.py:64`."""
    return "/".join(source.rsplit("/", 2)[-2:])
