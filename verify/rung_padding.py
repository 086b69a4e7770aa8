"""Rung 7: padding. The new lanes of a `pad` rule must not reach a real element: what is read there is `pad(v)`, and no real lane may see v.

The rule is a claim: the match on grown inputs, cut back to the old sizes, equals the match. What an op derives from the size of its operands by
default (attention's scale) is pinned to the old size, as the growth does when it is applied. Which fills no real lane sees is found by
poisoning one tensor at a time with {0, 1, -7, 1e4, inf, NaN}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from adapterc.dsl.adapter import Adapter, Pad
from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, walk
from adapterc.dsl.ast import Sequence as Items
from adapterc.dsl.ops import bind, lookup, map_children, substitute
from adapterc.dsl.printer import to_text
from adapterc.dsl.types import RestDims, TensorType, Type
from adapterc.verify.cases import spaced
from adapterc.verify.claim import Claim, attribute_choices, conjuncts
from adapterc.verify.compare import admitted, in_format, over_reals, test_format
from adapterc.verify.instances import Instance, instances
from adapterc.verify.samples import NONFINITE, draw

POISONS: Mapping[str, Expr] = {
    "0": Literal(0),
    "1": Literal(1),
    "-7": Literal(-7),
    "1e4": Literal(Fraction(10000)),
    "-inf": Call("neg", (Name("inf"),)),
    "inf": Name("inf"),
    "NaN": Name("nan"),
}
MOST_ROOTS = 6
NORMS = frozenset({"layer_norm", "rms_norm", "group_norm", "mean", "var", "std", "normalize"})


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The poisons in one tensor's new lanes that no real lane sees, the other tensors keeping their fill."""

    tensor: str
    ignored: tuple[str, ...]


def pad_claims(rule: Pad, adapter: Adapter | None = None, fills: Mapping[str, Expr] | None = None) -> tuple[Claim, ...]:
    """The match equals the match on grown inputs, cut back: one claim per choice of untyped attributes. `fills` overrides the rule's."""
    given = {**dict(rule.fill), **(fills or {})}
    scope = {name: grown(Name(name), kind, rule, given.get(name, Literal(0))) for name, kind in rule.where if grows(kind, rule.dim)}
    guard = (*conjuncts(rule.header.when), *conjuncts(adapter.when if adapter else None))
    plain = Claim(rule.header.name, rule.match, rule.match, rule.where, guard, crop=True)
    return tuple(replace(choice, right=substitute(_pinned(choice.left, rule), scope)) for choice in attribute_choices(plain))


def grows(kind: Type, dim: str) -> bool:
    return isinstance(kind, TensorType) and any(_mentions(d, dim) for d in kind.dims if not isinstance(d, RestDims))


def _mentions(expression: Expr, dim: str) -> bool:
    return any(isinstance(n, Name) and n.id == dim for n in walk(expression))


def grown(x: Expr, kind: Type, rule: Pad, fill: Expr) -> Expr:
    """`x` with each of its dimensions that holds `dim` grown at the end (of each group, for `h * d`)."""
    assert isinstance(kind, TensorType)
    after = Call("sub", (rule.size, Name(rule.dim)))
    for place, dim in enumerate(kind.dims):
        if isinstance(dim, RestDims) or not _mentions(dim, rule.dim):
            continue
        axis = Literal(place - len(kind.dims))
        if dim == Name(rule.dim):
            x = Call("pad", (x, axis, Literal(0), after, fill))
            continue
        groups = Call("div", (dim, Name(rule.dim)))
        split = Call("unflatten", (x, axis, Items((groups, Name(rule.dim)))))
        inner = Call("pad", (split, axis, Literal(0), after, fill))
        last = place - len(kind.dims)
        x = Call("flatten", (inner, Literal(last - 1), Literal(last)))
    return x


def _pinned(match: Expr, rule: Pad) -> Expr:
    """Attention without a scale takes that of the old size, where its heads grow."""
    heads = {name for name, kind in rule.where if isinstance(kind, TensorType) and kind.dims and kind.dims[-1] == Name(rule.dim)}

    def visit(node: Expr) -> Expr:
        inner = map_children(node, visit)
        if isinstance(inner, Call) and inner.op == "sdpa":
            bound = bind(inner)
            if isinstance(bound["q"], Name) and bound["q"].id in heads:
                old = Call("div", (Literal(1), Call("sqrt", (Name(rule.dim),))))
                bound["scale"] = old if bound["scale"] == Literal(None) else bound["scale"]
                return Call("sdpa", (), tuple(sorted(bound.items())), inner.span)
        return inner

    return visit(match)


def vocabulary_claim(rule: Pad, claim: Claim) -> Claim | None:
    """For logits that are not cut back: the token chosen must not change. None for rules that say how readers stay right."""
    if rule.consumers == "crop" or not _is_vocabulary(rule):
        return None
    left, right = (Call("argmax", (side, Literal(-1))) for side in (claim.left, claim.right))
    return replace(claim, left=left, right=right, crop=False)


def _is_vocabulary(rule: Pad) -> bool:
    return rule.header.when is not None and any(isinstance(n, Attribute) and n.name == "vocab_size" for n in walk(rule.header.when))


def tolerances(rule: Pad, adapter: Adapter | None = None) -> tuple[Tolerance, ...]:
    """For each grown tensor, the poisons that no real lane sees. A lane that may hold NaN may hold anything."""
    found = []
    for name, kind in rule.where:
        if grows(kind, rule.dim):

            def ignores(label: str, name: str = name) -> bool:
                return _ignored(pad_claims(rule, adapter, {name: POISONS[label]})[0])

            found.append(Tolerance(name, tuple(POISONS) if ignores("NaN") else tuple(p for p in POISONS if p != "NaN" and ignores(p))))
    return tuple(found)


def uniform_fill(rule: Pad, adapter: Adapter | None = None) -> Expr | None:
    """One fill for all tensors under which the rule would hold."""
    names = [name for name, kind in rule.where if grows(kind, rule.dim)]
    for label in ("0", "-inf", "1", "inf"):
        if _ignored(pad_claims(rule, adapter, dict.fromkeys(names, POISONS[label]))[0]):
            return POISONS[label]
    return None


def _ignored(claim: Claim) -> bool:
    """Whether the real lanes stay what they are, on a few instances (the ladder proves it for the declared fill)."""
    found = [i for i in instances(claim, 2, stick_edges=False).found if i.left.cells.size]
    return bool(found) and all(i.right is not None and _same(i) for i in found)


def _same(instance: Instance) -> bool:
    if not instance.pairs or all(a is b for a, b in instance.pairs):
        return True
    # The ladder proves the declared fill on all elements; for the others a few elements and samples show a leak.
    batch, roots = draw(instance, 5, 1), spaced(instance.pairs, MOST_ROOTS)
    usual = (batch.kind != NONFINITE) & admitted(instance, batch)
    real = over_reals(instance, roots, batch).apart.any(axis=0) & usual
    parted = in_format(roots, batch, test_format(instance))
    broken = (np.isfinite(parted.left) & ~np.isfinite(parted.right)).any(axis=0) & usual & (batch.kind < 2)
    return not (real.any() or broken.any())


def mend(rule: Pad, adapter: Adapter | None = None) -> str:
    """What would make a refuted pad rule hold."""
    if rule.consumers != "crop" and _is_vocabulary(rule):
        return "Write `consumers: crop`: a sampler sees every logit that is not cut off."
    fill = uniform_fill(rule, adapter)
    if fill is not None:
        return f"Write `fill: {to_text(fill)}`: that is what the op ignores."
    norms = sorted({lookup(n).name for n in walk(rule.match) if isinstance(n, Call)} & NORMS)
    if norms:
        if norms == ["rms_norm"]:
            return f"`rms_norm` divides by the grown size: sum the squares and divide by {rule.dim}, or scale the result by sqrt({rule.dim} / size)."
        return f"`{norms[0]}` counts the new lanes whatever their fill: sum over them and divide by {rule.dim}, or leave {rule.dim} as it is here."
    return "No one fill is ignored here: cut the new lanes off, or mask them, before this op."


def describe(found: Sequence[Tolerance]) -> str:
    parts = [f"{t.tensor} may hold {', '.join(t.ignored) if len(t.ignored) < len(POISONS) else 'anything'}" for t in found if t.ignored]
    refused = [t.tensor for t in found if not t.ignored]
    return "; ".join(parts + [f"no fill of {name} is ignored" for name in refused])
