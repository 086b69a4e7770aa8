"""Makes adapterc/data/population.csv from the lists of the most downloaded models.

    python benchmarks/population.py FOLDER     # holds population_embedding.csv and population_generative.csv

Counts the models of each (model_type, architecture) that load from Transformers alone, captures one representative of each and lists its ops.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

import torch

from adapterc.capturing import graphs_of_loaded
from adapterc.codegen.runtime.graph import packet
from adapterc.errors import UserError
from adapterc.inputs import seeded_inputs
from adapterc.population import representative

LISTS = ("embedding", "generative")
TARGET = Path(__file__).parent.parent / "adapterc" / "data" / "population.csv"


def counts(folder: Path) -> dict[tuple[str, str], Counter[str]]:
    found: dict[tuple[str, str], Counter[str]] = {}
    for name in LISTS:
        with (folder / f"population_{name}.csv").open(encoding="utf-8") as handle:
            for row in csv.DictReader(handle):
                if row["class"].startswith("A"):
                    architecture = row["architectures"].split(";")[0].split(",")[0].strip()
                    found.setdefault((row["model_type"], architecture), Counter())[name] += 1
    return found


def ops_of(architecture: str) -> list[str]:
    try:
        loaded = representative(architecture)
        graphs = graphs_of_loaded(loaded, seeded_inputs(loaded, batch=2, length=16))
    except (UserError, AttributeError, TypeError, ValueError) as error:
        print(f"{architecture}: {str(error)[:160]}", file=sys.stderr)
        return []
    return sorted({packet(node) or "" for graph in graphs for node in graph.captured.module.graph.nodes} - {""})


def main() -> None:
    torch.set_num_threads(1)
    found = counts(Path(sys.argv[1]))
    ordered = sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    with TARGET.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["model_type", "architecture", *LISTS, "ops"])
        for (model_type, architecture), number in ordered:
            writer.writerow(
                [model_type, architecture, *(number[name] for name in LISTS), " ".join(ops_of(architecture) if architecture else [])]
            )
            handle.flush()


if __name__ == "__main__":
    main()
