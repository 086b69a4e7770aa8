"""Choose one layout a buffer so that the fewest elements are moved between sticks, then insert the moves.

A forward beam search over the candidates of `propagate.py`: a state is one layout a buffer so far and the elements that its
restickifies move; the cheapest states go on. Rules: torch-spyre docs, "Layout optimisation".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch._inductor.utils import sympy_index_symbol

from .ir import Access, Buffer, BufferRole, DeviceLayout, GraphName, LoweredGraph, Op, OpKind, Step
from .layouts import Move, needed_move
from .profile import Profile
from .propagate import Choice, Edge, Propagation
from .refusal import Found, Refusal, meet, refuse

_STAGE = "restickify"


@dataclass(frozen=True)
class _State:
    layouts: tuple[DeviceLayout, ...]  # one for each name of the search, in order
    cost: float


def _move(edge: Edge, have: DeviceLayout, wanted: DeviceLayout, graph: LoweredGraph) -> Move:
    if edge.free:
        return Move(False)
    return needed_move(have, graph.buffer(edge.access.buffer), edge.access, wanted, edge.wanted_access)


def _cost(choice: Choice, have: tuple[DeviceLayout, ...], out: DeviceLayout, graph: LoweredGraph) -> float:
    """Elements moved when the operands lie as in `have` (in reading order) and the output in `out`; infinite when impossible."""
    total = 0.0
    wanted = choice.wanted or (out,) * len(choice.edges)
    for edge, layout, goal in zip(choice.edges, have, wanted, strict=False):
        move = _move(edge, layout, goal, graph)
        if move.needed:
            total += math.prod(layout.device_size) if move.layout is not None else math.inf
    return total


def _stuck(choice: Choice, graph: LoweredGraph) -> Refusal:
    op = next(o for o in graph.ops if o.name == choice.op)
    shapes = ", ".join(str(list(graph.buffer(e.access.buffer).size)) for e in choice.edges)
    output = graph.storage(op.output)
    return refuse(
        "restickify_infeasible",
        f"{op.function} of {shapes} to {list(output.size)}: the operands' sticks run along different dimensions and no move brings them together",
        stage=_STAGE,
        op=op.function,
        node=op.origin.node,
        source=op.origin.source,
        sizes=output.size,
    )


def choose_layouts(propagation: Propagation, profile: Profile, found: Found = None) -> dict[str, DeviceLayout]:
    """One layout a buffer. Raises Refusal ("restickify_infeasible") at the first op that no state survives.

    When `found` collects, such an op takes its first candidate for nothing.
    """
    graph = propagation.graph
    position = {name: i for i, name in enumerate(propagation.inputs)}
    states = [_State(tuple(propagation.inputs.values()), 0.0)]
    for choice in propagation.choices:
        reads = [position[name] for name in choice.reads if name in position]
        costs: dict[tuple[tuple[DeviceLayout, ...], DeviceLayout], float] = {}
        grown = []
        for state in states:
            have = tuple(state.layouts[i] for i in reads)
            for layout in choice.layouts:
                if (have, layout) not in costs:
                    costs[have, layout] = _cost(choice, have, layout, graph)
                extra = costs[have, layout]
                if extra < math.inf:
                    grown.append(_State((*state.layouts, layout), state.cost + extra))
        if not grown:
            meet(_stuck(choice, graph), found)
            grown = [_State((*state.layouts, choice.layouts[0]), state.cost) for state in states]
        position[choice.buffer] = len(position)
        states = sorted(grown, key=lambda s: s.cost)[: profile.limits.restickify_beam]
    best = states[0].layouts
    return {name: best[i] for name, i in position.items()}


def _restickify(source: Buffer, name: str, layout: DeviceLayout, consumer: Op) -> tuple[Op, Buffer]:
    """A copy of the whole buffer with another stick."""
    extents = [(n, s) for n, s in zip(source.size, source.stride, strict=True) if n != 1]
    symbols = [sympy_index_symbol(f"d{i}") for i in range(len(extents))]
    ranges = tuple((symbol, n) for symbol, (n, _) in zip(symbols, extents, strict=True))
    index = sum(symbol * s for symbol, (_, s) in zip(symbols, extents, strict=True))
    read = Access(source.name, index + source.offset, ranges)
    op = Op(
        name=f"op_{name}",
        kind=OpKind.RESTICKIFY,
        function="identity",
        output=name,
        write=Access(name, read.index - source.offset, ranges),
        reads=(read,),
        output_ranges=source.size,
        body=(Step("load", buffer=source.name, index=read.index),),
        origin=replace(consumer.origin, target="spyre.restickify.default"),
    )
    return op, replace(source, name=name, role=BufferRole.COMPUTED, alias=None, layout=layout, offset=0)


def renamed(op: Op, names: Mapping[str, str]) -> Op:
    """`op` with its loads redirected to other buffers."""
    if not names:
        return op

    def new(name: str) -> str:
        return names.get(name, name)

    def moved(r: Access) -> Access:
        return replace(r, buffer=new(r.buffer), indirect=tuple((s, new(b)) for s, b in r.indirect))

    reads = tuple(dict.fromkeys(map(moved, op.reads)))
    meant = tuple((moved(read), moved(right)) for read, right in op.meant)
    body = tuple(replace(step, buffer=new(step.buffer)) if step.buffer else step for step in op.body)
    roles = replace(op.roles, x=new(op.roles.x), y=new(op.roles.y)) if op.roles else None
    return replace(op, reads=reads, body=body, roles=roles, meant=meant)


def _known_by_name(graph: LoweredGraph, name: str, op: Op, profile: Profile, found: Found) -> None:
    if profile.has_fault("restickify-of-nameless-buffer") and not any(known.buffer == name for known in graph.names):
        refusal = refuse(
            "StopIteration@_inductor/insert_restickify.py:_create_restickify_node",
            f"{name} would have to be restickified for {op.function}, but comes from inside a lowering and has no graph node",
            stage=_STAGE,
            op=op.function,
            node=op.origin.node,
            source=op.origin.source,
            fault="restickify-of-nameless-buffer",
        )
        meet(refusal, found)


def insert_moves(propagation: Propagation, layouts: Mapping[str, DeviceLayout], profile: Profile, found: Found = None) -> LoweredGraph:
    """The graph with chosen layouts and a restickify before each operand that needs one."""
    graph = propagation.graph.with_layouts(layouts)
    choices = {c.op: c for c in propagation.choices}
    ops: list[Op] = []
    buffers = list(graph.buffers)
    names = list(graph.names)
    for op in graph.ops:
        choice = choices.get(op.name)
        redirected = {}
        for i, edge in enumerate(choice.edges if choice else ()):
            assert choice is not None
            source = graph.buffer(edge.access.buffer)
            wanted = choice.wanted[i] if choice.wanted else layouts[choice.buffer]
            move = _move(edge, layouts[source.name], wanted, propagation.graph)
            if move.layout is None:
                continue
            _known_by_name(graph, source.name, op, profile, found)
            copy, buffer = _restickify(source, f"restickified{sum(o.kind is OpKind.RESTICKIFY for o in ops)}", move.layout, op)
            ops.append(copy)
            buffers.append(buffer)
            names.append(GraphName(buffer.name, "restickify"))
            redirected[source.name] = buffer.name
        # A consumer that reads a moved operand is rebuilt, and that release then no longer knows whose result it makes.
        ops.append(replace(renamed(op, redirected), result_of="") if redirected else op)
    return replace(graph, buffers=tuple(buffers), ops=tuple(ops), names=tuple(names))
