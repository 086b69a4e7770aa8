"""Audit: the state of an adapter follows from the profile, the stock functions and the families, and from nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from adapterc import audit, specs, stock
from adapterc.dsl.adapter import Adapter
from adapterc.dsl.loader import load
from adapterc.gaps import profile_named
from adapterc.spyre_runtime.profile import Note, Profile

SPEC = """
adapter: {name}
summary: For the test.
lifetime: scaffold
gap: made-up
rules:
  - rewrite: cube
    match: pow(x, 3)
    where: {{x: "float[...]"}}
    substitute: x * x * x
    reason: For the test.
"""


def adapter(tmp_path: Path, name: str = "cubes") -> Adapter:
    path = tmp_path / f"{name}.yaml"
    path.write_text(SPEC.format(name=name))
    return load(path)


def profile(state: str | None) -> Profile:
    base = profile_named("torch-spyre-2026-06")
    gaps = {} if state is None else {"made-up": Note("made-up", "powers do not lower", state=state)}
    return dataclasses.replace(base, gaps=gaps)


def state(found: Adapter, gap: str | None, fired: int = 1, left: dict[str, list[str]] | None = None) -> audit.Finding:
    return audit._finding(found, profile(gap), {found.name: fired}, {}, left or {}, asked_all=True)


def test_needed_while_the_gap_is_open(tmp_path: Path) -> None:
    assert state(adapter(tmp_path), "open").state == audit.NEEDED


def test_retired_with_the_diff_that_removes_it(tmp_path: Path) -> None:
    found = state(adapter(tmp_path), "closed")
    assert found.state == audit.RETIRED
    removed = [line[1:] for line in found.diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert "\n".join(removed).strip() == SPEC.format(name="cubes").strip()


def test_a_gap_that_the_profile_does_not_know(tmp_path: Path) -> None:
    assert state(adapter(tmp_path), None).state == audit.UNKNOWN


def test_dead_where_it_fires_nowhere(tmp_path: Path) -> None:
    assert state(adapter(tmp_path), "open", fired=0).state == audit.DEAD


def test_not_dead_where_it_fired_when_stock_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads below a stick are in no default config, and in many models."""
    name = "activations.py:NewGELUActivation.forward"
    record = stock.Recorded("5.0", {"cubes.cube": {name: stock.fingerprint(name) or ""}})
    monkeypatch.setattr(audit, "recorded", lambda: record)
    assert state(adapter(tmp_path), "open", fired=0).state == audit.NEEDED


def test_partial_where_the_gap_still_stands(tmp_path: Path) -> None:
    found = state(adapter(tmp_path), "open", left={"made-up": ["no_layout at x.py:3"]})
    assert found.state == audit.PARTIAL and "x.py:3" in found.because


def test_changed_where_the_stock_function_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "activations.py:NewGELUActivation.forward"
    right = stock.fingerprint(name)
    assert right is not None
    for digest, expected in ((right, audit.NEEDED), ("0" * 16, audit.CHANGED)):
        record = stock.Recorded("5.0", {"cubes.cube": {name: digest}})
        monkeypatch.setattr(audit, "recorded", lambda record=record: record)
        assert state(adapter(tmp_path), "open").state == expected


def test_fingerprints_ignore_layout_but_not_code(tmp_path: Path) -> None:
    texts = ("def f(x):\n    return x + 1\n", "def f(x):  # note\n\n    return (x + 1)\n", "def f(x):\n    return x + 2\n")
    digests = []
    for number, text in enumerate(texts):
        path = tmp_path / f"m{number}.py"
        path.write_text(text)
        digests.append(stock._functions(str(path))[0][3])
    assert digests[0] == digests[1] != digests[2]


def test_profiles_are_found_oldest_first() -> None:
    names = audit.profile_names()
    assert "torch-spyre-2026-06" in names and list(names) == sorted(names)


def test_the_shipped_profiles_say_which_scaffold_fell_when() -> None:
    """Looking ids up became native in September 2026; cache writes changed then, and whether theirs suffices is not public."""
    adapters = [load(path) for path in specs.find(())]
    history = {
        found.name: [
            audit._finding(found, profile_named(name), {found.name: 1}, {}, {}, asked_all=True).state for name in audit.profile_names()
        ]
        for found in adapters
    }
    assert audit.profile_names() == ("torch-spyre-2025-11", "torch-spyre-2026-06", "torch-spyre-2026-09")
    assert history["embedding"] == [audit.NEEDED, audit.NEEDED, audit.RETIRED]
    assert history["kv_write"] == [audit.NEEDED, audit.NEEDED, audit.UNSURE]
    hardware = {found.name for found in adapters if found.gap is None}
    assert {name for name, states in history.items() if set(states) == {audit.STAYS}} == hardware
    others = history.keys() - hardware - {"embedding", "kv_write"}
    assert others and all(set(history[name]) == {audit.NEEDED} for name in others)


def test_what_is_carried_over_is_said(tmp_path: Path) -> None:
    embedding = next(load(path) for path in specs.find(()) if path.stem == "embedding")
    old, new = (
        audit._finding(embedding, profile_named(f"torch-spyre-{date}"), {"embedding": 1}, {}, {}, asked_all=True).because
        for date in ("2025-11", "2026-06")
    )
    assert "carried over" in old and "carried over" not in new


def test_unsure_where_the_profile_does_not_know(tmp_path: Path) -> None:
    found = state(adapter(tmp_path), "unknown")
    assert found.state == audit.UNSURE and not found.diff


def test_a_record_holds_the_functions_and_names_the_ones_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "stock_functions.json"
    monkeypatch.setattr(stock, "record_path", lambda: kept)
    name = "activations.py:NewGELUActivation.forward"
    stock.write_record({"cubes.cube": {name: stock.fingerprint(name) or "", "gone.py:f": "0" * 16}})
    record = stock.recorded()
    assert record.statements["gone.py:f"] == [] and len(record.statements[name]) == len(stock.statements_of(name)) > 1
    assert audit.changed_functions(adapter(tmp_path)) == ("gone.py:f",)


def test_the_diff_of_a_changed_function_shows_the_new_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text of the earlier version is kept, so what was there is counted and what is there now is shown."""
    monkeypatch.setattr(stock.transformers, "__file__", str(tmp_path / "__init__.py"))
    source = tmp_path / "m.py"
    source.write_text("class M:\n    def f(self, x):\n        if x > 0:\n            x = x + 1\n        return x\n")
    before = [statement.digest for statement in stock.statements_of("m.py:M.f")]
    source.write_text(
        "class M:\n    def f(self, x):\n        if x > 0:\n            x = x * 2  # doubled\n            x = x + 1\n        return -x\n"
    )
    diff = stock.difference("m.py:M.f", before)
    assert [line for line in diff.splitlines() if line[1] == " "] == [
        "+ 4: x = x * 2  # doubled",
        "- 1 recorded statement",
        "+ 6: return -x",
    ]
    assert stock.statements_of("m.py:M.g") == ()
