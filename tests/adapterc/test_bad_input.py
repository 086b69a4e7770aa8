"""What users get wrong with gaps, draft, diagnose, audit, why and watch: one sentence with a code and a next step, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapterc.cli import app
from adapterc.dsl.codes import CODES

TINY = "config:bert,num_hidden_layers=1,hidden_size=64,num_attention_heads=1,intermediate_size=64,vocab_size=90"
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "no such folder": (("gaps", "nosuch"), "ADC501"),
    "a folder without a model": (("gaps", "{folder}"), "ADC501"),
    "a config that is no JSON": (("gaps", "{folder}/broken"), "ADC503"),
    "a model type that Transformers does not know": (("gaps", "{folder}/unheard"), "ADC503"),
    "a misspelt model type": (("gaps", "config:brt"), "ADC502"),
    "a misspelt field": (("diagnose", "config:bert,hiden_size=3"), "ADC502"),
    "a model that takes sound": (
        ("gaps", "config:wav2vec2,num_hidden_layers=1,hidden_size=64,num_attention_heads=1,intermediate_size=64"),
        "ADC504",
    ),
    "no model": (("gaps",), "ADC602"),
    "an unknown profile": (("gaps", TINY, "--profile", "nope"), "ADC508"),
    "an unknown profile to audit": (("audit", "--profile", "nope"), "ADC508"),
    "a store that is none": (("gaps", "--all", "--top", "1", "--store", "{folder}/big.yaml"), "ADC614"),
    "a spec of 100 MB": (("gaps", TINY, "--spec", "{folder}/big.yaml"), "ADC103"),
    "a spec of 100 MB to audit": (("audit", "{folder}/big.yaml"), "ADC103"),
    "an empty spec": (("why", "rope.halves", TINY, "--spec", "{folder}/empty.yaml"), "ADC106"),
    "no such rule": (("why", "rope.halve", TINY), "ADC604"),
    "an empty topic": (("draft", ""), "ADC605"),
    "an unknown topic": (("draft", "frobnicate"), "ADC605"),
    "a number without a model": (("draft", "G1"), "ADC605"),
    "a draft into no folder": (("draft", "silu", "-o", "{folder}/none/x.yaml"), "ADC512"),
    "a draft over a folder": (("draft", "silu", "-o", "{folder}"), "ADC512"),
    "an unknown fault": (("diagnose", TINY, "--fault", "exp-flor"), "ADC608"),
    "no such plan": (("diagnose", "plan:{folder}/none.json"), "ADC510"),
    "an empty plan": (("diagnose", "plan:{folder}/empty.yaml"), "ADC510"),
    "a plan of 100 MB": (("diagnose", "plan:{folder}/big.yaml"), "ADC510"),
    "watching nothing": (("check", "--watch", "{folder}/none.yaml"), "ADC101"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bad")
    (made / "empty.yaml").write_text("")
    with (made / "big.yaml").open("wb") as file:
        file.truncate(100_000_000)
    for name, text in (("broken", "{"), ("unheard", '{"model_type": "frobnitz", "architectures": ["FrobnitzModel"]}')):
        (made / name).mkdir()
        (made / name / "config.json").write_text(text)
    return made


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_with_a_code(case: str, folder: Path) -> None:
    arguments, code = CASES[case]
    ran = CliRunner().invoke(app, [*(argument.format(folder=folder) for argument in arguments), "--json"])
    assert ran.exit_code == 1, ran.output
    assert ran.exception is None or isinstance(ran.exception, SystemExit)
    (problem,) = json.loads(ran.stdout)["errors"]
    assert problem["code"] == code and code in CODES
    assert problem["message"] and problem["next_step"]
    assert len(problem["message"]) < 500 and "Traceback" not in ran.output
