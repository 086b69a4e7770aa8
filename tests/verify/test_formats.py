"""Rounding to formats, against numpy and torch, and the definition of DLFloat16."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adapterc.verify.formats import FORMATS, all_values, round_to


def test_bfloat16_rounds_as_torch_does() -> None:
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(4000) * 10.0 ** rng.uniform(-42, 38, 4000)).astype(np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16).to(torch.float64).numpy()
    np.testing.assert_array_equal(round_to(values.astype(np.float64), FORMATS["bfloat16"]).astype(np.float64), expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "dlfloat16"])
def test_every_value_of_a_format_is_its_own_rounding(name: str) -> None:
    values = all_values(FORMATS[name])
    rounded = round_to(values, FORMATS[name])
    finite = np.isfinite(values)
    np.testing.assert_array_equal(rounded[finite], values[finite])
    assert np.array_equal(np.signbit(rounded[finite]), np.signbit(values[finite]))


def test_dlfloat16_has_no_infinity_and_no_subnormals() -> None:
    dl = FORMATS["dlfloat16"]
    largest = (1 + 510 / 512) * 2.0**32
    assert round_to(np.array([1e30, -1e30]), dl).tolist() == [largest, -largest]
    assert np.isnan(round_to(np.array([np.inf]), dl)[0])
    assert round_to(np.array([dl.tiny * 0.4, dl.tiny * 0.6]), dl).tolist() == [0.0, dl.tiny]
    assert round_to(np.array([1 + 2.0**-10]), dl)[0] == 1.0  # a tie goes to even
