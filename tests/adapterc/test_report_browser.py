"""The page in a real browser, wide and narrow: it runs without an error, draws its pictures, and nothing sticks out."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from adapterc.report_page import page

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
CHECK = """
<script>
window.addEventListener("load", () => {
  const wide = document.documentElement, facts = {};
  facts.ready = wide.dataset.ready ?? "no";
  facts.overflow = wide.scrollWidth > window.innerWidth ? "yes" : "no";
  const inside = (e) => e.closest(".scroll") !== null || e.closest("svg") !== null;
  facts.outside = [...document.body.querySelectorAll("*")].filter((e) => !inside(e) && e.getBoundingClientRect().right > window.innerWidth + 1).length;
  const chooser = document.getElementById("graph");
  chooser.value = chooser.options[chooser.options.length - 1].value;
  chooser.dispatchEvent(new Event("change"));
  const shown = [...document.querySelectorAll("section.graph")].filter((s) => !s.classList.contains("hidden"));
  facts.graphs = shown.length;
  facts.squares = shown[0].querySelectorAll("svg.own rect").length;
  const before = shown[0].querySelector("figcaption.own").textContent, tensor = shown[0].querySelector("select.tensor");
  tensor.value = tensor.value === "0" ? "1" : "0";
  tensor.dispatchEvent(new Event("change"));
  facts.chosen = shown[0].querySelector("figcaption.own").textContent !== before;
  const table = shown[0].querySelector("table.sortable"), head = table.tHead.rows[0].cells[2];
  head.querySelector("button").click();
  const values = [...table.tBodies[0].rows].map((row) => Number(row.cells[2].dataset.v));
  facts.sorted = values.every((value, i) => i === 0 || values[i - 1] >= value) && values[0] > values[values.length - 1];
  wide.setAttribute("data-facts", JSON.stringify(facts));
});
window.addEventListener("error", (event) => document.documentElement.setAttribute("data-error", event.message));
</script></head>"""


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed (chromium or chrome)")
@pytest.mark.parametrize("width", [1400, 380])
def test_the_page_fits_and_its_pictures_work(width: int, finished_run, tmp_path: Path) -> None:
    graph = finished_run.report.graphs[0]
    report = dataclasses.replace(finished_run.report, graphs=(graph, graph))
    path = tmp_path / "run.html"
    path.write_text(page(report).replace("</head>", CHECK, 1), encoding="utf-8")
    # An inner frame, because a headless window has a least width of its own.
    frame = tmp_path / "frame.html"
    frame.write_text(f'<!doctype html><body style="margin:0"><iframe id="f" src="run.html" style="border:0;width:{width}px;height:900px"></iframe><script>'
                     'window.addEventListener("load", () => setTimeout(() => { const d = document.getElementById("f").contentDocument.documentElement;'
                     ' for (const n of ["facts", "error"]) document.body.setAttribute("data-" + n, d.getAttribute("data-" + n) ?? ""); }, 300));</script>')  # fmt: skip
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [str(BROWSER), *options, "--virtual-time-budget=5000", "--window-size=1500,1000", "--dump-dom", frame.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    (error,) = re.findall(r'data-error="([^"]*)"', dom)
    (facts,) = re.findall(r'data-facts="([^"]*)"', dom)
    assert not error
    found = facts.replace("&quot;", '"')
    assert '"ready":"yes"' in found and '"overflow":"no"' in found and '"outside":0' in found
    assert '"graphs":1' in found and '"chosen":true' in found and '"sorted":true' in found
    assert int(re.findall(r'"squares":(\d+)', found)[0]) > 1
