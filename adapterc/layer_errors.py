"""Error by layer: the hidden state behind each block on the device, against stock float32 on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LayerError:
    """`largest`: largest absolute difference as a part of the largest value; `rms`: of all elements, as a part of theirs."""

    path: str
    largest: float
    rms: float


def blocks(model: nn.Module) -> tuple[str, ...]:
    """Paths of the repeated blocks: members of lists of modules that are in no other list; the direct children where there is no list."""
    lists = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module)]
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    members = [f"{name}.{child}" for name in outer for child, _ in model.get_submodule(name).named_children()]
    return tuple(members) or tuple(name for name, _ in model.named_children())


@contextmanager
def recorded(model: nn.Module, paths: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """What these modules return (of a tuple, the first tensor) while the block lasts; the last call counts."""
    found: dict[str, Tensor] = {}

    def keeper(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple | list) and output else output
            if isinstance(value, Tensor):
                found[path] = value

        return keep

    handles = [model.get_submodule(path).register_forward_hook(keeper(path)) for path in paths]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def on_cpu(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in float32, so that they outlive what comes after."""
    return {path: value.to("cpu", torch.float32).clone() for path, value in found.items()}


def layer_errors(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], mask: Tensor | None) -> tuple[LayerError, ...]:
    """In the order in which the blocks ran. mask [sequences, positions]: positions that count, where the outputs have these dimensions."""
    errors = []
    for path, meant in expected.items():
        done = found.get(path)
        if done is None or done.shape != meant.shape or not meant.numel():
            continue
        if mask is not None and meant.dim() > 2 and meant.shape[:2] == mask.shape:
            valid = mask.to("cpu").bool()
            meant, done = meant[valid], done[valid]
        difference = done - meant
        scale, power = meant.abs().max().item(), meant.norm().item()
        errors.append(LayerError(path, difference.abs().max().item() / (scale or 1.0), difference.norm().item() / (power or 1.0)))
    return tuple(errors)
