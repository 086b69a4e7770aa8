"""Rung 5: a proved bound of what rounding does to each side of a rule that is equal over the reals, in each number format.

The standard model of floating point (Higham, Accuracy and Stability of Numerical Algorithms, §3): every op returns its exact result times
(1 + δ), |δ| ≤ u. Read off the term by structure: |computed − exact| ≤ γ(c) · S with γ(c) = (1 − u)^−c − 1 ≈ c·u, c a count of roundings on
the longest way from an input, and S the value of the expression with every term of every sum taken absolutely (its condition). Sums accumulate in
float32 and round once; the inside of a library kernel runs in float32 (verify/floats.py). Functions are taken to be within one unit in the last
place. Overflow and underflow are outside the model and are found by tests.

Equal sides then part by at most γ(c₁)·S₁ + γ(c₂)·S₂. `no worse than stock` compares the errors themselves: each side against exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from adapterc.verify import floats, reals
from adapterc.verify.compare import admitted, keeps
from adapterc.verify.formats import FORMATS, Format, Wide
from adapterc.verify.instances import Instance
from adapterc.verify.samples import EXTREME, Batch
from adapterc.verify.terms import INTEGER_DTYPES, Term, ordered

Pair = tuple[Term, Term]
TARGETS = ("float16", "bfloat16", "dlfloat16", "float32")
WIDE_UNIT = FORMATS["float32"].epsilon / 2
FUNCTION_ROUNDINGS = 2.0  # one unit in the last place is two unit roundoffs
LARGEST_SHARE = 0.25  # of c·u: beyond it the format says nothing any more
DIVISOR_SHARE = 0.125  # of a divisor: the most that rounding may have taken of it where a bound is stated
RMS_SLACK, LARGEST_SLACK = 1.1, 1.25  # a finite sample tells two errors apart no better than this
LIPSCHITZ: Mapping[str, float] = {"tanh": 1.0, "sigmoid": 0.25, "erf": 1.1284, "sin": 1.0, "cos": 1.0, "atan": 1.0}
DISCRETE = frozenset(
    ["eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "floor", "isnan", "argmax", "argkth", "floor_div", "remainder"]
)


@dataclass(frozen=True, slots=True)
class Rounding:
    """`count` is c and `size` is S per sample. `sure`: S is the absolute value itself (nothing cancels below); `above`: never negative."""

    count: float
    size: Wide
    sure: bool
    above: bool

    @property
    def exact(self) -> bool:
        return self.count == 0


@dataclass(frozen=True, slots=True)
class FormatBound:
    """What is proved and measured of one rule in one format.

    `counts` are c of the match and the substitute, None where none is proved; `measured` is the largest |match − substitute| / (u · (S₁ + S₂))
    seen, or with no S known |match − substitute| / (u · |exact|). `stock` and `ours` are (root mean square, largest) errors against exact
    arithmetic, in u·S₁. `divides`: a divisor may cancel, and the bound speaks of inputs where it keeps three bits.
    """

    format: str
    counts: tuple[float, float] | None
    measured: float
    stock: tuple[float, float]
    ours: tuple[float, float]
    divides: bool = False

    @property
    def unit(self) -> float:
        return FORMATS[self.format].epsilon / 2

    @property
    def no_worse(self) -> bool:
        """Whether the substitute errs no more than the stock form: measured, within the slack of a sample."""
        return self.ours[0] <= self.stock[0] * RMS_SLACK + 1e-9 and self.ours[1] <= self.stock[1] * LARGEST_SLACK + 1e-9

    def __str__(self) -> str:
        errors = (
            f"error of match {self.stock[0]:.2g}u rms, {self.stock[1]:.3g}u at most, of substitute {self.ours[0]:.2g}u, {self.ours[1]:.3g}u"
        )
        if self.counts is None:
            return f"{self.format}: no bound is proved, {errors}"
        left, right = self.counts
        where = " where no divisor has lost three bits" if self.divides else ""
        return f"{self.format}: |match - substitute| <= ({_short(left)} + {_short(right)})·u·S{where} proved, {self.measured:.2g}·u·S measured, {errors}"


def _short(count: float) -> str:
    return f"{count:.0f}" if abs(count - round(count)) < 0.005 else f"{count:.2f}"


def bounds(instance: Instance, pairs: Sequence[Pair], batch: Batch, targets: Sequence[str] = TARGETS) -> tuple[FormatBound, ...]:
    """The bound of every target format, over the pairs of one instance; samples at the ends of a format are left out."""
    if any(t.dtype in FORMATS for t in instance.inputs.values()):
        declared = {t.dtype for t in instance.inputs.values() if t.dtype in FORMATS}
        targets = tuple(t for t in targets if t in declared)
    found = [_in_format(instance, pairs, batch, name) for name in targets]
    return tuple(f for f in found if f is not None)


def _in_format(instance: Instance, pairs: Sequence[Pair], batch: Batch, name: str) -> FormatBound | None:
    target = FORMATS[name]
    rounded = batch.rounded(instance, name)
    usual = admitted(instance, rounded) & (rounded.kind < EXTREME)
    sample = rounded.only(usual)
    if not sample.count:
        return None
    roots = [t for pair in pairs for t in pair]
    with np.errstate(all="ignore"):
        exact = reals.run(roots, sample.values, sample.count, name, keeps(instance))
        computed = floats.run(roots, sample.values, sample.count, name)
        analysed = analyse(roots, {s: r.value for s, r in exact.items()}, sample.count, target)
        return _summary(pairs, exact, computed, analysed, target)


def _summary(
    pairs: Sequence[Pair], exact: Mapping[int, reals.Real], computed: floats.Run, analysed: Mapping[int, Rounding | None], target: Format
) -> FormatBound:
    unit = target.epsilon / 2
    terms = ordered([t for pair in pairs for t in pair])
    inside = ~_beyond(terms, exact, target)
    left_count, right_count, proved, measured = 0.0, 0.0, True, 0.0
    stock: list[Wide] = []
    ours: list[Wide] = []
    for a, b in pairs:
        left, right = np.asarray(computed.of(a), dtype=np.longdouble), np.asarray(computed.of(b), dtype=np.longdouble)
        truth = exact[a.serial]
        size = np.abs(truth.value)
        known = np.isfinite(truth.value) & np.isfinite(left) & np.isfinite(right) & (truth.error <= unit * size / 64)
        known &= (size >= max(target.tiny, 1e-30)) & (size <= target.largest)
        first, second = analysed[a.serial], analysed[b.serial]
        scale, total = size, size
        if first is None or second is None:
            proved = False
        else:
            left_count, right_count = max(left_count, first.count), max(right_count, second.count)
            scale, total = np.where(np.isfinite(first.size), first.size, size), first.size + second.size
        stock.append((np.abs(left - truth.value) / (unit * scale))[known])
        ours.append((np.abs(right - truth.value) / (unit * scale))[known])
        within = known & inside & np.isfinite(total)
        measured = max(measured, float(np.max((np.abs(left - right) / (unit * total))[within], initial=0.0)))
    fits = proved and max(left_count, right_count) * unit <= LARGEST_SHARE
    divides = any(t.op == "div" and not ((d := analysed[t.args[1].serial]) and (d.sure or d.exact)) for t in terms)
    return FormatBound(target.name, (left_count, right_count) if fits else None, measured, _errors(stock), _errors(ours), divides)


def _beyond(terms: Sequence[Term], exact: Mapping[int, reals.Real], target: Format) -> Wide:
    """The samples on which some intermediate value leaves the normal range of its format, and with it the model."""
    found = np.zeros(len(exact[terms[0].serial].value), dtype=bool)
    for term in terms:
        if term.dtype == "bool" or term.dtype in (*INTEGER_DTYPES, "weak", "weakint", "uint8"):
            continue
        held = FORMATS[term.dtype] if term.dtype in FORMATS else FORMATS["float32"] if term.wide and term.op != "round" else target
        size = np.abs(exact[term.serial].value)
        found |= ((size > 0) & (size < held.tiny)) | (np.isfinite(size) & (size > held.largest))
    return found


def _errors(rows: Sequence[Wide]) -> tuple[float, float]:
    joined = np.concatenate(rows) if rows else np.zeros(0)
    if not joined.size:
        return 0.0, 0.0
    return float(np.sqrt(np.mean(np.square(joined)))), float(np.max(joined))


def gamma(count: float, unit: float) -> float:
    """(1 − u)^−c − 1: what c factors between 1 − u and 1 / (1 − u) make at most."""
    return float(np.expm1(-count * np.log1p(-unit)))


def analyse(roots: Sequence[Term], values: Mapping[int, Wide], count: int, target: Format) -> Mapping[int, Rounding | None]:
    """c and S of every term below the roots; None where structure alone bounds nothing (a comparison of rounded values, a cancelling divisor).

    `values` are the exact values, per sample.
    """
    found: dict[int, Rounding | None] = {}
    for term in ordered(roots):
        args = [found[a.serial] for a in term.args]
        known = [a for a in args if a is not None]
        found[term.serial] = _rounding(term, known, values, count, target) if len(known) == len(args) else None
    return found


def _rounding(term: Term, args: list[Rounding], values: Mapping[int, Wide], count: int, target: Format) -> Rounding | None:
    op, size = term.op, np.abs(values[term.serial])
    integral = term.dtype == "bool" or term.dtype in INTEGER_DTYPES or term.dtype in ("weakint", "uint8")
    if op == "var":
        return Rounding(0.0, size, True, term.dtype == "bool")
    if op == "const":
        held = (
            integral or (isinstance(term.payload, int | Fraction | bool) and _held(Fraction(term.payload))) or isinstance(term.payload, str)
        )
        return Rounding(0.0 if held else 1.0, size, True, bool(np.all(values[term.serial] >= 0)))
    if integral or op in DISCRETE:
        # A truth value, an index or a whole number is right where its operands are, and may be anything where they are not.
        return Rounding(0.0, size, True, term.dtype == "bool") if all(a.exact for a in args) else None
    step = _steps(_unit(term, target), target)
    own = _steps(FUNCTION_ROUNDINGS * _unit(term, target), target)
    first = args[0]
    match op:
        case "neg" | "abs":
            return Rounding(first.count, first.size, first.sure, op == "abs")
        case "add" | "sub":
            # A sum of two operands that cannot cancel keeps its relative error.
            second = args[1]
            adds = op == "add" and first.above and second.above
            return Rounding(max(first.count, second.count) + step, first.size + second.size, adds and first.sure and second.sure, adds)
        case "mul":
            second = args[1]
            square = term.args[0] is term.args[1]
            return Rounding(
                first.count + second.count + step,
                first.size * second.size,
                first.sure and second.sure,
                square or (first.above and second.above),
            )
        case "div":
            return _quotient(args, values[term.args[1].serial], step, target)
        case "sum" | "dot":
            return _summed(op, args, step, target)
        case "maximum" | "minimum" | "amax" | "amin" | "kth":
            sizes = np.max([a.size for a in args], axis=0)
            above = all(a.above for a in args)
            return Rounding(max(a.count for a in args), sizes, above and all(a.sure for a in args), above)
        case "where":
            if not first.exact:
                return None
            chosen = values[term.args[0].serial] != 0
            a, b = args[1], args[2]
            return Rounding(max(a.count, b.count), np.where(chosen, a.size, b.size), a.sure and b.sure, a.above and b.above)
        case "round" | "cast":
            return Rounding(first.count + step, first.size, first.sure, first.above)
        case "sqrt":
            if first.sure:
                return Rounding(first.count / 2 + step, size, True, True)
            return Rounding(first.count + step, first.size / np.where(size > 0, size, np.nan), False, True)
        case "exp" | "expm1" | "log" | "log1p":
            return _exponential(op, first, size, own, target)
        case "pow":
            power = term.args[1].payload if term.args[1].op == "const" else None
            if not isinstance(power, int | Fraction):
                return None
            even = Fraction(power).denominator == 1 and power % 2 == 0
            if first.sure:
                return Rounding(abs(float(power)) * first.count + own, size, True, first.above or even)
            whole = Fraction(power).denominator == 1 and power > 0
            return Rounding(float(power) * first.count + own, first.size ** int(power), False, even) if whole else None
    if op in LIPSCHITZ:
        if first.exact:
            return Rounding(own, size, True, op == "sigmoid")
        return Rounding(first.count + own, LIPSCHITZ[op] * first.size + size, False, op == "sigmoid")
    return None


def _steps(unit: float, target: Format) -> float:
    """A factor between 1 − unit and 1 / (1 − unit), counted in those of the target's unit roundoff."""
    return float(np.log1p(-unit) / np.log1p(-target.epsilon / 2))


def _held(value: Fraction) -> bool:
    """Whether every format holds the number exactly."""
    return value.denominator in (1, 2, 4, 8, 16) and abs(value.numerator) <= 256


def _unit(term: Term, target: Format) -> float:
    """The unit roundoff of the format that a term is rounded to."""
    if term.wide and term.op != "round":
        return min(WIDE_UNIT, target.epsilon / 2)
    if term.dtype in FORMATS:
        return FORMATS[term.dtype].epsilon / 2
    return FORMATS["float64"].epsilon / 2 if term.dtype == "weak" else target.epsilon / 2


def _quotient(args: list[Rounding], divisor: Wide, step: float, target: Format) -> Rounding:
    above, below = args
    apart = np.where(divisor != 0, np.abs(divisor), np.nan)
    if below.sure or below.exact:
        return Rounding(above.count + below.count + step, above.size / apart, above.sure, above.above and below.above)
    # A divisor that may cancel has a relative error only where its condition leaves it one.
    condition = below.size / apart
    kept = gamma(below.count, target.epsilon / 2) * condition <= DIVISOR_SHARE
    size = np.where(kept, above.size / apart * condition / (1 - DIVISOR_SHARE), np.inf)
    return Rounding(above.count + below.count + step, size, False, above.above and below.above)


def _summed(op: str, args: list[Rounding], step: float, target: Format) -> Rounding:
    accumulate = _steps(min(WIDE_UNIT, target.epsilon / 2), target)
    if op == "sum":
        count = max(a.count for a in args) + (len(args) - 1) * accumulate + step
        above = all(a.above for a in args)
        return Rounding(count, np.sum([a.size for a in args], axis=0), above and all(a.sure for a in args), above)
    pairs = list(zip(args[::2], args[1::2], strict=True))
    count = max(a.count + b.count for a, b in pairs) + len(pairs) * accumulate + step
    above = all(a.above and b.above for a, b in pairs)
    return Rounding(count, np.sum([a.size * b.size for a, b in pairs], axis=0), above and all(a.sure for a in args), above)


def _exponential(op: str, first: Rounding, size: Wide, own: float, target: Format) -> Rounding | None:
    """exp turns an absolute error into a relative one, log the other way round."""
    if first.exact:
        return Rounding(own, size, True, op == "exp")
    if op in ("log", "log1p"):
        return Rounding(first.count + own, size + 1, False, False) if first.sure and op == "log" else None
    error = gamma(first.count, target.epsilon / 2)
    grown = np.expm1(np.minimum(error * first.size, 50)) / error
    return Rounding(first.count + own, (size if op == "exp" else size + 1) * (1 + grown), False, op == "exp")
