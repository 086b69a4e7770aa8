"""Settings: nesting, restoring after errors, and the rounding rules that a profile or the user chooses."""

import pytest
import torch

from adapterc.spyre_runtime import NumberRules, current_settings, settings
from adapterc.spyre_runtime.formats import round_dl16


def test_settings_nest_and_come_back_after_an_error() -> None:
    before = current_settings()
    with pytest.raises(KeyError), settings(numerics="fp32"):
        with settings(legality="report") as inner:
            assert (inner.numerics, inner.legality) == ("fp32", "report")
        assert current_settings().legality == before.legality
        raise KeyError
    assert current_settings() is before


def test_number_rules_of_the_user_win() -> None:
    tie = torch.tensor([1 + 2.0**-10])
    x = tie.to("spyre")
    results = {}
    for rule in ("nearest_up", "nearest_even", "truncate"):
        with settings(number_rules=NumberRules(op_rounding=rule)):
            results[rule] = (x.half() * 1).to("cpu", torch.float32).item()
        assert results[rule] == round_dl16(tie, rule).item()
    assert results["nearest_up"] != results["nearest_even"]


def test_unknown_profile_lists_those_that_exist() -> None:
    with settings(profile="torch-spyre-1999"), pytest.raises(FileNotFoundError, match="torch-spyre-2026-06"):
        current_settings().rules  # noqa: B018
