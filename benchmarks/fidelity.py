#!/usr/bin/env python3
"""Replay a file of front-end answers through the simulator's compiler and write one answer a row.

    fidelity.py --oracle ../shared/oracle/torch_spyre_frontend.csv -o answers.jsonl [--jobs 2] [--json]

The file holds what torch-spyre's own Python front-end said about each graph (docs/fidelity.md). Its scorer compares the answers:
`score.py ORACLE.csv ANSWERS.jsonl`. For development, `--filter TEXT` keeps rows whose id contains TEXT, `--limit N` takes N rows spread over the file.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from pathlib import Path

from oracle_rows import read_rows
from replay import Pool

DEFAULT_ORACLE = Path(__file__).resolve().parents[2] / "shared" / "oracle" / "torch_spyre_frontend.csv"


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, default=DEFAULT_ORACLE, help="the table of answers (default: beside the checkout)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="where to write the answers, one JSON object a line")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--filter", default="", help="only rows whose id contains this")
    parser.add_argument("--limit", type=int, default=0, help="only this many rows, spread evenly")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    if not args.oracle.is_file():
        print(
            f"fidelity: no oracle file at {args.oracle}: give one with --oracle (docs/fidelity.md says where it comes from).",
            file=sys.stderr,
        )
        return 2
    if args.jobs < 1:
        print(f"fidelity: --jobs must be at least 1, not {args.jobs}.", file=sys.stderr)
        return 2
    rows = [row for row in read_rows(args.oracle) if args.filter in row.id]
    if args.limit and len(rows) > args.limit:
        rows = [rows[i * len(rows) // args.limit] for i in range(args.limit)]

    started = time.monotonic()
    verdicts: collections.Counter[str] = collections.Counter()
    own_failures: collections.Counter[str] = collections.Counter()
    beyond_span = 0
    with args.output.open("w", encoding="utf-8") as output:
        for done, answer in enumerate(Pool(args.jobs).run(rows), start=1):
            verdicts[answer["verdict"]] += 1
            beyond_span += bool(answer.get("spans"))
            if answer["error_kind"].startswith("replay:"):
                own_failures[answer["error_kind"]] += 1
            output.write(json.dumps(answer) + "\n")
            if sys.stderr.isatty() and done % 50 == 0:
                print(f"\r{done}/{len(rows)}", end="", file=sys.stderr)
    summary = {
        "rows": len(rows),
        "seconds": round(time.monotonic() - started, 1),
        "jobs": args.jobs,
        "verdicts": dict(verdicts),
        "failures": dict(own_failures),
        "rows_beyond_span": beyond_span,
        "answers": str(args.output),
    }
    if args.json:
        print(json.dumps(summary))
    else:
        print(f"{summary['rows']} rows in {summary['seconds']} s -> {args.output}: {dict(verdicts)}, replay failures {dict(own_failures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
