"""A sweep: what is grouped, what is built, what a pass is, and that neither a crash nor a kill costs more than a row."""

import csv
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from adapterc import sweep_store, tiny
from adapterc.cli import app
from adapterc.dimensions import Dimensions, dimensions_of, known_dimensions
from adapterc.errors import UserError
from adapterc.spyre_runtime.refusal import refuse
from adapterc.sweep_engine import engine, local
from adapterc.sweep_groups import read_population
from adapterc.sweep_page import page
from adapterc.sweep_report import Share, read_report
from adapterc.sweep_row import NotEqual, Outcome, Task, _check_device, _check_fp32, _Progress, outputs, reason

A = "A1 in-lib type+class, no remote code"
MODELS = (
    ("org/one", "100", "bert", "BertModel", A),
    ("sentence-transformers/all-MiniLM-L6-v2", "50", "bert", "BertModel", A),
    ("me/all-MiniLM-L6-v2-tuned", "1", "bert", "BertModel", A),
    ("org/two", "7", "bert", "BertModel", A),
    ("org/three", "5", "gpt2", "GPT2LMHeadModel", A),
    ("org/<b>remote</b>", "3", "new", "NewModel", "C1 type only as remote code"),
    ("org/nothing", "2", "", "", ""),
)


def population(folder: Path, models: tuple[tuple[str, ...], ...] = MODELS, name: str = "models.csv") -> Path:
    path = folder / name
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["model_id", "downloads", "model_type", "architectures", "class"])
        writer.writerows(models)
    return path


def patches(folder: Path, code: str, name: str) -> str:
    """A package in the place of generated patches: a worker imports it first, so what it does happens in the worker."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(code)
    (package / "manifest.json").write_text("{}")
    return str(package)


def task(key: str, package: str, model_type: str = "bert", architecture: str = "BertModel") -> Task:
    return Task(key, "tiny", model_type, architecture, None, package, "torch-spyre-2026-06", 2**33)


# groups


def test_models_are_grouped_by_type_architecture_and_widths_and_the_rest_is_named(tmp_path: Path) -> None:
    found = read_population(population(tmp_path))
    assert [(g.models, g.downloads, g.key) for g in found.groups] == [
        (2, 107, "bert | BertModel | defaults"),
        (2, 51, "bert | BertModel | hidden 384, heads 12×32, mlp 1536, vocab 30522"),
        (1, 5, "gpt2 | GPT2LMHeadModel | defaults"),
    ]
    assert [m.unrunnable for m in found.members if m.group is None] == ["C1 type only as remote code", "no model_type"]


def test_a_fine_tune_has_the_widths_of_the_model_with_the_longest_name_in_its_own() -> None:
    assert dimensions_of("bert", "x/BGE-large-en-v1.5-law") == known_dimensions()["bert", "baai/bge-large-en-v1.5"]
    assert dimensions_of("bert", "x/unheard-of") is None
    assert dimensions_of("gpt2", "x/all-MiniLM-L6-v2") is None, "a name of another type says nothing"


BAD = {
    "no such file": (None, "cannot be read"),
    "no column": ("model_id,model_type\na,bert\n", ":1:1: no column `architectures`"),
    "short line": ("model_id,model_type,architectures\na,bert,BertModel\nb\n", ":3:1: the line has too few"),
    "no number": ("model_id,model_type,architectures,downloads\na,bert,B,many\n", ":2:1: downloads is `many`"),
    "twice": ("model_id,model_type,architectures\na,bert,B\na,bert,B\n", ":3:1: a stands on line 2 too"),
    "empty": ("model_id,model_type,architectures\n", "holds no model"),
    "binary": (b"\xff\xfe\x00", "cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_list_that_cannot_be_read_gets_one_sentence_with_its_line(tmp_path: Path, name: str) -> None:
    content, sentence = BAD[name]
    path = tmp_path / "list.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = CliRunner().invoke(app, ["sweep", "--population", str(path), "--store", str(tmp_path / "s.sqlite")])
    assert result.exit_code == 1
    assert "ADC611" in result.stderr
    assert sentence in result.stderr
    assert not (tmp_path / "s.sqlite").exists()


@pytest.mark.parametrize("options", [["--widths", "huge"], ["--only", "gpt9"], ["--engine", "slurm"]])
def test_unknown_choices_are_refused_before_anything_starts(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(app, ["sweep", "--population", str(population(tmp_path)), "--store", str(tmp_path / "s.sqlite"), *options])
    assert result.exit_code == 1
    assert "ADC612" in result.stderr
    assert not (tmp_path / "s.sqlite").exists()


def test_an_engine_that_is_not_installed_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed, also where it is
    with pytest.raises(UserError, match=r"needs the package ray \[ADC609\]; pip install"):
        engine("ray")


# instances

FAMILIES = (
    ("bert", "BertModel"), ("gpt2", "GPT2LMHeadModel"), ("qwen3", "Qwen3ForCausalLM"), ("t5", "T5EncoderModel"), ("t5", "T5ForConditionalGeneration"),
    ("modernbert", "ModernBertModel"), ("gemma3_text", "Gemma3TextModel"), ("clip", "CLIPModel"), ("metaclip_2", "MetaCLIP2Model"),
    ("mixtral", "MixtralForCausalLM"), ("gpt_neo", "GPTNeoForCausalLM"), ("distilbert", "DistilBertModel"), ("bert", "ClassOfRemoteCode"), ("bert", ""),
)  # fmt: skip


@pytest.mark.parametrize(("model_type", "architecture"), FAMILIES)
def test_small_instances_of_any_architecture_run(model_type: str, architecture: str) -> None:
    made = tiny.recipe(model_type, architecture, "tiny")
    loaded = made.build(seed=0)
    assert made.parameters < 30e6
    with torch.no_grad():
        found = outputs(loaded.model, tiny.inputs_for(loaded))
    assert found
    assert all(torch.isfinite(value).all() for value in found.values())


@pytest.mark.parametrize(
    ("model_type", "architecture", "hidden", "heads"), [("stablelm", "StableLmForCausalLM", 320, 4), ("bloom", "BloomForCausalLM", 64, 8)]
)
def test_a_small_instance_of_whole_sticks_stays_of_whole_sticks(model_type: str, architecture: str, hidden: int, heads: int) -> None:
    config: Any = tiny.recipe(model_type, architecture, "tiny").config
    assert (config.hidden_size, config.num_attention_heads) == (hidden, heads)


def test_a_small_instance_keeps_head_dim_grouping_and_the_remainders_by_the_stick() -> None:
    widths = Dimensions(hidden=4544, heads=71, kv_heads=1, head_dim=64, intermediate=1000, vocab=50257)
    small = tiny.recipe("qwen3", "Qwen3Model", "tiny", widths).config
    assert (small.head_dim, small.num_key_value_heads, small.num_attention_heads) == (64, 1, 2)  # type: ignore[attr-defined]
    assert (small.vocab_size % 64, small.intermediate_size % 64) == (50257 % 64, 1000 % 64)  # type: ignore[attr-defined]
    real = tiny.recipe("qwen3", "Qwen3Model", "real", widths).config
    assert (real.hidden_size, real.num_attention_heads, real.vocab_size, real.num_hidden_layers) == (4544, 71, 50257, 2)  # type: ignore[attr-defined]


def test_every_kind_of_layer_is_there_once() -> None:
    gemma = tiny.recipe("gemma3_text", "Gemma3TextModel", "tiny").config
    assert gemma.layer_types == ["sliding_attention", "full_attention"]  # type: ignore[attr-defined]
    assert gemma.sliding_window < tiny.LENGTH, "a window that is longer than the input would not be seen"  # type: ignore[attr-defined]


def test_weights_are_seeded_and_lively() -> None:
    made = tiny.recipe("bert", "BertModel", "tiny")
    before = torch.random.get_rng_state()
    first, again, other = (dict(made.build(seed).model.named_parameters()) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    for name, value in first.items():
        assert torch.equal(value, again[name])
        assert not torch.equal(value, other[name])
        assert value.std() > 0.01, f"{name} has one value only: a rule that drops it would not be seen"


def test_the_second_sequence_is_padded_and_special_tokens_fit_the_vocabulary() -> None:
    loaded = tiny.recipe("clip", "CLIPModel", "tiny").build(0)
    inputs = tiny.inputs_for(loaded)
    assert inputs["attention_mask"].sum(-1).tolist() == [16, 11]
    text = loaded.config.get_text_config()
    assert (inputs["input_ids"] == text.eos_token_id).sum() == 2
    assert inputs["input_ids"].max() < text.vocab_size  # type: ignore[operator]


# what a pass is

STOCK = {"last_hidden_state": torch.linspace(-3, 4, 2 * 16 * 32).reshape(2, 16, 32)}
MASKED = {"attention_mask": torch.tensor([[1] * 16, [1] * 11 + [0] * 5])}


def test_fp32_allows_a_hundred_thousandth_of_the_largest_value() -> None:
    progress = _Progress()
    _check_fp32(STOCK, {"last_hidden_state": STOCK["last_hidden_state"] + 2e-5}, MASKED, progress)
    assert 0 < progress.numbers["fp32_error"] < 1e-5
    with pytest.raises(NotEqual, match="off by"):
        _check_fp32(STOCK, {"last_hidden_state": STOCK["last_hidden_state"] + 5e-5}, MASKED, progress)


def test_values_at_padded_positions_are_nobodys_business_and_others_are() -> None:
    for row, column in ((1, 12), (1, 3)):
        other = STOCK["last_hidden_state"].clone()
        other[row, column] = float("nan")
        if column >= 11:
            _check_fp32(STOCK, {"last_hidden_state": other}, MASKED, _Progress())
        else:
            with pytest.raises(NotEqual):
                _check_fp32(STOCK, {"last_hidden_state": other}, MASKED, _Progress())


def test_a_missing_output_another_shape_and_another_best_token_are_differences() -> None:
    with pytest.raises(NotEqual, match="missing"):
        _check_fp32(STOCK, {}, MASKED, _Progress())
    with pytest.raises(NotEqual, match="of shape"):
        _check_fp32(STOCK, {"last_hidden_state": STOCK["last_hidden_state"][:1]}, MASKED, _Progress())
    logits = torch.zeros(2, 16, 64)
    logits[..., 5], logits[..., 9] = 1.0, 1.0 - 1e-6
    other = logits.clone()
    other[0, 0, 9] = 1.0 + 1e-6
    with pytest.raises(NotEqual, match="best token"):
        _check_fp32({"logits": logits}, {"logits": other}, {}, _Progress())


@pytest.mark.parametrize(("device", "half", "passes"), [(0.02, 0.0, True), (0.05, 0.0, False), (0.05, 0.06, True), (0.3, 0.5, False)])
def test_the_device_format_may_be_as_far_off_as_bfloat16_but_not_beyond_the_bound(device: float, half: float, passes: bool) -> None:
    noise = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(0))
    base = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(1))
    values = [{"x": base + scale * noise} for scale in (0.0, device, half)]
    if passes:
        _check_device(values[0], values[1], values[2], MASKED, _Progress())
    else:
        with pytest.raises(NotEqual, match="cosine"):
            _check_device(values[0], values[1], values[2], MASKED, _Progress())


def test_reasons_name_the_kind_and_the_place() -> None:
    refusal = refuse("restickify_infeasible", "no layout", source="/x/transformers/models/bert/modeling_bert.py:42")
    assert reason(refusal, "attached") == ("refused: restickify_infeasible", "no layout", "bert/modeling_bert.py:42")
    kind, message, place = reason(ValueError("first\nsecond"), "built")
    assert (kind, message, place) == ("error behind built: ValueError", "first", "")


# workers


@pytest.mark.slow
def test_a_crash_a_hang_and_an_error_cost_their_own_row_only(tmp_path: Path) -> None:
    tasks = [
        task("abort", patches(tmp_path, "import os; os.abort()", "abort")),
        task("exit", patches(tmp_path, "import os; print('out of luck', flush=True); os._exit(3)", "exit")),
        task("hang", patches(tmp_path, "import time; time.sleep(600)", "hang")),
        task("error", patches(tmp_path, "raise ValueError('no good')", "error")),
        task("unknown", patches(tmp_path, "", "fine"), "no_such_type", "NoSuchModel"),
    ]
    outcomes = {outcome.key: outcome for outcome in local(tasks, 2, timeout=20)}
    assert outcomes.keys() == {"abort", "exit", "hang", "error", "unknown"}
    assert {key: outcome.kind for key, outcome in outcomes.items()} == {
        "abort": "crash: signal SIGABRT",
        "exit": "crash: exit status 3",
        "hang": "hang",
        "error": "error behind start: ValueError",
        "unknown": "not run: ADC502",
    }
    assert "out of luck" in outcomes["exit"].message
    assert not any(outcome.passed for outcome in outcomes.values())


@pytest.mark.slow
def test_leaving_early_ends_the_workers(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    hanging = patches(tmp_path, f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)", "hang")
    outcomes = local(
        [task("hang", hanging), task("error", patches(tmp_path, "import time; time.sleep(1); 1 / 0", "error"))], 2, timeout=600
    )
    assert next(outcomes).key == "error"
    pid = int(pid_file.read_text())
    outcomes.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# the store


def filled(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.sqlite"
    found = read_population(population(tmp_path))
    with sweep_store.open_store(path) as store:
        sweep_store.prepare(store, found, {"adapters": "a", "profile": "p"})
        bert, small, gpt2 = (group.key for group in found.groups)
        numbers = {"fp32_error": 1e-7, "device_cosine": 0.9999}
        sweep_store.record(store, Outcome(bert, "tiny", "passed", numbers=numbers, fired={"masks.additive": 2}))
        sweep_store.record(store, Outcome(bert, "real", "lowered", "differs behind lowered", "off by 1"))
        sweep_store.record(store, Outcome(small, "tiny", "passed", numbers=numbers))
        sweep_store.record(store, Outcome(gpt2, "tiny", "attached", "refused: x", "<script>alert(1)</script>", "gpt2/modeling_gpt2.py:1"))
    return path


def test_a_report_weighs_by_models_and_names_what_is_not_run(tmp_path: Path) -> None:
    report = read_report(filled(tmp_path))
    assert report.totals["tiny"] == Share(ran=5, attached=5, lowered=4, passed=4)
    assert report.totals["real"] == Share(ran=2, attached=2, lowered=2, passed=0)
    assert report.totals["all"] == Share(ran=5, attached=5, lowered=4, passed=2)
    assert [(f.model_type, f.models, f.groups) for f in report.families] == [("bert", 4, 2), ("gpt2", 1, 1)]
    assert [(r.models, r.kind, r.place) for r in report.reasons] == [
        (2, "differs behind lowered", ""),
        (1, "refused: x", "gpt2/modeling_gpt2.py:1"),
    ]
    assert [(u.models, u.why) for u in report.unrunnable] == [(1, "C1 type only as remote code"), (1, "no model_type")]
    assert sum(f.models for f in report.families) + sum(u.models for u in report.unrunnable) == report.models == len(MODELS)


def test_the_page_stands_alone_and_escapes_what_it_shows(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["sweep", "report", str(filled(tmp_path)), "--html", str(tmp_path / "r.html")])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "r.html").read_text()
    assert text == page(read_report(tmp_path / "sweep.sqlite"))
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|https?:", text)
    assert "&lt;script&gt;" in text
    assert "&lt;b&gt;remote" in text
    for tag in ("table", "tr", "td", "th", "div"):
        assert text.count(f"<{tag}>") + text.count(f"<{tag} ") == text.count(f"</{tag}>")


def test_the_report_as_json_is_one_object(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["sweep", "report", str(filled(tmp_path)), "--json"])
    assert json.loads(result.stdout)["totals"]["all"]["passed"] == 2


def test_a_row_is_written_once(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with sweep_store.open_store(path) as store:
        again = Outcome(sweep_store.groups(store)[0].key, "tiny", "start")
        with pytest.raises(sqlite3.IntegrityError):
            store.execute("INSERT INTO rows SELECT * FROM rows LIMIT 1")
    with sweep_store.open_store(path) as store:
        with pytest.raises(sqlite3.IntegrityError):
            sweep_store.record(store, again)
        assert len(sweep_store.done(store)) == 4, "the failed transaction left everything as it was"


def test_a_store_of_other_adapters_or_another_list_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    found = read_population(population(tmp_path))
    other = read_population(population(tmp_path, MODELS[:2], "other.csv"))
    with sweep_store.open_store(path) as store:
        sweep_store.prepare(store, found, {"adapters": "a", "profile": "p"})
        with pytest.raises(UserError, match="its adapters differ"):
            sweep_store.prepare(store, found, {"adapters": "b", "profile": "p"})
    with sweep_store.open_store(path) as store, pytest.raises(UserError, match="its population differ"):
        sweep_store.prepare(store, other, {"adapters": "a", "profile": "p"})


def test_failures_can_be_run_again(tmp_path: Path) -> None:
    with sweep_store.open_store(filled(tmp_path)) as store:
        assert sweep_store.forget_failures(store) == 2
        assert len(sweep_store.done(store)) == 2


@pytest.mark.parametrize("content", [None, b"", b"no database at all, but long enough to be looked at" * 10])
def test_a_file_that_is_no_store_gets_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "s.sqlite"
    if content is not None:
        path.write_bytes(content)
    result = CliRunner().invoke(app, ["sweep", "report", str(path)])
    assert result.exit_code == 1
    assert "ADC614" in result.stderr
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE mine (x)")
    assert "ADC614" in CliRunner().invoke(app, ["sweep", "report", str(tmp_path / "other.sqlite")]).stderr


def test_a_sweep_without_a_list_says_what_is_missing() -> None:
    result = CliRunner().invoke(app, ["sweep"])
    assert result.exit_code == 2
    assert "--population" in result.stderr


@pytest.mark.slow
def test_a_killed_sweep_goes_on_without_losing_or_repeating_a_row(tmp_path: Path) -> None:
    models = tuple(
        (f"org/{i}", "1", "bert", f"Bert{name}", A) for i, name in enumerate(("Model", "ForMaskedLM", "ForPreTraining", "LMHeadModel"))
    )
    slow = patches(tmp_path, "import time; time.sleep(1.5); raise ValueError", "slow")
    store = tmp_path / "s.sqlite"
    command = [
        sys.executable, "-m", "adapterc.cli", "sweep", "--population", str(population(tmp_path, models)), "--store", str(store),
        "--widths", "tiny", "--jobs", "1", "--patches", slow,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not _rows(store) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = _rows(store)
    assert 0 < len(before) < len(models)
    finished = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=300)
    assert json.loads(finished.stdout)["rows"] == len(models)
    after = _rows(store)
    assert after.items() >= before.items(), "what had run is as it was"
    assert len(re.findall(r"^\[\d+/\d+\]", finished.stderr, re.MULTILINE)) == len(models) - len(before)


def _rows(store: Path) -> dict[str, float]:
    if not store.is_file():
        return {}
    with sqlite3.connect(store) as connection:
        try:
            return dict(connection.execute("SELECT group_key, seconds FROM rows").fetchall())
        except sqlite3.OperationalError:  # the tables are not there yet
            return {}


@pytest.mark.slow
def test_a_group_passes_by_comparison_with_stock(tmp_path: Path) -> None:
    """The whole way with shipped adapters, on the family that most models are of; without the adapters the same group is refused."""
    store = tmp_path / "s.sqlite"
    options = ["sweep", "--population", str(population(tmp_path)), "--widths", "tiny", "--only", "bert", "--jobs", "2", "--json"]
    result = CliRunner().invoke(app, [*options, "--store", str(store)])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["totals"]["tiny"] == {"ran": 4, "attached": 4, "lowered": 4, "passed": 4}
    assert report["models"] == len(MODELS)
    empty = patches(tmp_path, "from adapterc.codegen.runtime import PatchSet\npatched = PatchSet(()).patched\n", "empty")
    without = CliRunner().invoke(app, [*options, "--store", str(tmp_path / "without.sqlite"), "--patches", empty])
    assert json.loads(without.stdout)["totals"]["tiny"] == {"ran": 4, "attached": 4, "lowered": 0, "passed": 0}
