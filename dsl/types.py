"""Types of pattern variables: an element kind and a shape of symbolic sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from adapterc.dsl.ast import NOWHERE, Expr, Span

KINDS = ("float", "int", "bool", "any")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")


@dataclass(frozen=True, slots=True)
class RestDims:
    """`...` or `*B` in a shape: any number of leading dimensions. Two rests of one name are equal; an unnamed one only has to broadcast."""

    name: str | None = None


Dim: TypeAlias = Expr | RestDims


@dataclass(frozen=True, slots=True)
class TensorType:
    """`float[..., d]`, `weight float[V, H]`, `int[b, n]`. `element` is one of KINDS or of DTYPES; `weight` admits only parameters and buffers."""

    element: str
    dims: tuple[Dim, ...]
    weight: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A number that the pattern binds from the graph: `scalar` (any real) or `size` (a non-negative integer)."""

    element: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Type: TypeAlias = TensorType | ScalarType
