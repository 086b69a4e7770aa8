"""The models that gaps are weighed with: how many of the most downloaded embedding and generative models there are of each architecture.

`data/population.csv` is made by `benchmarks/population.py` from the two public lists of 10,000 models; only models that load from Transformers
alone are counted. `ops`: the ATen ops of the architecture's captured graph, empty where it could not be captured.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch
import transformers

from adapterc.errors import UserError
from adapterc.models import Loaded, Source

LAYERS = 2
_LAYER_FIELDS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")


@dataclass(frozen=True)
class Kind:
    """One architecture: its models in the two lists, and the ops of its graph."""

    model_type: str
    architecture: str
    embedding: int
    generative: int
    ops: frozenset[str]

    @property
    def models(self) -> int:
        return self.embedding + self.generative


@cache
def population() -> tuple[Kind, ...]:
    """Architectures, the most frequent first."""
    text = (files("adapterc") / "data" / "population.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(
        Kind(r["model_type"], r["architecture"], int(r["embedding"]), int(r["generative"]), frozenset(r["ops"].split())) for r in rows
    )


def models_with(ops: Iterable[str]) -> int:
    """Models whose architecture's graph has all of these ops: what an obstacle made of them can block at most."""
    wanted = frozenset(ops)
    return sum(kind.models for kind in population() if wanted and wanted <= kind.ops)


def representative(architecture: str) -> Loaded:
    """The architecture at its default widths with at most two layers, on the meta device: it can be traced, not run.

    Raises UserError ADC502 or ADC503 where Transformers has no such class or cannot build it.
    """
    model_class = getattr(transformers, architecture, None)
    if model_class is None or getattr(model_class, "config_class", None) is None:
        raise UserError("ADC502", f"{architecture}: Transformers {transformers.__version__} has no such model class", "name a model class")
    try:
        config = model_class.config_class()
        _shorten(config)
        with torch.device("meta"):
            model = model_class(config)
    except Exception as error:  # what a config's own code raises is not known
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            "ADC503", f"{architecture}: its default config cannot be built: {first}", "give a config: spec with overrides"
        ) from error
    return Loaded(Source(f"config:{architecture}", class_name=architecture), model.eval(), None)


def _shorten(config: Any) -> None:
    for name in _LAYER_FIELDS:
        count = getattr(config, name, None)
        if isinstance(count, int) and count > LAYERS:
            setattr(config, name, LAYERS)
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list):
        config.layer_types = sorted(set(kinds), key=kinds.index)[:LAYERS] + kinds[: max(0, LAYERS - len(set(kinds)))]
    for name in getattr(config, "sub_configs", {}):
        inner = getattr(config, name, None)
        if inner is not None:
            _shorten(inner)
