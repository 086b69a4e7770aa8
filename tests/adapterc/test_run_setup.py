"""Runs with faults, and on the real device: which one is used, and what is said where it is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapterc.run_setup import Setup

HERE = Path(__file__).parent

# Stands where the real backend would be: it registers the device when it is imported, and compiles by running the graph as it is.
TORCH_SPYRE = """
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
import adapterc.spyre_runtime
from adapterc.spyre_runtime import device, handover

assert not adapterc.spyre_runtime.SIMULATED and torch._C._get_privateuse1_backend_name() == "privateuseone"
_setup_privateuseone_for_python_backend("spyre", backend_module=device.SpyreModule())
device._register_kernels()
compiled = []

def compile_for_real(module, inputs):
    compiled.append(sum(node.op == "call_function" for node in module.graph.nodes))
    return module.forward

handover._inductor = compile_for_real
handover._with_its_module = lambda weight, place: weight.to(place)
"""

PROGRAM = """
import dataclasses, json, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from conftest import PROFILE, run_bert
from adapterc.errors import UserError
from adapterc.run_setup import Setup, checked_setup
from adapterc.spyre_runtime import SIMULATED
from adapterc.spyre_runtime.profile import load_profile

def refused(setup):
    try:
        checked_setup(setup, load_profile(PROFILE))
    except UserError as error:
        return [error.code, error.message]

setup = checked_setup(Setup(device="real"), load_profile(PROFILE))
report = run_bert(setup)
import torch_spyre
said = [refused(Setup(device="simulated")), refused(Setup(faults=("exp-floor",)))]
del sys.modules["torch_spyre"]
open(torch_spyre.__file__, "w").write("raise ImportError('libflex.so: cannot open')")
said.append(refused(Setup(device="real")))
facts = {"simulated": SIMULATED, "compiled": torch_spyre.compiled, "graphs": len(report.graphs), "said": said}
print(json.dumps({**report.to_json(), **facts}, default=str))
"""


@pytest.mark.slow
def test_with_the_real_backend_the_simulator_registers_nothing_and_the_run_uses_it(tmp_path: Path) -> None:
    package = tmp_path / "torch_spyre"
    package.mkdir()
    (package / "__init__.py").write_text(TORCH_SPYRE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(HERE)], capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (found["simulated"], found["device"], found["refusal"]) == (False, "real", None)
    assert found["compiled"] and found["graphs"] == 0  # it compiled; the simulator's compiler did not
    assert min(found["comparison"]["cosines"]) > 0.999 and found["cpu_bitwise"]
    assert {rule["rule"]: rule["fired"] for rule in found["rules"]}["embedding.rows"] == 3
    aside, injected, broken = found["said"]
    assert [aside[0], injected[0], broken[0]] == ["ADC511"] * 3
    assert "the simulator stands aside" in aside[1] and "injected by the simulator" in injected[1]
    assert "cannot be imported: libflex.so: cannot open" in broken[1]


def test_a_fault_is_injected_by_its_id(bert_with: Any) -> None:
    faulty = bert_with(Setup(faults=("wrong-stick-after-view",)))
    assert faulty.refusal is None and faulty.to_json()["faults"] == ["wrong-stick-after-view"]
    assert min(faulty.comparison.cosines) < 0.999  # without it 0.9999995
