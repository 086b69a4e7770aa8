"""Runs the checker on a folder of rules whose class is known and prints the confusion matrix.

    python benchmarks/checker.py [--rules FOLDER] [--json] [--only RULE,…] [--mutants]

`--mutants` scores the checker itself: every small change of every rule that holds must be noticed, or shown to make no difference.

The expected class of a rule is, first found: a line in FOLDER/expected.csv (`rule,class`), a comment `# expect: CLASS` in the lines above
the rule, or the rule's `claim:`. See tests/rewrites/README.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adapterc.dsl.adapter import CLASSES, Adapter, Rule
from adapterc.dsl.ast import Call
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.loader import load
from adapterc.dsl.parser import parse_expression
from adapterc.verify import Verdict, check_rule
from adapterc.verify.claim import attribute_choices, claim_of
from adapterc.verify.instances import instances
from adapterc.verify.ladder import decide
from adapterc.verify.mutants import mutants
from adapterc.verify.vacuity import killed
from adapterc.verify.verdict import rank

DEFAULT = Path(__file__).resolve().parent.parent / "tests" / "rewrites"
SOUND = ("EXACT", "REAL")
HOLDS = ("EXACT", "EXACT-Z", "REAL", "EDGE")


@dataclass(frozen=True)
class Row:
    """One rule: what was expected and what was found. `found` is "UNDECIDED" where the checker could not say."""

    name: str
    expected: str
    verdict: Verdict
    guard_holds: bool | None = None  # of a printed guard: whether the rule holds with it pasted in

    @property
    def found(self) -> str:
        return "UNDECIDED" if self.verdict.status == "UNDECIDED" else self.verdict.klass


def expected_classes(folder: Path) -> Mapping[str, str]:
    """The classes of FOLDER/expected.csv by rule name, lower case; empty without the file."""
    path = folder / "expected.csv"
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    keys = ("class", "expected", "verdict")
    return {(r.get("rule") or r.get("id") or "").lower(): next(r[k] for k in keys if r.get(k)) for r in rows}


def commented_class(lines: Sequence[str], rule: Rule) -> str | None:
    """The class of `# expect: CLASS` in the comment lines right above a rule."""
    at = rule.header.span.line - 2
    while at >= 0 and lines[at].lstrip().startswith("#"):
        found = re.search(r"expect(?:ed)?\s*:\s*([A-Z][A-Z-]*)", lines[at])
        if found:
            return found.group(1)
        at -= 1
    return None


def run(folder: Path, only: frozenset[str]) -> tuple[list[Row], list[str]]:
    """Every rule of the folder with its verdict, and the files that could not be read."""
    listed = expected_classes(folder)
    rows: list[Row] = []
    faults: list[str] = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml")):
        try:
            adapter = load(path)
        except SpecError as error:
            faults.append(f"{path}: {error}")
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for rule in adapter.rules:
            name = rule.header.name
            expected = (
                listed.get(name.lower())
                or listed.get(f"{adapter.name}.{name}".lower())
                or commented_class(lines, rule)
                or rule.header.claim
            )
            if expected not in CLASSES:
                faults.append(f"{path}:{rule.header.span.line}: no expected class for {name}")
            elif not only or name in only:
                verdict = check_rule(rule, adapter)
                rows.append(Row(name, expected, verdict, guard_holds(rule, adapter, verdict)))
    return rows, faults


def guard_holds(rule: Rule, adapter: Adapter, verdict: Verdict) -> bool | None:
    """Whether the rule holds with the printed guard as its `when:` (and what it had there before); None where none was printed."""
    if verdict.suggested_guard is None:
        return None
    guard = parse_expression(verdict.suggested_guard)
    given = rule.header.when
    header = replace(rule.header, when=guard if given is None else Call("logical_and", (given, guard)))
    again = check_rule(replace(rule, header=header), adapter)
    return again.status in ("PROVED", "TESTED") and again.klass in HOLDS


def summary(rows: Sequence[Row]) -> Mapping[str, object]:
    """The figures of the issue: exactness, proofs, the two kinds of error, guards and times."""
    sound = [r for r in rows if r.expected in SOUND]
    seconds = sorted(r.verdict.seconds for r in rows)
    return {
        "rows": len(rows),
        "exact_class": sum(r.found == r.expected for r in rows),
        "exact_class_share": sum(r.found == r.expected for r in rows) / max(len(rows), 1),
        "wrong_accepted": [r.name for r in rows if r.expected == "WRONG" and r.found not in ("WRONG", "COND", "UNDECIDED")],
        "sound_refuted": [r.name for r in sound if r.verdict.status == "REFUTED"],
        "sound_proved": sum(r.verdict.status == "PROVED" for r in sound),
        "sound_proved_share": sum(r.verdict.status == "PROVED" for r in sound) / max(len(sound), 1),
        "cond_without_guard": [r.name for r in rows if r.expected == "COND" and not r.verdict.suggested_guard],
        "guards_that_fail": [r.name for r in rows if r.guard_holds is False],
        "undecided": [r.name for r in rows if r.found == "UNDECIDED"],
        "median_seconds": seconds[len(seconds) // 2] if seconds else 0.0,
        "largest_seconds": seconds[-1] if seconds else 0.0,
    }


@dataclass(frozen=True)
class Score:
    """Mutants of rules that hold: noticed, shown to be equal, giving the bits of the unchanged rule on every sample but at edges that this
    has already (`alike`: another mask constant that underflows to the same zeros), or none of these (`survivors`, which is a hole in the checker)."""

    killed: int
    equivalent: int
    alike: tuple[str, ...]
    survivors: tuple[str, ...]


def mutation_score(folder: Path, only: frozenset[str]) -> Score:
    """Change the right side of every rule whose unchanged form holds, one change at a time."""
    killed_count, equivalent = 0, 0
    alike: list[str] = []
    survivors: list[str] = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml")):
        adapter = load(path)
        for rule in adapter.rules:
            claim = claim_of(rule, adapter)
            if claim is None or (only and rule.header.name not in only):
                continue
            claim = attribute_choices(claim)[0]
            original = decide(claim, guess=False)
            if original.status not in ("PROVED", "TESTED"):
                continue  # refuted already: a change of it shows nothing
            bits = not killed(instances(claim, 2, stick_edges=False))
            for mutant in mutants(claim.right):
                changed = replace(claim, right=mutant.expression)
                if killed(instances(changed, 2, stick_edges=False), bits):
                    killed_count += 1
                    continue
                found = decide(changed, guess=False)
                if rank(found.klass) > rank(original.klass):
                    killed_count += 1
                elif found.status == "PROVED":
                    equivalent += 1
                else:
                    same = decide(replace(claim, left=claim.right, right=mutant.expression), guess=False, figures=False)
                    at_its_edges = same.klass == original.klass == "EDGE" and set(same.edges) <= set(original.edges)
                    no_bit = same.klass in ("EXACT", "REAL") and ("relative", 0.0) in [n for e in same.evidence for n in e.numbers]
                    where = alike if same.status in ("PROVED", "TESTED") and (no_bit or at_its_edges) else survivors
                    where.append(f"{adapter.name}.{rule.header.name}: {mutant.change}")
    return Score(killed_count, equivalent, tuple(alike), tuple(survivors))


def matrix(rows: Sequence[Row]) -> str:
    """Expected classes down, found ones across."""
    counts = Counter((r.expected, r.found) for r in rows)
    columns = (*CLASSES, "UNDECIDED")
    lines = ["expected \\ found".ljust(18) + "".join(c.rjust(10) for c in columns)]
    for expected in CLASSES:
        lines.append(expected.ljust(18) + "".join(str(counts[(expected, c)] or ".").rjust(10) for c in columns))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rules", type=Path, default=DEFAULT, help="folder of specs (default: tests/rewrites)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", default="", help="names of rules, separated by commas")
    parser.add_argument("--mutants", action="store_true", help="score the checker by mutants instead")
    options = parser.parse_args(arguments)
    if options.mutants:
        score = mutation_score(options.rules, frozenset(n for n in options.only.split(",") if n))
        total = score.killed + score.equivalent + len(score.alike) + len(score.survivors)
        counts = {"mutants": total, "killed": score.killed, "equivalent": score.equivalent}
        print(json.dumps({**counts, "alike": score.alike, "survivors": score.survivors}, indent=1))
        return 1 if score.survivors else 0
    start = time.perf_counter()
    rows, faults = run(options.rules, frozenset(n for n in options.only.split(",") if n))
    figures = {**summary(rows), "seconds": time.perf_counter() - start, "faults": faults}
    if options.json:
        detail = [
            {
                "rule": r.name,
                "expected": r.expected,
                "found": r.found,
                "status": r.verdict.status,
                "how": r.verdict.how,
                "guard": r.verdict.suggested_guard,
                "seconds": round(r.verdict.seconds, 3),
            }
            for r in rows
        ]
        print(json.dumps({**figures, "rules": detail}, indent=1))
        return 0
    print(matrix(rows))
    for row in rows:
        if row.found != row.expected:
            print(f"{row.name}: expected {row.expected}, found {row.found} {row.verdict.status}: {row.verdict.how[:160]}")
    for name, value in figures.items():
        print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
