"""The tensor of the simulated device: torch sees device ``spyre`` and the logical dtype; a CPU tensor carries the values."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from .formats import carrier_dtype, device_to_host

DEVICE_TYPE = "spyre"
_DEVICE = f"{DEVICE_TYPE}:0"

Dispatcher = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_dispatcher: Dispatcher


def set_dispatcher(dispatcher: Dispatcher) -> None:
    """Name the function that runs ops on SpyreTensors (dispatch.py, which needs this module, sets it)."""
    global _dispatcher
    _dispatcher = dispatcher


@cache
def _device() -> torch.device:
    return torch.device(_DEVICE)  # when first asked for: the name is known only once the device is registered


class SpyreTensor(torch.Tensor):
    """A tensor on the device. ``raw``: CPU tensor of the same sizes and strides that carries the values; views of this tensor have
    views of ``raw``, so aliasing and in-place writes are right by construction. float16 and bfloat16 are carried in
    float32 (formats.py), every other dtype in itself.
    """

    raw: torch.Tensor

    # Otherwise .cpu() would return this class. (torch's own stubs type this attribute as a method.)
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: torch.Tensor, dtype: torch.dtype) -> "SpyreTensor":
        made = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=dtype, device=_device()
        )
        made.raw = raw
        return made

    def __init__(self, raw: torch.Tensor, dtype: torch.dtype) -> None:
        if raw.dtype is not carrier_dtype(dtype):
            raise TypeError(f"a spyre tensor of {dtype} is carried in {carrier_dtype(dtype)}, not {raw.dtype}")

    # Dynamo traces through these two, so that inside a graph device.type is "spyre" as well.
    def __tensor_flatten__(self) -> tuple[list[str], torch.dtype]:
        return ["raw"], self.dtype

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], dtype: torch.dtype, outer_size: Any, outer_stride: Any) -> "SpyreTensor":
        return SpyreTensor(inner["raw"], dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]  # torch's stub lacks cls
        return _dispatcher(func, args, kwargs or {})

    def host(self) -> torch.Tensor:
        """A CPU copy in the logical dtype."""
        return device_to_host(self.raw.detach(), self.dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch names the parameter nothing
        if type(self.raw) is not torch.Tensor:  # while Dynamo traces, there are no values
            return f"SpyreTensor(shape={tuple(self.shape)}, dtype={self.dtype}, raw={self.raw!r})"
        prefix = "Parameter containing:\n" if isinstance(self, torch.nn.Parameter) else ""
        text = repr(self.host()).rstrip(")")
        dtype = "" if "dtype=" in text or self.dtype in (torch.float32, torch.int64, torch.bool) else f", dtype={self.dtype}"
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"{prefix}{text}{dtype}, device='{_DEVICE}'{grad})"

    def __format__(self, format_spec: str) -> str:
        return format(self.item(), format_spec) if self.dim() == 0 else object.__format__(self, format_spec)

    def tolist(self) -> Any:
        return self.host().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.host().numpy(force=True)
        raise TypeError(f"a tensor on {_DEVICE} has no NumPy view; call .cpu() first")

    def __array__(self, dtype: Any = None) -> Any:
        raise TypeError(f"a tensor on {_DEVICE} has no NumPy view; call .cpu() first")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a tensor on {_DEVICE} cannot be saved or pickled; move it first, for example torch.save(model.cpu().state_dict(), path)"
        )


def wrap(raw: torch.Tensor, dtype: torch.dtype | None = None) -> SpyreTensor:
    """A device tensor of logical ``dtype`` (default: the carrier's own) over ``raw``, not copied unless the carrier type differs."""
    logical = raw.dtype if dtype is None else dtype
    carrier = carrier_dtype(logical)
    # Past __init__, whose check holds here.
    return SpyreTensor.__new__(SpyreTensor, raw if raw.dtype is carrier else raw.to(carrier), logical)
