"""The generated package: readable, formatted, deterministic, whole or not there."""

from __future__ import annotations

import ast
import errno
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from adapterc.codegen.build import build
from adapterc.codegen.runtime import PatchError
from adapterc.dsl.adapter import Adapter, Header
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.loader import load, load_all

SPECS = Path(__file__).resolve().parents[2] / "adapter_specs"
VERSIONS = {"adapterc": "0.1.0", "torch": "2.13.0"}


@dataclass(frozen=True)
class Said:
    """A verdict as verify gives it."""

    adapter: str
    rule: str
    klass: str = "REAL"
    status: str = "PROVED"
    how: str = "by hand"

    def ok(self, header: Header) -> bool:
        return self.klass in header.allow and self.status != "REFUTED"


def said(adapters: tuple[Adapter, ...], **changes: str) -> list[Said]:
    return [Said(a.name, r.header.name, **changes) for a in adapters for r in a.rules]


def spec(folder: Path, text: str, name: str = "small") -> Adapter:
    path = folder / "specs" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"adapter: {name}\nsummary: A spec of one rule.\nlifetime: hardware\nrules:\n{text}")
    return load(path)


CUBE = '  - {rewrite: cube, match: "pow(x, 3)", where: {x: "float[...]"}, substitute: x * x * x, reason: Products lower everywhere.}\n'


@pytest.fixture(scope="module")
def shipped() -> tuple[Adapter, ...]:
    return load_all(sorted(SPECS.glob("*.yaml")))


@pytest.fixture(scope="module")
def package(shipped: tuple[Adapter, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "patches"
    build(shipped, said(shipped), out, VERSIONS)
    return out


def imported(folder: Path, name: str) -> Any:
    found = importlib.util.spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def test_every_function_names_its_rule_place_verdict_and_reason(shipped: tuple[Adapter, ...], package: Path) -> None:
    for adapter in shipped:
        text = (package / f"{adapter.name}.py").read_text()
        tree = ast.parse(text)
        flat = " ".join(text.split())
        assert ast.get_docstring(tree)
        for rule in adapter.rules:
            assert f'name="{adapter.name}.{rule.header.name}"' in text
            assert f'place="adapter_specs/{adapter.name}.yaml:{rule.header.span.line}"' in text
            assert 'verdict="REAL PROVED"' in text
            assert rule.header.reason.replace('"', '\\"') in flat
        assert all(ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef))


def test_the_text_is_as_a_formatter_leaves_it(package: Path) -> None:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "100", "--check", "--diff", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_text_has_no_unused_or_missing_name(package: Path) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_same_specs_give_the_same_bytes(shipped: tuple[Adapter, ...], package: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere" / "deeper"
    build(tuple(reversed(shipped)), said(shipped), again, VERSIONS)
    files = sorted(p.name for p in package.iterdir() if p.suffix in (".py", ".json"))
    assert files == sorted(p.name for p in again.iterdir() if p.suffix in (".py", ".json"))
    for name in files:
        assert (package / name).read_bytes() == (again / name).read_bytes()
    assert str(tmp_path) not in "".join(p.read_text() for p in again.glob("*.*"))


def test_the_manifest_says_what_it_was_made_of(shipped: tuple[Adapter, ...], tmp_path: Path) -> None:
    out = tmp_path / "patches"
    build(shipped, said(shipped), out, VERSIONS, {"rope.halves": "abc123"})
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["versions"] == VERSIONS
    rope = next(a for a in manifest["adapters"] if a["name"] == "rope")
    assert rope["sha256"] == next(a.source_sha256 for a in shipped if a.name == "rope")
    halves = next(r for r in rope["rules"] if r["name"] == "halves")
    assert (halves["klass"], halves["status"], halves["certificate"]) == ("REAL", "PROVED", "abc123")


def test_the_generated_functions_compute(package: Path) -> None:
    patches = imported(package, "built_patches_for_test")
    x = torch.randn(3, 4)
    assert torch.equal(patches.gelu_new.substitute_cube(x), x * x * x)
    turn = patches.rope.load_halves(torch.float32, torch.device("cpu"), 4)["R"]
    assert torch.equal(x @ turn, torch.cat([-x[..., 2:], x[..., :2]], -1))
    assert callable(patches.install)
    assert callable(patches.patched)


@pytest.mark.parametrize("verdicts", [[], [Said("small", "cube", "WRONG", "REFUTED")]])
def test_what_check_refuses_is_not_built(tmp_path: Path, verdicts: list[Said]) -> None:
    with pytest.raises(PatchError, match=r"small\.cube") as error:
        build([spec(tmp_path, CUBE)], verdicts, tmp_path / "out", VERSIONS)
    assert error.value.code == "ADC402"
    assert not (tmp_path / "out").exists()


def test_a_rule_without_a_python_form_says_so(tmp_path: Path) -> None:
    text = '  - {boundary: here, match: "exp(x)", where: {x: "float[...]"}, action: split, reason: The unit ends here.}\n'
    with pytest.raises(SpecError, match="ADC403"):
        build([spec(tmp_path, text)], [Said("small", "here")], tmp_path / "out", VERSIONS)


def one(folder: Path) -> tuple[list[Adapter], list[Said]]:
    return [spec(folder, CUBE)], [Said("small", "cube")]


def test_an_earlier_build_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    adapters, verdicts = one(tmp_path)
    out = tmp_path / "out"
    build(adapters, verdicts, out, VERSIONS)
    build([spec(tmp_path, CUBE, "other")], [Said("other", "cube")], out, VERSIONS)
    assert sorted(p.name for p in out.iterdir()) == ["__init__.py", "manifest.json", "other.py"]
    (out / "mine.txt").write_text("keep me")
    with pytest.raises(PatchError, match="did not write") as error:
        build(adapters, verdicts, out, VERSIONS)
    assert error.value.code == "ADC401"
    assert (out / "mine.txt").read_text() == "keep me"


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("a file")
    with pytest.raises(PatchError, match="is a file"):
        build(*one(tmp_path), out, VERSIONS)
    assert out.read_text() == "a file"


def test_a_full_disk_leaves_the_last_build_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    build(*one(tmp_path), out, VERSIONS)
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PatchError, match="the disk is full") as error:
        build([spec(tmp_path, CUBE, "other")], [Said("other", "cube")], out, VERSIONS)
    assert error.value.code == "ADC401"
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "specs"]  # nothing half-written is left


def test_a_folder_without_permission_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/srv/patches")

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    with pytest.raises(PatchError, match="no permission to write in /srv/patches") as error:
        build(*one(tmp_path), tmp_path / "out", VERSIONS)
    assert "\n" not in str(error.value)
