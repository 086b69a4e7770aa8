"""Dimension classes: which widths a model of a population has, as far as they are known without asking a hub.

`data/dimensions.csv` (made by `benchmarks/dimensions.py`) holds the widths of well-known models. A model that is not among them has the
widths of the known model of its type whose name its own name contains (a fine-tune mostly says what it was tuned from), else its type's defaults.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, order=True)
class Dimensions:
    """Widths of a text model: elements, heads, tokens. `head_dim` is given apart, since heads × head_dim need not be `hidden`."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        return f"hidden {self.hidden}, heads {heads}×{self.head_dim}, mlp {self.intermediate}, vocab {self.vocab}"


DEFAULTS = "defaults"  # the dimension class of models whose widths are not known


@cache
def known_dimensions() -> Mapping[tuple[str, str], Dimensions]:
    """By model type and model id, in lower case."""
    text = (files("adapterc") / "data" / "dimensions.csv").read_text(encoding="utf-8")
    return {
        (r["model_type"], r["model_id"].lower()): Dimensions(
            int(r["hidden"]), int(r["heads"]), int(r["kv_heads"]), int(r["head_dim"]), int(r["intermediate"]), int(r["vocab"])
        )
        for r in csv.DictReader(text.splitlines())
    }


def dimensions_of(model_type: str, model_id: str) -> Dimensions | None:
    """The widths of the model itself, else of the known model of its type with the longest name that `model_id` contains, else None."""
    exact = known_dimensions().get((model_type, model_id.lower()))
    if exact is not None:
        return exact
    own = model_id.lower()
    contained = [(name, widths) for name, widths in _short_names(model_type) if name in own]
    return max(contained, key=lambda pair: len(pair[0]))[1] if contained else None


@cache
def _short_names(model_type: str) -> tuple[tuple[str, Dimensions], ...]:
    return tuple((model.rpartition("/")[2], widths) for (kind, model), widths in known_dimensions().items() if kind == model_type)
