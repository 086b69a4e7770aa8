"""A run's plans as a trace in the Chrome format, which Perfetto opens: cores as threads, bundles and ops as slices in predicted time.

Times are the cost model's, in microseconds; ops follow one another as in the plan. Work of the host has no predicted time and is an instant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from adapterc.run_facts import GraphFacts
from adapterc.spyre_runtime.cost import OpCost
from adapterc.spyre_runtime.host_steps import HostStep
from adapterc.spyre_runtime.plan import Plan
from adapterc.spyre_runtime.plan_use import lx_slots

HOST, BUNDLES, FIRST_CORE = 0, 1, 2  # thread ids; core n is thread FIRST_CORE + n
Event = dict[str, Any]


def trace_json(model: str, profile: str, graphs: Sequence[GraphFacts]) -> str:
    events = [event for number, graph in enumerate(graphs) for event in _events(number, graph)]
    about = {"model": model, "profile": profile, "times": "predicted by the cost model, in microseconds"}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about})


def _events(pid: int, graph: GraphFacts) -> Iterator[Event]:
    if graph.plan is None or graph.cost is None:
        return
    plan, costs = graph.plan, {(op.op, op.kernel): op for op in graph.cost.ops}
    sizes = " ".join("×".join(map(str, shape)) or "scalar" for shape in graph.inputs)
    yield _meta(pid, 0, "process_name", f"graph {graph.name}: {sizes}")
    yield _meta(pid, HOST, "thread_name", "host")
    yield _meta(pid, BUNDLES, "thread_name", "bundles")
    for core in range(max((op.cores for op in plan.ops), default=0)):
        yield _meta(pid, FIRST_CORE + core, "thread_name", f"core {core}")
        yield {"ph": "M", "pid": pid, "tid": FIRST_CORE + core, "name": "thread_sort_index", "args": {"sort_index": FIRST_CORE + core}}
    yield from _slices(pid, plan, costs)


def _meta(pid: int, tid: int, what: str, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _slices(pid: int, plan: Plan, costs: dict[tuple[str, str], OpCost]) -> Iterator[Event]:
    """Ops in order; a bundle's slice when its last op is done; LX and DMA counters where they change."""
    slots = lx_slots(plan)
    of_bundle = {op: number for number, bundle in enumerate(plan.bundles) for op in bundle.ops}
    starts: dict[int, float] = {}
    now = 0.0
    for position, step in enumerate(plan.steps):
        alive = sum(slot.bytes for slot in slots if slot.first <= position <= slot.last)
        yield _counter(pid, now, "LX a core (bytes)", {"used": alive})
        if isinstance(step, HostStep):
            yield {"ph": "i", "s": "t", "pid": pid, "tid": HOST, "ts": now, "name": step.function, "args": {"source": step.source}}
            continue
        cost = costs[step.name, step.kernel]
        start, now = now, now + cost.us
        number = of_bundle[step.name]
        starts.setdefault(number, start)
        details = {
            "op": step.name,
            "bound": cost.bound,
            "macs": cost.macs,
            "read": cost.read_bytes,
            "written": cost.written_bytes,
            "source": step.source,
        }
        for core in range(step.cores):
            yield _slice(pid, FIRST_CORE + core, start, cost.us, step.kernel, details)
        if cost.us:
            yield _counter(
                pid, start, "DMA (GB/s)", {"read": cost.read_bytes / cost.us / 1e3, "written": cost.written_bytes / cost.us / 1e3}
            )
        if step.name == plan.bundles[number].ops[-1]:
            names = {"ops": len(plan.bundles[number].ops), "tensors": len(plan.bundles[number].tensors)}
            yield _slice(pid, BUNDLES, starts[number], now - starts[number], f"bundle {number}", names)
    yield _counter(pid, now, "DMA (GB/s)", {"read": 0, "written": 0})
    yield _counter(pid, now, "LX a core (bytes)", {"used": 0})


def _slice(pid: int, tid: int, start: float, length: float, name: str, details: Event) -> Event:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": length, "name": name, "args": details}


def _counter(pid: int, at: float, name: str, values: Event) -> Event:
    return {"ph": "C", "pid": pid, "tid": HOST, "ts": at, "name": name, "args": values}
