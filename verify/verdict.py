"""What the checker says of a rule: a class, how it is known, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from adapterc.dsl.adapter import CLASSES, Header
from adapterc.dsl.ast import Span
from adapterc.dsl.diagnostics import Diagnostic

PROVED, TESTED, REFUTED, UNDECIDED = "PROVED", "TESTED", "REFUTED", "UNDECIDED"
STATUSES = (PROVED, TESTED, REFUTED, UNDECIDED)

# Why a class is not good enough by itself, in the words of the message.
MEANING: Mapping[str, str] = {
    "EXACT": "bitwise equal",
    "EXACT-Z": "equal but for the sign of zero",
    "REAL": "equal over the reals; rounding differs",
    "COND": "equal only under a guard",
    "EDGE": "differs at NaN, infinities, overflow, ties or empty rows",
    "APPROX": "approximately equal",
    "WRONG": "not equal",
}
NONFINITE_EDGES = frozenset({"nan", "inf", "-inf", "nonfinite"})
ULP = 2.0**-10  # of float16 at 1: the finer of the 16-bit formats that a budget can mean
ALL_SIZES = "all_sizes"  # the fact of an evidence that speaks of every size, and not only of those tried
NO_WORSE = "no worse than stock"
Number: TypeAlias = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one rung found. `numbers` are facts for the certificate (bounds, counts, seeds, sizes)."""

    rung: str
    detail: str
    numbers: tuple[tuple[str, Number], ...] = ()


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A shrunk input on which the sides part: sizes, values as written in a spec, and one result of each side.

    `place` is the index of the output element; `format` the number format of the run ("real": over the reals).
    """

    sizes: tuple[tuple[str, int], ...]
    values: tuple[tuple[str, str], ...]
    place: tuple[int, ...]
    left: str
    right: str
    format: str
    rest: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of one rule. `klass` is the class in the format that was tested first (float32, or one that the rule names), `formats` that in
    each number format, which may be weaker where a format overflows sooner; `edges` names where an EDGE rule differs;
    `suggested_guard` is the text of a predicate under which the rule holds, `mend` the nearest rule that would hold, in words."""

    rule: str
    adapter: str
    klass: str
    status: str
    how: str
    evidence: tuple[Evidence, ...] = ()
    counterexample: Counterexample | None = None
    suggested_guard: str | None = None
    guarded_class: str | None = None
    mend: str | None = None
    edges: tuple[str, ...] = ()
    bound: str | None = None
    formats: tuple[tuple[str, str], ...] = ()
    sides: tuple[str, str] = ("", "")
    seconds: float = field(default=0.0, compare=False)

    @property
    def scope(self) -> str:
        """ "all sizes", "sizes tried", or "" where sizes play no part (a requirement, a placement)."""
        if any(name == ALL_SIZES for e in self.evidence for name, _ in e.numbers):
            return "all sizes"
        return "sizes tried" if any(e.rung == "sizes" for e in self.evidence) else ""

    def ok(self, header: Header) -> bool:
        """Whether the rule may be built: see `problems`."""
        return not any(d.severity == "error" for d in problems(self, header))


def rank(klass: str) -> int:
    """0 is the strongest class. COND and EDGE are both weaker than REAL and stronger than APPROX."""
    return CLASSES.index(klass)


def problems(verdict: Verdict, header: Header) -> tuple[Diagnostic, ...]:
    """The policy: which verdicts a device path may use, and whether the claim holds. Errors forbid building, warnings suggest."""
    found: list[Diagnostic] = []
    span = header.span
    where = f"`{header.name}`"
    if verdict.status == UNDECIDED:
        hint = "Give `where:` types and a `when:` that leave the checker sizes to try, or install the `prove` extra."
        return (Diagnostic("ADC306", f"{where} could not be decided: {verdict.how}.", span, hint),)
    if verdict.klass == "WRONG":
        return (Diagnostic("ADC301", f"{where} is wrong: {verdict.how}.", span, verdict.mend or "Compare the two sides below."),)
    if verdict.klass == "COND":
        hint = f"Add `when: {verdict.suggested_guard}`." if verdict.suggested_guard else "Add a guard."
        return (Diagnostic("ADC302", f"{where} holds only under a guard: {verdict.how}.", span, hint),)
    if verdict.klass == "EDGE" and "EDGE" not in header.allow:
        missing = [edge for edge in verdict.edges if not accepted_edge(edge, header)]
        if missing:
            edges = ", ".join(missing)
            hint = f'Name each edge that does no harm: `accepts: {{{missing[0]}: "why"}}`.'
            found.append(Diagnostic("ADC303", f"{where} differs at {edges}: {verdict.how}.", span, hint))
    elif verdict.klass == "APPROX" and (header.budget is None or not _within(verdict, header)):
        hint = f"State what is enough: `budget: {verdict.bound or '1e-3'}`."
        found.append(Diagnostic("ADC304", f"{where} is only approximate: {verdict.how}.", span, hint))
    elif verdict.klass not in header.allow and verdict.klass not in ("EDGE", "APPROX"):
        hint = f"Add {verdict.klass} to `allow:` if that is enough."
        found.append(Diagnostic("ADC305", f"{where} is {verdict.klass}, which `allow:` does not list.", span, hint))
    worse = worse_than_stock(verdict)
    if verdict.klass != "APPROX" and header.budget == NO_WORSE and worse:
        message = f"{where} has the budget `{NO_WORSE}`, but in {worse} the substitute errs more than the match does."
        found.append(Diagnostic("ADC309", message, span, "Compute it in float32, or drop the budget: a rule that only rounds needs none."))
    found.extend(_claim_problems(verdict, header, span))
    return tuple(found)


def accepted_edge(edge: str, header: Header) -> bool:
    """`accepts: {nonfinite: …}` covers NaN and both infinities."""
    given = {name for name, _ in header.accepts}
    return edge in given or (edge in NONFINITE_EDGES and "nonfinite" in given)


def _claim_problems(verdict: Verdict, header: Header, span: Span) -> list[Diagnostic]:
    if header.claim is None or header.claim == verdict.klass:
        return []
    if rank(verdict.klass) > rank(header.claim):
        message = f"`{header.name}` claims {header.claim} but is {verdict.klass}: {MEANING[verdict.klass]}."
        return [Diagnostic("ADC307", message, span, f"Write `claim: {verdict.klass}`, or mend the rule.")]
    message = f"`{header.name}` claims {header.claim} but is {verdict.klass}, which is stronger."
    return [Diagnostic("ADC308", message, span, f"Write `claim: {verdict.klass}`.", "warning")]


def worse_than_stock(verdict: Verdict) -> str:
    """The formats in which the substitute errs more against exact arithmetic than the match, as measured; "" for none."""
    return next((str(v) for e in verdict.evidence for name, v in e.numbers if name == "worse_than_stock"), "")


def _within(verdict: Verdict, header: Header) -> bool:
    """Whether the budget covers an approximation: a number its bound (an ulp is float16's), words its error as measured in every format."""
    text = (header.budget or "").strip()
    if text == NO_WORSE:
        return any(name == "worse_than_stock" for e in verdict.evidence for name, _ in e.numbers) and not worse_than_stock(verdict)
    unit = ULP if text.endswith("ulp") else 1.0
    try:
        return float(verdict.bound or "inf") <= unit * float(text.removesuffix("ulp"))
    except ValueError:
        return False
