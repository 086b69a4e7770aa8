"""Watching: what changed between two looks is checked, and nothing else. The clock is the test's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapterc import watch as watching
from adapterc.cli import watch_specs
from adapterc.errors import UserError

SPEC = """
adapter: {name}
summary: For the test.
lifetime: hardware
rules:
  - rewrite: cube
    match: pow(x, 3)
    where: {{x: "float[...]"}}
    substitute: {substitute}
    reason: For the test.
"""


def write(folder: Path, name: str, substitute: str = "x * x * x") -> Path:
    path = folder / f"{name}.yaml"
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(SPEC.format(name=name, substitute=substitute))
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))  # a file system's clock may be coarse
    return path


def ticks(*steps: Callable[[], object]) -> Iterator[None]:
    """One look, and one more after each step."""
    yield
    for step in steps:
        step()
        yield


def watched(folder: Path, *steps: Callable[[], object]) -> tuple[list[list[str]], list[str]]:
    checked: list[list[str]] = []
    removed: list[str] = []
    watching.watch([folder], lambda paths: checked.append([p.stem for p in paths]), lambda p: removed.append(p.stem), ticks(*steps))
    return checked, removed


def test_only_what_was_saved_is_checked_again(tmp_path: Path) -> None:
    write(tmp_path, "a"), write(tmp_path, "b")
    checked, removed = watched(tmp_path, lambda: None, lambda: write(tmp_path, "b"), lambda: None)
    assert checked == [["a", "b"], ["b"]] and not removed


def test_a_new_spec_of_the_folder_is_checked_and_a_removed_one_named(tmp_path: Path) -> None:
    first = write(tmp_path, "a")
    checked, removed = watched(
        tmp_path, lambda: write(tmp_path, "c"), first.unlink, (tmp_path / "c.yaml").unlink, lambda: write(tmp_path, "a")
    )
    assert checked == [["a"], ["c"], ["a"]] and removed == ["a", "c"]


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    write(tmp_path, "a")
    checked, _ = watched(tmp_path, interrupt, lambda: write(tmp_path, "a"))
    assert checked == [["a"]]


def test_nothing_to_watch_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        watched(tmp_path)
    assert error.value.code == "ADC901"


def test_the_command_prints_verdicts_and_faults_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "a")
    steps = ticks(lambda: write(tmp_path, "a", "x * x"), lambda: write(tmp_path, "a", "x * * x"), path.unlink)
    monkeypatch.setattr(watching, "every", lambda: steps)
    watch_specs([tmp_path], as_json=True)
    right, wrong, unread, gone = map(json.loads, capsys.readouterr().out.splitlines())
    assert right["ok"] and [rule["rule"] for rule in right["rules"]] == ["a.cube"]
    assert not wrong["ok"] and wrong["rules"][0]["status"] == "REFUTED"
    assert unread["errors"][0]["code"] == "ADC201" and unread["errors"][0]["line"] == 9
    assert gone["errors"][0]["code"] == "ADC101"
