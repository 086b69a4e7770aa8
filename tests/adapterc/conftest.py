"""One run of a small model with the two adapters that it cannot do without, shared by the tests of what a run writes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from adapterc.build import built
from adapterc.inputs import choose
from adapterc.models import load
from adapterc.obstacles import Place
from adapterc.run import run_loaded
from adapterc.run_result import RunReport
from adapterc.run_setup import AS_IT_IS, Outputs, Setup
from adapterc.spyre_runtime.refusal import Obstacle

BERT = "config:BertModel,num_hidden_layers=2,hidden_size=128,num_attention_heads=2,intermediate_size=256,vocab_size=200,max_position_embeddings=64"
SPECS = {
    "embedding": """\
adapter: embedding
summary: Looking ids up is indexing.
lifetime: scaffold
gap: embedding-host-fallback
rules:
  - rewrite: rows
    match: embedding(w, ids, padding_idx=p)
    where: {w: "float[V, H]", ids: "int[...]"}
    substitute: w[ids]
    reason: embedding falls back to the CPU, and indexing is one device op with the same rows.
""",
    "prologue": """\
adapter: prologue
summary: Masks and positions are computed on the host.
lifetime: hardware
rules:
  - place: parameter_free
    what: parameter-free
    to: host
    reason: No weight takes part in them, and integer arithmetic has no device kernel.
""",
}
PROFILE = "torch-spyre-2026-06"


@dataclass(frozen=True)
class Finished:
    report: RunReport
    html: Path
    trace: Path
    plan: Path


def run_bert(setup: Setup = AS_IT_IS) -> RunReport:
    """The whole job on two sequences, but for the search of what the stock model is refused for (test_gaps.py has that)."""
    loaded = load(BERT)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.yaml" for name in SPECS]
        for path in paths:
            path.write_text(SPECS[path.stem])
        with built(paths) as (checked, package):
            return run_loaded(
                loaded, choose(loaded, (), "1,2,3,4,5;7,8,9"), checked, package, PROFILE, "device", 0, look=False, setup=setup
            )


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("run")
    place = Place(Obstacle("stick_expr_unsupported", "walked in pieces", source="x/modeling_bert.py:7"), ("n",), torch.fx.GraphModule({}, torch.fx.Graph()), {}, ("n",))  # fmt: skip
    report = replace(run_bert(Setup(layers=True)), refused=(place,))
    files = Outputs(folder / "run.html", folder / "trace.json", folder / "plan.json")
    return Finished(files.write(report), folder / "run.html", folder / "trace.json", folder / "plan.json")


@pytest.fixture
def bert_with() -> Callable[[Setup], RunReport]:
    return run_bert
