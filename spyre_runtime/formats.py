"""Number formats of the device and what happens to a value on its way in and out.

Half-precision tensors live on Spyre as DLFloat16 ("SEN169_FP16"): 1 sign, 6 exponent and 9 mantissa bits, bias 31, no
subnormals, one code (all ones) shared by NaN and infinity. Sources: A. Agrawal et al., "DLFloat: A 16-b Floating Point
Format Designed for Deep Learning Training and Inference", ARITH 2019; US patent application 20190369960; torch-spyre
``constants.py`` (``DLFLOAT16_MAX``); onnx-mlir ``NNPALimit.hpp``.

The simulator carries such values as float32 tensors that hold only representable numbers, so every function here
takes and returns float32. NaN and the infinities stay apart while a value is carried, and merge when it is encoded.
"""

from dataclasses import dataclass
from typing import Literal

import torch

Rounding = Literal["nearest_up", "nearest_even", "truncate"]

DL16_BIAS = 31
DL16_MANTISSA_BITS = 9
DL16_MAX = 2.0**32 * (1 + 510 / 512)  # code 0x7FFE
DL16_MIN_NORMAL = 2.0**-31 * (1 + 1 / 512)  # code 0x0001: code 0x0000 is zero, so 2**-31 itself has no code
DL16_MERGED_CODE = 0x7FFF  # NaN or infinity

HALF_DTYPES = frozenset({torch.float16, torch.bfloat16})
UNSUPPORTED_DTYPES = frozenset({torch.float64, torch.complex32, torch.complex64, torch.complex128})

_DROPPED_BITS = 23 - DL16_MANTISSA_BITS
# As tensors: wrapping a Python number anew costs as much as a pass over a small tensor.
_HALF_ULP = torch.tensor(1 << (_DROPPED_BITS - 1), dtype=torch.int32, device="cpu")
_KEEP = torch.tensor(-(1 << _DROPPED_BITS), dtype=torch.int32, device="cpu")
_VELTKAMP = float((1 << _DROPPED_BITS) + 1)
_SQUARES_IN_RANGE = 8e9**2  # well below DL16_MAX = 8.57e9, for the rounding of the sum itself
_LARGEST_WITHOUT_CODE = 2.0**-31  # every rounded magnitude up to here becomes zero
_FP16_LARGEST_IN_DL16 = 65472.0  # 65504 less its last mantissa bit


@dataclass(frozen=True)
class NumberRules:
    """What a backend release does where the format leaves a choice.

    ``op_rounding``: how an op's float32 result becomes DLFloat16. The DLFloat paper and patent say nearest, ties up.
    ``host_rounding``: how host half precision becomes DLFloat16 on the way in. Of the five published pairs (torch-spyre
    issues 1938, 1771, 2516) truncation explains four, nearest-even three and nearest-up two, since a finite half stays
    finite under each of them (-65504); no rule explains all.
    """

    op_rounding: Rounding = "nearest_up"
    host_rounding: Rounding = "truncate"


DEFAULT_RULES = NumberRules()


def round_dl16(x: torch.Tensor, rounding: Rounding = "nearest_up") -> torch.Tensor:
    """The DLFloat16 value nearest to each float32 element (any shape), as a new float32 tensor.

    Finite values beyond ``DL16_MAX`` saturate; magnitudes that round below ``DL16_MIN_NORMAL`` become zero with their sign
    lost (what the device does there is unknown); NaN and the infinities stay.
    """
    return round_dl16_(x.clone(), rounding)


def round_dl16_(x: torch.Tensor, rounding: Rounding = "nearest_up") -> torch.Tensor:
    """``round_dl16`` in place; returns ``x``. ``x`` is float32, any strides (a view is rounded where it lies)."""
    if x.dtype is not torch.float32:
        raise TypeError(f"round_dl16_ rounds float32 carriers, not {x.dtype}")
    # One BLAS pass, cheaper than clamping: while the squares sum below the limit, no element is beyond it, infinite or NaN.
    # (Contiguous tensors are flattened for it; the rounding itself works in place on any strides.)
    flat = x.view(-1) if x.is_contiguous() else x.reshape(-1)
    if torch.dot(flat, flat).item() < _SQUARES_IN_RANGE:
        return _round_in_range_(x, rounding)
    finite = x.isfinite()
    rounded = _round_in_range_(torch.where(finite, x.clamp(-DL16_MAX, DL16_MAX), torch.zeros_like(x)), rounding)
    return torch.where(finite, rounded, x, out=x)


def _round_in_range_(x: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    if rounding == "nearest_even":
        # Veltkamp's split: c - (c - x) keeps the leading 10 significant bits, ties to even.
        c = x * _VELTKAMP
        x.sub_(c).add_(c)
    else:
        bits = x.view(torch.int32)
        if rounding == "nearest_up":
            bits.add_(_HALF_ULP)
        bits.bitwise_and_(_KEEP)
    return torch.hardshrink(x, _LARGEST_WITHOUT_CODE, out=x)


def pieces(x: torch.Tensor, elements: int = 1 << 22) -> tuple[torch.Tensor, ...]:
    """Views of `x` along its first dimension of about so many elements: what is made from one at a time takes little memory."""
    rows = max(1, elements * x.shape[0] // x.numel()) if x.dim() and x.numel() > elements else 0
    return x.split(rows) if rows else (x,)


def encode_dl16(x: torch.Tensor, rounding: Rounding = "nearest_up") -> torch.Tensor:
    """The 16-bit codes (as int32 in 0..65535, same shape) of float32 values after rounding.

    NaN becomes the merged code with the sign bit set, because it reads back as -inf on the device (torch-spyre issue 4700).
    """
    value = round_dl16(x, rounding)
    bits = value.view(torch.int32)
    sign = (bits < 0).to(torch.int32) << 15
    exponent = ((bits >> 23) & 0xFF) - 127 + DL16_BIAS
    mantissa = (bits >> _DROPPED_BITS) & 0x1FF
    code = sign | (exponent << DL16_MANTISSA_BITS) | mantissa
    code = torch.where(value == 0, sign, code)
    code = torch.where(value.isinf(), sign | DL16_MERGED_CODE, code)
    return torch.where(value.isnan(), torch.full_like(code, 0x8000 | DL16_MERGED_CODE), code)


def decode_dl16(code: torch.Tensor) -> torch.Tensor:
    """The float32 values of 16-bit codes (integer tensor, values 0..65535). The merged code reads as infinity with its sign."""
    code = code.to(torch.int32)
    exponent = (code >> DL16_MANTISSA_BITS) & 0x3F
    mantissa = code & 0x1FF
    magnitude = ((exponent - DL16_BIAS + 127) << 23) | (mantissa << _DROPPED_BITS)
    magnitude = torch.where((code & 0x7FFF) == 0, torch.zeros_like(magnitude), magnitude)
    value = magnitude.view(torch.float32)
    value = torch.where((code & 0x7FFF) == DL16_MERGED_CODE, torch.full_like(value, torch.inf), value)
    return torch.where((code & 0x8000) != 0, -value, value)


def host_to_device(x: torch.Tensor, dtype: torch.dtype, rules: NumberRules = DEFAULT_RULES) -> torch.Tensor:
    """The device's values of a host tensor that becomes logical ``dtype``: a new tensor in the carrier type of ``dtype``.

    Half precision is first cast on the host (so float32 beyond 65504 is infinite in float16), then rounded to DLFloat16.
    A finite float16 stays one that float16 can hold again: -65504 becomes -65472 (torch-spyre issue 2516).
    """
    if dtype not in HALF_DTYPES:
        return x.to(dtype, copy=True)
    carried = x.to(dtype).to(torch.float32, copy=True)
    if dtype is torch.float16 and rules.host_rounding != "truncate":
        # Only the carry of the largest binade leaves float16's range.
        rounded = round_dl16(carried, rules.host_rounding)
        over = (rounded.abs() > 65504.0) & carried.isfinite()
        return torch.where(over, carried.sign() * _FP16_LARGEST_IN_DL16, rounded)
    return round_dl16_(carried, rules.host_rounding)


def device_to_host(raw: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A host copy in ``dtype`` of carried device values; values beyond the host type's range become infinite here, not before."""
    return raw.to(dtype, copy=True)


def carrier_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the CPU tensor that carries a device tensor of logical ``dtype``; raises TypeError for types Spyre lacks."""
    if dtype in HALF_DTYPES:
        return torch.float32
    if dtype in UNSUPPORTED_DTYPES:
        raise TypeError(
            f"the spyre device has no {str(dtype).removeprefix('torch.')}; convert to float32 or float16 before moving the tensor"
        )
    return dtype
