"""The rules of a generated patch, as data. A rule's functions are plain torch code that a reviewer can call by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .context import Context
from .pattern import Pattern
from .sizes import Dim

Predicate: TypeAlias = Callable[[Context], bool]


@dataclass(frozen=True)
class Expectation:
    """Where `when` holds, the rule fires at least `least` and at most `most` times in a graph; the sizes read the config."""

    least: Callable[[Context], int]
    most: Callable[[Context], int] | None = None
    when: Predicate | None = None
    place: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a rule comes from and what was shown about it."""

    name: str  # adapter.rule
    place: str  # spec file:line
    verdict: str
    reason: str
    when: Predicate | None = None
    expect: tuple[Expectation, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """Where `pattern` holds, its value becomes `substitute(**captures)`. `load` computes, once, what depends on weights and sizes only."""

    origin: Origin
    pattern: Pattern
    substitute: Callable[..., Any]
    load: Callable[..., Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Pad:
    """The dimension `dim` of the captures grows to `size(context)`; `fills` holds the value of the new lanes per capture (0 where not named)."""

    origin: Origin
    pattern: Pattern
    dim: str
    size: Callable[[Context], int]
    fills: Mapping[str, float]
    consumers: str  # contract or crop


@dataclass(frozen=True)
class Place:
    """What runs on the host: every node that depends on no weight and no hidden state, or the nodes of a match, or a module's forward."""

    origin: Origin
    what: str  # parameter-free, match or module
    pattern: Pattern | None = None
    module: str | None = None


@dataclass(frozen=True)
class Boundary:
    """The matched value is materialised (`contiguous`, `clone`) or ends the compile unit (`split`)."""

    origin: Origin
    pattern: Pattern
    action: str


@dataclass(frozen=True)
class Replace:
    """Modules whose class name matches the glob `module` run `forward(module, *inputs)` on the device; elsewhere they run their own."""

    origin: Origin
    module: str
    forward: Callable[..., Any]


@dataclass(frozen=True)
class Require:
    """A model is refused with `message` unless `condition` holds."""

    origin: Origin
    condition: Predicate
    message: str


Rule: TypeAlias = Rewrite | Pad | Place | Boundary | Replace | Require


__all__ = ["Boundary", "Dim", "Expectation", "Origin", "Pad", "Place", "Predicate", "Replace", "Require", "Rewrite", "Rule"]
