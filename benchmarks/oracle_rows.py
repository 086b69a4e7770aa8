"""Rows of a front-end oracle file: what was compiled, and the inputs that it had.

The file is a CSV table; `benchmarks/fidelity.py` explains where it comes from. Nothing here knows the compiler.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "b": torch.bool,
    "bool": torch.bool,
    "i8": torch.int8,
    "int8": torch.int8,
    "u8": torch.uint8,
    "uint8": torch.uint8,
    "i16": torch.int16,
    "int16": torch.int16,
    "i32": torch.int32,
    "int32": torch.int32,
    "i64": torch.int64,
    "int64": torch.int64,
    "f8e4m3": torch.float8_e4m3fn,
    "fp8": torch.float8_e4m3fn,
}


@dataclass(frozen=True)
class Argument:
    """One input: host size and stride in elements; `size` is None for a symbolic size that the graph takes as a number."""

    size: tuple[int, ...] | None
    dtype: torch.dtype
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True)
class InputLayout:
    """Device layout of one graph input, as the table gives it; `stick` = elements per stick."""

    device_size: tuple[int, ...]
    stride_map: tuple[int, ...]
    format: str


@dataclass(frozen=True)
class Row:
    """One graph of the table. `layouts` lists the graph's inputs in the order in which the graph first uses them.

    shapes, dtype: the table's own notation; `arguments` reads it.
    """

    id: str
    source: str
    expression: str
    shapes: str = ""
    dtype: str = ""
    layouts: tuple[InputLayout | None, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Inputs in order; none for rows that are a layer's name. Raises KeyError for a dtype that the table's legend does not have."""
        return _arguments(self)


def _sizes(text: str) -> tuple[int, ...]:
    return () if text in ("", "scalar") else tuple(int(n) for n in text.split("x"))


def _symbols(tokens: list[str], layouts: tuple[InputLayout | None, ...]) -> dict[str, int]:
    """Sizes behind the symbols of a dynamic shape (`1xs27xs53`), read off the device layout of the tensor that has them."""
    found: dict[str, int] = {}
    for token, layout in zip(tokens, layouts, strict=False):
        dims = token.split(":")[0].split("x")
        if layout is None or not any(d.startswith("s") for d in dims):
            continue
        stick = layout.device_size[-1]
        known = [stick * count if stride == stick else count for count, stride in zip(layout.device_size, layout.stride_map, strict=True)]
        free = [n for n in known[:-1] if n != 1]
        for dim in dims:
            if dim.startswith("s") and dim != "scalar" and free:
                found.setdefault(dim, free.pop(0))
    return found


def _argument(token: str, symbols: dict[str, int]) -> Argument:
    """`2x5:f16`, `2x3:f16:st1_2`, `scalar:f16`, or the bare name of a symbolic size."""
    parts = token.split(":")
    if len(parts) == 1 and re.fullmatch(r"s\d+", token):
        return Argument(None, torch.int64)
    size = re.sub(r"s\d+", lambda m: str(symbols.get(m[0], 0)), parts[0])
    stride = tuple(int(n) for n in parts[2].removeprefix("st").split("_")) if len(parts) > 2 else None
    return Argument(_sizes(size), DTYPES[parts[1]], stride)


def _arguments(row: Row) -> tuple[Argument, ...]:
    if row.source == "hf-block":
        return ()
    if row.source == "grid":
        shapes = row.shapes.split(";")
        dtypes = row.dtype.split("/")
        dtypes = dtypes * len(shapes) if len(dtypes) == 1 else dtypes
        return tuple(Argument(_sizes(s), DTYPES[d]) for s, d in zip(shapes, dtypes, strict=True))
    tokens = [t for t in row.shapes.split(",") if t]
    symbols = _symbols(tokens, row.layouts)
    return tuple(_argument(t, symbols) for t in tokens)


def _layouts(text: str) -> tuple[InputLayout | None, ...]:
    entries: list[dict[str, Any] | None] = (json.loads(text) or {}).get("inputs", []) if text else []
    return tuple(InputLayout(tuple(e["device_size"]), tuple(e["stride_map"]), e["dt"]) if e else None for e in entries)


def read_rows(path: Path) -> list[Row]:
    """Every row of the table."""
    csv.field_size_limit(10**9)
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(raw["id"], raw["source"], raw["expression"], raw["shapes"], raw["dtype"], _layouts(raw["layouts"]))
            for raw in csv.DictReader(file)
        ]
