"""The schema, the code table, the reference and the grammar stay in step with the code that reads them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from adapterc.dsl import adapter as adapter_module
from adapterc.dsl import codes, infer, loader, reference
from adapterc.dsl.adapter import CLASSES, Rule
from adapterc.dsl.check import check_types
from adapterc.dsl.codes import CODES, explain
from adapterc.dsl.loader import load_text
from adapterc.dsl.ops import OPS
from adapterc.dsl.printer import INFIX, PREFIX
from adapterc.dsl.schema import RULE_KINDS, schema

DSL = Path(inspect.getfile(loader)).parent
ROOT = Path(__file__).resolve().parents[2]


def _parts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _parts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _parts(value)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema())
    assert schema()["$schema"].endswith("2020-12/schema")


def test_editors_find_a_description_of_every_key() -> None:
    defs = schema()["$defs"]

    def described(found: dict[str, Any]) -> bool:
        return "description" in found or ("$ref" in found and described(defs[found["$ref"].rpartition("/")[2]]))

    for part in _parts(schema()):
        for key, found in part.get("properties", {}).items() if isinstance(part.get("properties"), dict) else ():
            assert described(found), key


def test_every_mapping_of_the_schema_is_closed() -> None:
    for part in _parts(schema()):
        if part.get("type") == "object" and "properties" in part:
            assert part["additionalProperties"] is False


def test_the_loader_reads_every_key_of_the_schema_and_no_other() -> None:
    defs = schema()["$defs"]
    listed = set(schema()["properties"]) | {key for kind in RULE_KINDS for key in defs[kind]["properties"]}
    listed |= set(defs["expect"]["items"]["properties"]) | {"at_least", "at_most", "path", "type", "accepted", "refused"}
    source = (DSL / "loader.py").read_text()
    read = set(re.findall(r'(?:get|_text|_optional|_expr|_bindings|_types)\((?:\w+, )?"(\w+)"', source)) | {
        "accepted",
        "refused",
        "reason",
        "message",
    }
    assert read - listed == set()
    assert listed - read - set(RULE_KINDS) == set()


def test_rule_kinds_are_the_rule_classes() -> None:
    kinds = {branch["$ref"].rpartition("/")[2] for branch in schema()["properties"]["rules"]["items"]["oneOf"]}
    assert kinds == set(RULE_KINDS) == {cls.__name__.lower() for cls in Rule.__args__}
    assert schema()["$defs"]["class"]["enum"] == list(CLASSES)
    for kind in RULE_KINDS:
        assert schema()["$defs"][kind]["required"][0] == kind
        assert hasattr(adapter_module, kind.capitalize())


def test_codes_are_well_formed() -> None:
    assert list(CODES) == sorted(CODES)
    for entry in CODES.values():
        assert re.fullmatch(r"ADC\d{3}", entry.code)
        assert entry.title and entry.text.endswith(".") and entry.example
        assert entry.mend
        assert entry.mend in explain(entry.code)
    assert len(
        {
            entry.code
            for part in (codes._READING, codes._LANGUAGE, codes._VERDICTS, codes._PATCHES, codes._RUNNING, codes._COMMANDS)
            for entry in part
        }
    ) == len(CODES)


def test_every_code_that_is_given_is_explained() -> None:
    for folder in ("dsl", "verify", "codegen", "adapterc", "spyre_runtime"):
        for path in (ROOT / folder).rglob("*.py"):
            used = set(re.findall(r'"(ADC\d{3})"', path.read_text()))
            assert used <= set(CODES), f"{path}: {used - set(CODES)} is in no table"


def test_every_code_of_the_language_is_given_somewhere() -> None:
    given = {code for path in DSL.glob("*.py") if path.name != "codes.py" for code in re.findall(r'"(ADC[12]\d{2})"', path.read_text())}
    assert {code for code in CODES if code < "ADC300"} == given


def test_operators_are_ops_of_the_table() -> None:
    assert set(INFIX) | set(PREFIX) <= set(OPS)


def test_the_names_that_the_checker_computes_are_ops() -> None:
    assert set(infer._ARITHMETIC) | set(infer._WHOLE) <= set(OPS)


def test_the_reference_is_current() -> None:
    written = (ROOT / "docs" / "spec-reference.md").read_text(encoding="utf-8")
    assert written == reference.reference(), "run `python -m adapterc.dsl.reference docs/spec-reference.md`"


def test_the_example_of_the_reference_is_right() -> None:
    assert not check_types(load_text(reference.EXAMPLE, "gelu_new.yaml"))


@pytest.mark.parametrize("path", sorted((ROOT / "adapter_specs").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_specs_type_check(path: Path) -> None:
    assert not [d for d in check_types(load_text(path.read_text(), str(path))) if d.severity == "error"]
