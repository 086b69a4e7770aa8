"""From a plan to ops that are ready to run: address tables, core ownership, strided copies, and the checks that need no values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
from sympy import Symbol
from torch import Tensor

from .addressing import Addresses, walk
from .coordinates import raw_device_coordinates
from .device_functions import COPIES, DIRECT, MASKS, OTHERS, REDUCTIONS
from .faults import Faults, Injected, OpFacts
from .findings import Findings, Place
from .formats import HALF_DTYPES, Rounding, carrier_dtype
from .ir import Access, Arrangement, LoweredGraph
from .movers import Loops, Mover, whole_sticks
from .plan import Operand, Plan, PlannedBuffer, PlannedOp
from .profile import Profile
from .tile_checks import Site, Walk, check_index
from .tile_ops import Change, DenseOp, MatmulOp, Memory, ReduceOp, SticksOp, Target, TopkOp
from .tiled_options import PartialSums
from .tiles import Ownership, lane_granules, own

MATMUL = "batchmatmul"


@dataclass(frozen=True)
class Link:
    """What linking an op needs besides the op: the plan (cores, places), the graph (accesses), and how results are rounded.

    rounding: None carries half-precision values unrounded.
    """

    plan: Plan
    graph: LoweredGraph
    profile: Profile
    rounding: Rounding | None
    partial_sums: PartialSums
    findings: Findings
    faults: Faults = field(default_factory=Faults)
    buffers: Mapping[str, PlannedBuffer] = field(default_factory=dict)

    def storage(self, name: str) -> PlannedBuffer:
        found = self.buffers[name]
        while found.alias is not None:
            found = self.buffers[found.alias]
        return found

    def target(self, name: str) -> Target:
        buffer = self.buffers[name]
        return Target(self.storage(name).name, carrier_dtype(buffer.dtype), self.rounding if buffer.dtype in HALF_DTYPES else None)


@dataclass(frozen=True)
class LinkedOp:
    """An op ready to run, and what the checks look at."""

    name: str
    program: str
    site: Site
    runner: Any  # SticksOp | DenseOp | ReduceOp | MatmulOp | TopkOp: has run(memory)


def canonical(expr: Any) -> sympy.Expr:
    """Loop symbols by name alone, whatever is assumed of them."""
    expr = sympy.sympify(expr)
    return expr.xreplace({s: Symbol(str(s)) for s in expr.free_symbols})


def _extent_of_data(access: Access, symbol: Symbol, link: Link) -> int:
    """How many values index data may take: the size of the host dimension that it steps along, less where a slice starts."""
    buffer = link.graph.buffer(access.buffer)
    step = int(access.index.coeff(symbol))
    start = int(access.index.xreplace(dict.fromkeys(access.index.free_symbols, sympy.S.Zero)))
    return next((n - start // step % n for n, s in zip(buffer.size, buffer.stride, strict=True) if s == step), 1)


def access_walk(access: Access, link: Link, loops: Loops) -> Walk:
    """Addresses of one access over an op's loops."""
    layout = link.graph.layout(access.buffer)
    exprs = tuple(canonical(e) for e in raw_device_coordinates(layout, access))
    sizes = dict(loops)
    for symbol in access.symbols:
        if Symbol(str(symbol)) not in sizes:
            sizes[Symbol(str(symbol))] = _extent_of_data(access, symbol, link)
    return Walk(access.buffer, link.storage(access.buffer).name, walk(access.buffer, layout.device_size, exprs, tuple(sizes.items())))


def planned_walk(operand: Operand, link: Link, loops: Loops) -> Walk:
    """Addresses of an operand as the release's own code generator has them after aligning loops, its faults included."""
    exprs = tuple(canonical(c.expr) for c in operand.coordinates)
    return Walk(operand.buffer, link.storage(operand.buffer).name, walk(operand.buffer, operand.size, exprs, loops))


@dataclass(frozen=True)
class Lost:
    """An op whose store never arrives."""

    def run(self, memory: Memory) -> None:
        """Nothing reaches memory."""


def link_op(planned: PlannedOp, link: Link) -> LinkedOp:
    """Work out one device op. Raises NotImplementedError for a program that the executor has no meaning for."""
    loops = tuple((Symbol(loop.name), loop.size) for loop in planned.planned)
    indexing = {buffer for access in (*planned.reads, planned.write) for _, buffer in access.indirect}
    operands = tuple(r for r in planned.reads if r.buffer not in indexing or r.is_indirect)
    reads = tuple(access_walk(r, link, loops) for r in operands)
    write = access_walk(planned.write, link, loops)
    shared = frozenset(s for s, _ in loops if s not in write.where.tables) if planned.is_reduction else frozenset()
    ownership = _ownership(planned, loops, [*reads, write], shared)
    index_walks = tuple(access_walk(r, link, loops) for r in planned.reads if r.buffer in indexing and not r.is_indirect)
    site = Site(
        Place(planned.name, planned.node, planned.source),
        loops,
        ownership,
        (*reads, *index_walks),
        write,
        shared,
        2 if planned.kernel == "exx2" else 1,
    )
    injected = link.faults.inject(_facts(planned, link, replace(site, reads=reads), operands)) if link.faults.active else None
    if injected is None:
        return LinkedOp(planned.name, planned.kernel, site, _runner(planned, replace(site, reads=reads), operands, link, None))
    moved = tuple(replace(walk, where=where) for walk, where in zip(reads, injected.reads, strict=True))
    seen = replace(site, reads=moved, write=replace(write, where=injected.write))
    runner = Lost() if injected.lost else _runner(planned, seen, operands, link, injected)
    return LinkedOp(planned.name, planned.kernel, site, runner)


def _facts(planned: PlannedOp, link: Link, site: Site, operands: tuple[Access, ...]) -> OpFacts:
    op = link.graph.writers[planned.output]
    loops = tuple((Symbol(loop.name), loop.size) for loop in planned.loops)
    generated = tuple(planned_walk(o, link, loops).where for o in planned.inputs) if not _by_data(planned) else ()
    return OpFacts(
        planned.kernel,
        dict(planned.parameters),
        op,
        link.graph,
        site,
        operands,
        generated,
        {operands.index(planned.reads[i]): access_walk(access, link, site.loops).where for i, access in planned.misread},
        lambda access, over: access_walk(access, link, over).where,
    )


def _by_data(planned: PlannedOp) -> bool:
    return any(access.is_indirect for access in (*planned.reads, planned.write))


def _index_data(planned: PlannedOp, link: Link, loops: Loops) -> dict[Symbol, tuple[str, Mover]]:
    """For each data-dependent symbol, where its values are."""
    direct = {r.buffer: access_walk(r, link, loops) for r in planned.reads if not r.is_indirect}
    wanted = {Symbol(str(s)): buffer for access in (*planned.reads, planned.write) for s, buffer in access.indirect}
    return {symbol: (direct[buffer].storage, Mover(direct[buffer].where, loops)) for symbol, buffer in wanted.items()}


def _ownership(planned: PlannedOp, loops: Loops, walks: Sequence[Walk], shared: frozenset[Symbol]) -> Ownership:
    """Final splits of the loops; for a loop that aligning has cut into several, the planner's split of the whole."""
    final = {loop.name: loop for loop in planned.loops}
    wanted = {loop.name: loop.cores for loop in planned.planned}
    cores = {s: final[str(s)].cores if str(s) in final and final[str(s)].size == n else wanted.get(str(s), 1) for s, n in loops}
    fastest = next((s for s in shared if cores[s] > 1), None) if planned.kernel == MATMUL and len(loops) >= 3 else None
    return own([(s, n, cores[s]) for s, n in loops], lane_granules((w.where, w.stick) for w in walks), fastest)


def _runner(planned: PlannedOp, site: Site, operands: tuple[Access, ...], link: Link, injected: Injected | None) -> Any:
    parameters = dict(planned.parameters)
    change = injected.change if injected else None
    if _by_data(planned):
        return _indirect(planned, site, operands, link)
    if planned.kernel == MATMUL:
        return _matmul(planned, site, operands, link)
    if planned.kernel in ("topkvalue", "topkindex"):
        return _topk(planned, site, link)
    if planned.kernel in REDUCTIONS:
        return _reduction(planned, site, parameters, operands, link, change, injected is not None and injected.unmasked)
    if planned.kernel in DIRECT or planned.kernel in OTHERS:
        return _pointwise(planned, site, parameters, link, change)
    raise NotImplementedError(f"{planned.name}: the executor does not know the device program {planned.kernel!r}")


def _elements(buffer: PlannedBuffer) -> int:
    return math.prod(buffer.size)


def _pointwise(planned: PlannedOp, site: Site, parameters: Mapping[str, Any], link: Link, change: Change | None) -> Any:
    target = link.target(planned.output)
    names, walks, program = _with_moments(planned, site, link)
    whole = math.prod(n for s, n in site.loops if s in site.write.where.tables) == _elements(link.storage(planned.output))
    carriers = {carrier_dtype(link.buffers[w.buffer].dtype) for w in site.reads}
    if planned.kernel in COPIES or len(carriers) == 1 or program == "where3":
        sticks = whole_sticks([*walks, site.write.where], site.loops, site.ownership, whole)
        if sticks is not None:
            covers = sticks.elements == site.write.where.elements
            return SticksOp(program, parameters, tuple(names), sticks, target, covers, change)
    inputs = tuple((name, Mover(where, site.loops)) for name, where in zip(names, walks, strict=True))
    return DenseOp(program, parameters, inputs, target, Mover(site.write.where, site.loops), change=change)


def _with_moments(planned: PlannedOp, site: Site, link: Link) -> tuple[list[str], list[Addresses], str]:
    """Operands of a program; the two moments that exx2 left in one stick count as two operands where both are used."""
    names: list[str] = []
    walks: list[Addresses] = []
    for read in site.reads:
        names.append(read.storage)
        walks.append(read.where)
        layout = link.storage(read.buffer).layout
        if layout is not None and layout.arrangement is Arrangement.EXX2 and planned.kernel == "layernormscale":
            names.append(read.storage)
            walks.append(read.where.shifted(1))
    return names, walks, planned.kernel


def _positions(loops: Loops, wanted: Sequence[Symbol]) -> tuple[int, ...]:
    return tuple(i for i, (s, _) in enumerate(loops) if s in wanted)


def _indirect(planned: PlannedOp, site: Site, operands: tuple[Access, ...], link: Link) -> DenseOp:
    """A copy whose rows data selects: gather for a read, scatter for a write."""
    inputs = tuple((w.storage, Mover(w.where, site.loops, a.is_indirect)) for a, w in zip(operands, site.reads, strict=True))
    output = Mover(site.write.where, site.loops, planned.write.is_indirect)
    sizes = {s: len(t) for walk in (*site.reads, site.write) for s, t in walk.where.tables.items()}

    def watch(symbol: Symbol, data: Tensor) -> Tensor:
        return check_index(site, symbol, data, sizes.get(symbol, 1), link.findings)

    return DenseOp(
        planned.kernel, dict(planned.parameters), inputs, link.target(planned.output), output, _index_data(planned, link, site.loops), watch
    )


def _padded(site: Site, walk: Walk, access: Access, link: Link) -> Mover:
    """The tile with the padding of its last stick: what a reduction sees that forgets to mask."""
    loops = tuple((s, -(-n // walk.stick) * walk.stick if s in walk.where.coordinates[-1] else n) for s, n in site.loops)
    return Mover(access_walk(access, link, loops).where, loops)


def _reduction(
    planned: PlannedOp,
    site: Site,
    parameters: Mapping[str, Any],
    operands: tuple[Access, ...],
    link: Link,
    change: Change | None,
    unmasked: bool,
) -> ReduceOp:
    target = link.target(planned.output)
    dims = _positions(site.loops, sorted(site.shared, key=str))
    read = site.reads[0]
    split = None
    for i in dims:
        share = site.ownership.shares[i]
        if share.cores > 1:
            split = (i, share.cores, share.width)
    lanes = (0, 1) if planned.kernel == "exx2" else (0,)
    kept = tuple((s, 1 if s in site.shared else n) for s, n in site.loops)
    outputs = tuple(Mover(site.write.where.shifted(lane), kept) for lane in lanes)
    return ReduceOp(
        planned.kernel,
        parameters,
        (read.storage, Mover(read.where, site.loops)),
        dims,
        split,
        MASKS[planned.kernel],
        target,
        outputs,
        link.partial_sums,
        _padded(site, read, operands[0], link) if unmasked and site.shared & set(read.where.coordinates[-1]) else None,
        change,
    )


def _topk(planned: PlannedOp, site: Site, link: Link) -> TopkOp:
    read, write = site.reads[0], site.write
    (results,) = (s for s, _ in site.loops if s in write.where.tables and s not in read.where.tables)
    kept = tuple((s, n) for s, n in site.loops if s != results)
    (dim,) = _positions(kept, sorted(site.shared, key=str))
    out = tuple((s, n) for s, n in site.loops if s not in site.shared)
    (place,) = _positions(out, [results])
    k = next(n for s, n in site.loops if s == results)
    return TopkOp(
        planned.kernel, k, (read.storage, Mover(read.where, kept)), dim, place, link.target(planned.output), Mover(write.where, out)
    )


def _matmul(planned: PlannedOp, site: Site, operands: tuple[Access, ...], link: Link) -> MatmulOp:
    x, y = site.reads
    in_x, in_y = ({Symbol(str(s)) for s in access.symbols} for access in operands)
    out = set(site.write.where.tables)
    depth = tuple(loop for loop in site.loops if loop[0] in site.shared)
    batch = tuple(loop for loop in site.loops if loop[0] in in_x & in_y & out)
    rows = tuple(loop for loop in site.loops if loop[0] in (in_x - in_y) & out)
    columns = tuple(loop for loop in site.loops if loop[0] in out and loop not in batch and loop not in rows)
    split = None
    for symbol, _ in depth:
        share = site.ownership.by_symbol[symbol]
        if share.cores > 1:
            split = (share.cores, share.width)
    sizes = tuple(math.prod(n for _, n in part) for part in (batch, rows, depth, columns))
    assert len(sizes) == 4
    return MatmulOp(
        (x.storage, Mover(x.where, (*batch, *rows, *depth))),
        (y.storage, Mover(y.where, (*batch, *depth, *columns))),
        sizes,
        split,
        link.target(planned.output),
        Mover(site.write.where, (*batch, *rows, *columns)),
        link.partial_sums,
    )
