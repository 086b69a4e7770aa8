"""Results that only overwrite a graph input are computed into it directly, where that is safe.

`out.copy_(a + b)` lowers to an addition and a copy. The copy goes when nothing reads the input, nothing else wants the sum, and the
input's layout is one that the sum could have anyway.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from .ir import BufferRole, LoweredGraph, Op
from .propagate import Choice, Propagation


def _replaceable(op: Op, graph: LoweredGraph, read: frozenset[str], writes: Counter[str]) -> Op | None:
    """The op whose result `op` copies into an input, when it may write there itself."""
    if not op.info.get("copies_back") or op.write is None or len(op.reads) != 1 or op.reads[0].index != op.write.index:
        return None
    target, source = graph.storage(op.output), graph.buffer(op.reads[0].buffer)
    producer = graph.writers.get(source.name)
    wanted_elsewhere = {target.name, source.name} & set(graph.outputs) or target.name in read or writes[source.name] != 1
    if target.role is not BufferRole.INPUT or wanted_elsewhere or producer is None or not producer.on_device:
        return None
    same = all(getattr(source, field) == getattr(target, field) for field in ("dtype", "size", "stride", "offset"))
    return producer if same and source.role is BufferRole.COMPUTED and source.alias is None else None


def compute_into_inputs(propagation: Propagation) -> Propagation:
    """The propagation without the copies that are not needed; their producers alias the input and have its layout."""
    graph = propagation.graph
    read = frozenset(access.buffer for op in graph.ops for access in op.reads)
    writes = Counter(op.output for op in graph.ops)
    choices = {choice.op: choice for choice in propagation.choices}
    aliases: dict[str, str] = {}
    dropped: set[str] = set()
    for op in graph.ops:
        producer = _replaceable(op, graph, read, writes)
        target = graph.storage(op.output).name if producer else ""
        choice: Choice | None = choices.get(producer.name) if producer else None
        if producer is None or choice is None or target in aliases.values():
            continue
        layout = propagation.inputs[target]
        if layout in choice.layouts:
            choices[producer.name] = replace(choice, layouts=(layout,))
            aliases[producer.output] = target
            dropped.add(op.name)
            choices.pop(op.name, None)
    if not dropped:
        return propagation
    gone = {op.output for op in graph.ops if op.name in dropped}
    buffers = tuple(replace(b, alias=aliases.get(b.name, b.alias)) for b in graph.buffers if b.name not in gone)
    kept = replace(graph, ops=tuple(op for op in graph.ops if op.name not in dropped), buffers=buffers)
    return replace(propagation, graph=kept, choices=tuple(choices[c.op] for c in propagation.choices if c.op in choices))
