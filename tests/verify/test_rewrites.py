"""The checker on rules whose class is known: a sample of tests/rewrites_own in every run, all its guards and all rules where time is given."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from adapterc.dsl.loader import load

TESTS = Path(__file__).parent.parent
FOLDERS = (TESTS / "rewrites", TESTS / "rewrites_own")


def _benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_checker", TESTS.parent / "benchmarks" / "checker.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CHECKER = _benchmark()

# A few rules of each class and kind, the cheap ones among them.
SAMPLE = (
    "add_zero", "half", "self_quotient", "pow_minus_half", "round_by_floor", "nearly_two", "max_greater", "two_bounds_looser",
    "masked_fill_intersection", "fmod_mask", "int_through_float32", "filled_like_an_integer", "widen_and_back", "gelu_wrong_root",
    "max_negated", "reshape_needs_even", "select_twice",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_the_class_of_a_rule(name: str) -> None:
    (row,), faults = CHECKER.run(FOLDERS[1], frozenset({name}))
    assert not faults
    assert row.found == row.expected, row.verdict.how
    assert row.guard_holds is not False, row.verdict.suggested_guard


def test_names_are_unique_and_classes_are_stated() -> None:
    for folder in FOLDERS:
        names = [rule.header.name for path in sorted(folder.glob("*.yaml")) for rule in load(path).rules]
        assert len(names) == len(set(names))
        for path in folder.glob("*.yaml"):
            lines = path.read_text(encoding="utf-8").splitlines()
            assert all(CHECKER.commented_class(lines, rule) for rule in load(path).rules)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_every_condition_prints_a_guard_that_makes_it_hold(folder: Path) -> None:
    conditional = set()
    for path in folder.glob("*.yaml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        conditional |= {r.header.name for r in load(path).rules if CHECKER.commented_class(lines, r) == "COND"}
    rows, faults = CHECKER.run(folder, frozenset(conditional))
    assert not faults
    assert [r.name for r in rows if r.guard_holds is not True] == []
