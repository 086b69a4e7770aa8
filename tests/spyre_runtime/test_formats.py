"""DLFloat16: every code, every float16, the tie rules, the edges, and the pairs published for the real device."""

import math

import pytest
import torch

from adapterc.spyre_runtime.formats import (
    DL16_MAX,
    DL16_MIN_NORMAL,
    NumberRules,
    Rounding,
    carrier_dtype,
    decode_dl16,
    encode_dl16,
    host_to_device,
    round_dl16,
    round_dl16_,
)

ROUNDINGS: tuple[Rounding, ...] = ("nearest_up", "nearest_even", "truncate")
ALL_CODES = torch.arange(65536, dtype=torch.int32)


def exact(code: int) -> float:
    """The value of a code from the definition, in Python floats."""
    exponent, mantissa = (code >> 9) & 0x3F, code & 0x1FF
    if code & 0x7FFF == 0x7FFF:
        value = math.inf
    elif code & 0x7FFF == 0:
        value = 0.0
    else:
        value = 2.0 ** (exponent - 31) * (1 + mantissa / 512)
    return -value if code & 0x8000 else value


def test_decode_every_code() -> None:
    assert decode_dl16(ALL_CODES).tolist() == [exact(code) for code in range(65536)]


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_value_is_its_own_rounding_and_every_code_comes_back(rounding: Rounding) -> None:
    values = decode_dl16(ALL_CODES)
    assert torch.equal(round_dl16(values, rounding), values)
    back = encode_dl16(values, rounding)
    assert torch.equal(back[values != 0], ALL_CODES[values != 0])


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_between_neighbours(rounding: Rounding) -> None:
    """Quarter, half and three quarters of the way between each pair of neighbouring positive values."""
    values = decode_dl16(ALL_CODES[1:0x7FFF]).double()
    low, high = values[:-1], values[1:]
    even = torch.arange(1, 0x7FFE) % 2 == 0
    for part, expected in ((0.25, low), (0.5, None), (0.75, high)):
        between = (low + (high - low) * part).float()
        want = (
            {"nearest_up": high, "nearest_even": torch.where(even, low, high), "truncate": low}[rounding] if expected is None else expected
        )
        if rounding == "truncate":
            want = low
        assert torch.equal(round_dl16(between, rounding).double(), want)
        assert torch.equal(round_dl16(-between, rounding).double(), -want)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_edges(rounding: Rounding) -> None:
    inf, nan = math.inf, math.nan
    x = torch.tensor([inf, -inf, 1e30, -1e30, DL16_MAX * 1.0001, 2.0**-33, -1e-45, 0.0, DL16_MIN_NORMAL, 2.0**-31])
    want = torch.tensor([inf, -inf, DL16_MAX, -DL16_MAX, DL16_MAX, 0.0, 0.0, 0.0, DL16_MIN_NORMAL, 0.0])
    assert torch.equal(round_dl16(x, rounding), want)
    assert round_dl16(torch.tensor([nan, 1.0]), rounding).isnan().tolist() == [True, False]
    assert encode_dl16(torch.tensor([nan, inf, -inf])).tolist() == [0xFFFF, 0x7FFF, 0xFFFF]


def test_in_place_rounds_a_view_where_it_lies() -> None:
    base = torch.full((4, 4), 1.0001)
    round_dl16_(base.t()[1:3])
    assert (base[:, 1:3] == 1.0).all()
    assert (base[:, [0, 3]] != 1.0).all()


def test_scalars_and_empty() -> None:
    assert round_dl16(torch.tensor(1.0001)).item() == 1.0
    assert round_dl16(torch.empty(0, 3)).shape == (0, 3)


# torch-spyre issues 1938, 1771 and 2516: (float16 on the host, what the device held). They span software releases.
PUBLISHED = ((0.5903, 0.5908), (0.1669, 0.1667), (0.1876, 0.1875), (-2.002, -2.0), (-65504.0, -65472.0))


@pytest.mark.parametrize(
    ("rounding", "explained"),
    [("truncate", {0.1669, 0.1876, -2.002, -65504.0}), ("nearest_even", {0.1876, -2.002, -65504.0}), ("nearest_up", {0.5903, -65504.0})],
)
def test_published_pairs(rounding: Rounding, explained: set[float]) -> None:
    """Which pairs each rule explains; -65504 is explained by all because a carry may not leave float16's range."""
    rules = NumberRules(host_rounding=rounding)
    got = {host for host, device in PUBLISHED if round(host_to_device(torch.tensor(host), torch.float16, rules).item(), 4) == device}
    assert got == explained


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_finite_float16_survives_the_round_trip_as_finite(rounding: Rounding) -> None:
    halves = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.float16)
    halves = halves[halves.isfinite()]
    back = host_to_device(halves, torch.float16, NumberRules(host_rounding=rounding)).to(torch.float16)
    assert back.isfinite().all()
    assert ((back.float() - halves.float()).abs() <= halves.float().abs() * 2.0**-9 + 2.0**-24).all()


def test_bfloat16_is_exact_within_range() -> None:
    values = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    values = values[(values.float().abs() < DL16_MAX) & (values.float().abs() >= DL16_MIN_NORMAL)]
    assert torch.equal(host_to_device(values, torch.bfloat16), values.float())


def test_float64_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match="no float64; convert to float32"):
        carrier_dtype(torch.float64)
