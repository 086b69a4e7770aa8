"""What may stand for a place that does not lower: the shipped adapters' rules, the known forms, and powers by multiplication and roots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from adapterc.dsl.adapter import Rule
from adapterc.dsl.ast import Call, Literal, walk
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.loader import load
from adapterc.dsl.parser import parse_expression

MOST_FACTORS = 8
# What people call a place, beside the names of rules, gaps and ops. A word on the left means the rules on the right.
SPOKEN: Mapping[str, tuple[str, ...]] = {
    "softplus": ("softplus_spelled",),
    "gelu": ("gelu_erf", "gelu_tanh_pow", "gelu_quick"),
    "silu": ("silu_spelled", "silu_by_exp"),
    "layer_norm": ("layer_norm_unfused", "layer_norm_by_rsqrt", "layer_norm_by_var"),
    "rotate_half": ("halves", "partial"),
    "repeat_kv": ("repeat_kv_spelled", "repeat_kv_as_grouped"),
    "masked_fill": ("masked_fill_by_where_full",),
    "tril": ("tril_mask", "tril_by_positions"),
    "qkv": ("fused_qkv", "fused_qkv_keys", "fused_qkv_values"),
    "mlp": ("mlp_width", "mlp_width_with_bias"),
    "vocabulary": ("vocabulary", "vocabulary_with_bias"),
}


@dataclass(frozen=True)
class Candidate:
    """A rule that may become the draft: its YAML as data, and the adapter that it is taken from."""

    source: str
    body: Mapping[str, Any]
    gap: str | None
    lifetime: str

    @property
    def kind(self) -> str:
        return next(iter(self.body))

    @property
    def name(self) -> str:
        return str(self.body[self.kind])

    @property
    def match(self) -> str:
        return str(self.body.get("match", ""))


def forms_path() -> Path:
    return Path(str(files("adapterc"))) / "data" / "known_forms.yaml"


def library(specs: Sequence[Path]) -> tuple[Candidate, ...]:
    """All rules that have a pattern, the shipped ones first."""
    found: list[Candidate] = []
    for path in (*specs, forms_path()):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        found += [
            Candidate(f"{data['adapter']}.{body[next(iter(body))]}", body, data.get("gap"), data["lifetime"])
            for body in data["rules"]
            if "match" in body
        ]
    return tuple(found)


def rules_by_source(specs: Sequence[Path]) -> dict[str, Rule]:
    """`adapter.rule` to the loaded rule, of the shipped specs and the known forms."""
    return {f"{a.name}.{r.header.name}": r for a in map(load, (*specs, forms_path())) for r in a.rules}


def about(topic: str, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that a word speaks of: a rule, an adapter, a gap, an op of the match; or a power such as `pow(x, 5)`. Nearest meaning first."""
    word = re.sub(r"[\s-]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", topic.strip()).lower())
    if not word:
        return ()
    powers = tuple(power_candidates(exponents_in(topic)))
    if powers:
        return powers
    spoken = next((names for key, names in SPOKEN.items() if key in word or word in key), ())
    tests = (
        lambda c: c.name in spoken,
        lambda c: word in (c.name, c.source, c.source.partition(".")[0]),
        lambda c: c.gap is not None and c.gap.replace("-", "_") == word,
        lambda c: _similar(word, c),
        lambda c: word in _ops(c.match),
    )
    for test in tests:
        chosen = [c for c in candidates if test(c)]
        if chosen:
            return tuple(sorted(chosen, key=lambda c: spoken.index(c.name) if c.name in spoken else len(spoken)))
    return ()


def _similar(word: str, candidate: Candidate) -> bool:
    names = {candidate.name, candidate.source.partition(".")[0], (candidate.gap or "").replace("-", "_")}
    mine = set(word.split("_"))
    return any(len(mine & set(name.split("_"))) >= 2 or (name and (name in word or word in name)) for name in names)


def _ops(match: str) -> frozenset[str]:
    return frozenset(node.op for node in walk(parse_expression(match)) if isinstance(node, Call))


def exponents_in(text: str) -> tuple[Fraction, ...]:
    """The exponents of an expression with `pow` or `**`; those of the topic's name (`pow`, `pow-integer-exponent`, `half exponent`) where it is no expression."""
    plain = re.sub(r"[\s_-]+", " ", text.lower())
    if plain.startswith("pow ") or plain == "pow" or "exponent" in plain:
        integers, halves = tuple(map(Fraction, (3, 4, 5, 6))), (Fraction(1, 2), Fraction(-1, 2), Fraction(3, 2))
        return integers if "integer" in plain else halves if "half" in plain or "root" in plain else (*integers, *halves)
    try:
        tree = parse_expression(text)
    except SpecError:
        return ()
    calls = [node for node in walk(tree) if isinstance(node, Call) and node.op == "pow" and len(node.args) == 2]
    found = [node.args[1].value for node in calls if isinstance(node.args[1], Literal)]
    return tuple(Fraction(value) for value in found if isinstance(value, int | Fraction) and not isinstance(value, bool))


def power_candidates(exponents: Sequence[Fraction]) -> Iterator[Candidate]:
    """For each exponent the forms without a power, cheapest first: products for the whole part, a root for a half."""
    for exponent in dict.fromkeys(exponents):
        for number, text in enumerate(power_texts(exponent)):
            name = f"power_{exponent}".replace("-", "minus_").replace("/", "_over_").replace(".", "_")
            body: dict[str, Any] = {
                "rewrite": name if number == 0 else f"{name}_{number}",
                "match": f"pow(x, {_number(exponent)})",
                "where": {"x": "float[...]"},
                "substitute": text,
                "reason": "A power does not lower here; products and roots do.",
            }
            yield Candidate(f"powers.{body['rewrite']}", body, None, "scaffold")


def power_texts(exponent: Fraction) -> tuple[str, ...]:
    """`x ** exponent` for integers and halves; nothing for other exponents, or for more factors than are worth it."""
    if exponent.denominator not in (1, 2) or abs(exponent) > MOST_FACTORS or exponent == 0:
        return ()
    whole, half = divmod(abs(exponent.numerator), 2) if exponent.denominator == 2 else (abs(exponent.numerator), 0)
    product = " * ".join(["x"] * whole)
    if exponent > 0:
        return (" * ".join(filter(None, (product, "sqrt(x)" if half else ""))),)
    if not whole:
        return ("rsqrt(x)", "rsqrt(x + 0.0)")  # the second one makes a negative zero positive first, as a power does
    root = " * rsqrt(x)" if half else ""
    return (f"reciprocal({product}){root}", f"1 / ({product}){root}")


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(float(value))
