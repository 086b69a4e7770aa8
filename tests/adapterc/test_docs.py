"""Pages with outputs hold what their commands print now, and looking whether they do changes none of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from adapterc.dsl.codes import CODES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def produce() -> ModuleType:
    spec = importlib.util.spec_from_file_location("produce", DOCS / "produce.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_outputs_are_those_of_a_run() -> None:
    ran = subprocess.run([sys.executable, str(DOCS / "produce.py"), "--check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]


def test_the_page_of_codes_is_the_table(produce: ModuleType) -> None:
    text = (DOCS / "error-codes.md").read_text(encoding="utf-8")
    assert text == produce.codes_page()
    assert all(f"\n## {code}\n" in text for code in CODES)


def test_a_check_of_the_pages_writes_none(
    produce: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(produce, "DOCS", tmp_path)
    source, target = tmp_path / "sizes.in.md", tmp_path / "sizes.md"
    source.write_text("```yaml small.yaml\na: 1\n```\n\n$ explain 'ceil_to(d, stick)' d=96\n")
    assert produce.main(["sizes"]) == 0
    right = target.read_text()
    assert "```yaml\na: 1\n```" in right and "$ adapterc explain" in right and "128" in right
    assert produce.main(["--check", "sizes"]) == 0
    target.write_text("old")
    assert produce.main(["--check", "sizes"]) == 1
    assert target.read_text() == "old" and "sizes.md" in capsys.readouterr().out
