"""The command line as its user meets it: exit status, JSON, and one sentence for each kind of bad input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from adapterc.cli import app

RIGHT = """\
adapter: cube
summary: Cubes are products.
lifetime: scaffold
gap: pow-integer-exponent
rules:
  - rewrite: cube
    match: pow(x, 3)
    where: {x: "float[...]"}
    substitute: x * x * x
    reason: pow with an integer exponent does not lower.
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def spec(folder: Path, text: str, name: str = "spec.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_right_rule_is_checked_and_built_into_a_package_that_is_the_same_each_time(tmp_path: Path) -> None:
    path = spec(tmp_path, RIGHT)
    checked = run("check", path, "--json")
    assert checked.exit_code == 0
    (rule,) = json.loads(checked.stdout)["rules"]
    assert (rule["rule"], rule["ok"], rule["kind"]) == ("cube.cube", True, "rewrite")
    assert rule["status"] in ("PROVED", "TESTED")
    for name in ("one", "two"):
        assert run("build", path, "-o", tmp_path / name).exit_code == 0
    first, second = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir() if f.is_file()} for name in ("one", "two"))
    assert first == second
    assert set(first) == {"__init__.py", "cube.py", "manifest.json"}
    assert f"{path.parent.name}/spec.yaml:6" in first["cube.py"].decode()


@pytest.mark.parametrize("substitute", ["x * x", "x * x * x * x", "x * x + x", "pow(x, 3) + 0.001"])
def test_an_almost_right_rule_is_refuted_with_a_counterexample_and_never_built(tmp_path: Path, substitute: str) -> None:
    path = spec(tmp_path, RIGHT.replace("x * x * x", substitute))
    checked = run("check", path, "--json")
    assert checked.exit_code == 1
    report = json.loads(checked.stdout)
    assert report["rules"][0]["status"] == "REFUTED"
    assert report["errors"][0]["code"] == "ADC301"
    built = run("build", path, "-o", tmp_path / "out")
    assert built.exit_code == 1
    assert not (tmp_path / "out").exists()


SOFTMAX_PADDED_WITH_ZEROS = """\
adapter: wrong
summary: A softmax over a padded dimension.
lifetime: scaffold
rules:
  - pad: keys
    match: softmax(x, -1)
    where: {x: "float[..., n]"}
    dim: n
    size: ceil_to(n, stick)
    fill: 0
    consumers: crop
    reason: whole sticks
"""
HEAD_WITHOUT_CROP = """\
adapter: wrong
summary: A vocabulary that is padded and never cut back.
lifetime: scaffold
rules:
  - pad: vocabulary
    match: linear(h, w)
    where: {h: "float[..., H]", w: "weight float[V, H]"}
    dim: V
    size: ceil_to(V, stick)
    fill: 0
    consumers: contract
    when: V == config.vocab_size
    reason: whole sticks
"""


@pytest.mark.parametrize("text", [SOFTMAX_PADDED_WITH_ZEROS, HEAD_WITHOUT_CROP])
def test_unsound_padding_is_refuted(tmp_path: Path, text: str) -> None:
    checked = run("check", spec(tmp_path, text), "--json")
    assert checked.exit_code == 1
    assert json.loads(checked.stdout)["rules"][0]["status"] == "REFUTED"


BAD = {
    "empty": ("", "ADC106"),
    "not YAML": ("adapter: [", "ADC105"),
    "a key twice": (RIGHT + "summary: again\n", "ADC107"),
    "an unknown kind": (RIGHT.replace("- rewrite:", "- rewrit:"), "ADC113"),
    "an unknown key": (RIGHT.replace("substitute", "substitut"), "ADC110"),
    "a syntax error": (RIGHT.replace("x * x * x", "x * * x"), "ADC201"),
    "an unknown op": (RIGHT.replace("pow(x, 3)", "powr(x, 3)"), "ADC210"),
    "a wrong arity": (RIGHT.replace("pow(x, 3)", "pow(x, 3, 4)"), "ADC211"),
    "a free name": (RIGHT.replace("x * x * x", "x * y * x"), "ADC220"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_specs_get_one_sentence_with_place_code_and_next_step(tmp_path: Path, name: str) -> None:
    text, code = BAD[name]
    path = spec(tmp_path, text)
    for command in (("check", path), ("build", path, "-o", tmp_path / "out")):
        result = run(*command, "--json")
        assert result.exit_code == 1, result.output
        error = json.loads(result.stdout)["errors"][0]
        assert error["code"] == code
        assert error["file"] == str(path)
        assert error["line"] >= 1
        assert error["column"] >= 1
        assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()
    shown = run("check", path)
    assert f"{path}:" in shown.stderr
    assert code in shown.stderr


def test_a_large_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    result = run("check", path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["errors"][0]["code"] == "ADC103"


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    assert "ADC101" in run("check", tmp_path / "none.yaml").stderr
    assert "ADC901" in run("check", tmp_path).stderr


def test_a_build_never_touches_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "precious.txt").write_text("mine")
    result = run("build", spec(tmp_path, RIGHT), "-o", target)
    assert result.exit_code == 1
    assert "ADC401" in result.stderr
    assert [f.name for f in target.iterdir()] == ["precious.txt"]
    file = tmp_path / "file"
    file.write_text("mine")
    assert "ADC401" in run("build", spec(tmp_path, RIGHT), "-o", file).stderr


@pytest.mark.parametrize("command", ["check", "build", "run", "explain", "list"])
def test_every_command_has_help_with_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.stdout
    assert "--json" in result.stdout


def test_certificates_are_written_replayed_and_void_once_the_rule_changes(tmp_path: Path) -> None:
    path, folder = spec(tmp_path, RIGHT), tmp_path / "proofs"
    assert run("check", path, "--certificates", folder).exit_code == 0
    assert [f.name for f in folder.iterdir()] == ["cube.cube.json"]
    assert run("check", path, "--replay", folder).exit_code == 0
    spec(tmp_path, RIGHT.replace("x * x * x", "x * (x * x)"))
    replayed = run("check", path, "--replay", folder, "--json")
    assert replayed.exit_code == 1
    assert "changed" in json.loads(replayed.stdout)["rules"][0]["problem"]
    missing = run("check", path, "--replay", tmp_path / "nowhere", "--json")
    assert "no certificate" in json.loads(missing.stdout)["rules"][0]["problem"]


def test_the_manifest_carries_the_hash_of_each_certificate(tmp_path: Path) -> None:
    assert run("build", spec(tmp_path, RIGHT), "-o", tmp_path / "out").exit_code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    (rule,) = manifest["adapters"][0]["rules"]
    assert len(rule["certificate"]) == 64


def test_a_condition_on_values_can_be_checked_but_not_built(tmp_path: Path) -> None:
    text = RIGHT.replace("pow(x, 3)", "exp(log(x))").replace("x * x * x", "x").replace("    reason:", "    when: x > 0\n    reason:")
    path = spec(tmp_path, text)
    checked = run("check", path, "--json")
    assert checked.exit_code == 0
    assert [(e["code"], e["severity"]) for e in json.loads(checked.stdout)["errors"]] == [("ADC226", "warning")]
    built = run("build", path, "-o", tmp_path / "out")
    assert built.exit_code == 1
    assert "ADC403" in built.stderr
    assert not (tmp_path / "out").exists()


def test_a_gap_that_no_profile_lists_is_refused_at_its_place(tmp_path: Path) -> None:
    result = run("check", spec(tmp_path, RIGHT.replace("pow-integer-exponent", "pow-integer-exponents")), "--json")
    assert result.exit_code == 1
    (error,) = json.loads(result.stdout)["errors"]
    assert (error["code"], error["line"], error["column"]) == ("ADC310", 4, 6)
    assert "pow-integer-exponent" in error["next_step"]


REPLACE = """\
adapter: tanh_gelu
summary: The tanh GELU module cubes by multiplication.
lifetime: scaffold
rules:
  - replace: module
    module: NewGELUActivation
    inputs: {x: "float[...]"}
    let: {inner: 0.7978845608028654 * (x + 0.044715 * x * x * x)}
    forward: 0.5 * x * (1 + tanh(inner))
    reason: pow does not lower
"""


@pytest.mark.parametrize(("text", "status"), [(REPLACE, "TESTED"), (REPLACE.replace("0.044715", "0.04"), "REFUTED")])
def test_a_replaced_module_is_measured_against_the_stock_one(tmp_path: Path, text: str, status: str) -> None:
    checked = run("check", spec(tmp_path, text), "--json")
    assert checked.exit_code == (0 if status == "TESTED" else 1)
    assert json.loads(checked.stdout)["rules"][0]["status"] == status


def test_a_replacement_for_a_class_that_does_not_exist_is_undecided_and_not_built(tmp_path: Path) -> None:
    path = spec(tmp_path, REPLACE.replace("NewGELUActivation", "NoSuchActivation"))
    checked = run("check", path, "--json")
    assert checked.exit_code == 1
    assert json.loads(checked.stdout)["errors"][0]["code"] == "ADC306"
    assert run("build", path, "-o", tmp_path / "out").exit_code == 1


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "ADC110"], ["explain", "ceil_to(7, 64)"], ["list"]])
def test_what_needs_no_tensor_does_not_wait_for_torch(arguments: list[str]) -> None:
    program = "import sys; from adapterc.cli import main\ntry: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr.splitlines()[-1] == "False"
