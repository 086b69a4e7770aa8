"""Runs terms in a number format: every op on its own rounds to the format, a library kernel rounds once.

The format under test is what dtype "float" means. Sums, products of matrices and scans accumulate wide and round once (what hardware with a
float32 accumulator does, and the kinder of the two readings); the order of accumulation is not modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapterc.verify import scalar_math as M
from adapterc.verify.formats import FORMATS, Format, Wide, round_to
from adapterc.verify.terms import INTEGER_DTYPES, Term, ordered

NEVER_ROUNDS = frozenset({"neg", "abs", "maximum", "minimum", "amax", "amin", "where", "kth", "select", "floor", "round"})


@dataclass(frozen=True, slots=True)
class Run:
    """Values by term serial, and where a finite computation below a term overflowed (per sample; a term that cannot is absent)."""

    values: Mapping[int, NDArray[Any]]
    overflows: Mapping[int, NDArray[Any]]

    def of(self, term: Term) -> NDArray[Any]:
        return self.values[term.serial]

    def overflow(self, term: Term) -> NDArray[Any] | None:
        return self.overflows.get(term.serial)


def run(roots: Iterable[Term], samples: Mapping[int, Wide], count: int, format_name: str) -> Run:
    """Evaluate `roots` on `count` samples of each variable (by serial), already representable in their dtype."""
    values: dict[int, NDArray[Any]] = {}
    overflows: dict[int, NDArray[Any]] = {}
    with np.errstate(all="ignore"):
        for term in ordered(roots):
            if term.op == "var":
                values[term.serial] = samples[term.serial]
                continue
            operands = [values[a.serial] for a in term.args]
            result = _apply(term, operands, count, format_name)
            if term.dtype in INTEGER_DTYPES:
                result = result + 0  # integers have one zero
            target = _target(term, format_name)
            if target is not None and term.op != "const":
                # The end of a library kernel is called "round" too, and is where it rounds.
                kept = term.op in NEVER_ROUNDS and not (term.op == "round" and term.kernel)
                result = result if kept else round_to(result, target)
                infinite = np.isinf(np.asarray(result, dtype=M.LD))
                if infinite.any() and term.op not in ("where", "select"):
                    for operand in operands:
                        infinite &= np.isfinite(operand)
                    overflows[term.serial] = infinite
            below = [overflows[a.serial] for a in term.args if a.serial in overflows]
            if below:
                overflows[term.serial] = np.any([*below, *([overflows[term.serial]] if term.serial in overflows else [])], axis=0)
            values[term.serial] = result
    return Run(values, overflows)


def _target(term: Term, format_name: str) -> Format | None:
    """The format that a term's value is rounded to, or None for integers, truth values and the inside of kernels."""
    if term.dtype == "bool" or term.dtype.startswith("int") or term.dtype in ("weakint", "uint8"):
        return None
    if term.wide and term.op != "round":
        return None
    if term.dtype == "weak":
        return FORMATS["float64"]
    return FORMATS[format_name if term.dtype == "float" else term.dtype]


def _operand(term: Term, value: NDArray[Any], user: Term, format_name: str) -> Wide:
    """A number without a dtype takes the format of what it meets."""
    wide = np.asarray(value, dtype=M.LD)
    if term.dtype == "weak" and not user.wide:
        target = _target(user, format_name)
        if target is not None:
            return round_to(wide, target)
    return wide


def _apply(term: Term, operands: list[NDArray[Any]], count: int, format_name: str) -> NDArray[Any]:
    op = term.op
    if op == "const":
        if isinstance(term.payload, bool):
            return np.full(count, term.payload)
        return np.full(count, M.constant_value(term.payload, format_name), dtype=M.LD)
    if op in ("and", "or", "xor", "not"):
        flags = [np.asarray(o, dtype=bool) for o in operands]
        return np.asarray(~flags[0] if op == "not" else {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[op](*flags))
    if op in M.COMPARE:
        joint = "float" if any(a.dtype not in ("weak", "weakint") for a in term.args) else "weak"
        dtypes = {a.dtype for a in term.args} - {"weak", "weakint", "bool", "int64", "int32"}
        meet = Term("meet", (), None, next(iter(dtypes)) if len(dtypes) == 1 else joint, term.kernel, 0)
        left, right = (_operand(a, o, meet, format_name) for a, o in zip(term.args, operands, strict=True))
        return M.COMPARE[op](left, right)
    if op == "where":
        a, b = (_operand(t, o, term, format_name) for t, o in zip(term.args[1:], operands[1:], strict=True))
        if term.dtype == "bool":
            return np.where(operands[0], operands[1], operands[2])
        return np.where(np.asarray(operands[0], dtype=bool), a, b)
    wide = [_operand(t, o, term, format_name) for t, o in zip(term.args, operands, strict=True)]
    return apply_wide(term, wide, count)


def apply_wide(term: Term, wide: list[Wide], count: int) -> NDArray[Any]:
    """An op on long doubles, before any rounding."""
    op = term.op
    if op in M.UNARY and len(wide) == 1:
        return M.UNARY[op](wide[0]) if not (op == "round" and term.kernel) else wide[0]
    if op in M.BINARY:
        return M.BINARY[op](*wide)
    match op:
        case "cast":
            target = str(term.payload)
            if target == "bool":
                return np.asarray(wide[0] != 0)
            return np.trunc(wide[0]) if target.startswith(("int", "uint")) else wide[0]
        case "isnan":
            return np.isnan(wide[0])
        case "sum":
            return np.asarray(np.sum(M.stacked(wide, count), axis=0))
        case "prod":
            return np.asarray(np.prod(M.stacked(wide, count), axis=0))
        case "dot":
            return np.asarray(np.sum(M.stacked(wide[::2], count) * M.stacked(wide[1::2], count), axis=0))
        case "amax" | "amin":
            fold = M.maximum if op == "amax" else M.minimum
            value = wide[0]
            for other in wide[1:]:
                value = fold(value, other)
            return value
        case "argmax":
            return M.argmax_first(M.stacked(wide, count)).astype(M.LD)
        case "kth" | "argkth":
            assert isinstance(term.payload, tuple)
            k, descending = term.payload
            values, positions = M.sort_rows(M.stacked(wide, count), bool(descending))
            return np.asarray(values[int(str(k))] if op == "kth" else positions[int(str(k))], dtype=M.LD)
        case "select":
            rows = M.stacked(wide[1:], count)
            index = np.where(np.isfinite(wide[0]), wide[0], 0).astype(np.int64)
            index = np.where(index < 0, index + len(rows), index)
            picked = rows[np.clip(index, 0, len(rows) - 1), np.arange(count)]
            return np.where((index >= 0) & (index < len(rows)), picked, np.nan)
    raise ValueError(f"no number format has a meaning for {op}")
