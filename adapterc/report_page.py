"""`adapterc run --report`: what a run found as one HTML file that needs nothing else. All text that is not ours is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from adapterc.report_parts import facts, graph_section, percent_bar, section, table, text_cell
from adapterc.run_facts import GraphFacts
from adapterc.run_result import RunReport
from adapterc.run_show import short_source
from adapterc.spyre_runtime.plan_use import NOBODY, SEVERAL, Ownership, ownerships
from adapterc.spyre_runtime.profile import load_profile

STATUS = {"PROVED": "good", "TESTED": "good", "UNDECIDED": "part", "REFUTED": "bad"}


def page(report: RunReport) -> str:
    """The whole page."""
    pictures = [_pictures(graph, report.profile) for graph in report.graphs]
    body = "\n".join((_head(report), *_sections(report, pictures)))
    title = escape(f"{report.model} on {report.profile}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>\n<style>\n{_data('report.css')}</style></head>\n<body>\n{body}\n"
        f'<script type="application/json" id="data">{_json(pictures)}</script>\n<script>\n{_data("report.js")}</script>\n</body></html>\n'
    )


def _data(name: str) -> str:
    return (files("adapterc") / "data" / name).read_text(encoding="utf-8")


def _pictures(graph: GraphFacts, profile: str) -> tuple[Ownership, ...]:
    return tuple(ownerships(graph.plan, load_profile(profile))) if graph.plan is not None else ()


def _json(pictures: Sequence[Sequence[Ownership]]) -> str:
    """Pictures for the script; equal ones (layers repeat) are there once. No `<` in it can end the element."""
    cells: dict[tuple[tuple[int, ...], ...], int] = {}
    graphs: list[list[dict[str, Any]]] = []
    for shown in pictures:
        graphs.append(
            [
                {
                    "buffer": p.buffer,
                    "op": p.op,
                    "kernel": p.kernel,
                    "writes": p.writes,
                    "cores": p.cores,
                    "device_size": p.device_size,
                    "down": p.down,
                    "cells": cells.setdefault(p.cells, len(cells)),
                }
                for p in shown
            ]
        )
    return json.dumps({"graphs": graphs, "cells": list(cells), "nobody": NOBODY, "several": SEVERAL}, separators=(",", ":")).replace(
        "<", "\\u003c"
    )


def _head(report: RunReport) -> str:
    numbers = "the device's number format" if report.numerics == "device" else "unrounded numbers (fp32)"
    extra = f", with {', '.join(report.faults)}" if report.faults else ""
    return (
        f"<h1>{escape(report.model)}</h1>\n<p>on the {escape(report.device)} device, release {escape(report.profile)}, in {numbers}{escape(extra)}; "
        "compared with the stock model in float32 on the CPU</p>"
    )


def _sections(report: RunReport, pictures: Sequence[Sequence[Ownership]]) -> Iterator[str]:
    yield _result(report)
    yield from _layers(report)
    yield from _refused(report)
    yield _rules(report)
    yield from _places(report)
    yield from _compiled(report)
    if any(graph.plan is not None for graph in report.graphs):
        yield "<h2>Inside a graph</h2>"
        options = "".join(
            f'<option value="{i}">graph {escape(g.name)}: {_sizes(g)}</option>' for i, g in enumerate(report.graphs) if g.plan is not None
        )
        yield f'<p><label>Graph <select id="graph">{options}</select></label></p>'
        yield from (graph_section(i, graph, pictures[i]) for i, graph in enumerate(report.graphs) if graph.plan is not None)
    yield from _unknowns(report)


def _result(report: RunReport) -> str:
    found: list[tuple[str, str, str]] = []
    if report.refusal is not None:
        found.append(("does not run", escape(report.refusal), "bad"))
    if report.comparison is not None:
        c = report.comparison
        found.append(("lowest cosine with the CPU", f"{min(c.cosines):.6f}", ""))
        found.append(("largest difference", f"{c.largest:.2e} (values up to {c.scale:.3g})", ""))
        if c.top1 is not None:
            found.append(("same best token", f"{c.top1:.1%} of positions", ""))
    if report.generation is not None:
        same, inside = report.generation.same, report.generation.inside
        found.append(("greedy tokens", "the CPU's" if same else "differ from the CPU's", "good" if same else "part"))
        found.append(("tokens in the vocabulary", "all" if inside else "not all", "good" if inside else "bad"))
    found.append(
        ("CPU output while patched", "bitwise stock" if report.cpu_bitwise else "changed", "good" if report.cpu_bitwise else "bad")
    )
    found.append(("module after un-patching", "as it was" if report.restored else "changed", "good" if report.restored else "bad"))
    costly = max((g.cost for g in report.graphs if g.cost is not None), key=lambda cost: cost.us, default=None)
    if costly is not None:
        found.append(("predicted, longest graph", f"{costly.us:.0f} µs ({costly.low:.0f} to {costly.high:.0f})", ""))
    return facts(found)


def _layers(report: RunReport) -> Iterator[str]:
    if not report.layers:
        return
    top = max((layer.rms for layer in report.layers), default=0.0)
    rows = (
        (
            text_cell(layer.path),
            (f"{layer.rms:.2e}", layer.rms),
            (f"{layer.largest:.2e}", layer.largest),
            percent_bar(layer.rms / top if top else 0.0),
        )
        for layer in report.layers
    )
    note = "The hidden state behind each block on the device against stock float32 on the CPU: root mean square of the difference, and the largest one, each as a part of the values."
    yield section("Error by layer", note, table(("block", "rms", "largest", "rms, to scale"), rows, numbers=(1, 2), sortable=True))


def _refused(report: RunReport) -> Iterator[str]:
    if not report.refused:
        return
    rows = (
        (
            text_cell(p.obstacle.kind),
            (str(len(p.sites)), len(p.sites)),
            text_cell(short_source(p.obstacle.source), code=True),
            text_cell(p.obstacle.message, wide=True),
        )
        for p in report.refused
    )
    yield section(
        "What the stock model meets on this release", "", table(("kind", "places", "at", "because"), rows, numbers=(1,), cards=True)
    )


def _rules(report: RunReport) -> str:
    fired = [rule for rule in report.rules if report.fired.get(rule.name, 0)]
    others = [rule for rule in report.rules if not report.fired.get(rule.name, 0)]

    def rows(rules: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        for rule in rules:
            v, count = rule.verdict, report.fired.get(rule.name, 0)
            status = f'<span class="{STATUS.get(v.status, "")}">{escape(v.status)}</span>'
            yield (
                text_cell(rule.name, code=True),
                (str(count), count),
                text_cell(v.klass),
                status,
                text_cell(rule.rule.header.reason, wide=True),
                text_cell(v.how, wide=True),
            )

    headings = ("rule", "fired", "class", "verdict", "reason", "how")
    own = table(headings, rows(fired), numbers=(1,), sortable=True, cards=True) if fired else "<p>No rule fired.</p>"
    rest = (
        f"<details><summary>{len(others)} rules that did not fire</summary>{table(headings, rows(others), numbers=(1,), cards=True)}</details>"
        if others
        else ""
    )
    return section("Verdicts of the rules", "A rule that is refuted is never built.", own + rest)


def _places(report: RunReport) -> Iterator[str]:
    merged: dict[tuple[str, str], int] = {}
    for graph in report.graphs:
        for rule, lines in graph.places.items():
            for line, count in lines.items():
                merged[rule, line] = merged.get((rule, line), 0) + count
    if merged:
        rows = (
            (text_cell(rule, code=True), text_cell(short_source(line) or "–", code=True), (str(n), n)) for (rule, line), n in merged.items()
        )
        note = "Lines of the model in whose place rules put something, and the nodes that they left there, over all graphs."
        yield section("Where rules fired", note, table(("rule", "at", "nodes"), rows, numbers=(2,), sortable=True, tall=True))


def _compiled(report: RunReport) -> Iterator[str]:
    if not report.graphs:
        return

    def rows() -> Iterator[tuple[Any, ...]]:
        for g in report.graphs:
            cost = g.cost
            yield (
                text_cell(g.name, code=True),
                _sizes(g),
                (f"{g.seconds:.2f}", g.seconds),
                *((str(len(cost.ops)), len(cost.ops)) if cost else ("–", 0),),
                (str(len(g.plan.bundles)), len(g.plan.bundles)) if g.plan else ("–", 0),
                (str(g.restickifies), g.restickifies),
                (str(len(g.fallbacks)), len(g.fallbacks)),
                (f"{cost.us:.1f}", cost.us) if cost else ("–", 0),
                (f"{cost.distance:.1f}", cost.distance) if cost else ("–", 0),
                text_cell("; ".join(g.refusals) or ", ".join(sorted(set(g.fallbacks))) or "", wide=True),
            )

    frames = len({graph.frame for graph in report.graphs})
    note = (
        f"{_counted(len(report.graphs), 'compilation')} of {_counted(frames, 'piece')} of the model. Sizes are static on this device: each length that inputs are padded to is a "
        "compilation of its own (the number behind the slash)."
    )
    headings = ("graph", "inputs", "seconds", "ops", "bundles", "restickifies", "CPU fallbacks", "µs", "× floor", "refused, or on the CPU")
    yield section("Compilations by padded length", note, table(headings, rows(), numbers=range(2, 9), sortable=True))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _unknowns(report: RunReport) -> Iterator[str]:
    found = {item.choice.name: item.choice for graph in report.graphs for item in graph.leanings}
    ops = {name: sum(i.ops for g in report.graphs for i in g.leanings if i.choice.name == name) for name in found}
    rows = (
        (
            text_cell(name, code=True),
            text_cell(str(c.value)),
            (str(ops[name]) if ops[name] else "transfers", ops[name]),
            text_cell(c.summary, wide=True),
            text_cell(c.source, wide=True),
        )
        for name, c in found.items()
    )
    parts = load_profile(report.profile).unknowns
    carried = f" This release's profile carries over from another one, as guesses: {escape(', '.join(parts))}." if parts else ""
    if found or parts:
        yield section(
            "Unknowns that the numbers lean on",
            f"What nobody has published, and what is computed with instead.{carried}",
            table(("choice", "taken as", "ops", "meaning", "source"), rows, numbers=(2,)),
        )


def _sizes(graph: GraphFacts) -> str:
    return escape(" ".join("×".join(map(str, shape)) or "scalar" for shape in graph.inputs) or "–")
