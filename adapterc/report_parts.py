"""Pieces of a report's page: tables, bars, the picture of LX, a graph's section. Cells are HTML; `text_cell` makes one of any text."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from html import escape

from adapterc.run_facts import GraphFacts
from adapterc.run_show import bytes_text, short_source
from adapterc.spyre_runtime.cost import CostReport
from adapterc.spyre_runtime.plan import Plan
from adapterc.spyre_runtime.plan_use import Ownership, lx_slots
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.tile_checks import LxSlot

Cell = str | tuple[str, float]  # HTML, or a number as it is shown and as it sorts


def text_cell(text: str, code: bool = False, wide: bool = False) -> str:
    shown = escape(text)
    shown = f"<code>{shown}</code>" if code and text else shown
    return f'<span class="wide">{shown}</span>' if wide and text else shown


def facts(found: Iterable[tuple[str, str, str]]) -> str:
    """Label, value (HTML) and colour class."""
    return (
        '<div class="facts">' + "".join(f'<div>{escape(label)}<b class="{css}">{value}</b></div>' for label, value, css in found) + "</div>"
    )


def section(title: str, note: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n" + (f'<p class="note">{note}</p>\n' if note else "") + body


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    numbers: Iterable[int] = (),
    sortable: bool = False,
    tall: bool = False,
    cards: bool = False,
) -> str:
    """numbers: columns that hold numbers. A wide table scrolls in its own box; one of `cards` becomes a list where the page is narrow."""
    numeric = set(numbers)
    css = [' class="n"' if i in numeric else "" for i in range(len(headings))]
    head = "".join(f"<th{c}>{escape(h)}</th>" for c, h in zip(css, headings, strict=True))
    names = [f' data-h="{escape(h)}"' if cards else "" for h in headings]
    lines = ["<tr>" + "".join(_cell(cell, c + h) for c, h, cell in zip(css, names, row, strict=True)) + "</tr>" for row in rows]
    classes = " ".join(name for name, on in (("sortable", sortable), ("cards", cards)) if on)
    kind = f' class="{classes}"' if classes else ""
    box = "scroll tall" if tall else "scroll"
    return f'<div class="{box}"><table{kind}><thead><tr>{head}</tr></thead><tbody>\n' + "\n".join(lines) + "\n</tbody></table></div>"


def _cell(cell: Cell, attributes: str) -> str:
    if isinstance(cell, tuple):
        return f'<td{attributes} data-v="{cell[1]:.9g}">{escape(cell[0])}</td>'
    wide = ' class="w"' if cell.startswith('<span class="wide">') else ""
    return f"<td{wide}{attributes}>{cell}</td>"


def percent_bar(part: float, css: str = "") -> str:
    return f'<span class="bar"><i class="{css}" style="width:{100 * min(max(part, 0.0), 1.0):.1f}%"></i></span>'


def graph_section(number: int, graph: GraphFacts, pictures: Sequence[Ownership]) -> str:
    """LX, cores and cost of one graph that the device took. number: its place in the run, by which the script knows it."""
    assert graph.plan is not None and graph.cost is not None
    options = "".join(
        f'<option value="{i}">{escape(p.buffer)} – {"written" if p.writes else "read"} by {escape(p.op)} ({escape(p.kernel)})</option>'
        for i, p in enumerate(pictures)
    )
    cores = (
        f'<p><label>Tensor <select class="tensor">{options}</select></label></p>\n<figure><svg class="own" preserveAspectRatio="none" '
        'role="img" aria-label="cores of the chosen tensor"></svg><figcaption class="own"></figcaption></figure><div class="legend"></div>'
    )
    return "\n".join(
        (
            f'<section class="graph" data-graph="{number}">',
            "<h3>LX over time</h3>",
            lx_picture(graph.plan),
            "<h3>Which core has which part of a tensor</h3>",
            cores,
            "<h3>Cost by op</h3>",
            cost_table(graph.cost),
            "</section>",
        )
    )


def lx_picture(plan: Plan) -> str:
    """What lies in each core's LX from step to step: a box a buffer, its addresses upwards."""
    slots = lx_slots(plan)
    usable = load_profile(plan.profile).limits.lx_usable
    peak = max((slot.address + slot.bytes for slot in slots), default=0)
    if not slots:
        return f"<p>Nothing stays in LX; {bytes_text(usable)} a core could be used.</p>"
    boxes = "".join(_box(slot, plan, peak) for slot in slots)
    return (
        f'<figure><svg class="lx" viewBox="0 0 {len(plan.steps)} 1000" preserveAspectRatio="none" role="img" '
        f'aria-label="buffers in LX by step and address">{boxes}</svg>'
        f'<div class="axis"><span>step 0</span><span>step {len(plan.steps) - 1}</span></div>'
        f"<figcaption>{len(slots)} buffers; up to {bytes_text(peak)} a core at one time (top of the picture), of {bytes_text(usable)} that the "
        f"planner may use ({peak / usable:.2%})</figcaption></figure>"
    )


def _box(slot: LxSlot, plan: Plan, peak: int) -> str:
    bottom, height = 1000 * slot.address / peak, 1000 * slot.bytes / peak
    hue = zlib.crc32(slot.storage.encode()) % 360
    title = f"{slot.storage}: {slot.bytes} bytes at {slot.address} on each core, from {plan.steps[slot.first].name} to {plan.steps[slot.last].name}"
    return (
        f'<rect x="{slot.first}" y="{1000 - bottom - height:.2f}" width="{slot.last - slot.first + 1}" height="{height:.2f}" '
        f'fill="hsl({hue} 55% 52%)"><title>{escape(title)}</title></rect>'
    )


def cost_table(cost: CostReport) -> str:
    top = max((op.us for op in cost.ops), default=0.0)
    rows = [
        (
            text_cell(op.op, code=True),
            text_cell(op.kernel),
            (f"{op.us:.2f}", op.us),
            percent_bar(op.us / top if top else 0.0),
            (f"±{op.error:.0%}", op.error),
            text_cell(op.bound),
            (str(op.cores), op.cores),
            (f"{(op.read_bytes + op.written_bytes) / 1e3:.1f}", op.read_bytes + op.written_bytes),
            (f"{op.padded / 1e3:.1f}", op.padded),
            (f"{op.macs / 1e6:.2f}", op.macs),
            (f"{op.distance:.1f}", op.distance),
            text_cell(short_source(op.source), code=True),
        )
        for op in cost.ops
    ]
    own = "" if cost.known else " The constants are carried over from another release; for this one they are unknown."
    skipped = (
        f" Not priced: {len(cost.host_steps)} steps of the host ({escape(', '.join(sorted(set(cost.host_steps))))})."
        if cost.host_steps
        else ""
    )
    note = (
        f'<p class="note">{cost.us:.1f} µs in all ({cost.low:.1f} to {cost.high:.1f}), {cost.distance:.1f} times the floor of {cost.floor_us:.1f} µs at which '
        f"every input is read once, every output written once and all cores multiply at peak.{skipped}{own}</p>"
    )
    headings = ("op", "program", "µs", "to scale", "error", "bound by", "cores", "kB moved", "kB padding", "M MAC", "× floor", "at")
    return note + table(headings, rows, numbers=(2, 4, 6, 7, 8, 9, 10), sortable=True, tall=True)
