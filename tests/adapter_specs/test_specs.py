"""The shipped specs as a library: small, general, well typed."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from adapterc.dsl.check import check_types
from adapterc.dsl.loader import load

FILES = sorted((Path(__file__).resolve().parents[2] / "adapter_specs").glob("*.yaml"))


def test_the_library_is_small() -> None:
    assert sum(len(path.read_text().splitlines()) for path in FILES) <= 800


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_spec_is_well_typed_and_gives_reasons(path: Path) -> None:
    adapter = load(path)
    assert check_types(adapter) == ()
    assert adapter.name == path.stem
    assert all(rule.header.reason.endswith(".") for rule in adapter.rules)
    assert (adapter.lifetime == "scaffold") == (adapter.gap is not None)  # what goes one day says what it waits for


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_spec_is_named_after_a_family(path: Path) -> None:
    families = set(transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES)
    adapter = load(path)
    names = {adapter.name, *(rule.header.name for rule in adapter.rules)}
    assert not names & families
