"""Runs both sides of an instance on samples, over the reals or in a format, and says where and how they part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.verify import floats, reals
from adapterc.verify.formats import FORMATS, Wide
from adapterc.verify.instances import Instance
from adapterc.verify.samples import EXTREME, NONFINITE, Batch
from adapterc.verify.terms import Term, ordered

Pairs = Sequence[tuple[Term, Term]]
Mask = NDArray[Any]


def keeps(instance: Instance) -> Callable[[str], bool]:
    """Which casts are no more than the rounding of every op: those to a format at least as fine as the coarsest declared input."""
    declared = [t.dtype for t in instance.inputs.values() if t.dtype in FORMATS]
    least = min((FORMATS[d].precision for d in declared), default=FORMATS["float32"].precision)
    return lambda dtype: dtype == "float" or (dtype in FORMATS and FORMATS[dtype].precision >= least)


def test_format(instance: Instance) -> str:
    """The format in which "float" is run first: a declared one; bfloat16 where the rule widens to float32, which would do nothing there."""
    declared = next((t.dtype for t in instance.inputs.values() if t.dtype in FORMATS), None)
    if declared is not None:
        return declared
    widens = any(t.op == "cast" and t.payload == "float32" and t.args[0].dtype == "float" for t in instance.arena.nodes.values())
    return "bfloat16" if widens else "float32"


def admitted(instance: Instance, batch: Batch) -> Mask:
    """The samples on which the guard holds."""
    if not instance.guards:
        return np.ones(batch.count, dtype=bool)
    found = floats.run(instance.guards, batch.values, batch.count, test_format(instance))
    return np.asarray(np.all([np.asarray(found.of(g), dtype=bool) for g in instance.guards], axis=0))


@dataclass(frozen=True, slots=True)
class Parting:
    """Per output element and sample. `left` and `right` are values; `apart` where they cannot be equal."""

    left: Wide
    right: Wide
    apart: Mask
    overflow: Mask


def over_reals(instance: Instance, pairs: Pairs, batch: Batch) -> Parting:
    """Where the sides differ beyond any rounding of the check itself."""
    roots = [t for pair in pairs for t in pair]
    values = reals.run(roots, batch.values, batch.count, test_format(instance), keeps(instance))
    apart = [~reals.agree(values[a.serial], values[b.serial]) for a, b in pairs]
    left = [values[a.serial].value for a, _ in pairs]
    right = [values[b.serial].value for _, b in pairs]
    none = np.zeros((len(pairs), batch.count), dtype=bool)
    return Parting(_stack(left, batch), _stack(right, batch), np.array(apart).reshape(len(pairs), batch.count), none)


def in_format(pairs: Pairs, batch: Batch, format_name: str) -> Parting:
    """Where the sides differ bit by bit (NaN equals NaN, -0 differs from 0)."""
    left_run = floats.run([a for a, _ in pairs], batch.values, batch.count, format_name)
    right_run = floats.run([b for _, b in pairs], batch.values, batch.count, format_name)
    left = _stack([left_run.of(a) for a, _ in pairs], batch)
    right = _stack([right_run.of(b) for _, b in pairs], batch)
    apart = ~_bits_equal(left, right)
    return Parting(left, right, apart, _overflows(pairs, left_run, right_run, batch.count))


def _overflows(pairs: Pairs, left: floats.Run, right: floats.Run, count: int) -> Mask:
    none = np.zeros(count, dtype=bool)
    rows = [_or_none(left.overflow(a), none) | _or_none(right.overflow(b), none) for a, b in pairs]
    return np.array(rows, dtype=bool).reshape(len(pairs), count)


def _or_none(found: Mask | None, none: Mask) -> Mask:
    return none if found is None else found


def _stack(rows: Sequence[NDArray[Any]], batch: Batch) -> Wide:
    return np.array([np.broadcast_to(np.asarray(r, dtype=np.longdouble), (batch.count,)) for r in rows]).reshape(len(rows), batch.count)


def _bits_equal(left: Wide, right: Wide) -> Mask:
    same = (left == right) & (np.signbit(left) == np.signbit(right))
    return np.asarray(same | (np.isnan(left) & np.isnan(right)))


@dataclass(frozen=True, slots=True)
class Differences:
    """How the sides differ in one format. Each mask is per sample.

    `bits`: some bit on finite inputs; `zero_sign`: nothing but signs of zero on finite inputs; `lost`: a finite input where one side overflows,
    or a truth value or index changes; `spread`: a non-finite input where one side is finite and the other is not, or where masks (-inf)
    become NaN; `any_nonfinite`: any difference on non-finite inputs.
    """

    bits: Mask
    zero_sign: Mask
    lost: Mask
    spread: Mask
    any_nonfinite: Mask
    relative: float


def differences(instance: Instance, pairs: Pairs, batch: Batch, format_name: str) -> Differences:
    """Classify every difference of the two sides in a format, where the guard holds."""
    admitted_samples = admitted(instance, batch)
    found = in_format(pairs, batch, format_name)
    finite_inputs = (batch.kind != NONFINITE) & admitted_samples
    moderate = finite_inputs & (batch.kind != EXTREME)
    unequal = found.apart & ~((found.left == 0) & (found.right == 0))
    zero = found.apart & ~unequal
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(found.left), np.abs(found.right))
        gap = np.abs(found.left - found.right)
        relative = np.where(np.isfinite(gap) & (scale > 0), gap / scale, 0)
        target = FORMATS[format_name]
        material = (gap > scale * 2.0**-9) & (scale >= target.tiny)
    discrete = np.array([a.dtype == "bool" or a.dtype.startswith("int") for a, _ in pairs])[:, None]
    finite_changed = (np.isfinite(found.left) != np.isfinite(found.right)) | (np.isnan(found.left) != np.isnan(found.right))
    # Where neither side is a number the pattern had no value to lose.
    finite_changed = finite_changed & (np.isfinite(found.left) | np.isfinite(found.right))
    lost = unequal & (finite_changed | (found.overflow & material) | discrete)
    spread = unequal & (finite_changed | discrete)
    masks = _mask_variables(pairs)
    if masks:
        masked = _only_minus_infinity(batch, masks)
        spread = spread | (unequal & masked[None, :] & (np.isnan(found.left) != np.isnan(found.right)))
    real = np.where(moderate, relative, 0)
    return Differences(
        bits=unequal.any(axis=0) & finite_inputs,
        zero_sign=zero.any(axis=0) & admitted_samples,
        lost=lost.any(axis=0) & moderate,
        spread=spread.any(axis=0) & (batch.kind == NONFINITE) & admitted_samples,
        any_nonfinite=unequal.any(axis=0) & (batch.kind == NONFINITE) & admitted_samples,
        relative=float(real.max(initial=0)),
    )


def _mask_variables(pairs: Pairs) -> frozenset[int]:
    """The variables in which -inf is a meaningful value: it is the identity of max and the logarithm of nothing."""
    below: set[int] = set()
    for term in reversed(ordered([t for pair in pairs for t in pair])):
        if term.serial in below or term.op in ("exp", "log", "amax", "maximum", "argmax", "kth"):
            below.update(a.serial for a in term.args)
    return frozenset(below)


def _only_minus_infinity(batch: Batch, masks: frozenset[int]) -> Mask:
    good = np.ones(batch.count, dtype=bool)
    for serial, values in batch.values.items():
        good &= np.isfinite(values) | (np.isneginf(values) if serial in masks else False)
    return good


def differing(pairs: Pairs) -> list[tuple[Term, Term]]:
    """The smallest corresponding subterms in which the sides differ: the same op on equal operands is equal, whatever the op."""
    found: dict[tuple[int, int], tuple[Term, Term]] = {}
    seen: set[tuple[int, int]] = set()
    stack = list(pairs)
    while stack:
        a, b = stack.pop()
        if a is b or (a.serial, b.serial) in seen:
            continue
        seen.add((a.serial, b.serial))
        same_shape = a.op == b.op and a.payload == b.payload and a.kernel == b.kernel and a.dtype == b.dtype and len(a.args) == len(b.args)
        if same_shape and a.args:
            args = b.args
            if len(args) == 2 and (a.args[0] is args[1] or a.args[1] is args[0]) and a.op in ("add", "mul", "maximum", "minimum"):
                args = args[::-1]
            stack.extend(zip(a.args, args, strict=True))
        else:
            found[(a.serial, b.serial)] = (a, b)
    return list(found.values())


def signature(pair: tuple[Term, Term]) -> tuple[object, ...]:
    """Equal for pairs that differ only in the names of their variables."""
    renamed: dict[int, int] = {}
    done: dict[int, int] = {}
    rows: list[tuple[object, ...]] = []
    for term in ordered(pair):
        if term.op == "var":
            renamed[term.serial] = len(renamed)
            key: tuple[object, ...] = ("var", renamed[term.serial], term.dtype)
        else:
            key = (term.op, tuple(done[a.serial] for a in term.args), str(term.payload), term.dtype, term.kernel)
        done[term.serial] = len(rows)
        rows.append(key)
    return (*rows, done[pair[0].serial], done[pair[1].serial])


def sample_values(batch: Batch, index: int) -> Mapping[int, np.longdouble]:
    return {serial: values[index] for serial, values in batch.values.items()}
