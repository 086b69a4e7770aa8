"""Backend profiles: what a release says, what differs from another, and what is unknown."""

from __future__ import annotations

import pytest

from adapterc.spyre_runtime.formats import DEFAULT_RULES
from adapterc.spyre_runtime.ir import DataFormat
from adapterc.spyre_runtime.profile import load_profile, profile_names
from adapterc.spyre_runtime.refusal import Obstacle
from adapterc.spyre_runtime.settings import profile_rules


@pytest.mark.parametrize("name", profile_names())
def test_every_entry_says_where_it_comes_from(name) -> None:
    profile = load_profile(name)
    assert profile.name == name and profile.limits.cores == 32
    assert all(note.source for note in (*profile.gaps.values(), *profile.faults.values()))
    assert all(note.state in ("open", "closed", "unknown", "documented") for note in (*profile.gaps.values(), *profile.faults.values()))


def test_an_unknown_name_lists_the_profiles() -> None:
    with pytest.raises(FileNotFoundError, match="torch-spyre-2026-06"):
        load_profile("torch-spyre-1999-01")


def test_a_later_release_says_what_changed_and_keeps_the_rest() -> None:
    june, september = load_profile("torch-spyre-2026-06"), load_profile("torch-spyre-2026-09")
    assert DataFormat.FP32 not in june.functions["where"].formats and DataFormat.FP32 in september.functions["where"].formats
    assert june.functions["tanh"] == september.functions["tanh"] and september.functions["where"].device == "where3"
    assert june.fallbacks - september.fallbacks == {"aten.sin", "aten.cos", "aten.embedding.default"}
    assert september.limits.restickify_beam == 200 and september.limits.bundle_tensors is None


def test_what_is_not_public_is_marked() -> None:
    assert "functions" in load_profile("torch-spyre-2025-11").unknowns and not load_profile("torch-spyre-2026-06").unknowns


def test_an_obstacle_is_named_by_the_first_open_gap_that_fits() -> None:
    june = load_profile("torch-spyre-2026-06")
    assert june.with_gap(Obstacle("op_dtype:mul@IEEE_INT32", "…", op="mul")).gap == "integer-mask-arithmetic"
    assert june.with_gap(Obstacle("unimplemented_op:pow", "…", op="pow")).gap == "pow-integer-exponent"
    assert june.with_gap(Obstacle("unimplemented_op:erf", "…", op="erf")).gap is None


def test_host_kernels_are_found_by_overload_or_packet() -> None:
    june = load_profile("torch-spyre-2026-06")
    assert june.runs_on_host("aten.sin.default") and june.runs_on_host("spyre.unfold.default") and not june.runs_on_host("aten.sort.stable")


def test_asking_for_a_fault_that_no_profile_knows_is_an_error() -> None:
    june = load_profile("torch-spyre-2026-06")
    assert june.has_fault("pad-after-restickify") and not june.has_fault("exp-floor")
    with pytest.raises(KeyError):
        june.has_fault("no-such-fault")


@pytest.mark.parametrize("name", profile_names())
def test_every_numeric_choice_says_what_it_is_and_who_says_so(name) -> None:
    profile = load_profile(name)
    assert {"op_rounding", "host_rounding", "device_to_host", "special_functions", "accumulator", "partial_sums"} <= set(profile.numeric)
    for choice in profile.numeric.values():
        assert choice.summary and choice.source and (choice.programs or choice.transfer)
        assert choice.known == (not choice.source.startswith("unknown"))
    assert not profile.numeric["special_functions"].known and not profile.numeric["accumulator"].known


def test_rounding_is_the_profiles_own() -> None:
    assert profile_rules("torch-spyre-2026-06") == DEFAULT_RULES  # what formats.py takes where nobody asks a profile
    numeric = load_profile("torch-spyre-2026-06").numeric
    assert (numeric["op_rounding"].value, numeric["host_rounding"].value) == ("nearest_up", "truncate")


def test_a_part_that_is_not_known_is_told_by_its_name() -> None:
    old = load_profile("torch-spyre-2025-11")
    assert (
        old.unknown("cost") and old.unknown("limits.restickify_beam") and old.unknown("functions.add") and not old.unknown("limits.cores")
    )
