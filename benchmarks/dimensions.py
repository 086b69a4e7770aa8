"""Makes adapterc/data/dimensions.csv: the widths of well-known models, as far as their source is sure of them.

python benchmarks/dimensions.py FOLDER     # holds configs.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "adapterc" / "data" / "dimensions.csv"
COLUMNS = ("model_id", "model_type", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")
DOUBTFUL = ("unsure", "unknown", "params differ")


def main() -> None:
    known: dict[str, dict[str, str]] = {}
    with (Path(sys.argv[1]) / "configs.csv").open(encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            sure = row["hidden"] and not any(word in row["confidence"] for word in DOUBTFUL)
            if sure and "(" not in row["model_id"] + row["model_type"]:  # one tower of a model, or code that is not the library's
                known.setdefault(row["model_id"], row)
    with TARGET.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(known[name] for name in sorted(known))


if __name__ == "__main__":
    main()
