"""Faults that only the device shows, to be injected: what each does to an op, a store or a transfer, and to which ops it applies.

What is known of a fault (summary, public source, numbers) is in the profile under `faults`; this module is the behaviour behind the ids there. All
are off unless asked for. They bear on what the program does with memory and values; the checks go on looking at what was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from sympy import Symbol
from torch import Tensor

from .addressing import Addresses
from .device_functions import COPIES, MASKS
from .ir import Access, BufferRole, LoweredGraph, Op
from .profile import Profile
from .tile_checks import Site

Details = Mapping[str, Any]


@dataclass(frozen=True)
class OpFacts:
    """What a fault may look at. accesses: of the operands, in the order of `site.reads`. walk: addresses of an access over other loops."""

    program: str
    parameters: Mapping[str, Any]
    op: Op
    graph: LoweredGraph
    site: Site
    accesses: tuple[Access, ...]
    planned: tuple[Addresses, ...]  # the operands as the release's code generator has them
    misread: Mapping[int, Addresses]  # operands that the release's lowering reads at other places than meant, and these
    walk: Callable[[Access, tuple[tuple[Symbol, int], ...]], Addresses]

    @property
    def write(self) -> Access:
        assert self.op.write is not None
        return self.op.write

    @property
    def into_input(self) -> bool:
        """Whether the op writes a graph input in place."""
        return self.graph.storage(self.op.output).role is BufferRole.INPUT and self.graph.buffer(self.op.output).alias is not None


@dataclass(frozen=True)
class Fault:
    """What goes wrong. read, write: other addresses for an operand or the store, None to leave them. value: another result.

    unmasked: a reduction takes in the padding of its last stick. lost: the op's store never arrives. arrive, leave: what a
    transfer does to a tensor's carrier on the way in or out.
    """

    applies: Callable[[OpFacts], bool] = lambda facts: False
    read: Callable[[OpFacts, int], Addresses | None] | None = None
    write: Callable[[OpFacts], Addresses | None] | None = None
    value: Callable[[OpFacts, Details, Tensor, tuple[Tensor, ...]], Tensor] | None = None
    unmasked: bool = False
    lost: bool = False
    arrive: Callable[[Details, Tensor, torch.dtype], Tensor] | None = None
    leave: Callable[[Details, Tensor, torch.dtype], Tensor] | None = None


# --- address helpers -------------------------------------------------------------------------------------------------------------


def _offset(access: Access) -> int:
    """The constant of an index, in host elements."""
    return int(access.index.xreplace(dict.fromkeys(access.index.free_symbols, sympy.S.Zero)))


def _without_base(where: Addresses) -> Addresses:
    return replace(where, base=0, bases=(0,) * len(where.bases))


def _fixed(where: Addresses, symbol: Symbol) -> Addresses:
    """The walk with one loop standing still at its first place."""
    tables = {s: t for s, t in where.tables.items() if s != symbol}
    coordinates = tuple({s: t for s, t in own.items() if s != symbol} for own in where.coordinates)
    return replace(where, tables=tables, coordinates=coordinates)


def _lane_symbols(where: Addresses) -> frozenset[Symbol]:
    return frozenset(where.coordinates[-1])


def _swapped(facts: OpFacts, position: int) -> Addresses | None:
    """The two outermost loops of the operand, off the stick, walk each other's places."""
    where = facts.site.reads[position].where
    outer = [s for s, n in facts.site.loops if n > 1 and s in where.tables and s not in _lane_symbols(where)][:2]
    if len(outer) < 2:
        return None
    first, second = outer
    order = {s: torch.arange(len(where.tables[s])) % len(where.tables[o]) for s, o in ((first, second), (second, first))}
    other = {first: second, second: first}

    def exchanged(tables: Mapping[Symbol, Tensor]) -> dict[Symbol, Tensor]:
        moved = {s: tables[o][order[s]] for s, o in other.items() if o in tables}
        return {**{s: t for s, t in tables.items() if s not in other}, **moved}

    return replace(where, tables=exchanged(where.tables), coordinates=tuple(exchanged(c) for c in where.coordinates))


def _permuted(access: Access) -> bool:
    """Whether the loops do not walk the buffer in the order of their nesting."""
    steps = [int(access.index.coeff(s)) for s, _ in access.ranges if access.index.coeff(s).is_Integer and access.index.coeff(s) != 0]
    return steps != sorted(steps, reverse=True)


# --- faults of addresses ---------------------------------------------------------------------------------------------------------


def _drop_offset(facts: OpFacts, position: int) -> Addresses | None:
    where = facts.site.reads[position].where
    return _without_base(where) if where.base else None


def _drop_stick_offset(facts: OpFacts, position: int) -> Addresses | None:
    """The part of the offset that selects a stick along the stick's own dimension is lost."""
    where = facts.site.reads[position].where
    lanes = _lane_symbols(where)
    lost, bases, step = 0, list(where.bases), where.device_size[-1]
    for dim in reversed(range(len(bases) - 1)):
        if lanes & set(where.coordinates[dim]) or (bases[dim] and not where.coordinates[dim]):
            lost, bases[dim] = lost + bases[dim] * step, 0
        step *= where.device_size[dim]
    return replace(where, base=where.base - lost, bases=tuple(bases)) if lost else None


def _first_stick_only(facts: OpFacts, position: int) -> Addresses | None:
    """Cores that share the stick's loop all read the first core's slice."""
    where = facts.site.reads[position].where
    for symbol in _lane_symbols(where):
        share = facts.site.ownership.by_symbol.get(symbol)
        if share is None or share.cores == 1:
            continue
        wrapped = torch.arange(len(where.tables[symbol])) % share.width
        tables = {**where.tables, symbol: where.tables[symbol][wrapped]}
        coordinates = tuple({s: t[wrapped] if s == symbol else t for s, t in own.items()} for own in where.coordinates)
        return replace(where, tables=tables, coordinates=coordinates)
    return None


def _splits_stick(facts: OpFacts) -> bool:
    return facts.program not in MASKS and any(_first_stick_only(facts, i) is not None for i in range(len(facts.site.reads)))


def _first_row_only(facts: OpFacts, position: int) -> Addresses | None:
    """An operand that was made by broadcasting is read as if it still were one row."""
    where = facts.site.reads[position].where
    if not _made_by_broadcast(facts, facts.accesses[position].buffer):
        return None
    rows = [s for s, n in facts.site.loops if s in where.tables and s not in _lane_symbols(where) and n > 1]
    return _fixed(where, rows[0]) if rows else None


def _made_by_broadcast(facts: OpFacts, buffer: str) -> bool:
    """Whether an op other than a copy made the buffer with an operand that lacks one of its loops."""
    maker = facts.graph.writers.get(buffer)
    if maker is None or maker.write is None or maker.is_reduction or maker.function == "identity":
        return False
    spread = [r for r in maker.reads if r.symbols and r.symbols < maker.write.symbols]
    return bool(spread)


def _constant_as_stick(facts: OpFacts, position: int) -> Addresses | None:
    """A literal fills one lane of its stick; the reader takes the whole stick."""
    walk = facts.site.reads[position]
    lanes = list(_lane_symbols(facts.site.write.where))
    if facts.graph.storage(walk.buffer).role is not BufferRole.CONSTANT or not lanes:
        return None
    table = facts.site.write.where.coordinates[-1][lanes[0]] % walk.stick
    return replace(walk.where, tables={lanes[0]: table}, coordinates=(*walk.where.coordinates[:-1], {lanes[0]: table}))


def _as_generated(facts: OpFacts, position: int) -> Addresses | None:
    """The release's own code generator loses an offset that is no multiple of a loop's step; its addresses start at the tensor's beginning."""
    meant = facts.site.reads[position].where
    return _without_base(meant) if facts.planned and facts.planned[position].base < meant.base else None


def _as_lowered(facts: OpFacts, position: int) -> Addresses | None:
    """The release reads the result of a step inside one lowering from its beginning, whatever slice or view the step was made of.

    What lies behind the buffer is not modelled: a read that would leave it stays as it is meant.
    """
    where = facts.misread.get(position)
    if where is None or where.base + sum(int(table.max()) for table in where.tables.values()) >= where.elements:
        return None
    return where


def _wrong_rows(facts: OpFacts) -> Addresses | None:
    """Rows that data selects are counted along the outermost device dimension, whichever holds them."""
    where = facts.site.write.where
    data = [s for s in where.tables if s not in facts.site.ownership.by_symbol]
    if not data or data[0] in where.coordinates[0]:
        return None
    table = where.tables[data[0]]
    step = max(1, where.elements // where.device_size[0])
    wrong = torch.arange(len(table)) % where.device_size[0] * step
    coordinates = (
        {**where.coordinates[0], data[0]: wrong.div(step, rounding_mode="floor")},
        *(_without(c, data[0]) for c in where.coordinates[1:]),
    )
    return replace(where, tables={**where.tables, data[0]: wrong}, coordinates=coordinates)


def _without(own: Mapping[Symbol, Tensor], symbol: Symbol) -> dict[Symbol, Tensor]:
    return {s: t for s, t in own.items() if s != symbol}


def _write_at_start(facts: OpFacts) -> Addresses | None:
    where = facts.site.write.where
    return _without_base(where) if where.base else None


def _copies_one(facts: OpFacts) -> bool:
    """A copy of an operand of size 1 along the dimension in which it is placed."""
    if facts.program not in COPIES or not _offset(facts.write) or facts.graph.buffer(facts.op.output).alias is None:
        return False
    out, source = facts.graph.storage(facts.op.output).size, facts.graph.buffer(facts.accesses[0].buffer).size
    return len(out) == len(source) and any(m == 1 < n for m, n in zip(source, out, strict=True))


# --- faults of values ------------------------------------------------------------------------------------------------------------


def _is_half(facts: OpFacts) -> bool:
    return facts.graph.buffer(facts.op.output).dtype in (torch.float16, torch.bfloat16)


def _unclamped_scale(facts: OpFacts, details: Details, result: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
    mean, square = operands
    return torch.rsqrt(square - mean * mean + facts.parameters["eps"])


def _at_least(facts: OpFacts, details: Details, result: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
    return result.clamp_min(details["floor"])


def _halve_subnormals(details: Details, x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype is not torch.float16:
        return x
    return torch.where(x.abs() < torch.finfo(torch.float16).smallest_normal, x / 2, x)


def _nan_to_minus_inf(details: Details, x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(x.isnan(), -torch.inf, x) if x.dtype.is_floating_point else x


def _finite_minus_inf(details: Details, x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(x == -torch.inf, details["value"], x) if dtype is torch.float16 else x


def _program(*names: str) -> Callable[[OpFacts], bool]:
    return lambda facts: facts.program in names


FAULTS: Mapping[str, Fault] = {
    "storage-offset-dropped": Fault(lambda f: f.program in COPIES and not f.accesses[0].is_indirect, read=_drop_offset),
    "stick-offset-dropped": Fault(lambda f: f.program not in COPIES and not f.op.is_reduction, read=_drop_stick_offset),
    "rotate-half-slice": Fault(_program("neg", "identity"), read=_as_generated),
    "step-of-view-misread": Fault(lambda f: bool(f.misread), read=_as_lowered),
    "wrong-stick-after-view": Fault(lambda f: f.program in COPIES and _permuted(f.accesses[0]), read=_swapped),
    "norm-of-transposed-input": Fault(
        lambda f: f.program == "mul" and len(f.accesses) == 2 and f.accesses[0] == f.accesses[1] and _permuted(f.accesses[0]),
        read=_swapped,
    ),
    "stick-split-collapses": Fault(_splits_stick, read=_first_stick_only),
    "broadcast-result-misread": Fault(_program("batchmatmul"), read=_first_row_only),
    "constant-not-broadcast": Fault(lambda f: not f.op.is_reduction, read=_constant_as_stick),
    "gather-offset-dropped": Fault(lambda f: any(a.is_indirect for a in f.accesses), read=_drop_offset),
    "scatter-wrong-rows": Fault(lambda f: f.write.is_indirect, write=_wrong_rows),
    "size-one-cat-misplaced": Fault(_copies_one, write=_write_at_start),
    "copy-into-view-misplaced": Fault(lambda f: f.into_input, write=_write_at_start),
    "mutation-lost": Fault(lambda f: f.into_input, lost=True),
    "padding-not-masked": Fault(lambda f: f.program in MASKS and f.program != "batchmatmul", unmasked=True),
    "exp-floor": Fault(lambda f: f.program == "exp" and _is_half(f), value=_at_least),
    "exp-floor-fp32": Fault(lambda f: f.program == "exp" and not _is_half(f), value=_at_least),
    "exp-saturates-fp32": Fault(
        lambda f: f.program == "exp" and not _is_half(f), value=lambda f, d, r, o: torch.exp(o[0].clamp_max(d["limit"]))
    ),
    "layernorm-constant-rows-nan": Fault(_program("layernormscale"), value=_unclamped_scale),
    "mean-floor": Fault(lambda f: f.program == "mean" and _is_half(f), value=_at_least),
    "silu-of-minus-inf": Fault(_program("silu"), value=lambda f, d, r, o: torch.where(o[0] == -torch.inf, 0.0, r)),
    "softplus-drops-beta": Fault(_program("softplus"), value=lambda f, d, r, o: r * f.parameters["softplusBeta"]),
    "floor-of-minus-zero": Fault(_program("floor"), value=lambda f, d, r, o: torch.where((o[0] == 0) & o[0].signbit(), -1.0, r)),
    "subnormals-halved": Fault(arrive=_halve_subnormals, leave=_halve_subnormals),
    "nan-reads-minus-inf": Fault(leave=_nan_to_minus_inf),
    "minus-inf-arrives-finite": Fault(arrive=_finite_minus_inf),
}


@dataclass(frozen=True)
class Injected:
    """What the active faults make of one op."""

    reads: tuple[Addresses, ...]
    write: Addresses
    change: Callable[[Tensor, tuple[Tensor, ...]], Tensor] | None = None
    unmasked: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Faults:
    """The active faults with what the profile knows of each. fired: (fault, op) pairs, filled while linking."""

    active: tuple[tuple[str, Fault, Details], ...] = ()
    fired: list[tuple[str, str]] = field(default_factory=list)

    @staticmethod
    def of(ids: Iterable[str], profile: Profile) -> Faults:
        """Raises KeyError for an id that the profile does not document or that has no behaviour here."""
        chosen = []
        for name in sorted(ids):
            if name not in FAULTS or name not in profile.faults:
                known = ", ".join(n for n in FAULTS if n in profile.faults)
                raise KeyError(f"profile {profile.name} has no device fault {name!r}; there are {known}")
            chosen.append((name, FAULTS[name], profile.faults[name].details))
        return Faults(tuple(chosen))

    def inject(self, facts: OpFacts) -> Injected:
        reads, write = [w.where for w in facts.site.reads], facts.site.write.where
        changes: list[Callable[[Tensor, tuple[Tensor, ...]], Tensor]] = []
        unmasked = lost = False
        for name, fault, details in self.active:
            if not fault.applies(facts):
                continue
            found = {i: a for i in range(len(facts.accesses)) if fault.read and (a := fault.read(facts, i)) is not None}
            moved = fault.write(facts) if fault.write else None
            for position, where in found.items():
                reads[position] = where
            write = moved or write
            if fault.value is not None:
                changes.append(_changed(fault.value, facts, details))
            unmasked, lost = unmasked or fault.unmasked, lost or fault.lost
            if found or moved or fault.value or fault.unmasked or fault.lost:
                self.fired.append((name, facts.op.name))
        return Injected(tuple(reads), write, _chain(changes), unmasked, lost)

    def arrive(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """A tensor's carrier as the device receives it."""
        for _, fault, details in self.active:
            if fault.arrive is not None:
                x = fault.arrive(details, x, dtype)
        return x

    def leave(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """A tensor's carrier as the host receives it."""
        for _, fault, details in self.active:
            if fault.leave is not None:
                x = fault.leave(details, x, dtype)
        return x


def _changed(value: Callable[..., Tensor], facts: OpFacts, details: Details) -> Callable[[Tensor, tuple[Tensor, ...]], Tensor]:
    return lambda result, operands: value(facts, details, result, operands)


def _chain(changes: list[Callable[[Tensor, tuple[Tensor, ...]], Tensor]]) -> Callable[[Tensor, tuple[Tensor, ...]], Tensor] | None:
    if not changes:
        return None

    def run(result: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
        for change in changes:
            result = change(result, operands)
        return result

    return run
