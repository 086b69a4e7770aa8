"""Instances of any Transformers architecture, made from its config class: two layers, at real widths or shrunk.

A shrunk instance keeps what layouts depend on: head_dim, whether heads are grouped, and the remainders of widths and vocabulary by the stick.
Weights are seeded and lively: stock initialisation leaves biases at zero, norms at one and attention near uniform, so that a rule which
drops one of them would not be seen.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

import torch
import transformers
import yaml

from adapterc.dimensions import Dimensions
from adapterc.errors import UserError
from adapterc.models import Loaded, Source

Width = Literal["tiny", "real"]
LAYERS, MOST_LAYERS = 2, 4  # two, or one of each kind of layer, but no more than four
STICK, BATCH, LENGTH, PADDED = 64, 2, 16, 5
VOCABULARY = 704  # eleven sticks: unlike any width of a small layer, so that rules which tell the LM head by its size are not misled
POSITIONS, WINDOW, EXPERTS, CHOSEN = 512, 8, 4, 2

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "depth")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads", "attention_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_HIDDEN = (
    "hidden_size",
    "n_embd",
    "d_model",
    "dim",
    "embed_dim",
    "emb_dim",
    "word_embed_proj_dim",
    "pooler_hidden_size",
    "attention_hidden_size",
)
_INNER = (
    "intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "hidden_dim", "n_inner", "ffn_hidden_size", "d_inner",
    "moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size", "intermediate_size_mlp",
)  # fmt: skip
_WINDOWS = ("sliding_window", "local_attention", "window_size", "attention_chunk_size")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "moe_k")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
_LEADING_LAYERS = ("first_k_dense_replace", "num_dense_layers", "max_window_layers")  # a count of first layers, at most all but one
_LAYER_INDEXES = ("hybrid_layer_ids", "full_attn_idxs", "moe_layers", "fullatt_block_indexes", "deepstack_visual_indexes")


@dataclass(frozen=True)
class Recipe:
    """An instance that can be built: the class, or None for the type's base model, and the config."""

    text: str
    model_class: type[transformers.PreTrainedModel] | None
    config: transformers.PretrainedConfig

    @property
    def parameters(self) -> int:
        """How many the model has, counted without memory."""
        with torch.device("meta"):
            return sum(p.numel() for p in self._new().parameters())

    def build(self, seed: int) -> Loaded:
        """The model on CPU in float32 and eval mode, its weights drawn with `seed`; the global generator is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self._new()
        enliven(model, seed)
        return Loaded(Source(self.text, class_name=type(model).__name__, seed=seed), model.eval(), None)

    def _new(self) -> transformers.PreTrainedModel:
        made = transformers.AutoModel.from_config(self.config) if self.model_class is None else self.model_class(self.config)
        return cast(transformers.PreTrainedModel, made)


def recipe(model_type: str, architecture: str, width: Width, dimensions: Dimensions | None = None) -> Recipe:
    """The instance of an architecture at a width. An architecture that the library has not is loaded into the type's base model, as AutoModel does.

    Raises UserError ADC502 for a type that Transformers does not know, ADC503 for a config that cannot be made so small.
    """
    mapping = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    model_class = _class_named(architecture)
    if model_class is None and model_type not in mapping:
        raise UserError("ADC502", f"Transformers {transformers.__version__} knows no model type `{model_type}`", "name another population")
    config_class = model_class.config_class if model_class is not None else mapping[model_type]
    text = f"config:{architecture or model_type}"
    try:
        assert config_class is not None, "a class that _class_named returns has a config class"
        config = shrunk(config_class(), width, dimensions)
    except Exception as error:  # a config's own checks may raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            "ADC503", f"{text}: its config cannot be made {width}: {lines[0]}", "add a line to adapterc/data/tiny.yaml"
        ) from error
    return Recipe(text, model_class, config)


@cache
def _class_named(architecture: str) -> type[transformers.PreTrainedModel] | None:
    """The library's class of this name, however its letters are cased (hub configs disagree with the library on MetaCLIP2Model)."""
    name = architecture if hasattr(transformers, architecture) else {n.lower(): n for n in dir(transformers)}.get(architecture.lower(), "")
    found = getattr(transformers, name, None) if name else None
    usable = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel) and found.config_class is not None
    return cast(type[transformers.PreTrainedModel], found) if usable else None


def shrunk(default: Any, width: Width, dimensions: Dimensions | None = None) -> Any:
    """A config like `default` with few layers, at `dimensions` where they are given; small where `width` is tiny. Parts of a config are shrunk too."""
    whole = default.get_text_config()
    parts = {name: getattr(default, name) for name in getattr(default, "sub_configs", {}) if getattr(default, name, None) is not None}
    changed: dict[str, Any] = {}
    for name, part in parts.items():
        changed[name] = shrunk(part, width, dimensions if part is whole else None)
    if dimensions is not None and (whole is default or not parts):
        changed |= _real(default, dimensions)
    sized = _with(default, changed)
    changed |= _layers(sized)
    if width == "tiny":
        changed |= dict(_small(sized))
    for group in ("any", width):
        changed |= _special().get(group, {}).get(default.model_type, {})
    result = _with(default, changed)
    _join(result)
    if default.get_text_config() is default and getattr(result, "pad_token_id", 0) is None:
        result.pad_token_id = 0  # classification heads look for the last token that is none
    return result


def _with(default: Any, changed: Mapping[str, Any]) -> Any:
    return type(default)(**changed) if changed else default


@cache
def _special() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    return cast(
        Mapping[str, Mapping[str, Mapping[str, Any]]],
        yaml.safe_load((files("adapterc") / "data" / "tiny.yaml").read_text(encoding="utf-8")),
    )


def _join(config: Any) -> None:
    """A vision tower that projects to the text model's width has to keep to it."""
    vision = getattr(config, "vision_config", None)
    if vision is not None and hasattr(vision, "out_hidden_size"):
        vision.out_hidden_size = config.get_text_config().hidden_size


def _name(config: Any, field: str) -> str:
    """A standard field's name in this config: `hidden_size` is `n_embd` in GPT-2's."""
    return str(config.attribute_map.get(field, field))


def _real(config: Any, dimensions: Dimensions) -> dict[str, Any]:
    wanted = {
        "hidden_size": dimensions.hidden,
        "num_attention_heads": dimensions.heads,
        "num_key_value_heads": dimensions.kv_heads,
        "head_dim": dimensions.head_dim,
        "intermediate_size": dimensions.intermediate,
        "vocab_size": dimensions.vocab,
    }
    fields = vars(config)
    named = {_name(config, field): value for field, value in wanted.items() if _name(config, field) in fields}
    aliases = {"intermediate_size": ("ffn_dim", "d_ff", "hidden_dim"), "head_dim": ("d_kv",)}
    for field, others in aliases.items():
        named |= {other: wanted[field] for other in others if other in fields}
    if "word_embed_proj_dim" in fields:
        named["word_embed_proj_dim"] = dimensions.hidden
    return named


def _layers(config: Any) -> dict[str, Any]:
    """Few layers, one of each kind at least."""
    fields = vars(config)
    counts = {name: fields[name] for name in _LAYERS if isinstance(fields.get(name), int)}
    if not counts:
        return {}
    total = max(counts.values())
    lists = {n: v for n, v in fields.items() if isinstance(v, (list, tuple)) and len(v) == total > LAYERS and n not in _LAYER_INDEXES}
    chosen = _one_of_each([tuple(str(value[i]) for value in lists.values()) for i in range(total)])
    changed: dict[str, Any] = {name: [value[i] for i in chosen] for name, value in lists.items()}
    changed |= {name: len(chosen) for name in counts}
    for name in _LAYER_INDEXES:
        if isinstance(fields.get(name), (list, tuple)):
            changed[name] = [position for position, i in enumerate(chosen) if i in fields[name]] or [len(chosen) - 1]
    changed |= {name: min(fields[name], len(chosen) - 1) for name in _LEADING_LAYERS if isinstance(fields.get(name), int)}
    return changed


def _one_of_each(kinds: Sequence[tuple[str, ...]]) -> list[int]:
    """Indices of layers: the first of each kind, filled up to LAYERS."""
    first = sorted({kind: i for i, kind in reversed(list(enumerate(kinds)))}.values())[:MOST_LAYERS]
    rest = [i for i in range(len(kinds)) if i not in first]
    return sorted(first + rest[: max(0, LAYERS - len(first))])


def _small(config: Any) -> Iterator[tuple[str, Any]]:
    """Small values for the fields that `config` has. Heads shrink with the widths, so that head_dim stays."""
    fields = {name: value for name, value in vars(config).items() if isinstance(value, int) and not isinstance(value, bool)}
    heads = next((fields[name] for name in _HEADS if name in fields), 0)
    kv_heads = next((fields[name] for name in _KV_HEADS if name in fields), heads)
    few_kv = min(kv_heads, 1 if heads > kv_heads else 2)
    few = min(heads, few_kv if heads == kv_heads else 2 * few_kv)
    hidden = next((fields[name] for name in _HIDDEN if name in fields), 0)
    while heads and hidden % heads == 0 and hidden * few // heads % STICK != hidden % STICK and 2 * few <= heads:
        few, few_kv = 2 * few, 2 * few_kv  # two heads of 80 are no whole sticks, as the hidden size is
    share = few / heads if heads else 0.25
    narrow = hidden * few // heads if heads and hidden % heads == 0 and hidden * few // heads % 16 == 0 else _scaled(hidden, share)
    vocab = VOCABULARY + fields["vocab_size"] % STICK if fields.get("vocab_size", 0) > VOCABULARY + STICK else fields.get("vocab_size", 0)
    for name, value in fields.items():
        if name in _HEADS:
            yield name, min(value, few)
        elif name in _KV_HEADS:
            yield name, min(value, few_kv)
        elif name in _HIDDEN:
            yield name, narrow if value == hidden else _scaled(value, share)
        elif name in _INNER:
            yield name, min(value, max(_scaled(value, share), STICK))
        elif name in _WINDOWS:
            yield name, min(value, WINDOW)
        elif name in _EXPERTS:
            yield name, min(value, EXPERTS)
        elif name in _CHOSEN or name == "n_group":
            yield name, min(value, CHOSEN)
        elif name == "topk_group":
            yield name, 1
        elif name in _POSITIONS:
            yield name, min(value, POSITIONS)
        elif name in ("vocab_size", "entity_vocab_size", "vocab_size_per_layer_input"):
            yield name, vocab if name != "entity_vocab_size" else min(value, VOCABULARY)
        elif name == "image_size" and "patch_size" in fields:
            yield name, min(value, 4 * fields["patch_size"])
    yield from _tokens(config, vocab)


def _scaled(value: int, share: float) -> int:
    """`value` times `share` in whole sticks, with the remainder of `value` by the stick; small values stay."""
    if value <= 2 * STICK:
        return value
    return max(STICK, int(value * share) // STICK * STICK) + value % STICK


def _tokens(config: Any, vocab: int) -> Iterator[tuple[str, Any]]:
    """Special tokens beyond a small vocabulary move to its end, each to one of its own."""
    free = vocab - 1
    for name, value in vars(config).items():
        special = name.endswith(("_token_id", "_token_index"))
        if special and isinstance(value, int) and value >= vocab > 0:
            yield name, free
            free -= 1
        elif special and isinstance(value, (list, tuple)) and any(token >= vocab for token in value):
            yield name, [free]
            free -= 1


def enliven(model: torch.nn.Module, seed: int) -> None:
    """Give every matrix the spread that keeps a signal's size (1/√fan-in), and every vector some of its own around its initial value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2 or min(parameter.shape) == 1:
                parameter.add_(0.1 * noise)
            else:
                fan_in = parameter[0].numel() if parameter.dim() != 3 else parameter.shape[-1]
                parameter.copy_(noise / math.sqrt(fan_in))


def inputs_for(loaded: Loaded) -> dict[str, torch.Tensor]:
    """Seeded inputs `[2, 16]`, the second sequence padded on the right; pixels where the model looks, decoder ids where it has a decoder."""
    generator = torch.Generator().manual_seed(loaded.source.seed)
    config: Any = loaded.config
    text: Any = config.get_text_config()
    inputs: dict[str, torch.Tensor] = {}
    accepted = _accepted(loaded.model)
    if "pixel_values" in accepted and (loaded.model.main_input_name == "pixel_values" or _sees_always(config, accepted)):
        vision = getattr(config, "vision_config", config)
        inputs["pixel_values"] = torch.randn(
            BATCH, getattr(vision, "num_channels", 3), vision.image_size, vision.image_size, generator=generator
        )
    if "input_ids" not in accepted:
        return inputs
    inputs["input_ids"] = _ids(text, LENGTH, generator)
    if "attention_mask" in accepted:
        inputs["attention_mask"] = torch.ones(BATCH, LENGTH, dtype=torch.int64)
        inputs["attention_mask"][1, -PADDED:] = 0
        inputs["input_ids"][1, -PADDED:] = _token(text, "pad_token_id") or 0
    if "decoder_input_ids" in accepted and getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _ids(text, LENGTH // 2, generator)
    return inputs


def _accepted(model: Any) -> frozenset[str]:
    return frozenset(inspect.signature(type(model).forward).parameters)


def _sees_always(config: Any, accepted: frozenset[str]) -> bool:
    """Two towers side by side, as CLIP's; a model that puts images into its text takes embeddings too, and runs without an image."""
    return hasattr(config, "vision_config") and "inputs_embeds" not in accepted


def _token(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) else None


def _ids(config: Any, length: int, generator: torch.Generator) -> torch.Tensor:
    """Ordinary tokens (special ones stand at either end of a vocabulary), the last one the end token where pooling looks for it."""
    ids = torch.randint(4, max(5, int(config.vocab_size) - 16), (BATCH, length), generator=generator)
    end = _token(config, "eos_token_id")
    if end is not None and end < int(config.vocab_size):
        ids[0, -1] = end
        ids[1, length - PADDED - 1] = end
    return ids
