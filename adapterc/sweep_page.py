"""The report of a sweep as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from adapterc.sweep_report import WIDTHS, Share, SweepReport
from adapterc.sweep_row import DEVICE_COSINE, DEVICE_COSINE_AT_LEAST, FP32_TOLERANCE, Outcome

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7d4f; --part: #b07d1a; --bad: #b3372f; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } td.n, th.n { text-align: right; } .scroll { overflow-x: auto; }
.bar { display: inline-block; width: 7rem; height: .7rem; background: var(--line); vertical-align: middle; }
.bar i { display: block; height: 100%; background: var(--good); }
.passed { color: var(--good); } .failed { color: var(--bad); } .none { opacity: .5; } code { font-size: .9em; }
"""


def page(report: SweepReport) -> str:
    """The whole page. Everything that comes from the list or from an error is escaped."""
    totals = report.totals
    body = [
        f"<h1>{escape(report.meta['name'])} on {escape(report.meta['profile'])}</h1>",
        f"<p>{report.models} models in {len(report.groups)} groups that can run; {report.rows} rows so far. A group stands for its models. It "
        "<em>attached</em> when the patches went onto it and left its CPU result as it was to the bit, and it <em>passed</em> when the simulator's "
        f"result is stock's: within {FP32_TOLERANCE:.0e} of the largest value and with the same best tokens in fp32, and with a cosine of at least "
        f"{DEVICE_COSINE} in the device's format (or bfloat16's on the same model where that is lower, down to {DEVICE_COSINE_AT_LEAST}).</p>",
        _table(
            ("", "models that ran", "attached", "lowered", "passed"),
            ([escape(w if w != "all" else "every width that ran"), *_numbers(totals[w])] for w in (*WIDTHS, "all")),
            numbers=(1, 2, 3, 4),
        ),
        "<h2>By family</h2>",
        _table(
            ("family", "models", "groups", "attached", "passed", "of its models"),
            (
                [
                    escape(f.model_type),
                    str(f.models),
                    str(f.groups),
                    *_numbers(f.shares["all"])[1::2],
                    _bar(f.shares["all"].passed, f.models),
                ]
                for f in report.families
            ),
            numbers=(1, 2, 3, 4),
        ),
        "<h2>By reason</h2>",
        _table(
            ("models", "reason", "at", "because", "groups"),
            (
                [str(r.models), escape(r.kind), f"<code>{escape(r.place)}</code>", escape(r.message), "<br>".join(map(escape, r.groups))]
                for r in report.reasons
            ),
            numbers=(0,),
        ),
        "<h2>Not run</h2>",
        _table(
            ("models", "class", "the most downloaded"),
            ([str(u.models), escape(u.why), escape(u.example)] for u in report.unrunnable),
            numbers=(0,),
        ),
        "<h2>By group</h2>",
        _table(
            ("models", "group", *WIDTHS),
            ([str(g.models), escape(g.key), *(_outcome(g.outcomes.get(w)) for w in WIDTHS)] for g in report.groups),
            numbers=(0,),
        ),
    ]
    title = f"Sweep of {escape(report.meta['name'])}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _numbers(share: Share) -> list[str]:
    return [str(share.ran), str(share.attached), str(share.lowered), str(share.passed)]


def _bar(part: int, whole: int) -> str:
    return f'<span class="bar"><i style="width:{100 * part / whole:.1f}%"></i></span> {100 * part / whole:.1f}&nbsp;%'


def _outcome(outcome: Outcome | None) -> str:
    if outcome is None:
        return '<span class="none">not yet</span>'
    if outcome.passed:
        numbers = outcome.numbers
        return f'<span class="passed">passed</span>, fp32 {numbers["fp32_error"]:.0e}, device {numbers["device_cosine"]:.4f}'
    return f'<span class="failed">{escape(outcome.stage)}</span>: {escape(outcome.kind)}'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """Cells are HTML already."""
    css = [' class="n"' if i in numbers else "" for i in range(len(headings))]
    head = "".join(f"<th{c}>{escape(h)}</th>" for c, h in zip(css, headings, strict=True))
    lines = ["<tr>" + "".join(f"<td{c}>{cell}</td>" for c, cell in zip(css, row, strict=True)) + "</tr>" for row in rows]
    return '<div class="scroll"><table><thead><tr>' + head + "</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
