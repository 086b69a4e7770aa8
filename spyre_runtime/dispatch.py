"""Eager ops on the simulated device: run the CPU kernel on the carriers, round the outputs, give them their logical dtypes."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .formats import HALF_DTYPES, carrier_dtype, host_to_device, round_dl16_
from .settings import current_settings
from .tensor import DEVICE_TYPE, SpyreTensor, set_dispatcher, wrap

aten = torch.ops.aten
_CPU = torch.device("cpu")

# Ops that only move, select or compare values: their outputs are representable when their inputs are.
VALUE_PRESERVING: frozenset[str] = frozenset(
    f"aten::{name}"
    for name in [
        "_unsafe_view",
        "clone",
        "cat",
        "stack",
        "index",
        "index_select",
        "gather",
        "embedding",
        "flip",
        "roll",
        "repeat",
        "neg",
        "abs",
        "relu",
        "maximum",
        "minimum",
        "amax",
        "amin",
        "max",
        "min",
        "tril",
        "triu",
        "sort",
        "topk",
        "masked_select",
        "contiguous",
        "detach",
        "lift_fresh",
        "alias",
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "copy",
        "_reshape_alias",
        "select_scatter",
        "slice_scatter",
        "index_copy",
        "index_copy_",
        "zero_",
        "take_along_dim",
        "take",
        "unfold",
        "im2col",
        "isin",
    ]
)
# torch lets these take an index tensor that lives on the CPU.
_CPU_INDEX_OPS: frozenset[str] = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})

Key = tuple[Any, ...]
Owner = tuple[torch.Tensor, torch.Tensor]  # carrier, and the device tensor that it belongs to
_views: dict[Any, bool] = {}
_preserving: dict[Any, bool] = {}
_composites: dict[Any, bool] = {}
_logical: dict[Key, tuple[torch.dtype | None, ...]] = {}


def is_view(op: Any) -> bool:
    """Whether the op's output aliases an input without writing it."""
    known = _views.get(op)
    if known is None:
        known = _views[op] = any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)
    return known


def preserves_values(op: Any) -> bool:
    """Whether the op's outputs are representable because its inputs are."""
    known = _preserving.get(op)
    if known is None:
        known = _preserving[op] = op._schema.name in VALUE_PRESERVING
    return known


def is_composite(op: Any) -> bool:
    """Whether torch defines the op by other ops alone, as `aten.to` or `aten.linear`."""
    known = _composites.get(op)
    if known is None:
        known = _composites[op] = bool(op._can_decompose())
    return known


def dispatch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one ATen op on device tensors. Raises RuntimeError for operands on two devices and TypeError for dtypes that Spyre lacks."""
    special = _SPECIAL.get(op)
    if special is not None:
        return special(*args, **kwargs)
    if is_composite(op):
        # Autograd takes composites apart before they come here, except in inference mode and for tensors that were made there.
        return op.decompose(*args, **kwargs)
    owners: list[Owner] = []
    key: list[Any] = [op]
    raw_args = [_unwrap(a, owners, key, op) for a in args]
    raw_kwargs = {name: _unwrap(value, owners, key, op) for name, value in kwargs.items()}
    out = op(*raw_args, **raw_kwargs)
    half = not HALF_DTYPES.isdisjoint(key)
    if isinstance(out, torch.Tensor):
        dtypes = _logical_dtypes(tuple(key), args, kwargs) if half else (None,)
        return _adopt(op, out, dtypes[0], owners)
    if isinstance(out, (list, tuple)):
        dtypes = _logical_dtypes(tuple(key), args, kwargs) if half else (None,)
        if len(dtypes) != len(out):  # a list, as of split: its length depends on sizes, its members share a dtype
            dtypes = dtypes[:1] * len(out)
        return type(out)(_adopt(op, o, d, owners) if isinstance(o, torch.Tensor) else o for o, d in zip(out, dtypes, strict=True))
    return out


def _unwrap(value: Any, owners: list[Owner], key: list[Any], op: Any) -> Any:
    # The key holds all that can decide an output's dtype: dtypes, which tensors are scalars, and the Python scalars' types.
    kind = type(value)
    if kind is SpyreTensor:
        return _carrier(value, value.raw, owners, key)
    if kind is int or kind is float or kind is bool:
        key.append(kind)
        return value
    if value is None:
        return None
    if kind is list or kind is tuple:
        return kind(_unwrap(v, owners, key, op) for v in value)
    if kind is torch.dtype:
        key.append(value)
        return carrier_dtype(value)
    if kind is torch.device:
        return _CPU if value.type == DEVICE_TYPE else value
    if isinstance(value, torch.Tensor):
        if value.device.type == DEVICE_TYPE:
            # While Dynamo traces, factories give fake tensors on the device itself: stand in a fake carrier.
            carrier = torch.empty_strided(value.shape, value.stride(), dtype=carrier_dtype(value.dtype), device="cpu")
            return _carrier(value, carrier, owners, key)
        key.append((value.dtype, value.dim() == 0))
        if value.dim() and value.device.type == "cpu" and op._schema.name not in _CPU_INDEX_OPS:
            raise RuntimeError(
                f"{op}: expected all tensors on one device, found {DEVICE_TYPE}:0 and cpu; move the {tuple(value.shape)} tensor with .to('{DEVICE_TYPE}')"
            )
    return value


def _carrier(value: torch.Tensor, raw: torch.Tensor, owners: list[Owner], key: list[Any]) -> torch.Tensor:
    owners.append((raw, value))
    key.append(value.dtype)
    if not raw.dim():
        key.append(0)
    return raw


def _logical_dtypes(key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.dtype | None, ...]:
    """The outputs' dtypes as torch's own meta kernels promote them; worked out once for each combination of operand dtypes."""
    known = _logical.get(key)
    if known is None:
        known = _logical[key] = _infer_dtypes(key[0], args, kwargs)
    return known


def _infer_dtypes(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.dtype | None, ...]:
    def on_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device="meta")
        return torch.device("meta") if isinstance(value, torch.device) else value

    with _disable_current_modes():
        meta_args, meta_kwargs = pytree.tree_map(on_meta, (args, kwargs))
        try:
            out = op(*meta_args, **meta_kwargs)
        except (NotImplementedError, RuntimeError):  # the size of the output depends on values: no meta kernel can say
            floats = [v.dtype for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor) and v.dtype.is_floating_point]
            return (floats[0] if floats else None,)
    outs = out if isinstance(out, (list, tuple)) else (out,)
    return tuple(o.dtype if isinstance(o, torch.Tensor) else None for o in outs)


def _adopt(op: Any, raw: torch.Tensor, dtype: torch.dtype | None, owners: list[Owner]) -> torch.Tensor:
    for carrier, owner in owners:
        if carrier is raw:  # written in place, or returned as it is
            if owner.dtype in HALF_DTYPES:
                round_output_(op, raw)
            return owner
    logical = dtype if dtype is not None and (dtype in HALF_DTYPES) == (raw.dtype is torch.float32) else raw.dtype
    made = wrap(raw, logical)
    if logical in HALF_DTYPES and not is_view(op):
        round_output_(op, made.raw)
    return made


def round_output_(op: Any, raw: torch.Tensor) -> None:
    """Round a half-precision output where the settings and the op ask for it. While Dynamo traces there are no values to round."""
    if type(raw) is torch.Tensor and not preserves_values(op):
        now = current_settings()
        if now.numerics == "device":
            round_dl16_(raw, now.rules.op_rounding)


def to_copy(
    x: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> torch.Tensor:
    """``aten._to_copy`` from, to and on the device."""
    target = torch.device(device) if device is not None else x.device
    logical = x.dtype if dtype is None else dtype
    if target.type == DEVICE_TYPE:
        carrier = carrier_dtype(logical)
        if isinstance(x, SpyreTensor):
            raw = aten._to_copy.default(x.raw, dtype=carrier, memory_format=memory_format)
            if logical in HALF_DTYPES and x.dtype not in HALF_DTYPES:
                round_output_(aten._to_copy.default, raw)
        else:
            raw = aten._to_copy.default(_arrive(x, logical), dtype=carrier, memory_format=memory_format)
        return SpyreTensor(raw, logical)
    source = x.raw if isinstance(x, SpyreTensor) else x
    return cast(torch.Tensor, aten._to_copy.default(source, dtype=logical, device=target, memory_format=memory_format))


def _arrive(x: torch.Tensor, logical: torch.dtype) -> torch.Tensor:
    if x.device.type != "cpu":
        raise RuntimeError(f"a tensor reaches {DEVICE_TYPE} from the CPU only, not from {x.device}; call .cpu() first")
    if type(x) is torch.Tensor and logical in HALF_DTYPES and x.dtype.is_floating_point and current_settings().numerics == "device":
        return host_to_device(x, logical, current_settings().rules)
    return x


def copy_(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten.copy_`` between any two of device and host."""
    if not isinstance(target, SpyreTensor):
        if not isinstance(source, SpyreTensor):
            raise RuntimeError(f"copy_ between {source.device} and {target.device} has no spyre side")
        target.copy_(source.raw)
    elif isinstance(source, SpyreTensor):
        target.raw.copy_(source.raw)
        if target.dtype in HALF_DTYPES and source.dtype not in HALF_DTYPES:
            round_output_(aten.copy_.default, target.raw)
    else:
        target.raw.copy_(_arrive(source, target.dtype))
    return target


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten._copy_from``: ``copy_`` with the operands the other way round."""
    return copy_(target, source, non_blocking)


def _local_scalar(x: SpyreTensor) -> Any:
    return aten._local_scalar_dense.default(x.raw.to(x.dtype))


def _histc(x: SpyreTensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    # Mixture-of-experts code counts integers on every device but the CPU, whose kernel takes floats only.
    return wrap(aten.histc.default(x.raw.to(torch.float32), bins, min, max).to(x.raw.dtype), x.dtype)


def _view_dtype(x: SpyreTensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype is x.dtype:
        return wrap(aten.alias.default(x.raw), dtype)
    raise RuntimeError(f"the bits of a {x.dtype} tensor on {DEVICE_TYPE} cannot be viewed as {dtype}; go through .cpu()")


_SPECIAL: dict[Any, Callable[..., Any]] = {
    aten._to_copy.default: to_copy,
    aten.copy_.default: copy_,
    aten._copy_from.default: copy_from,
    aten._local_scalar_dense.default: _local_scalar,
    aten.view.dtype: _view_dtype,
    aten.histc.default: _histc,
}

set_dispatcher(dispatch)
