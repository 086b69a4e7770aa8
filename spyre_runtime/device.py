"""Registers the torch device ``spyre`` in pure Python, unless the real one is installed."""

import importlib.util
import math
from typing import Any, cast

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from .dispatch import copy_from, dispatch, to_copy
from .tensor import DEVICE_TYPE

# A Library takes its registrations back when it is collected, so these live as long as the process.
_libraries: list[Any] = []


class SpyreModule:
    """What ``torch.spyre`` answers: one device, always ready, nothing asynchronous."""

    def is_available(self) -> bool:
        # While Dynamo traces, FakeTensorMode asks. Told yes, it would evaluate constants on the device for real, and it
        # cannot take the results, which are tensors of a subclass.
        return torch._guards.TracingContext.try_get() is None

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        if torch.device(device if isinstance(device, str) else f"{DEVICE_TYPE}:{device}").index not in (None, 0):
            raise ValueError(f"there is one {DEVICE_TYPE} device, {DEVICE_TYPE}:0, not {device}")

    def get_device_name(self, device: Any = None) -> str:
        return "IBM Spyre (simulated)"

    def synchronize(self, device: Any = None) -> None:
        return None

    def manual_seed_all(self, seed: int) -> None:
        return None  # random numbers come from the CPU generator, which torch.manual_seed seeds itself

    def manual_seed(self, seed: int) -> None:
        return None

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def _is_in_bad_fork(self) -> bool:
        return False


def real_device_installed() -> bool:
    """Whether the real backend, torch_spyre, can be imported; then the simulator leaves the device to it."""
    return importlib.util.find_spec("torch_spyre") is not None


def register() -> bool:
    """Register the simulated device; False where the real backend is installed and nothing is touched.

    Global state of torch that this sets: the name of the PrivateUse1 backend, ``torch.spyre``, the generated methods
    ``Tensor.spyre()``, ``Module.spyre()`` and ``is_spyre``, and kernels under the PrivateUse1 keys, which no tensor of another
    device reaches. ``torch.__future__.set_swap_module_params_on_conversion`` stays as it is: ``Module.to("spyre")`` swaps
    parameters all the same, because a SpyreTensor is a traceable wrapper subclass.
    """
    if real_device_installed():
        return False
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", DEVICE_TYPE):
        raise RuntimeError(
            f"torch allows one custom device a process and {taken!r} has it; import the spyre simulator in a process without it"
        )
    _setup_privateuseone_for_python_backend(DEVICE_TYPE, backend_module=SpyreModule())
    _register_kernels()
    return True


def _register_kernels() -> None:
    # Factories (torch.arange(device="spyre")) and copies from the CPU have no SpyreTensor among their arguments, so they arrive
    # under PrivateUse1 and not at __torch_dispatch__.
    library = cast(Any, torch.library.Library)  # untyped in torch
    fallback = library("_", "IMPL")
    fallback.fallback(lambda op, *args, **kwargs: dispatch(op, args, kwargs), DEVICE_TYPE_KEY)
    kernels = library("aten", "IMPL")
    kernels.impl("_to_copy", to_copy, DEVICE_TYPE_KEY)
    kernels.impl("_copy_from", copy_from, DEVICE_TYPE_KEY)
    kernels.impl("scaled_dot_product_attention", attention, f"Autograd{DEVICE_TYPE_KEY}")
    kernels.impl("scaled_dot_product_attention", attention, DEVICE_TYPE_KEY)
    _libraries.extend((fallback, kernels))


DEVICE_TYPE_KEY = "PrivateUse1"


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Scaled dot product attention [..., L, D] x [..., S, D] x [..., S, V] -> [..., L, V] in the device's own steps and rounding points.

    torch would upcast half precision to float32 for the whole of it; Spyre scales query and key by the root of the scale each and
    stays in half precision (torch-spyre ``decompositions.py``). A row that is masked throughout gives zeros, as on other devices.
    """
    if dropout_p:
        raise RuntimeError(f"attention on {DEVICE_TYPE} has no dropout; call model.eval()")
    root = math.sqrt(1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    scores = (query * root) @ (key * root).transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    scores = scores.masked_fill(attn_mask.logical_not(), -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return cast(torch.Tensor, torch.ops.aten._safe_softmax.default(scores, -1)) @ value
