"""Rung 8 for a user: whole models stay what they were under the rules of a spec."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adapterc import check_model as C
from adapterc.specs import find
from adapterc.verify.rung_model import ModelRun, check_model

HERE = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_tiny_family_stays_bitwise_stock_and_near_it_on_the_device() -> None:
    report = C.check_models([HERE / "adapter_specs" / "gelu_new.yaml"], families=("gpt2",))
    (found,) = report.models
    assert report.ok
    assert found.verdict.status == "TESTED"
    assert "bits on the CPU" in found.verdict.how
    assert found.refusal is None or "cosine" not in found.verdict.how
    assert report.to_json()["models"]


def test_families_are_known_to_the_library() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    assert set(C.FAMILIES) <= set(CONFIG_MAPPING)
    assert find(())


@pytest.mark.parametrize(("changed", "status"), [(0.0, "TESTED"), (1e-7, "REFUTED")])
def test_one_changed_bit_is_seen(changed: float, status: str) -> None:
    stock = ModelRun((torch.ones(3),))
    verdict = check_model(lambda: stock, lambda: ModelRun((torch.ones(3) + changed,)), "m", "a")
    assert verdict.status == status
