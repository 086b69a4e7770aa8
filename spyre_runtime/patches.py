"""Graph patches: functions from captured graph to captured graph, installed on a model instance and removable."""

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import torch

from .capture import CapturedGraph


@runtime_checkable
class GraphPatch(Protocol):
    """A rewrite of captured graphs. It returns a new graph and the number of sites that it changed; at 0 the graph is as before."""

    @property
    def name(self) -> str: ...

    def __call__(self, captured: CapturedGraph) -> tuple[CapturedGraph, int]: ...


@dataclass(eq=False)
class Handle:
    """One installation. ``remove()`` takes the patches off again, as does leaving it as a context manager."""

    model: weakref.ref[torch.nn.Module]
    patches: tuple[GraphPatch, ...]
    fired: dict[str, int] = field(default_factory=dict)

    def remove(self) -> None:
        if self in _installed:
            _installed.remove(self)
            _renew()

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


# In the order of installation, which is the order of application. The model is held weakly and its parameters not at all: a weak
# reference to a parameter would keep Module.to() from swapping it.
_installed: list[Handle] = []
_counter = itertools.count(1)
_epoch = 0


def _renew() -> None:
    global _epoch
    _epoch = next(_counter)


def epoch() -> int:
    """Changes whenever the set of installed patches does; compiled graphs compare it before they look closer."""
    return _epoch


def install(model: torch.nn.Module, patches: Iterable[GraphPatch]) -> Handle:
    """Let ``patches`` rewrite every graph that is compiled from ``model``'s parameters for device ``spyre``.

    The model itself is not touched. Raises TypeError for something that is no GraphPatch, ValueError for one name twice.
    """
    chosen = tuple(patches)
    for patch in chosen:
        if not isinstance(patch, GraphPatch):
            raise TypeError(f"{patch!r} is no graph patch: it needs a name and to be callable with a CapturedGraph")
    names = [patch.name for patch in chosen]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two patches are named {twice[0]!r}; patch names are unique within one installation")
    handle = Handle(weakref.ref(model), chosen, dict.fromkeys(names, 0))
    _installed.append(handle)
    _renew()
    return handle


def active_handles(example_inputs: Sequence[Any]) -> tuple[Handle, ...]:
    """The installations whose model owns a parameter among the inputs (by identity).

    A graph without parameters (a graph break in front of a model's weights, as dynamic rotary scaling has) belongs to nobody: it gets the patches
    where only one model has any.
    """
    inputs = {id(value) for value in example_inputs if isinstance(value, torch.nn.Parameter)}
    _installed[:] = [handle for handle in _installed if handle.model() is not None]
    if not inputs:
        return tuple(_installed) if len({id(handle.model()) for handle in _installed}) == 1 else ()
    return tuple(handle for handle in _installed if not inputs.isdisjoint(_parameter_ids(handle)))


def active_for(example_inputs: Sequence[Any]) -> tuple[GraphPatch, ...]:
    """The patches that rewrite a graph with these inputs, in order."""
    return tuple(patch for handle in active_handles(example_inputs) for patch in handle.patches)


def apply_patches(captured: CapturedGraph, handles: Sequence[Handle]) -> tuple[CapturedGraph, dict[str, int]]:
    """Rewrite a graph with the patches of ``handles`` in order; returns it with the sites changed by each patch, and counts them."""
    fired: dict[str, int] = {}
    for handle in handles:
        for patch in handle.patches:
            captured, sites = patch(captured)
            handle.fired[patch.name] += sites
            fired[patch.name] = fired.get(patch.name, 0) + sites
    return captured, fired


def fired_report(model: torch.nn.Module) -> Mapping[str, int]:
    """For each patch installed on ``model`` the sites that it changed in all graphs compiled so far; 0 is worth a look."""
    report: dict[str, int] = {}
    for handle in _installed:
        if handle.model() is model:
            for name, sites in handle.fired.items():
                report[name] = report.get(name, 0) + sites
    return report


def _parameter_ids(handle: Handle) -> set[int]:
    model = handle.model()
    return set() if model is None else {id(parameter) for parameter in model.parameters()}
