"""An adapter spec after parsing: plain frozen data, one class a rule kind.

`dsl/loader.py` makes these from YAML; `verify` gives each rule a verdict, `codegen` a function. Nothing here is executed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from adapterc.dsl.ast import NOWHERE, Expr, Span
from adapterc.dsl.types import Type

CLASSES = ("EXACT", "EXACT-Z", "REAL", "COND", "EDGE", "APPROX", "WRONG")
DEFAULT_ALLOW = ("EXACT", "EXACT-Z", "REAL")


@dataclass(frozen=True, slots=True)
class Expect:
    """How often the rule fires on a model: where `when` holds, at least `least` and at most `most` times (size expressions over `config`)."""

    when: Expr | None
    least: Expr
    most: Expr | None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Header:
    """What every rule kind carries."""

    adapter: str
    name: str
    reason: str
    span: Span
    when: Expr | None = None
    claim: str | None = None  # one of CLASSES
    allow: tuple[str, ...] = DEFAULT_ALLOW
    accepts: tuple[tuple[str, str], ...] = ()  # edge -> why it does no harm
    budget: str | None = None  # "2 ulp", "no worse than stock", "1e-3"
    expect: tuple[Expect, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`match` becomes `substitute`; `lets` are named subexpressions of the substitute, `constants` are built on the host when the patch is applied."""

    header: Header
    match: Expr
    substitute: Expr
    where: tuple[tuple[str, Type], ...]
    lets: tuple[tuple[str, Expr], ...] = ()
    constants: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """A rewrite whose `program` runs once at load: ordered bindings over weights, constants and sizes that `substitute` then reads."""

    header: Header
    match: Expr
    program: tuple[tuple[str, Expr], ...]
    substitute: Expr
    where: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """Modules whose class name matches the glob `module` get a new forward: `forward` over `inputs` (in order), `attributes` (paths below the module), `lets`."""

    header: Header
    module: str
    inputs: tuple[tuple[str, Type], ...]
    attributes: tuple[tuple[str, str, Type | None], ...]
    lets: tuple[tuple[str, Expr], ...]
    forward: Expr


@dataclass(frozen=True, slots=True)
class Pad:
    """The dimension `dim` of the matched place grows to `size`; `fill` names the value per tensor; `consumers` says how readers stay right.

    consumers: "contract" (padded lanes meet only zeros and contribute nothing), "crop" (cut off right behind the match) or "mask".
    """

    header: Header
    match: Expr
    where: tuple[tuple[str, Type], ...]
    dim: str
    size: Expr
    fill: tuple[tuple[str, Expr], ...]
    consumers: str


@dataclass(frozen=True, slots=True)
class Place:
    """What runs on the host: `what` is "parameter-free" (all that depends on no weight and no hidden state) or "match" / "module"."""

    header: Header
    what: str
    match: Expr | None
    where: tuple[tuple[str, Type], ...]
    module: str | None
    to: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """Materialise the matched value here: `action` is "contiguous", "clone" or "split" (end the compile unit)."""

    header: Header
    match: Expr
    where: tuple[tuple[str, Type], ...]
    action: str


@dataclass(frozen=True, slots=True)
class Require:
    """A model is refused with `message` unless `condition` holds; `accepted` and `refused` are example configs that show both sides."""

    header: Header
    condition: Expr
    message: str
    accepted: tuple[tuple[tuple[str, object], ...], ...]
    refused: tuple[tuple[tuple[str, object], ...], ...]


Rule: TypeAlias = Rewrite | Weights | Replace | Pad | Place | Boundary | Require


@dataclass(frozen=True, slots=True)
class Adapter:
    """One spec file. `lifetime` is "scaffold" (goes when the backend closes `gap`) or "hardware" (stays)."""

    name: str
    summary: str
    lifetime: str
    gap: str | None
    rules: tuple[Rule, ...]
    file: str
    source_sha256: str
    when: Expr | None = None
