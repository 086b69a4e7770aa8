"""The `replace` rules: an instance's forward gets a device branch. Never a class, and it comes off without a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from .context import Context
from .rules import Replace

DEVICE = "spyre"


@dataclass(frozen=True)
class Replaced:
    """One replaced module; `before` is the instance's own forward, or None where the class's was in use."""

    module: torch.nn.Module
    before: Callable[..., Any] | None
    rule: str

    def restore(self) -> None:
        if self.before is None:
            del self.module.__dict__["forward"]
        else:
            self.module.forward = self.before


def replace_modules(model: torch.nn.Module, rule: Replace, context: Context) -> list[Replaced]:
    """Give every module whose class name matches a forward that takes the rule's branch on the device."""
    done: list[Replaced] = []
    if rule.origin.when is not None and not rule.origin.when(context):
        return done
    for module in model.modules():
        if fnmatchcase(type(module).__name__, rule.module):
            before = module.__dict__.get("forward")
            module.forward = branching(module, module.forward, rule)
            done.append(Replaced(module, before, rule.origin.name))
    return done


def branching(module: torch.nn.Module, stock: Callable[..., Any], rule: Replace) -> Callable[..., Any]:
    """`stock` where the first input is not on the device, or where it gets an argument that the rule knows nothing of."""
    signature = inspect.signature(stock)
    names = list(inspect.signature(rule.forward).parameters)[1:]

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = list(signature.bind(*args, **kwargs).arguments.values())
        inputs, others = given[: len(names)], given[len(names) :]
        on_device = bool(inputs) and isinstance(inputs[0], torch.Tensor) and inputs[0].device.type == DEVICE
        if not on_device or len(inputs) < len(names) or any(other is not None for other in others):
            return stock(*args, **kwargs)
        return rule.forward(module, *inputs)

    return forward
