"""What a plan should cost on the card: bytes, multiply-accumulates, microseconds and what bounds each op.

The model is the calibrated one that torch-spyre publishes (`_inductor/cost_model.py`, docs `cost_model.md`, commit 06f2389a): an op takes the longer of
its arithmetic and its memory traffic, with no fixed cost per op. Constants are the profile's `cost` section, each with its source. It predicts
time; the estimate that ranks matmul splits (`matmul_split.py`) is another one and is kept apart.

Not modelled, for want of published numbers: time of elementwise arithmetic, host steps, transfers over PCIe, replicated operand reads, LX relayout,
contention between bundles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .align import Loop
from .ir import STICK_BYTES, elements_per_stick
from .kernels import MATMUL, RESTICKIFY
from .plan import Operand, Plan, PlannedOp
from .profile import Profile

NS_PER_US = 1000.0


@dataclass(frozen=True, slots=True)
class CostConstants:
    """Constants of the model. Rates: GB/s (= bytes/ns) of DRAM for all cores together; MAC/ns for one core. `errors`: relative RMS error by class of op."""

    cores: int
    dram: float
    turnaround_ns_per_byte: float
    mac: float
    mac_batched: float
    mac_shared_weight_small: float
    mac_shared_weight: float
    full_rows: int
    spill_elements: int
    reduction_floor: float
    reduction_gain: float
    reduction_rows: float
    column_reduction: float
    restickify: float
    broadcast: float
    errors: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OpCost:
    """One op. Bytes of DRAM at padded stick size; `lx_bytes` move within the cores' own memories and are free.

    us: estimate; low, high: estimate minus and plus the class's RMS error. floor_us: no plan can do better for this op alone.
    bound: "memory", "compute" or "nothing" (all operands in LX). padded: DRAM bytes that are padding.
    """

    op: str
    kernel: str
    kind: str
    cores: int
    read_bytes: int
    written_bytes: int
    padded: int
    lx_bytes: int
    macs: int
    memory_us: float
    compute_us: float
    error: float
    floor_us: float
    source: str = ""

    @property
    def us(self) -> float:
        return max(self.memory_us, self.compute_us)

    @property
    def low(self) -> float:
        return self.us * (1 - self.error)

    @property
    def high(self) -> float:
        return self.us * (1 + self.error)

    @property
    def bound(self) -> str:
        if self.us == 0:
            return "nothing"
        return "compute" if self.compute_us > self.memory_us else "memory"

    @property
    def distance(self) -> float:
        """How many times the floor; 1 when there is nothing to move."""
        return self.us / self.floor_us if self.floor_us else 1.0


@dataclass(frozen=True)
class CostReport:
    """All ops of a plan, one after the other. `floor_us`: every input read once, every output written once, all arithmetic on all cores at peak.

    `host_steps` are in the plan and not in the time. known: whether the constants are this release's own, and not carried over from another.
    """

    ops: tuple[OpCost, ...]
    floor_us: float
    host_steps: tuple[str, ...]
    known: bool = True

    @property
    def us(self) -> float:
        return sum(op.us for op in self.ops)

    @property
    def low(self) -> float:
        return sum(op.low for op in self.ops)

    @property
    def high(self) -> float:
        return sum(op.high for op in self.ops)

    @property
    def distance(self) -> float:
        return self.us / self.floor_us if self.floor_us else 1.0

    def __str__(self) -> str:
        lines = [
            f"{op.op:24s} {op.kernel:16s} {op.cores:2d} cores {op.us:10.2f} us ±{op.error:4.0%} {op.bound:8s}"
            f" {op.read_bytes + op.written_bytes:12d} B {op.macs:14d} MAC {op.distance:6.1f}x floor"
            for op in self.ops
        ]
        total = f"total {self.us:.2f} us ({self.low:.2f} to {self.high:.2f}), {self.distance:.1f}x the floor of {self.floor_us:.2f} us"
        skipped = [f"not priced: {len(self.host_steps)} host steps ({', '.join(sorted(set(self.host_steps)))})"] if self.host_steps else []
        return "\n".join([*lines, total, *skipped])


def constants(profile: Profile) -> CostConstants:
    """The profile's cost constants. Raises ValueError when it has none."""
    section: Mapping[str, Any] | None = profile.raw.get("cost")
    if not section:
        raise ValueError(f"profile {profile.name} has no cost constants, so plans made with it cannot be priced")

    def value(name: str) -> Any:
        return section[name]["value"]

    names = [f for f in CostConstants.__dataclass_fields__ if f not in ("cores", "errors")]
    return CostConstants(cores=profile.limits.cores, errors=dict(value("errors")), **{name: value(name) for name in names})


def _extents(operand: Operand, loops: Mapping[str, int]) -> list[int]:
    """Places touched along each device dimension but the stick."""
    return [1 + sum(t.at(loops[str(t.symbol)] - 1) - t.at(0) for t in c.terms if str(t.symbol) in loops) for c in operand.coordinates[:-1]]


def _rows(operand: Operand, loops: Mapping[str, int]) -> int:
    """How many rows index data selects: one for each turn of the loops that do not walk the operand by themselves; 1 without index data."""
    symbols = _symbols(operand)
    return math.prod(n for name, n in loops.items() if name not in symbols) if symbols - loops.keys() else 1


def _padded_bytes(operand: Operand, loops: Mapping[str, int]) -> int:
    return math.prod(_extents(operand, loops)) * _rows(operand, loops) * STICK_BYTES


def _own_bytes(operand: Operand, loops: Mapping[str, int], itemsize: int) -> int:
    """Bytes of the elements that the loops touch, without padding."""
    return math.prod(loops[s] for s in _symbols(operand) if s in loops) * _rows(operand, loops) * itemsize


def _symbols(operand: Operand) -> frozenset[str]:
    return frozenset(str(s) for c in operand.coordinates for s in c.symbols)


@dataclass(frozen=True, slots=True)
class _Matmul:
    """Loops of a matmul by role; each is (size, cores)."""

    batch: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    depth: tuple[Loop, ...]


def _roles(op: PlannedOp) -> _Matmul:
    x, y = (_symbols(o) for o in op.inputs)
    out = _symbols(op.result)
    by_role: dict[str, list[Loop]] = {"batch": [], "rows": [], "columns": [], "depth": []}
    for loop in op.loops:
        role = "depth" if loop.name not in out else "batch" if loop.name in x & y else "rows" if loop.name in x else "columns"
        by_role[role].append(loop)
    return _Matmul(**{role: tuple(loops) for role, loops in by_role.items()})


def _size(loops: Iterable[Loop]) -> int:
    return math.prod(loop.size for loop in loops)


def _per_core(loops: Iterable[Loop]) -> float:
    return math.prod(loop.size / loop.cores for loop in loops)


def _mac_rate(roles: _Matmul, cores: int, c: CostConstants) -> tuple[str, float]:
    """(class, MAC/ns of one core) by the shape of the matmul, before short tiles are accounted for."""
    shared = len([loop for loop in roles.rows if loop.size > 1]) > 1
    if _size(roles.batch) > 1:
        return "batched_matmul", c.mac_batched if _size(roles.batch) >= 4 and cores >= 8 else c.mac
    if shared:
        return "matmul", c.mac_shared_weight_small if roles.rows[0].size <= 4 else c.mac_shared_weight
    return "matmul", c.mac


def _kind(op: PlannedOp) -> str:
    if op.kernel == RESTICKIFY:
        return "transport"
    if op.is_reduction:
        return "reduction"
    out = len(_symbols(op.result))
    return "broadcast" if any(0 < len(_symbols(o)) < out for o in op.inputs) else "pointwise"


def _read_rate(op: PlannedOp, kind: str, c: CostConstants) -> float:
    if kind == "transport":
        return c.restickify
    if kind == "broadcast":
        return c.broadcast
    if kind == "reduction":
        stick = {str(s) for s in op.inputs[0].coordinates[-1].symbols}
        reduced = {loop.name for loop in op.loops} - _symbols(op.result)
        if not stick & reduced:
            return c.column_reduction
        rows = _size(loop for loop in op.loops if loop.name not in reduced)
        return min(c.dram, c.reduction_floor + c.reduction_gain * math.exp(-rows / c.reduction_rows))
    return c.dram


def op_cost(plan: Plan, op: PlannedOp, c: CostConstants) -> OpCost:
    loops = {loop.name: loop.size for loop in op.loops}
    resident = {b.name for b in plan.buffers if b.lx_address is not None}
    item = {b.name: STICK_BYTES // elements_per_stick(b.layout.format) for b in plan.buffers if b.layout is not None}
    reads = list(dict.fromkeys(o for o in op.inputs if o.buffer not in resident))
    written = op.result.buffer not in resident
    in_lx = [o for o in {*op.inputs, op.result} if o.buffer in resident]
    read_bytes = sum(_padded_bytes(o, loops) for o in reads)
    written_bytes = _padded_bytes(op.result, loops) if written else 0
    own = sum(_own_bytes(o, loops, item[o.buffer]) for o in [*reads, *([op.result] if written else [])])
    macs, compute_ns, kind = 0, 0.0, _kind(op)
    if op.kernel == MATMUL:
        roles = _roles(op)
        macs = math.prod(loops.values())
        kind, rate = _mac_rate(roles, op.cores, c)
        rows = _per_core(roles.rows)
        efficiency = min(1.0, math.sqrt(max(rows, 1.0) / c.full_rows))
        compute_ns = macs / (op.cores * rate * efficiency)
        tile = rows * _per_core(roles.columns) * _per_core(roles.batch)
        read_bytes *= math.ceil(tile / c.spill_elements)
    rate = _read_rate(op, kind, c)
    memory_ns = read_bytes / rate + written_bytes / c.dram + c.turnaround_ns_per_byte * min(read_bytes, written_bytes)
    floor_ns = max(own / c.dram, macs / (c.cores * c.mac))
    return OpCost(
        op=op.name,
        kernel=op.kernel,
        kind=kind,
        cores=op.cores,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        padded=max(0, read_bytes + written_bytes - own),
        lx_bytes=sum(_padded_bytes(o, loops) for o in in_lx),
        macs=macs,
        memory_us=memory_ns / NS_PER_US,
        compute_us=compute_ns / NS_PER_US,
        error=c.errors[kind],
        floor_us=floor_ns / NS_PER_US,
        source=op.source,
    )


def _boundary_bytes(plan: Plan) -> int:
    """Bytes of inputs and outputs, once each and without padding; of an input no more than its readers touch (rows of an embedding)."""
    touched: dict[str, int] = {}
    for op in plan.ops:
        loops = {loop.name: loop.size for loop in op.loops}
        for operand in op.inputs:
            touched[operand.buffer] = touched.get(operand.buffer, 0) + _own_bytes(operand, loops, _itemsize(plan, operand.buffer))
    whole = {n: math.prod(plan.buffer(n).size) * _itemsize(plan, n) for n in (*plan.inputs, *plan.outputs)}
    read = {n: min(whole[n], touched[n]) for n in plan.inputs if n in touched}
    return sum({**{n: whole[n] for n in plan.outputs}, **read}.values())


def _itemsize(plan: Plan, name: str) -> int:
    layout = plan.buffer(name).layout
    return 0 if layout is None else STICK_BYTES // elements_per_stick(layout.format)


def price(plan: Plan, profile: Profile) -> CostReport:
    """Cost of every op of a plan, in order. Raises ValueError when the profile has no cost constants."""
    c = constants(profile)
    ops = tuple(op_cost(plan, op, c) for op in plan.ops)
    floor = max(_boundary_bytes(plan) / c.dram, sum(op.macs for op in ops) / (c.cores * c.mac)) / NS_PER_US
    host = tuple(step.function for step in plan.host_steps if step.function not in ("constant", "empty", "output"))
    return CostReport(ops, floor, host, not profile.unknown("cost"))
