"""What a run writes: a page that holds everything and needs nothing, a trace, plans; each whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from adapterc import files
from adapterc.cli import app
from adapterc.errors import UserError
from adapterc.layer_errors import LayerError
from adapterc.plan_file import read_plans
from adapterc.report_page import page
from adapterc.spyre_runtime.dumps import STAGES
from adapterc.trace import trace_json

VOID = {"meta", "rect", "br"}


class Reader(HTMLParser):
    """Checks that elements close in order, and keeps headings, texts and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] in ("h2", "h3"):
            self.headings.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def test_the_page_holds_every_part_and_needs_nothing_else(finished_run) -> None:
    text = finished_run.html.read_text(encoding="utf-8")
    reader = read(text)
    assert reader.headings == [
        "Error by layer",
        "What the stock model meets on this release",
        "Verdicts of the rules",
        "Where rules fired",
        "Compilations by padded length",
        "Inside a graph",
        "LX over time",
        "Which core has which part of a tensor",
        "Cost by op",
        "Unknowns that the numbers lean on",
    ]
    assert not reader.links and not re.search(r"https?://(?!www\.w3\.org/)|@import|url\(", text)
    report = finished_run.report
    shown = "\n".join(reader.texts)
    for rule, count in report.fired.items():
        assert not count or rule in shown
    assert "special_functions" in shown and "encoder.layer.1" in shown
    (graph,) = report.graphs
    assert all(op.op in shown for op in graph.cost.ops)


def test_the_data_of_the_page_draws_every_tensor_that_a_plan_divides(finished_run) -> None:
    text = finished_run.html.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    (graph,) = finished_run.report.graphs
    (pictures,) = data["graphs"]
    written = {p["buffer"] for p in pictures if p["writes"]}
    assert {op.output for op in graph.plan.ops if graph.plan.buffer(op.output).alias is None} <= written
    for picture in pictures:
        cells = data["cells"][picture["cells"]]
        assert len({len(row) for row in cells}) == 1
        assert all(core < picture["cores"] for row in cells for core in row)


def test_text_from_elsewhere_is_escaped(finished_run) -> None:
    evil = "</script><script>alert(1)</script>"
    graph = dataclasses.replace(finished_run.report.graphs[0], name=evil, fallbacks=(evil,), places={evil: {evil: 1}})
    report = dataclasses.replace(finished_run.report, model=evil, graphs=(graph,), refusal=evil, layers=(LayerError(evil, 0.1, 0.1),))
    text = page(report)
    assert "<script>alert" not in text
    assert read(text).texts.count("\n") >= 0


def test_a_run_that_was_refused_has_a_page_too(finished_run) -> None:
    report = dataclasses.replace(finished_run.report, graphs=(), layers=(), comparison=None, refusal="erf has no program", fired={})
    reader = read(page(report))
    assert "erf has no program" in reader.texts and "Inside a graph" not in reader.headings


def test_the_trace_is_a_chrome_trace_of_the_predicted_run(finished_run) -> None:
    data = json.loads(finished_run.trace.read_text())
    (graph,) = finished_run.report.graphs
    events = data["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "C", "i"}
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads[0] == "host" and threads[1] == "bundles" and threads[2] == "core 0"
    slices: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        assert {"ph", "pid", "tid", "name"} <= event.keys()
        if event["ph"] == "X":
            assert event["tid"] in threads
            slices.setdefault(event["tid"], []).append((event["ts"], event["dur"]))
    for found in slices.values():  # nothing on a thread overlaps
        assert all(a[0] + a[1] <= b[0] + 1e-6 for a, b in zip(sorted(found), sorted(found)[1:], strict=False))
    assert len(slices[1]) == len(graph.plan.bundles)
    assert sum(dur for _, dur in slices[2]) == pytest.approx(graph.cost.us)
    assert {e["name"] for e in events if e["ph"] == "C"} == {"LX a core (bytes)", "DMA (GB/s)"}
    assert json.loads(trace_json("m", "p", ()))["traceEvents"] == []


def test_plans_are_read_back_with_where_their_inputs_come_from(finished_run) -> None:
    (graph,) = finished_run.report.graphs
    (saved,) = read_plans(finished_run.plan)
    assert saved.plan == graph.plan and set(saved.origins) == set(graph.plan.inputs)
    kinds = {origin.kind for origin in saved.origins.values()}
    assert "weight" in kinds
    weights = [origin.path for origin in saved.origins.values() if origin.kind == "weight"]
    assert "encoder.layer.1.output.dense.weight" in weights and all(weights)


BAD_PLANS = {
    "no JSON": ("{", "no JSON: line 1"),
    "something else": ('{"format": "other"}', "no file of plans"),
    "another version": ('{"format": "adapterc-plans", "version": 9}', "version '9'"),
    "a damaged entry": ('{"format": "adapterc-plans", "version": 1, "graphs": [{"graph": "0", "inputs": [], "plan": 3}]}', "no plan"),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_file_that_holds_no_plans_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    text, message = BAD_PLANS[name]
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_plans(path)
    assert caught.value.code == "ADC510"


def test_a_huge_or_missing_file_is_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(2**30)
    for path, message in ((large, "1024 MiB is more than"), (tmp_path / "none.json", "cannot be read"), (tmp_path, "cannot be read")):
        with pytest.raises(UserError, match=message) as caught:
            read_plans(path)
        assert caught.value.code == "ADC510"


def test_the_report_tells_cost_unknowns_and_compilations_as_json(finished_run) -> None:
    data = json.loads(json.dumps(finished_run.report.to_json(), default=str))
    (graph,) = data["graphs"]
    assert graph["cost"]["low_us"] < graph["cost"]["us"] < graph["cost"]["high_us"] and graph["cost"]["distance"] >= 1
    assert {"op", "kernel", "cores", "read_bytes", "macs", "us", "bound", "distance"} <= graph["cost"]["ops"][0].keys()
    assert {item["name"] for item in graph["leans_on_unknown"]} >= {"special_functions", "accumulator"}
    assert graph["inputs"] == [[2, 5], [2, 5]]  # ids and mask; no weight changes from call to call
    assert graph["restickifies"] >= 0 and data["layer_errors"][0]["rms"] < 0.01
    assert len(data["written"]) == 3


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run.html"
    target.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match="No space left") as caught:
        files.write_whole(target, "after", "--report")
    assert caught.value.code == "ADC512"
    assert target.read_text() == "before" and list(tmp_path.iterdir()) == [target]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["run", "config:BertModel", *map(str, arguments), "--json"])


REFUSED = {
    "a folder that does not exist": (("--report", "nowhere/run.html"), "ADC512"),
    "a folder as a file": (("--trace", "."), "ADC512"),
    "no stage": (("--dump", "link"), "ADC514"),
    "no fault": (("--fault", "gremlins"), "ADC608"),
    "a device fault to switch off": (("--without-fault", "exp-floor"), "ADC608"),
    "no device": (("--device", "imaginary"), "ADC507"),
    "no real device": (("--device", "real"), "ADC511"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_be_made_says_so_before_it_starts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, code = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 1
    (error,) = json.loads(result.stdout)["errors"]
    assert error["code"] == code and error["next_step"] and "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_help_lists_every_stage() -> None:
    shown = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).stdout
    assert all(stage in shown for stage in STAGES)


def test_saved_plans_run_from_the_command_line_without_their_model(finished_run) -> None:
    result = CliRunner().invoke(app, ["run", f"plan:{finished_run.plan}", "--json"])
    assert result.exit_code == 0, result.output
    (graph,) = json.loads(result.stdout)["graphs"]
    expected = finished_run.report.to_json()["graphs"][0]
    assert graph["problem"] is None and graph["finite"]
    assert {k: graph[k] for k in ("cost", "bundles", "restickifies", "fallbacks", "leans_on_unknown")} == {
        k: expected[k] for k in ("cost", "bundles", "restickifies", "fallbacks", "leans_on_unknown")
    }


def test_a_plan_file_that_is_none_is_one_sentence_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("[]")
    result = CliRunner().invoke(app, ["run", f"plan:{path}"])
    assert result.exit_code == 1 and result.stderr.startswith(f"error ADC510: {path}: this is no file of plans")
    assert "Traceback" not in result.output
