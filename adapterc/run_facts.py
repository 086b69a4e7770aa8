"""What a run tells of each graph that it compiled: work on the host, cost, LX, and the unknowns that its numbers lean on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from torch import fx

from adapterc.spyre_runtime.backend import CompileRecord
from adapterc.spyre_runtime.cost import CostReport, OpCost, price
from adapterc.spyre_runtime.plan import Plan
from adapterc.spyre_runtime.plan_use import Leaning, leanings
from adapterc.spyre_runtime.provenance import InputOrigin
from adapterc.spyre_runtime.source_lines import source_line


@dataclass(frozen=True)
class GraphFacts:
    """One compiled graph. `inputs`: what changes from call to call, by shape; `origins`: of the plan's inputs, in its order.

    `places`: rule → the user's line → nodes that the rule left there. A refused graph has no plan and no cost.
    """

    name: str
    inputs: tuple[tuple[int, ...], ...]
    seconds: float
    ops: Mapping[str, int]
    refusals: tuple[str, ...]
    restickifies: int = 0
    fallbacks: tuple[str, ...] = ()
    plan: Plan | None = field(default=None, repr=False)
    cost: CostReport | None = None
    leanings: tuple[Leaning, ...] = ()
    places: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    origins: tuple[InputOrigin, ...] = ()

    @property
    def frame(self) -> str:
        """Which code of the model it is; recompilations for other sizes share it."""
        return self.name.partition("/")[0]

    def to_json(self) -> Mapping[str, object]:
        return {
            "graph": self.name,
            "inputs": [list(shape) for shape in self.inputs],
            "compile_seconds": round(self.seconds, 3),
            "ops": dict(self.ops),
            "refusals": list(self.refusals),
            "restickifies": self.restickifies,
            "fallbacks": list(self.fallbacks),
            "bundles": len(self.plan.bundles) if self.plan else 0,
            "lx_peak_bytes": self.plan.lx_peak if self.plan else 0,
            "spans": [str(span) for span in self.plan.spans] if self.plan else [],
            "cost": None if self.cost is None else cost_json(self.cost),
            "leans_on_unknown": [
                {
                    "name": item.choice.name,
                    "value": item.choice.value,
                    "summary": item.choice.summary,
                    "source": item.choice.source,
                    "ops": item.ops,
                }
                for item in self.leanings
            ],
        }


def facts_of(records: Iterable[CompileRecord]) -> tuple[GraphFacts, ...]:
    return tuple(map(_facts, records))


def _facts(record: CompileRecord) -> GraphFacts:
    found = record.provenance
    origins = found.inputs if found is not None else ()
    places = _places(found.patched) if found is not None else {}
    shapes = found.given if found is not None else record.shapes
    refusals = tuple(str(refusal) for refusal in record.refusals)
    compilation = record.compilation
    if compilation is None:
        return GraphFacts(record.graph, shapes, record.seconds, record.ops, refusals, places=places, origins=origins)
    profile = record.settings.backend
    return GraphFacts(
        record.graph,
        shapes,
        record.seconds,
        record.ops,
        refusals,
        compilation.restickifies,
        compilation.fallbacks,
        compilation.plan,
        price(compilation.plan, profile),
        leanings(compilation.plan, profile),
        places,
        origins,
    )


def _places(patched: fx.GraphModule) -> Mapping[str, Mapping[str, int]]:
    found: dict[str, Counter[str]] = {}
    for node in patched.graph.nodes:
        rule = node.meta.get("adapter_rule")
        if isinstance(rule, str) and rule:
            found.setdefault(rule, Counter())[source_line(node)] += 1
    return found


def cost_json(cost: CostReport) -> Mapping[str, object]:
    return {
        "us": cost.us,
        "low_us": cost.low,
        "high_us": cost.high,
        "floor_us": cost.floor_us,
        "distance": cost.distance,
        "constants_of_this_release": cost.known,
        "not_priced": list(cost.host_steps),
        "ops": [{**asdict(op), "us": op.us, "bound": op.bound, "distance": op.distance} for op in cost.ops],
    }


@dataclass(frozen=True)
class KernelCost:
    """All ops of one device program. `bound`: what bounds most of their time. `low`, `high`: the error band of the sum."""

    kernel: str
    ops: int
    cores: int
    bytes: int
    macs: int
    us: float
    low: float
    high: float
    floor_us: float
    bound: str

    @property
    def distance(self) -> float:
        return self.us / self.floor_us if self.floor_us else 1.0


def by_kernel(ops: Iterable[OpCost]) -> tuple[KernelCost, ...]:
    """The most expensive first."""
    groups: dict[str, list[OpCost]] = {}
    for op in ops:
        groups.setdefault(op.kernel, []).append(op)
    return tuple(sorted((_kernel(name, group) for name, group in groups.items()), key=lambda k: (-k.us, k.kernel)))


def _kernel(name: str, ops: Sequence[OpCost]) -> KernelCost:
    time: dict[str, float] = {}
    for op in ops:
        time[op.bound] = time.get(op.bound, 0.0) + op.us
    return KernelCost(
        name,
        len(ops),
        max(op.cores for op in ops),
        sum(op.read_bytes + op.written_bytes for op in ops),
        sum(op.macs for op in ops),
        sum(op.us for op in ops),
        sum(op.low for op in ops),
        sum(op.high for op in ops),
        sum(op.floor_us for op in ops),
        max(time, key=lambda bound: time[bound]),
    )
