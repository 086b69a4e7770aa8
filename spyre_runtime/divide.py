"""Work division: how many cores share each loop of each device op.

Three passes over every op, in the order of the public compiler (docs/source/compiler/work_division_planning.md there):

1. *span reduction*: the least splits that keep what one core addresses of a tensor within the contiguous span that it can reach;
2. *matmul cost model*: for a matmul with one M, one N and one K, the split of least estimated time;
3. *distribution*: the remaining cores go to the output loops, largest first, each taking the largest divisor that fits, then to one reduction loop.

Sticks are atomic: a loop that runs along a stick is counted in sticks. `align.py` says what is left of a split once views are resolved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
from sympy import Symbol

from .coordinates import raw_device_coordinates
from .ir import Access, LoweredGraph, Op, OpKind
from .matmul_split import MatmulSize, best_split
from .profile import Profile
from .refusal import refuse
from .terms import Coordinate, coordinates_of

Splits = Mapping[Symbol, int]
SINGLE_CORE = frozenset({"topkvalue", "topkindex"})


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor as the planner sees it: its device coordinates over the op's loops, and how its elements are counted.

    `itemsize`: bytes of the *host* dtype, which is what the public compiler counts spans in. `stick`: elements per stick.
    """

    buffer: str
    coordinates: tuple[Coordinate, ...]
    device_size: tuple[int, ...]
    itemsize: int
    stick: int

    @property
    def outer(self) -> tuple[Coordinate, ...]:
        return self.coordinates[:-1]

    @property
    def stick_symbol(self) -> Symbol | None:
        """The loop that runs along the stick, when there is exactly one."""
        symbols = self.coordinates[-1].symbols
        return symbols[0] if len(symbols) == 1 else None

    def touches(self, symbol: Symbol) -> bool:
        return any(symbol in c.symbols for c in self.coordinates)


@dataclass(frozen=True)
class Problem:
    """What the planner decides on: loops (extents in elements), input operands and the output."""

    loops: Mapping[Symbol, int]
    inputs: tuple[Operand, ...]
    output: Operand

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.inputs, self.output)

    @property
    def output_symbols(self) -> frozenset[Symbol]:
        return frozenset(s for c in self.output.outer for s in c.symbols)

    def without_data(self) -> Problem:
        """The problem with what index data moves standing still: such a place cannot be divided."""
        if all(s in self.loops for o in self.operands for c in o.coordinates for s in c.symbols):
            return self

        def still(operand: Operand) -> Operand:
            fixed = tuple(Coordinate(tuple(t for t in c.terms if t.symbol in self.loops), c.offset) for c in operand.coordinates)
            return replace(operand, coordinates=fixed)

        return replace(self, inputs=tuple(map(still, self.inputs)), output=still(self.output))

    def sticks(self) -> dict[Symbol, int]:
        """Loops that run along a stick, with the largest stick (elements) among the tensors that do."""
        found: dict[Symbol, int] = {}
        for operand in self.operands:
            symbol = operand.stick_symbol
            if symbol is not None and symbol in self.loops:
                found[symbol] = max(found.get(symbol, 0), operand.stick)
        return found

    def counted(self) -> dict[Symbol, int]:
        """Extents with stick loops counted in (padded) sticks."""
        sticks = self.sticks()
        return {s: -(-n // sticks.get(s, 1)) for s, n in self.loops.items()}


@dataclass(frozen=True)
class SpanFinding:
    """A tensor of which one core addresses more than it can reach: the front-end only logs it, the device's backend aborts."""

    op: str
    buffer: str
    bytes: int
    limit: int
    source: str = ""

    def __str__(self) -> str:
        mib = 1024 * 1024
        where = f" ({self.source})" if self.source else ""
        return f"{self.op}: one core spans {self.bytes / mib:.1f} MiB of {self.buffer}, more than the {self.limit / mib:.0f} MiB it can address{where}"


@dataclass(frozen=True)
class Division:
    """The planner's answer: splits by op name and loop symbol (1 = not split), and spans that no split could mend."""

    splits: Mapping[str, Splits]
    spans: tuple[SpanFinding, ...] = ()

    def cores(self, op: str) -> int:
        return math.prod(self.splits.get(op, {}).values())

    def __str__(self) -> str:
        lines = [f"{op}: {self.cores(op)} cores, " + ", ".join(f"{s}/{n}" for s, n in split.items()) for op, split in self.splits.items()]
        return "\n".join([*lines, *(f"span: {f}" for f in self.spans)])


def core_split(size: int, cores: int) -> int:
    """Largest divisor of `size` that is at most `cores`."""
    return next(n for n in range(cores, 0, -1) if size % n == 0)


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _moves(coordinate: Coordinate, splits: Splits, loops: Mapping[Symbol, int]) -> int:
    """How many places along one device dimension a core touches."""
    extent = 1
    for term in coordinate.terms:
        per_core = loops[term.symbol] // splits.get(term.symbol, 1)
        extent += term.at(per_core - 1) - term.at(0)
    return extent


def span_bytes(operand: Operand, splits: Splits, loops: Mapping[Symbol, int]) -> int:
    """Bytes from the first to the last place of `operand` that one core touches: its outermost dimension that moves decides."""
    for position, coordinate in enumerate(operand.outer):
        extent = _moves(coordinate, splits, loops)
        if extent > 1:
            return extent * math.prod(operand.device_size[position + 1 :]) * operand.itemsize
    return operand.itemsize


def _choose_span_split(
    problem: Problem,
    operand: Operand,
    symbols: Sequence[Symbol],
    committed: dict[Symbol, int],
    counts: Mapping[Symbol, int],
    profile: Profile,
) -> tuple[int, tuple[int, ...]] | None:
    """The combination of splits of `symbols` with the largest span within the limit, else with the smallest span above it."""
    limit, within, above = profile.limits.span_bytes, None, None
    choices = [[d for d in divisors(counts[s]) if d >= committed.get(s, 1)] for s in symbols]
    for combination in itertools.product(*choices):
        trial = {**committed, **dict(zip(symbols, combination, strict=True))}
        if math.prod(trial.values()) > profile.limits.cores:
            continue
        span = span_bytes(operand, trial, problem.loops)
        if span <= limit and (within is None or span > within[0]):
            within = (span, combination)
        if span > limit and (above is None or span < above[0]):
            above = (span, combination)
    return within or above


def reduce_spans(problem: Problem, profile: Profile) -> dict[Symbol, int]:
    """Pass 1: the least splits that keep every tensor's span within the limit, as far as splitting can.

    Raises Refusal when more than one reduction loop would have to be split.
    """
    limit = profile.limits.span_bytes
    counts = problem.counted()
    committed: dict[Symbol, int] = {}
    for operand in problem.operands:
        if span_bytes(operand, committed, problem.loops) <= limit:
            continue
        for coordinate in operand.outer:
            symbols = [s for s in coordinate.symbols if problem.loops[s] > 1]
            if not symbols:
                continue
            best = _choose_span_split(problem, operand, symbols, committed, counts, profile)
            if best is None:
                break
            committed.update(zip(symbols, best[1], strict=True))
            if best[0] <= limit or _moves(coordinate, committed, problem.loops) > 1:
                break
    reductions = [s for s, n in committed.items() if s not in problem.output_symbols and n >= 1]
    if len(reductions) > 1:
        raise refuse(
            "Unsupported@_inductor/work_division.py:span_reduction_pass",
            f"the {limit // 2**20} MiB span asks for a split of {len(reductions)} reduction loops, and the device can split one",
            sizes=tuple(problem.loops[s] for s in reductions),
            stage="divide",
        )
    return committed


def distribute(problem: Problem, committed: Splits, cores: int) -> dict[Symbol, int]:
    """Pass 3: give the cores that `committed` leaves to output loops, largest first, then to one reduction loop."""
    counts = problem.counted()
    splits = dict.fromkeys(problem.loops, 1)
    left = cores
    for symbol, least in committed.items():
        if left // least > 0:
            splits[symbol] = least
            left //= least
    free = sorted((s for s in counts if s not in committed), key=lambda s: -counts[s])
    for symbol in (s for s in free if s in problem.output_symbols):
        if left <= 1:
            break
        splits[symbol] = core_split(counts[symbol], left)
        left //= splits[symbol]
    reduced_already = any(s not in problem.output_symbols for s in committed)
    reductions = [s for s in free if s not in problem.output_symbols]
    if reductions and left > 1 and not reduced_already:
        symbol = max(reductions, key=lambda s: core_split(counts[s], left))
        splits[symbol] = core_split(counts[symbol], left)
    return splits


def split_matmul(problem: Problem, default: Splits, profile: Profile) -> dict[Symbol, int] | None:
    """Pass 2: the split that the matmul cost model prefers, or None where it does not apply or would use fewer cores.

    It applies to one M loop (in one operand only), one N loop (along the output's stick), one K loop, and any batch loops.
    """
    sticks, counts = problem.sticks(), problem.counted()
    output = [s for s in problem.loops if s in problem.output_symbols]
    along_stick = [s for s in output if s in sticks]
    rows = [s for s in output if s not in sticks]
    reductions = [s for s in counts if s not in problem.output_symbols]
    heights = [s for s in rows if sum(operand.touches(s) for operand in problem.inputs) == 1]
    if len(along_stick) != 1 or len(reductions) != 1 or len(heights) != 1:
        return None
    (n,), (k,), (m,) = along_stick, reductions, heights
    batch = [s for s in rows if s != m]
    size = MatmulSize(tuple(counts[b] for b in batch), counts[m], counts[n], counts[k], problem.output.stick)
    best = best_split(size, profile.limits.cores)
    if best is None:
        return None
    splits = {**default, **dict(zip(batch, best.batch, strict=True)), m: best.m, n: best.n, k: best.k}
    return None if math.prod(splits.values()) < math.prod(default.values()) else splits


def stable_splits(op: Op, splits: Splits) -> dict[Symbol, int]:
    """What is left after the planner hands its splits on by stride: loops are told apart by their step in the write's flat index, and
    those that it lacks by their step in the first read's, so that loops of equal step share the last one's split and loops in neither lose theirs."""
    if op.write is None:
        return {}
    write, read = op.write.index, (op.reads[0] if op.reads else op.write).index

    def key(symbol: Symbol) -> tuple[str, sympy.Expr] | None:
        for space, index in (("write", write), ("read", read)):
            step = index.coeff(symbol)
            if step != 0:
                return space, step
        return None

    keys = {s: key(s) for s in op.iteration_space}
    by_step = {keys[s]: n for s, n in splits.items() if n > 1 and keys[s] is not None}
    return {s: by_step.get(keys[s], 1) if n > 1 else 1 for s, n in op.iteration_space.items()}


def _operand(graph: LoweredGraph, access: Access) -> Operand:
    layout = graph.layout(access.buffer)
    return Operand(
        access.buffer,
        coordinates_of(raw_device_coordinates(layout, access)),
        layout.device_size,
        graph.storage(access.buffer).dtype.itemsize,
        layout.stick,
    )


def problem_of(graph: LoweredGraph, op: Op) -> Problem:
    """The division problem of a device op. Gathered operands take no part. Raises ValueError for a host step or before layouts."""
    if op.write is None:
        raise ValueError(f"{op.name} runs on the host")
    inputs = tuple(_operand(graph, r) for r in op.reads if not r.is_indirect)
    return Problem(op.iteration_space, inputs, _operand(graph, op.write))


def _check_direct(op: Op, problem: Problem, profile: Profile) -> None:
    unknown = [s for o in problem.operands for c in o.outer for s in c.symbols if s not in problem.loops]
    if unknown and profile.has_fault("index-data-in-division"):
        raise refuse(
            "KeyError@_inductor/work_division.py:_effective_size",
            f"{op.name} writes rows that data selects ({unknown[0]}), and the planner has no extent for such a loop",
            stage="divide",
            op=op.function,
            node=op.origin.node,
            source=op.origin.source,
            fault="index-data-in-division",
        )


def divide_op(graph: LoweredGraph, op: Op, profile: Profile) -> tuple[dict[Symbol, int], tuple[SpanFinding, ...]]:
    """Splits of one device op, and its spans above the limit."""
    problem = problem_of(graph, op)
    if op.function in SINGLE_CORE:
        return dict.fromkeys(problem.loops, 1), ()
    _check_direct(op, problem, profile)
    problem = problem.without_data()
    committed = {s: n for s, n in stable_splits(op, reduce_spans(problem, profile)).items() if n > 1}
    splits = distribute(problem, committed, profile.limits.cores)
    if op.kind is OpKind.MATMUL and not committed:
        splits = split_matmul(problem, splits, profile) or splits
    return stable_splits(op, splits), tuple(_span_findings(op, problem, splits, profile))


def _span_findings(op: Op, problem: Problem, splits: Splits, profile: Profile) -> Iterator[SpanFinding]:
    limit = profile.limits.span_bytes
    for operand in problem.operands:
        if (span := span_bytes(operand, splits, problem.loops)) > limit:
            yield SpanFinding(op.name, operand.buffer, span, limit, op.origin.source)


def divide(graph: LoweredGraph, profile: Profile) -> Division:
    """Divide every device op of a graph whose layouts are decided. Raises Refusal where the planner gives up."""
    splits: dict[str, Splits] = {}
    spans: list[SpanFinding] = []
    for op in graph.device_ops():
        splits[op.name], found = divide_op(graph, op, profile)
        spans += found
    return Division(splits, tuple(spans))
