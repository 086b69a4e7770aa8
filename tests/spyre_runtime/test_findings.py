"""Each check finds what it is for, says where, and does what it is told about it."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace

import pytest
import torch
from sympy import Symbol

from adapterc.spyre_runtime.addressing import Addresses
from adapterc.spyre_runtime.findings import Check, Finding, FindingError, Findings, FindingWarning, Place, core_ranges
from adapterc.spyre_runtime.profile import Limits
from adapterc.spyre_runtime.shake import compare_paddings, run_shaken
from adapterc.spyre_runtime.tile_checks import (
    LxOwners,
    LxSlot,
    Marks,
    Site,
    Walk,
    check_alignment,
    check_bounds,
    check_initialised,
    check_lx,
    check_race,
    check_spans,
    check_writers,
    mark_written,
)
from adapterc.spyre_runtime.tile_ops import Memory
from adapterc.spyre_runtime.tiles import own

ROWS, COLUMNS = Symbol("d0"), Symbol("d1")


def matrix(rows: int, columns: int, cores: tuple[int, int] = (1, 1), name: str = "buf0", shift: tuple[int, int, int] = (0, 0, 0)) -> Walk:
    """A walk over a [rows, columns] tensor with columns on the stick; `shift` moves it by (stick tiles, rows, lanes)."""
    lanes = torch.arange(columns)
    tiles = -(-columns // 64)
    coordinates = ({COLUMNS: lanes // 64}, {ROWS: torch.arange(rows)}, {COLUMNS: lanes % 64})
    tables = {ROWS: torch.arange(rows) * 64, COLUMNS: lanes // 64 * (rows * 64) + lanes % 64}
    base = shift[0] * rows * 64 + shift[1] * 64 + shift[2]
    return Walk(name, name, Addresses(name, (tiles, rows, 64), base, shift, tables, coordinates))


def site(write: Walk, *reads: Walk, rows: int = 64, columns: int = 128, cores: tuple[int, int] = (8, 2), granule: int = 64) -> Site:
    ownership = own([(ROWS, rows, cores[0]), (COLUMNS, columns, cores[1])], {COLUMNS: granule})
    return Site(Place("op3", "add_2", "model.py:12"), ((ROWS, rows), (COLUMNS, columns)), ownership, reads, write)


def found(check: Check, run: object, findings: Findings) -> Finding:
    with pytest.raises(FindingError) as caught:
        run()  # type: ignore[operator]
    assert caught.value.finding.check is check
    assert findings.found == [caught.value.finding]
    return caught.value.finding


def test_a_sound_op_has_no_findings() -> None:
    findings = Findings()
    sound = site(matrix(64, 128), matrix(64, 128, name="buf1"))
    marks = Marks()
    marks.whole("buf1")
    check_bounds(sound, findings)
    check_initialised(sound, marks, findings)
    check_writers(sound, findings)
    check_alignment(sound, findings)
    check_spans(sound, Limits(), findings)
    check_race(sound, findings)
    assert findings.found == []


def test_out_of_bounds_names_the_cores_that_reach_too_far() -> None:
    findings = Findings()
    wide = site(matrix(64, 128), matrix(64, 128, name="buf1", shift=(0, 9, 0)))
    finding = found(Check.OUT_OF_BOUNDS, lambda: check_bounds(wide, findings), findings)
    # Rows 9..72 of 64: the last two of the eight row slices, of either column slice.
    assert (finding.buffer, finding.cores) == ("buf1", (6, 7, 14, 15))
    assert str(finding).startswith(
        "out-of-bounds at op3 (add_2, model.py:12) on cores 6-7,14-15: buf1 stick 136: place 72 in device dimension 1"
    )


def test_a_place_outside_the_stick_is_out_of_bounds() -> None:
    findings = Findings()
    off = site(matrix(64, 128), matrix(64, 128, name="buf1", shift=(0, 0, 24)))
    assert "place 87 within the stick, which has 64" in found(Check.OUT_OF_BOUNDS, lambda: check_bounds(off, findings), findings).detail


def test_a_read_of_what_nobody_wrote() -> None:
    findings = Findings()
    marks = Marks()
    first_half = Walk("buf1", "buf1", matrix(64, 64, name="buf1").where)
    whole = matrix(64, 128, name="buf1")
    half_written = replace(first_half, where=replace(first_half.where, device_size=whole.where.device_size))
    mark_written(site(half_written, columns=64, cores=(8, 1)), marks, 64 * 128)
    reader = site(matrix(64, 128), whole)
    finding = found(Check.UNINITIALISED_READ, lambda: check_initialised(reader, marks, findings), findings)
    assert (finding.buffer, finding.stick, finding.cores) == ("buf1", 64, (8,))
    mark_written(site(whole), marks, 64 * 128)
    check_initialised(reader, marks, Findings())


def test_two_cores_that_store_one_stick() -> None:
    findings = Findings()
    shared = site(matrix(64, 128), cores=(1, 4), granule=1)
    finding = found(Check.TWO_WRITERS, lambda: check_writers(shared, findings), findings)
    assert (finding.cores, finding.stick) == ((0, 1), 0)


def test_a_store_that_starts_inside_a_stick() -> None:
    findings = Findings()
    finding = found(Check.MISALIGNED_STORE, lambda: check_alignment(site(matrix(64, 128), cores=(1, 4), granule=1), findings), findings)
    assert "slices of 32 elements start at lane 32 of 64" in finding.detail
    findings = Findings()
    shifted = site(matrix(64, 32, shift=(0, 0, 32)), columns=32, cores=(2, 1))
    assert "starts at lane 32" in found(Check.MISALIGNED_STORE, lambda: check_alignment(shifted, findings), findings).detail


def test_a_span_beyond_what_a_core_can_address() -> None:
    findings = Findings()
    limits = Limits(span_bytes=64 * 128)
    check_spans(site(matrix(64, 128), cores=(1, 2)), limits, findings)
    finding = found(Check.SPAN_OVERFLOW, lambda: check_spans(site(matrix(64, 128), cores=(1, 1)), limits, findings), findings)
    assert finding.cores == (0,)


def test_a_core_that_reads_what_another_overwrites() -> None:
    findings = Findings()
    moved = site(matrix(64, 128), matrix(64, 128, shift=(0, 1, 0)), rows=63, cores=(9, 1))
    finding = found(Check.READ_WRITE_RACE, lambda: check_race(moved, findings), findings)
    assert finding.cores == (0, 1)


def test_lx_beyond_its_share_and_on_top_of_another() -> None:
    findings = Findings()
    limits = Limits()
    check_lx([LxSlot("a", 0, 1000, 0, 2), LxSlot("b", 0, 1000, 2, 3)], {}, limits, findings)
    big = [LxSlot("a", limits.lx_usable - 128, 256, 0, 2)]
    assert found(Check.LX_OVERFLOW, lambda: check_lx(big, {0: Place("op0")}, limits, findings), findings).place.op == "op0"
    findings = Findings()
    over = [LxSlot("a", 0, 1000, 0, 3), LxSlot("b", 896, 1000, 1, 2)]
    finding = found(Check.LX_OVERLAP, lambda: check_lx(over, {1: Place("op1")}, limits, findings), findings)
    assert (finding.place.op, finding.buffer, finding.stick) == ("op1", "b", 7)


def test_a_reader_whose_own_lx_lacks_the_stick() -> None:
    findings = Findings()
    owners = LxOwners()
    owners.check(site(matrix(64, 128, name="kept"), cores=(8, 1)), frozenset({"kept"}), findings)
    owners.check(site(matrix(64, 128), matrix(64, 128, name="kept"), cores=(8, 1)), frozenset({"kept"}), findings)
    other = site(matrix(64, 128), matrix(64, 128, name="kept"), cores=(4, 2))
    finding = found(Check.LX_OWNERSHIP, lambda: owners.check(other, frozenset({"kept"}), findings), findings)
    assert finding.buffer == "kept" and finding.cores


class Runner:
    """An op on raw sticks, for the two checks that run it."""

    def __init__(self, run: object) -> None:
        self.run = run


def test_a_result_that_depends_on_padding() -> None:
    findings = Findings()
    leaky = site(matrix(64, 100), columns=100, cores=(8, 1))
    one: Memory = {"buf0": torch.zeros(2 * 64 * 64)}
    other = {"buf0": one["buf0"].clone()}
    compare_paddings(leaky, one, other, findings)
    one["buf0"][64 * 64 + 36 :: 64] = torch.nan  # padding alone: lane 36 of the second tile and beyond it the first lanes stay equal
    one["buf0"][: 64 * 64] = 0
    compare_paddings(leaky, one, other, findings)
    one["buf0"][9 * 64 + 5] = torch.nan
    finding = found(Check.PAD_LEAK, lambda: compare_paddings(leaky, one, other, findings), findings)
    assert (finding.stick, finding.cores) == (9, (1,))


def test_turns_show_a_race_and_leave_sound_ops_alone() -> None:
    def shift_rows(memory: Memory) -> None:
        data = memory["buf0"].view(2, 64, 64)
        data[:, :63] = data[:, 1:].clone()

    racing = site(matrix(64, 128), matrix(64, 128, shift=(0, 1, 0)), rows=63, cores=(9, 1))
    memory: Memory = {"buf0": torch.arange(2.0 * 64 * 64)}
    findings = Findings()
    found(Check.READ_WRITE_RACE, lambda: run_shaken(racing, Runner(shift_rows), memory, random.Random(1), findings), findings)

    def double(memory: Memory) -> None:
        memory["buf0"] *= 2

    memory = {"buf0": torch.arange(2.0 * 64 * 64)}
    run_shaken(site(matrix(64, 128), matrix(64, 128)), Runner(double), memory, random.Random(1), Findings())
    assert torch.equal(memory["buf0"], torch.arange(2.0 * 64 * 64) * 2)


def test_lost_updates_of_a_shared_stick_show_as_two_writers() -> None:
    def fill(memory: Memory) -> None:
        memory["buf0"].fill_(1.0)

    findings = Findings()
    shared = site(matrix(64, 128), cores=(1, 4), granule=1)
    found(
        Check.TWO_WRITERS,
        lambda: [run_shaken(shared, Runner(fill), {"buf0": torch.zeros(2 * 64 * 64)}, random.Random(seed), findings) for seed in range(8)],
        findings,
    )


def test_actions() -> None:
    wide = site(matrix(64, 128), matrix(64, 128, name="buf1", shift=(0, 9, 0)))
    warned = Findings({Check.OUT_OF_BOUNDS: "warn"})
    with pytest.warns(FindingWarning, match="out-of-bounds at op3"):
        check_bounds(wide, warned)
    assert len(warned.found) == 1
    silent = Findings({Check.OUT_OF_BOUNDS: "off"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_bounds(wide, silent)
    assert silent.found == [] and not silent.watches(Check.OUT_OF_BOUNDS)
    with pytest.raises(ValueError, match="no check 'races'; there are out-of-bounds, "):
        Findings({"races": "off"})
    with pytest.raises(ValueError, match="choose raise, warn or off"):
        Findings({Check.PAD_LEAK: "ignore"})  # type: ignore[dict-item]


@pytest.mark.parametrize(("cores", "text"), [((0, 1, 2, 3, 8), "0-3,8"), ((5,), "5"), ((2, 0, 1), "0-2"), ((), ""), ((1, 3, 5), "1,3,5")])
def test_core_ranges(cores: tuple[int, ...], text: str) -> None:
    assert core_ranges(cores) == text


def test_every_check_has_advice() -> None:
    assert all(Finding(check, Place("op"), "x").advice for check in Check)
