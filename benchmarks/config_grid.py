"""Config truth: each text family with each value of each config field that changes its graph, patched against stock.

    python benchmarks/config_grid.py [--json] [--only FAMILY,…] [--fields NAME,…] [--no-device] [--list]

A cell is right where the patched model is bitwise stock on the CPU, within 1e-5 of it with the same best tokens on the simulator in fp32, and no further
from it in the device's format than stock itself in bfloat16. A refusal that names the field is an answer too, and counted apart. Cells are derived from
the config classes (config_cells.py); the families are those of lowering.py, at tiny widths that keep their head sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass

import torch
import transformers
from config_cells import Cell, cells, short
from lowering_families import FAMILIES
from stock_compare import Comparison, compare, shipped

from adapterc.codegen.runtime import PatchSet


@dataclass(frozen=True)
class Row:
    """One cell. `verdict`: right, refused (a rule's sentence names the field), or wrong."""

    model_class: str
    field: str
    changed: str
    verdict: str
    why: str
    seconds: float
    comparison: Comparison


def measure(cell: Cell, patches: PatchSet, *, rounded: bool = True) -> Row:
    """Compare one cell's model with stock. A cell that cannot be compared is wrong."""
    start = time.perf_counter()
    loaded, inputs = cell.loaded()
    try:
        found = compare(loaded.model, inputs, patches, rounded=rounded)
    except Exception as error:  # stock ran before, so that whatever is raised here is a wrong cell, and the grid goes on
        found = Comparison(False, f"{type(error).__name__}: {error}")
    refused = bool(found.problem) and found.bitwise and cell.field != "" and cell.field in found.problem
    verdict = "right" if found.right else "refused" if refused else "wrong"
    return Row(cell.model_class, cell.field, short(cell.changed), verdict, why(found), round(time.perf_counter() - start, 2), found)


def why(found: Comparison) -> str:
    """What is wrong, in a line; empty for what is right."""
    if found.problem:
        return " ".join(found.problem.split())[:200]
    parts = {
        "not bitwise stock on the CPU": not found.bitwise,
        f"fp32 is off by {found.fp32_error:.1e}": not found.fp32_error <= 1e-5,
        "another best token": not found.top1,
        f"device format cosine {found.cosine:.5f} below {found.budget:.5f}": found.cosine < found.budget,
    }
    return ", ".join(text for text, wrong in parts.items() if wrong)


def classes(only: str) -> list[str]:
    """The families' classes, one of each; several words of `only` with commas, each part of a family's or a class's name."""
    words = [word.strip().lower() for word in only.split(",")]
    chosen = [f.model_class for f in FAMILIES if any(word in f.name.lower() or word in f.model_class.lower() for word in words)]
    return list(dict.fromkeys(chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", default="", help="families or classes whose name holds this text; several with commas")
    parser.add_argument("--fields", default="", help="only cells of these config fields; several with commas")
    parser.add_argument("--no-device", action="store_true", help="leave out the run in the device's format")
    parser.add_argument("--list", action="store_true", help="print the cells and run none")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    fields = {name for name in given.fields.split(",") if name}
    patches, rows, total = shipped(), [], Counter[str]()
    with contextlib.suppress(KeyboardInterrupt):
        for model_class in classes(given.only):
            for cell in cells(model_class, fields):
                if given.list:
                    print(cell, flush=True)
                    continue
                row = measure(cell, patches, rounded=not given.no_device)
                rows.append(row)
                total[row.verdict] += 1
                print(json.dumps(asdict(row)) if given.json else _line(row), flush=True)
    for row in rows:
        if row.verdict != "right":
            print(f"{row.verdict}: {_line(row)}", file=sys.stderr)
    print(", ".join(f"{count} {verdict}" for verdict, count in total.most_common()) + f" of {len(rows)} cells", file=sys.stderr)


def _line(row: Row) -> str:
    found = row.comparison
    numbers = "" if found.problem else f" fp32 {found.fp32_error:.1e} cosine {found.cosine:.5f}"
    return f"{row.model_class:28} {row.field or '-':24} {row.changed[:60]:60} {row.verdict:8}{numbers} {row.why}"


if __name__ == "__main__":
    main()
