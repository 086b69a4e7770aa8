"""`adapterc explain`: codes, rules and sizes."""

import re
from pathlib import Path

import pytest

import adapterc
from adapterc.dsl.codes import CODES
from adapterc.dsl.diagnostics import SpecError
from adapterc.errors import UserError
from adapterc.explain import explain_what


def test_every_code_can_be_explained() -> None:
    for code in CODES:
        assert explain_what(code).lines[0].startswith(code)


def test_every_code_that_the_source_mentions_has_an_entry() -> None:
    root = Path(adapterc.__file__).parent.parent
    folders = ("adapterc", "dsl", "verify", "codegen", "spyre_runtime")
    used = {code for folder in folders for file in (root / folder).rglob("*.py") for code in re.findall(r"\bADC\d{3}\b", file.read_text())}
    assert used - {"ADC999"} <= set(CODES)  # ADC999 is the example of a code that does not exist


def test_a_size_is_derived_step_by_step() -> None:
    found = explain_what("ceil_to(50257, 16 * stick)")
    assert found.value == 51200
    assert "16 * stick = 1024" in found.lines


def test_a_size_takes_values_for_its_names() -> None:
    assert explain_what("ceil_to(d, stick)", ["d=80"]).value == 128
    assert explain_what("ceil_to(d, stick)", ["d=80", "dtype=float32"]).value == 96


def test_a_rule_and_an_adapter_are_found_by_name() -> None:
    assert explain_what("gelu_new.cube").kind == "rule"
    assert explain_what("gelu_new").kind == "adapter"


@pytest.mark.parametrize(("what", "settings"), [("ADC999", []), ("d", ["d"]), ("d", ["1=2"])])
def test_what_cannot_be_explained_says_so(what: str, settings: list[str]) -> None:
    with pytest.raises(UserError, match="ADC903"):
        explain_what(what, settings)


@pytest.mark.parametrize(
    ("size", "code"), [("1 / 0", "ADC240"), ("2 ** 40", "ADC241"), ("3 / 2", "ADC242"), ("nothing", "ADC243"), ("1 +", "ADC201")]
)
def test_a_size_without_value_says_why(size: str, code: str) -> None:
    with pytest.raises(SpecError, match=code):
        explain_what(size)
