"""What a laid-out graph must fulfil besides having layouts. Each check raises Refusal, or notes it when `found` collects."""

from __future__ import annotations

from .coordinates import device_coordinates
from .ir import Arrangement, DeviceLayout, LoweredGraph
from .profile import Profile
from .propagate import Propagation, place_of
from .refusal import Found, Refusal, meet, refuse

_STAGE = "propagate"
Layouts = tuple[DeviceLayout, ...]


def check_sticks(graph: LoweredGraph, found: Found = None) -> None:
    """Every access of the laid-out graph must walk its sticks in a form that the device has. Raises Refusal.

    Copies into a buffer of the graph get their layouts without a search, so they are seen here first.
    """
    for op in graph.device_ops():
        for access in (*op.reads, op.write):
            if access is None or access.is_indirect:
                continue
            try:
                device_coordinates(graph.layout(access.buffer), access)
            except Refusal as refusal:
                meet(refusal, found, **place_of(op))


def check_index_data(graph: LoweredGraph, profile: Profile, found: Found = None) -> None:
    """Index data may choose rows, not places within a stick: a release with the fault fails on the latter when it writes the program."""
    if not profile.has_fault("gather-along-stick"):
        return
    for op in graph.device_ops():
        for access in (*op.reads, op.write):
            if access is None or not access.indirect:
                continue
            layout = graph.layout(access.buffer)
            if device_coordinates(layout, access)[-1].free_symbols & {symbol for symbol, _ in access.indirect}:
                refusal = refuse(
                    "KeyError@_inductor/codegen/superdsc.py:_create_sdsc_tensors",
                    f"index data picks elements along the stick of {access.buffer} (device size {list(layout.device_size)})",
                    stage="plan",
                    sizes=layout.device_size,
                    fault="gather-along-stick",
                )
                meet(refusal, found, **place_of(op))


def check_arrangements(propagation: Propagation, found: Found = None) -> None:
    """Operands of a pointwise op must have their elements in the same order inside the sticks. Raises Refusal."""
    known: dict[str, Layouts] = {name: (layout,) for name, layout in propagation.inputs.items()}
    known |= {c.buffer: c.layouts for c in propagation.choices}
    for op in propagation.graph.device_ops():
        if op.is_reduction or len(op.reads) <= 1:
            continue
        seen = [(r.buffer, layout.arrangement) for r in op.reads for layout in known.get(r.buffer, ())]
        kinds = {arrangement for _, arrangement in seen}
        if op.function in ("layernormnorm", "layernormscale") and Arrangement.EXX2 in kinds:
            continue
        if len(kinds) > 1:
            sizes = propagation.graph.buffer(op.output).size
            odd = next(name for name, arrangement in seen if arrangement is not Arrangement.STANDARD)
            refusal = refuse(
                "mixed_element_arrangement",
                f"{op.function} over {list(sizes)} mixes {odd}, whose elements a cast to float32 left interleaved over two sticks, with operands "
                "in plain order",
                stage=_STAGE,
                sizes=sizes,
            )
            meet(refusal, found, **place_of(op))
