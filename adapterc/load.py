"""`adapterc.load`: a stock model, patched and compiled for the device, in one line; the class stays the one that the user would have had."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

import torch
import transformers

import adapterc.spyre_runtime  # noqa: F401 - registers the device
from adapterc import models, specs
from adapterc.build import build_specs, load_package
from adapterc.capturing import HALVES
from adapterc.errors import UserError

DEVICE = "spyre"
ModelT = TypeVar("ModelT", bound=torch.nn.Module)


@overload
def load(
    model: str | Path, *, adapters: Sequence[str | Path] = ..., patches: str | Path | None = ..., dtype: torch.dtype | None = ...
) -> transformers.PreTrainedModel: ...
@overload
def load(
    model: ModelT, *, adapters: Sequence[str | Path] = ..., patches: str | Path | None = ..., dtype: torch.dtype | None = ...
) -> ModelT: ...
def load(
    model: Any,
    *,
    adapters: Sequence[str | Path] = (),
    patches: str | Path | None = None,
    dtype: torch.dtype | None = None,
) -> Any:
    """Move a model to the device in `dtype`, install the adapters on it, and let calls and `generate` run compiled.

    Without `dtype` it is the half that the model or its checkpoint is in, and float16 where that is no half. T5 clamps in float16 by a branch on
    values, which no graph can hold: give bfloat16.

    `model`: a model, a local folder, or a `config:` spec. `adapters`: spec files instead of the shipped ones. `patches`: a package that
    `adapterc build` wrote instead of specs. A model that is given is changed in place; `unload` gives it back on the CPU.
    Raises UserError for a model that cannot be loaded and for specs that do not pass the check, PatchError where an adapter refuses it.
    """
    found = models.load(str(model)).model if isinstance(model, (str, Path)) else model
    if not isinstance(found, torch.nn.Module):
        raise UserError("ADC501", f"{type(model).__name__} is no model", "give a Transformers model, a folder or a config: spec")
    package = load_package(Path(patches)) if patches is not None else _package(tuple(map(str, specs.find(adapters))))
    handle = package.install(found)
    _to_device(found.eval(), dtype or half_of(found))
    found.compile(backend=DEVICE, dynamic=False)
    _handles[id(found)] = handle
    weakref.finalize(found, _handles.pop, id(found), None)
    return found


def _to_device(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Move the model and cast what a checkpoint in `dtype` would hold.

    `Module.to` would round the frequencies of rotary positions too, which stock keeps in float32 whatever the checkpoint is in: at token 2000 that is
    a third of a radian. They are buffers that no checkpoint has, of modules that have no weight and so run on the host.
    """
    tables = [
        (module, name, buffer)
        for module in model.modules()
        if not any(True for _ in module.parameters())
        for name, buffer in module.named_buffers(recurse=False)
        if name in module._non_persistent_buffers_set and buffer.is_floating_point()
    ]
    model.to(DEVICE, dtype)
    for module, name, buffer in tables:
        setattr(module, name, buffer.to(DEVICE))


def half_of(model: torch.nn.Module) -> torch.dtype:
    """The half-precision format that the model is in, else the one that its config says its checkpoint is in, else float16."""
    floating = (p.dtype for p in model.parameters() if p.is_floating_point())
    said = (next(floating, None), getattr(getattr(model, "config", None), "dtype", None))
    return next((dtype for dtype in said if dtype in HALVES), torch.float16)


def unload(model: ModelT, dtype: torch.dtype = torch.float32) -> ModelT:
    """Take the adapters off, end compilation and move the model back to the CPU. Raises UserError ADC509 for a model that was not loaded so."""
    handle = _handles.pop(id(model), None)
    if handle is None:
        raise UserError("ADC509", "this model was not loaded with adapterc.load", "nothing has to be taken off")
    handle.remove()
    vars(model).pop("_compiled_call_impl", None)  # compile() set it on the instance, over the class's None
    shared: dict[int, list[tuple[torch.nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            shared.setdefault(id(parameter), []).append((module, name))
    model.to(torch.device("cpu"), dtype)
    for (first, name), *others in shared.values():  # `to` makes a tied table one for each of its owners when it leaves the device
        for module, other in others:
            setattr(module, other, getattr(first, name))
    return model


_handles: dict[int, Any] = {}


@cache
def _package(paths: tuple[str, ...]) -> ModuleType:
    """The patches of the specs, checked and built once for the process."""
    folder = Path(tempfile.mkdtemp(prefix="adapterc-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    report = build_specs(tuple(map(Path, paths)), folder / "adapterc_loaded_patches")
    if not report.ok:
        bad = next(rule for rule in report.checked.rules if not rule.ok)
        raise UserError("ADC506", f"{bad.name} may not be built: {bad.verdict.how}", "see `adapterc check`")
    return load_package(report.output)
