"""A bounded stretch in which Inductor lowers for this device; on leaving it, Inductor is as it was.

Inductor has no per-device table of lowerings, so the ones of the device are put in place for the time of one lowering, under a lock.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._inductor import config as inductor_config
from torch._inductor import graph, ir, lowering
from torch._inductor.codegen import common as codegen_common
from torch._inductor.ops_handler import DefaultHandler

from .profile import Profile
from .tensor import DEVICE_TYPE

_LOCK = threading.RLock()

# As the public compiler sets them: nothing may be fused, split, reordered or reused behind the layouts' back.
_CONFIG: dict[str, Any] = {
    "split_reductions": False,
    "unroll_reductions_threshold": 1,
    "permute_fusion": False,
    "allow_buffer_reuse": False,
    "implicit_fallbacks": True,
    "comprehensive_padding": False,
}
# Loop-body functions that Inductor does not know by itself.
_FUNCTIONS = ("exx2", "layernormscale", "layernormnorm", "gelu", "silu", "softplus", "clamp", "qfp8ch")


class _Features:
    """Stands where Inductor asks which code generator a device has; nothing is generated here."""

    def __init__(self, *_: object) -> None:
        pass

    def get_backend_features(self, device: torch.device) -> set[Any]:
        return set()


@contextlib.contextmanager
def _restored(*tables: Any) -> Iterator[None]:
    """Dictionaries and sets get back what they held."""
    saved = [table.copy() for table in tables]
    try:
        yield
    finally:
        for table, before in zip(tables, saved, strict=True):
            table.clear()
            table.update(before)


@contextlib.contextmanager
def _every_loop_realised() -> Iterator[None]:
    saved = ir.Loops.has_large_inner_fn
    ir.Loops.has_large_inner_fn = lambda self, threshold=None: True  # type: ignore[method-assign]
    try:
        yield
    finally:
        ir.Loops.has_large_inner_fn = saved  # type: ignore[method-assign]


@dataclass(frozen=True)
class _CoreCount:
    """What Inductor asks a device for when it looks whether a reduction is worth splitting.

    It never is here, but the look fixes the strides of the reduction's operands, so that the number of cores shows in layouts.
    """

    multi_processor_count: int

    def create(self, device: torch.device) -> _CoreCount:
        return self


@contextlib.contextmanager
def _body_functions() -> Iterator[None]:
    missing = [name for name in _FUNCTIONS if name not in DefaultHandler.__dict__]
    for name in missing:
        setattr(DefaultHandler, name, DefaultHandler._call_default(name))
    try:
        yield
    finally:
        for name in missing:
            delattr(DefaultHandler, name)


def _fallback(op: Any, **options: Any) -> Any:
    """Inductor's fallback, made whether or not a decomposition exists: which ops are decomposed is the profile's matter.

    Inductor itself refuses such an op where the environment variable CI is set, a rule for its own repository.
    """
    return lowering.make_fallback(op, **{**options, "warn": False})


def _on_host(profile: Profile) -> list[Any]:
    """Ops that have a lowering in Inductor but run on the host here."""
    names = profile.fallbacks
    overloads = [op for op in lowering.lowerings if isinstance(op, torch._ops.OpOverload)]
    return [op for op in overloads if str(op) in names or str(op).rsplit(".", 1)[0] in names]


@contextlib.contextmanager
def known_device() -> Iterator[None]:
    """Inductor may ask for the features of the device (it has none of them)."""
    with _LOCK, _restored(codegen_common.device_codegens):
        codegen_common.init_backend_registration()
        codegen_common.device_codegens[DEVICE_TYPE] = codegen_common.DeviceCodegen(_Features, _Features)  # type: ignore[arg-type]
        yield


@contextlib.contextmanager
def lowering_session(profile: Profile, lowerings: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """`lowerings` (op overload → function on Inductor values) win over Inductor's own while the session lasts."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(known_device())
        stack.enter_context(
            _restored(
                lowering.lowerings,
                lowering.fallbacks,
                lowering.needs_realized_inputs,
                lowering._maybe_layout_constraints,
            )
        )
        for op in _on_host(profile):
            del lowering.lowerings[op]
        lowering.lowerings.update(lowerings)
        stack.enter_context(_every_loop_realised())
        stack.enter_context(patch.object(graph, "make_fallback", _fallback))
        stack.enter_context(patch.object(ir, "DeviceProperties", _CoreCount(profile.limits.cores)))
        stack.enter_context(_body_functions())
        stack.enter_context(inductor_config.patch(_CONFIG))
        yield
