"""The models that commands work on: a local folder, or a `config:` spec that builds any family with seeded random weights.

    config:GPT2LMHeadModel,n_layer=2,seed=0
    config:qwen3,hidden_size=128,layer_types=[full_attention],seed=1

A `config:` spec names a Transformers model class, a config class or a model type, then overrides of config fields as YAML values. No hub is asked.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import transformers
import yaml

from adapterc.errors import UserError

DEFAULT_SEED = 0


@dataclass(frozen=True)
class Source:
    """A MODEL argument, parsed: exactly one of `folder` and `class_name` is set."""

    text: str
    folder: Path | None = None
    class_name: str | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    seed: int = DEFAULT_SEED


@dataclass(frozen=True)
class Loaded:
    """A stock model on CPU in float32, in eval mode, with its tokenizer where the folder has one."""

    source: Source
    model: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerBase | None

    @property
    def config(self) -> transformers.PretrainedConfig:
        return self.model.config

    @property
    def is_causal_lm(self) -> bool:
        return bool(self.model.can_generate()) and not bool(getattr(self.config, "is_encoder_decoder", False))


def parse_source(text: str) -> Source:
    """`text` as a Source. Raises UserError ADC501 (no such folder) or ADC502 (the `config:` spec cannot be read)."""
    if not text.startswith("config:"):
        folder = Path(text).expanduser()
        if not folder.is_dir():
            raise UserError(
                "ADC501",
                f"{text}: no such model folder",
                "give a folder with a config.json, or a config: spec such as config:BertModel,num_hidden_layers=2",
            )
        if not (folder / "config.json").is_file():
            raise UserError("ADC501", f"{text}: the folder has no config.json", "give the folder that save_pretrained wrote")
        return Source(text, folder=folder)
    name, *settings = _split_settings(text.removeprefix("config:"))
    overrides: dict[str, object] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip().isidentifier():
            raise UserError("ADC502", f"{text}: `{setting}` is not a setting", "write field=value, separated by commas")
        try:
            overrides[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UserError("ADC502", f"{text}: the value of `{key}` is not a YAML value", "quote it or check its brackets") from None
    seed = overrides.pop("seed", DEFAULT_SEED)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise UserError("ADC502", f"{text}: the seed `{seed}` is not a whole number", "write seed=0")
    return Source(text, class_name=name.strip(), overrides=overrides, seed=seed)


def _split_settings(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def load(text: str) -> Loaded:
    """The model that `text` names. Raises UserError ADC501, ADC502 or ADC503 (Transformers cannot build it)."""
    transformers.utils.logging.disable_progress_bar()
    source = parse_source(text)
    return _load_folder(source, source.folder) if source.folder is not None else _build(source)


def _load_folder(source: Source, folder: Path) -> Loaded:
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        model_class = _class_of(config)
        model = model_class.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UserError(
            "ADC503",
            f"{source.text}: Transformers {transformers.__version__} cannot load this model: {_first_line(error)}",
            "load it with AutoModel.from_pretrained first and mend what that reports",
        ) from error
    tokenizer = None
    if (folder / "tokenizer_config.json").is_file() or (folder / "tokenizer.json").is_file():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Loaded(source, model.eval(), tokenizer)


def _class_of(config: transformers.PretrainedConfig) -> type[transformers.PreTrainedModel]:
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return cast(type[transformers.PreTrainedModel], getattr(transformers, name))
    return cast(type[transformers.PreTrainedModel], transformers.AutoModel)


def _build(source: Source) -> Loaded:
    name = source.class_name or ""
    model_class, config_class = _classes_named(source.text, name)
    unknown = sorted(set(source.overrides) - _fields(config_class))
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(_fields(config_class)), n=1)
        hint = f"did you mean `{near[0]}`?" if near else "print the config class to see its fields"
        raise UserError("ADC502", f"{source.text}: {config_class.__name__} has no field `{unknown[0]}`", hint)
    try:
        config = config_class(**cast(Mapping[str, Any], source.overrides))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(source.seed)
            model = model_class(config) if model_class is not None else transformers.AutoModel.from_config(config)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, ZeroDivisionError, ImportError) as error:
        raise UserError(
            "ADC503",
            f"{source.text}: Transformers {transformers.__version__} cannot build this config: {_first_line(error)}",
            "change the overrides",
        ) from error
    return Loaded(source, model.eval(), None)


def _classes_named(text: str, name: str) -> tuple[type[transformers.PreTrainedModel] | None, type[transformers.PretrainedConfig]]:
    mapping = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if name in mapping:
        return None, mapping[name]
    found = getattr(transformers, name, None) if name.isidentifier() else None
    if isinstance(found, type) and issubclass(found, transformers.PretrainedConfig):
        return None, found
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel) and found.config_class is not None:
        return found, found.config_class
    near = difflib.get_close_matches(
        name, [*mapping, *(n for n in dir(transformers) if n.endswith(("Model", "Config", "LM", "Classification")))], n=1
    )
    hint = f"did you mean `{near[0]}`?" if near else "name a model class, a config class or a model type of Transformers"
    raise UserError("ADC502", f"{text}: Transformers {transformers.__version__} knows no `{name}`", hint)


def _fields(config_class: type[transformers.PretrainedConfig]) -> set[str]:
    return {name for name in vars(config_class()) if not name.startswith("_")} | set(config_class.attribute_map)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
