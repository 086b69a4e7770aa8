"""The cells of a config grid: for a small model of a family, every value of every config field that changes what the stock forward computes.

Which fields matter is asked of the model, not written down: a field's other values follow from its type in the config class, the stock forward is run
with each on the CPU, and a value that leaves the ops, their scalars, the shapes, the constants and the tied weights as they were is no cell.
"""

from __future__ import annotations

import dataclasses
import hashlib
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.activations import ACT2FN
from transformers.initialization import no_init_weights
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from adapterc.models import Loaded
from adapterc.tiny import STICK, Recipe, inputs_for, recipe

HEAD_DIMS = (32, 64, 72, 80, 96, 128, 256)
VOCABULARIES = (50, 999, 1024)  # below a stick, no whole sticks, whole sticks
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2", "silu")
ORIGINAL_LENGTH = 8  # what rope scaling takes for the length of the training, below the length of the inputs
HEADS = 4  # divisible by every number of key and value heads that is tried
_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")
_SHARED = frozenset(field.name for field in dataclasses.fields(transformers.PretrainedConfig))


@dataclass(frozen=True)
class Cell:
    """A model class with config fields other than the family's small model has. `changed` is empty for that model itself."""

    model_class: str
    field: str
    changed: Mapping[str, Any]
    recipe: Recipe

    def __str__(self) -> str:
        return f"{self.model_class}: {self.field or 'as it is'}{f' ({short(self.changed)})' if self.changed else ''}"

    def loaded(self) -> tuple[Loaded, dict[str, torch.Tensor]]:
        """The model and inputs that run past its windows and original lengths. Raises what the stock class raises."""
        made = self.recipe.build(0)
        return made, inputs_for(made)


def short(changed: Mapping[str, Any]) -> str:
    """The fields in a line's room, rope parameters by their kind."""
    return ", ".join(f"{name} {_kind(value)}" for name, value in changed.items())


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        first = next(iter(value.values()))
        inner = first if isinstance(first, dict) else value
        partial = inner.get("partial_rotary_factor", 1.0)
        return f"{inner.get('rope_type', 'default')}{f' on {partial} of a head' if partial != 1.0 else ''}"
    return str(value).replace(" ", "")


def base(model_class: str) -> Recipe:
    """The family's small model: layers of each kind, real head sizes, windows below the length of the inputs."""
    config_class: Any = getattr(transformers, model_class).config_class
    return recipe(config_class.model_type, model_class, "tiny")


def cells(model_class: str, fields: Collection[str] = ()) -> Iterator[Cell]:
    """The family's small model, then one cell for each change of one field that the stock model takes and that changes what it computes.

    With `fields`, the cells of those only.
    """
    start = base(model_class)
    inputs = inputs_for(start.build(0))
    seen = {fingerprint(start, inputs)}
    if not fields:
        yield Cell(model_class, "", {}, start)
    for name, changed in candidates(start.config):
        if fields and name not in fields:
            continue
        try:
            there = dataclasses.replace(start, config=with_fields(start.config, changed))
            computed = fingerprint(there, inputs)
        except Exception:
            continue
        if computed not in seen:
            seen.add(computed)
            yield Cell(model_class, name, changed, there)


def with_fields(config: Any, changed: Mapping[str, Any]) -> Any:
    """A config of the same class with some fields changed, its own checks and derived fields run again."""
    given = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init and f.name not in _SHARED | changed.keys()}
    return type(config)(**given, **changed)


def candidates(config: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Field by field, the changes to try. Sizes that have to fit each other are changed together."""
    hints = {field.name: field.type for field in dataclasses.fields(config)}
    heads = config.attribute_map.get("num_attention_heads", "num_attention_heads")
    for name, value in list(vars(config).items()):
        if name in _SHARED or name.startswith("_") or name in _COUNTS or name not in hints:
            continue
        if name == "head_dim":
            yield from ((name, {name: size}) for size in HEAD_DIMS)
        elif name == config.attribute_map.get("hidden_size", "hidden_size") and not getattr(config, "head_dim", None):
            yield from (("head_dim", _of_heads(size, name, heads, getattr(config, heads))) for size in HEAD_DIMS)
        elif name in ("num_key_value_heads", "num_kv_heads"):
            width = {} if getattr(config, "head_dim", None) else {"hidden_size": HEADS * config.hidden_size // getattr(config, heads)}
            yield from ((name, {heads: HEADS, name: count, **width}) for count in (1, 2, HEADS))
        elif name == "vocab_size":
            yield from ((name, {name: size, **_tokens_within(config, size)}) for size in VOCABULARIES)
        elif name == "rope_parameters" and isinstance(value, dict):
            yield from ((name, changed) for changed in _ropes(config, value))
        elif name == "layer_types" and isinstance(value, list):
            kinds = [*dict.fromkeys(value), "full_attention", "sliding_attention"]
            yield from ((name, {name: [kind] * len(value)}) for kind in dict.fromkeys(kinds))
        else:
            yield from ((name, {name: other}) for other in others(value, hints[name]))


def _of_heads(size: int, width: str, heads: str, count: int) -> dict[str, int]:
    """Heads of a size, as many as make whole sticks: widths that are none are a matter of their own."""
    while size * count % STICK:
        count *= 2
    return {width: size * count, heads: count}


def others(value: Any, hint: Any) -> Iterator[Any]:
    """Other values of a field, from its value and its type in the config class."""
    kinds = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else {hint}
    for kind in list(kinds):
        if typing.get_origin(kind) is typing.Literal:
            yield from (choice for choice in typing.get_args(kind) if choice != value)
    if type(None) in kinds and value is not None:
        yield None
    match value:
        case None:
            yield from (True,) * (bool in kinds)
            yield from (0.5,) * (float in kinds)
            yield from (4,) * (int in kinds)
        case bool():
            yield not value
        case int():
            yield from ((value // 2, value + 1) if value > 1 else (1 + value,))
        case float():
            yield 100 * value if 0 < abs(value) < 1e-3 else 2 * value if value else 0.5
        case str() if value in ACT2FN:
            yield from (name for name in ACTIVATIONS if name != value)
        case [bool(), *_] | [0 | 1, *_]:
            yield [type(item)(not item) for item in value]


def _tokens_within(config: Any, vocabulary: int) -> dict[str, int]:
    """Special tokens of a smaller vocabulary, each to a place of its own at its end."""
    names = [n for n, v in vars(config).items() if n.endswith("_token_id") and isinstance(v, int) and v >= vocabulary]
    return {name: vocabulary - 1 - place for place, name in enumerate(names)}


def _ropes(config: Any, parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every kind of scaling, and rotations of part of a head. Kinds of layers with rotations of their own are all changed."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for kind in ROPE_INIT_FUNCTIONS:
        rotated = int(head_dim * _rotated_share(parameters))
        extra = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": ORIGINAL_LENGTH} | _of_kind(kind, rotated)
        yield _rope_fields(parameters, extra) | {"max_position_embeddings": ORIGINAL_LENGTH if kind == "dynamic" else 4 * ORIGINAL_LENGTH}
    for share in (0.25, 0.5, 1.0):
        yield _rope_fields(parameters, {"partial_rotary_factor": share})


def _of_kind(kind: str, rotated: int) -> dict[str, Any]:
    match kind:
        case "longrope":
            return {
                "short_factor": [1.0 + 0.01 * i for i in range(rotated // 2)],
                "long_factor": [2.0 + 0.1 * i for i in range(rotated // 2)],
            }
        case "llama3":
            return {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return {}


def _rotated_share(parameters: Mapping[str, Any]) -> float:
    first = next(iter(parameters.values()), None)
    return float((first if isinstance(first, dict) else parameters).get("partial_rotary_factor", 1.0))


def _rope_fields(parameters: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    nested = all(isinstance(value, dict) for value in parameters.values())
    changed = {name: {**value, **extra} for name, value in parameters.items()} if nested else {**parameters, **extra}
    return {"rope_parameters": changed}


class _Recorder(TorchDispatchMode):
    """A digest of each op with its scalars and shapes, in order. What tensors hold is left out: weights are random."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = hashlib.sha256()

    def __torch_dispatch__(self, op: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.digest.update(f"{op}{_written(args)}{_written(kwargs or {})}".encode())
        return op(*args, **(kwargs or {}))


def _written(value: Any) -> str:
    match value:
        case torch.Tensor():
            return f"{tuple(value.shape)}{value.dtype}"
        case dict():
            return str({key: _written(item) for key, item in value.items()})
        case list() | tuple():
            return "[" + ",".join(map(_written, value)) + "]"
    return str(value)


def fingerprint(recipe_: Recipe, inputs: Mapping[str, torch.Tensor]) -> str:
    """What the stock forward computes, weights apart: ops, scalars, shapes, the masks and tables made on the way, and which weights are tied."""
    config: Any = recipe_.config
    assert recipe_.model_class is not None, "a family names its class"
    with no_init_weights():
        model: Any = recipe_.model_class(config).eval()
    model.tie_weights()
    options = {"use_cache": False} if hasattr(config, "use_cache") else {}
    vocabulary = config.get_text_config().vocab_size
    given = {name: value % vocabulary if name.endswith("input_ids") else value for name, value in inputs.items()}
    recorder = _Recorder()
    with torch.no_grad():
        for parameter in model.parameters():  # by place alone, so that two models of one shape have the same weights
            index = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.copy_((torch.sin(index * 12.9898) * parameter.shape[-1] ** -0.5).reshape(parameter.shape))
        with recorder:
            result = model(**given, **options)
    found = [(tuple(value.shape), value.double().sum().item()) for value in result.values() if isinstance(value, torch.Tensor)]
    recorder.digest.update(f"{[name for name, _ in model.named_parameters()]}{found}".encode())
    return recorder.digest.hexdigest()
