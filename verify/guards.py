"""Guard synthesis: the weakest predicate of a small vocabulary under which a rule holds.

The vocabulary is what other parts of a program can establish: signs, nonzero, order of two bounds, whole and representable numbers,
moderate magnitude, centred rows, one unmasked place a row, equal permutations, divisibility of sizes. Equality of sizes or of values that the
rule takes as given is left out: it would make most wrong rules right by making them trivial.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.dsl.ast import Call, Expr, Literal, Name, names, walk
from adapterc.dsl.printer import to_text
from adapterc.dsl.types import ScalarType, TensorType, Type
from adapterc.verify import floats
from adapterc.verify.claim import Claim, size_symbols
from adapterc.verify.compare import test_format
from adapterc.verify.instances import Instance, guard_terms
from adapterc.verify.samples import ORDINARY, Batch

Mask = NDArray[Any]
LEAST_ADMITTED = 4  # samples on which a guard must be shown to hold, or it is vacuous
MODERATE = 4096


@dataclass(frozen=True, slots=True)
class Trial:
    """One instance with its samples: `bad` marks those where the sides part, `counted` those that matter."""

    instance: Instance
    batch: Batch
    bad: Mask
    counted: Mask


def candidates(claim: Claim, signs: bool = True) -> list[Expr]:
    """The vocabulary over the variables of a claim, weakest first within a variable. `signs`: signs of data may be asked for."""
    found: list[Expr] = []
    narrowed, exponents = _narrowed(claim), _exponents(claim)
    for name, kind in claim.where:
        about = _about(Name(name), kind, narrowed, name in exponents)
        found.extend(c for c in about if signs or not _is_sign(c))
    comparable = [(n, t) for n, t in claim.where if _is_float(t)]
    scalars = [n for n, t in comparable if isinstance(t, ScalarType)]
    for a, b in itertools.permutations(scalars, 2):
        found.append(Call("le", (Name(a), Name(b))))
    whole = [(n, t) for n, t in claim.where if isinstance(t, TensorType) and t.element in ("int", "int32", "int64")]
    for (a, ta), (b, tb) in itertools.combinations(whole, 2):
        if isinstance(ta, TensorType) and isinstance(tb, TensorType) and ta.dims == tb.dims:
            found.append(Call("eq", (Name(a), Name(b))))
    return found


def size_candidates(claim: Claim) -> list[Expr]:
    """Divisibility and powers of two of the sizes."""
    found: list[Expr] = []
    symbols = size_symbols(claim.where)
    for n in symbols:
        for divisor in (Literal(2), Literal(4), Name("stick")):
            found.append(_divides(divisor, Name(n)))
        found.append(Call("is_power_of_two", (Name(n),)))
    for n, m in itertools.permutations(symbols, 2):
        found.append(_divides(Name(m), Name(n)))
    return found


def _divides(divisor: Expr, n: Expr) -> Expr:
    return Call("eq", (Call("remainder", (n, divisor)), Literal(0)))


def _is_sign(condition: Expr) -> bool:
    return isinstance(condition, Call) and condition.op in ("ne", "ge", "gt", "le", "lt") and condition.args[1] == Literal(0)


def _is_centred(condition: Expr) -> bool:
    return isinstance(condition, Call) and isinstance(condition.args[0], Call) and condition.args[0].op == "sum"


def _exponents(claim: Claim) -> frozenset[str]:
    """Variables in the exponent of a power: there, whole numbers are a guard that programs meet."""
    powers = (n for side in (claim.left, claim.right) for n in walk(side) if isinstance(n, Call) and n.op == "pow" and len(n.args) == 2)
    return frozenset().union(*(names(n.args[1]) for n in powers))


def _sensible(chosen: Sequence[Expr]) -> bool:
    """At most one sign a variable (two would pin it to zero), and centred rows only alone."""
    signed = [c.args[0] for c in chosen if isinstance(c, Call) and _is_sign(c)]
    return len(signed) == len(set(signed)) and not (len(chosen) > 1 and any(_is_centred(c) for c in chosen))


def _about(x: Expr, kind: Type, narrowed: Sequence[str], exponent: bool) -> Iterator[Expr]:
    zero = Literal(0)
    if isinstance(kind, TensorType) and kind.element == "bool":
        if kind.dims:
            yield Call("any", (x, Literal(-1)))
        return
    if isinstance(kind, ScalarType) and kind.element == "size":
        return
    for op in ("ne", "ge", "gt", "le", "lt"):
        yield Call(op, (x, zero))
    if not _is_float(kind):
        return
    if exponent:
        yield Call("eq", (Call("floor", (x,)), x))
    yield Call("le", (Call("abs", (x,)), Literal(MODERATE)))
    yield Call("gt", (x, Call("div", (Call("finfo_min", (Name("float32"),)), Literal(2)))))
    for dtype in narrowed:
        yield Call("eq", (Call("to", (x, Name(dtype))), x))
    if isinstance(kind, TensorType) and kind.dims:
        yield Call("eq", (Call("sum", (x, Literal(-1))), zero))


def _is_float(kind: Type) -> bool:
    return kind.element not in ("bool", "int", "int32", "int64", "size")


def _narrowed(claim: Claim) -> list[str]:
    used = (n for side in (claim.left, claim.right) for n in walk(side) if isinstance(n, Call) and n.op in ("to", "cast"))
    formats = {a.id for call in used for a in (*call.args, *(v for _, v in call.kwargs)) if isinstance(a, Name)}
    return sorted(formats & {"float16", "bfloat16", "float32"})


def mask_of(condition: Expr, instance: Instance, batch: Batch) -> Mask | None:
    """The samples on which a condition holds in every element; None when it cannot be evaluated at this instance."""
    found = guard_terms(condition, instance.env, instance.arena)
    if isinstance(found, bool):
        return np.full(batch.count, found)
    if found is None:
        return None
    if not found:
        return np.ones(batch.count, dtype=bool)
    values = floats.run(found, batch.values, batch.count, test_format(instance))
    return np.asarray(np.all([np.asarray(values.of(t), dtype=bool) for t in found], axis=0))


def synthesise(
    claim: Claim, trials: Sequence[Trial], holds: Callable[[Sequence[Expr]], bool], signs: bool = True, most: int = 3
) -> tuple[Expr, ...] | None:
    """The conjunction of up to `most` predicates that admits the most samples and no bad one; `holds` confirms it on fresh samples."""
    vocabulary: list[tuple[Expr, list[Mask]]] = []
    for condition in candidates(claim, signs):
        masks = [mask_of(condition, t.instance, t.batch) for t in trials]
        kept = [m for m in masks if m is not None]
        if len(kept) == len(masks) and any((m & t.counted).any() for m, t in zip(kept, trials, strict=True)):
            vocabulary.append((condition, kept))
    refused = 0
    for size in range(1, most + 1):
        ranked: list[tuple[int, int, tuple[Expr, ...]]] = []
        for order, chosen in enumerate(itertools.combinations(vocabulary, size)):
            admitted = _admitted(chosen, trials) if _sensible([c for c, _ in chosen]) else None
            if admitted is not None:
                ranked.append((-admitted, order, tuple(c for c, _ in chosen)))
        for _, _, guard in sorted(ranked, key=lambda r: r[:2])[:6]:
            if holds(guard):
                return guard
            refused += 1
            if refused > 10:
                return None
    return None


def _admitted(chosen: Sequence[tuple[Expr, list[Mask]]], trials: Sequence[Trial]) -> int | None:
    """How many samples the conjunction admits; None when it admits a bad one, or hardly any."""
    total = 0
    for i, trial in enumerate(trials):
        mask = trial.counted.copy()
        for _, masks in chosen:
            mask &= masks[i]
        if (mask & trial.bad).any():
            return None
        total += int((mask & (trial.batch.kind == ORDINARY)).sum())
    return total if total >= LEAST_ADMITTED else None


def guard_text(guard: Sequence[Expr]) -> str:
    """The guard as the value of `when:`."""
    return " and ".join(to_text(g) for g in guard)


def positive_names(guard: Sequence[Expr]) -> frozenset[str]:
    """Variables that the guard makes positive (zero is the limit, checked by tests)."""
    found: set[str] = set()
    for condition in guard:
        match condition:
            case Call(op="gt" | "ge", args=(Name(id=name), Literal(value=value))) if isinstance(value, int) and value >= 0:
                found.add(name)
            case Call(op="lt" | "le", args=(Literal(value=value), Name(id=name))) if isinstance(value, int) and value >= 0:
                found.add(name)
    return frozenset(found)
