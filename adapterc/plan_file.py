"""The plans of a run as one JSON file: what runs on the device, and where each input comes from. Values of weights are not in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from adapterc.errors import UserError
from adapterc.run_facts import GraphFacts
from adapterc.spyre_runtime.plan import Plan
from adapterc.spyre_runtime.plan_json import MOST_BYTES, PlanError, from_json, parsed, to_json
from adapterc.spyre_runtime.provenance import InputOrigin

FORMAT = "adapterc-plans"
VERSION = 1
NEXT = "write one with `adapterc run MODEL --plan FILE.json`"


@dataclass(frozen=True)
class SavedPlan:
    """A plan of a file. `origins`: where each of its inputs came from, by the plan's names."""

    graph: str
    plan: Plan
    origins: Mapping[str, InputOrigin]


def plans_json(model: str, graphs: Sequence[GraphFacts]) -> str:
    """The text of the file; a graph without a plan (refused) is left out."""
    entries = [
        {
            "graph": graph.name,
            "inputs": [{**asdict(origin), "name": name} for name, origin in zip(graph.plan.inputs, graph.origins, strict=True)],
            "plan": to_json(graph.plan),
        }
        for graph in graphs
        if graph.plan is not None
    ]
    return json.dumps({"format": FORMAT, "version": VERSION, "model": model, "graphs": entries})


def read_plans(path: Path) -> tuple[SavedPlan, ...]:
    """The plans of a file. Raises UserError ADC510 in one sentence for a file that is none, is too large or was tampered with."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise PlanError(f"a file of {size / 2**20:.0f} MiB is more than the {MOST_BYTES // 2**20} MiB that are read")
        return _plans(parsed(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("ADC510", f"{path}: the file cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}", NEXT) from None
    except PlanError as error:
        raise UserError("ADC510", f"{path}: {error}", NEXT) from None


def _plans(data: object) -> tuple[SavedPlan, ...]:
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise PlanError(f"this is no file of plans: an object with format {FORMAT!r} is expected")
    if data.get("version") != VERSION:
        raise PlanError(f"the file has version {str(data.get('version'))[:20]!r}, and this release reads version {VERSION}")
    try:
        return tuple(
            SavedPlan(
                str(entry["graph"]),
                from_json(entry["plan"]),
                {str(i["name"]): InputOrigin(str(i["name"]), i["kind"], str(i["path"])) for i in entry["inputs"]},
            )
            for entry in data["graphs"]
        )
    except (KeyError, TypeError) as error:
        raise PlanError(f"the file cannot be read: {type(error).__name__} ({str(error)[:80]})") from None
