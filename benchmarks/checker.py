"""Runs the checker on a folder of rules whose class is known and prints the confusion matrix.

    python benchmarks/checker.py [--rules FOLDER] [--json] [--only RULE,…]

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
from dataclasses import dataclass
from pathlib import Path

from adapterc.dsl.adapter import CLASSES, Rule
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.loader import load
from adapterc.verify import Verdict, check_rule

DEFAULT = Path(__file__).resolve().parent.parent / "tests" / "rewrites"
SOUND = ("EXACT", "REAL")


@dataclass(frozen=True)
class Row:
    """One rule: what was expected and what was found. `found` is "UNDECIDED" where the checker could not say."""

    name: str
    expected: str
    verdict: Verdict

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
                rows.append(Row(name, expected, check_rule(rule, adapter)))
    return rows, faults


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
        "undecided": [r.name for r in rows if r.found == "UNDECIDED"],
        "median_seconds": seconds[len(seconds) // 2] if seconds else 0.0,
        "largest_seconds": seconds[-1] if seconds else 0.0,
    }


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
    options = parser.parse_args(arguments)
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
