"""Where a compiled graph meets a device fault that is documented for its release: it compiles, and the device's numbers are wrong."""

from __future__ import annotations

from collections.abc import Iterator

from adapterc.spyre_runtime.execute_tiled import link
from adapterc.spyre_runtime.faults import FAULTS
from adapterc.spyre_runtime.findings import Check
from adapterc.spyre_runtime.formats import DEFAULT_RULES
from adapterc.spyre_runtime.frontend import Compilation
from adapterc.spyre_runtime.ir import Op
from adapterc.spyre_runtime.profile import Profile
from adapterc.spyre_runtime.refusal import Obstacle
from adapterc.spyre_runtime.tiled_options import TiledOptions

FAULT = "known_fault"
STICK_BYTES = 128  # the unit of device memory (torch-spyre docs, Spyre tensor layout)


def device_faults(profile: Profile) -> frozenset[str]:
    """Ids of the faults of ops that the release is known to have."""
    return frozenset(name for name, note in profile.faults.items() if name in FAULTS and note.state != "closed")


def fault_obstacles(compilation: Compilation, profile: Profile) -> Iterator[Obstacle]:
    """One obstacle an op and fault, in the order of the plan. Nothing runs: a fault says of an op whether it applies when the program is linked."""
    options = TiledOptions(checks=tuple((check, "off") for check in Check), faults=device_faults(profile))
    ops = {op.name: op for op in compilation.padded.ops}
    for fault, name in link(compilation, profile, options, DEFAULT_RULES).faults.fired:
        op, note = ops[name], profile.faults[fault]
        if FAULTS[fault].unmasked and not _has_padding(op, compilation):
            continue  # nothing to take in: the fault changes no number here
        summary = f"{note.summary[:1].lower()}{note.summary[1:]} ({note.source})"
        yield Obstacle(
            f"{FAULT}:{fault}", summary, stage="execute", op=op.function, node=op.origin.node, source=op.origin.source, fault=fault
        )


def _has_padding(op: Op, compilation: Compilation) -> bool:
    """Whether the reduced extents leave the last stick of an operand partly filled."""
    stick = STICK_BYTES // compilation.padded.buffer(op.reads[0].buffer).dtype.itemsize
    return any(extent % stick for extent in op.reduction_ranges if extent > 1)
