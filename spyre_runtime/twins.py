"""The load stage's results on the device: made once from the weights, shared by all graphs that need the same, made again when a weight changes."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from .execute_fast import Program
from .formats import HALF_DTYPES, host_to_device, pieces
from .settings import Settings
from .stages import Part
from .tensor import SpyreTensor


@dataclass(frozen=True)
class Recipe:
    """How an output of the load stage is made: a digest of its ops, and the stage's inputs (positions) that it comes from.

    None as the digest: it comes from a constant of its graph, and only that graph may use it.
    """

    digest: str | None
    weights: tuple[int, ...]


@dataclass(frozen=True)
class LoadStage:
    """``inputs``: positions of the weights among the graph's inputs. ``recipes``: one an output of the program."""

    program: Program
    inputs: tuple[int, ...]
    recipes: tuple[Recipe, ...]
    settings: Settings


@dataclass(frozen=True)
class _Source:
    """The carrier of a weight, weakly, as a weak reference to the parameter itself would keep Module.to() from swapping it."""

    carrier: weakref.ref[Tensor]
    version: int

    @staticmethod
    def of(weight: Tensor) -> _Source:
        return _Source(weakref.ref(_carrier(weight)), weight._version)

    def is_still(self, weight: Tensor) -> bool:
        return self.carrier() is _carrier(weight) and self.version == weight._version


def _carrier(weight: Tensor) -> Tensor:
    """A module may keep a tensor as a plain attribute, which stays on the CPU when the module moves."""
    return weight.raw if isinstance(weight, SpyreTensor) else weight


_Key = tuple[str, str, object, tuple[int, ...]]
_shared: dict[_Key, tuple[tuple[_Source, ...], weakref.ref[Tensor]]] = {}


class Twins:
    """What one compiled graph holds of the load stage."""

    def __init__(self) -> None:
        self.sources: tuple[_Source, ...] = ()
        self.values: list[Tensor] | None = None

    def get(self, stage: LoadStage, args: Sequence[Tensor], carriers: Sequence[Tensor]) -> list[Tensor]:
        """The twins for these inputs of the graph. ``carriers``: the inputs' values."""
        weights = [args[i] for i in stage.inputs]
        if self.values is None or not all(source.is_still(weight) for source, weight in zip(self.sources, weights, strict=True)):
            self.sources = tuple(map(_Source.of, weights))
            self.values = _values(stage, self.sources, [carriers[i] for i in stage.inputs])
        return self.values


def _values(stage: LoadStage, sources: tuple[_Source, ...], carriers: Sequence[Tensor]) -> list[Tensor]:
    known = [_find(stage, recipe, sources) for recipe in stage.recipes]
    if all(value is not None for value in known):
        return [value for value in known if value is not None]
    memory = {carrier.untyped_storage().data_ptr() for carrier in carriers}
    values = []
    for found, made, like, recipe in zip(known, stage.program.run(*carriers), stage.program.outputs, stage.recipes, strict=True):
        value = found if found is not None else _arrived(made, like.dtype, stage.settings, memory)
        _share(stage, recipe, sources, value)
        values.append(value)
    return values


def _key(stage: LoadStage, recipe: Recipe, sources: tuple[_Source, ...]) -> _Key | None:
    if recipe.digest is None:
        return None
    return recipe.digest, stage.settings.numerics, stage.settings.rules, tuple(id(sources[i].carrier()) for i in recipe.weights)


def _find(stage: LoadStage, recipe: Recipe, sources: tuple[_Source, ...]) -> Tensor | None:
    key = _key(stage, recipe, sources)
    made_from, value = _shared.get(key, ((), None)) if key is not None else ((), None)
    return value() if value is not None and made_from == tuple(sources[i] for i in recipe.weights) else None


def _share(stage: LoadStage, recipe: Recipe, sources: tuple[_Source, ...], value: Tensor) -> None:
    key = _key(stage, recipe, sources)
    if key is not None:
        _shared[key] = (tuple(sources[i] for i in recipe.weights), weakref.ref(value))
        for dead in [other for other, (_, held) in _shared.items() if held() is None]:
            del _shared[dead]


def _arrived(value: Tensor, dtype: torch.dtype, now: Settings, weights: set[int]) -> Tensor:
    """A host result as it arrives on the device: rounded where it lies, unless that is the memory of a weight, which stays as it is."""
    if now.numerics == "fp32" or dtype not in HALF_DTYPES:
        return value
    if value.untyped_storage().data_ptr() in weights or not value.is_contiguous():
        same = all(torch.equal(host_to_device(piece, dtype, now.rules), piece) for piece in pieces(value))
        return value if same else host_to_device(value, dtype, now.rules)
    for piece in pieces(value):
        piece.copy_(host_to_device(piece, dtype, now.rules))
    return value


def recipes(part: Part) -> tuple[Recipe, ...]:
    """The recipes of a stage's outputs, in order."""
    graph = part.module.graph
    found: dict[fx.Node, Recipe] = {}
    for position, node in enumerate(graph.find_nodes(op="placeholder")):
        found[node] = Recipe("input", (position,))
    for node in graph.nodes:
        if node.op == "get_attr":
            found[node] = Recipe(None, ())
        elif node.op == "call_function":
            found[node] = _recipe(node, found)
    return tuple(found[node] for node in graph.output_node().all_input_nodes)


def _recipe(node: fx.Node, found: dict[fx.Node, Recipe]) -> Recipe:
    sources = [found[source] for source in node.all_input_nodes]
    weights = tuple(dict.fromkeys(weight for source in sources for weight in source.weights))
    if any(source.digest is None for source in sources):
        return Recipe(None, weights)

    def told(source: fx.Node) -> str:
        recipe = found[source]
        return f"<{recipe.digest} {[weights.index(weight) for weight in recipe.weights]}>"

    arguments = fx.map_arg((node.args, dict(node.kwargs)), told)
    return Recipe(hashlib.sha256(f"{node.target} {arguments}".encode()).hexdigest(), weights)
