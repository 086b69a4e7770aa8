"""Every stage of a compilation as text, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import fx

from .backend import CompileRecord
from .frontend import Compilation
from .fuse import Bundle, Pool
from .planner import Decisions, decide
from .propagate import Propagation
from .scratchpad import Placement


def _code(module: fx.GraphModule) -> str:
    """The graph's own code, with the rule that made a node behind its line."""
    rules = {node.name: str(node.meta["adapter_rule"]) for node in module.graph.nodes if "adapter_rule" in node.meta}
    lines = []
    for line in module.code.strip().splitlines():
        rule = rules.get(line.strip().partition(" = ")[0])
        lines.append(f"{line}  # {rule}" if rule else line)
    return "\n".join(lines)


def propagation_text(found: Propagation) -> str:
    lines = [f"{name}: {layout}" for name, layout in found.inputs.items()]
    for choice in found.choices:
        lines.append(f"{choice.op}: {choice.buffer} one of")
        lines += [f"  {layout}" for layout in choice.layouts]
        lines += [f"  reads {edge.access}{' whatever its layout' if edge.free else ''}" for edge in choice.edges]
    return "\n".join(lines)


def placement_text(found: Placement) -> str:
    return str(found) or "nothing stays in LX"


def bundles_text(bundles: tuple[Bundle, ...], pool: Pool) -> str:
    lines = []
    for number, bundle in enumerate(bundles):
        lines += [f"bundle {number}: {', '.join(bundle.ops)}", f"  tensors: {', '.join(bundle.tensors)}"]
    lines += [f"pool of {pool.bytes} B"]
    lines += [f"  {b.buffer}: {b.offset}..{b.offset + b.bytes}, ops {b.first}..{b.last}" for b in pool.blocks]
    return "\n".join(lines)


def _decided(record: CompileRecord, compilation: Compilation) -> Decisions:
    return decide(compilation.padded, record.settings.backend)


_OF_GRAPH: Mapping[str, Callable[[CompileRecord], fx.GraphModule | None]] = {
    "capture": lambda r: r.provenance.captured if r.provenance else None,
    "patches": lambda r: r.provenance.patched if r.provenance else None,
}
_OF_COMPILATION: Mapping[str, Callable[[CompileRecord, Compilation], str]] = {
    "decompose": lambda r, c: c.functional.code.strip(),
    "lower": lambda r, c: str(c.lowered),
    "propagate": lambda r, c: propagation_text(c.propagation),
    "restickify": lambda r, c: str(c.laid_out),
    "pad": lambda r, c: str(c.padded),
    "divide": lambda r, c: str(_decided(r, c).division),
    "scratchpad": lambda r, c: placement_text(_decided(r, c).placement),
    "fuse": lambda r, c: bundles_text(_decided(r, c).bundles, _decided(r, c).pool),
    "plan": lambda r, c: str(c.plan),
}
STAGES = (*_OF_GRAPH, *_OF_COMPILATION)


def stage_text(record: CompileRecord, stage: str) -> str:
    """A stage of one compilation; for a refused graph, the refusal in place of the stages that it did not reach. Raises KeyError for no stage."""
    if stage in _OF_GRAPH:
        module = _OF_GRAPH[stage](record)
        return _code(module) if module is not None else ""
    show = _OF_COMPILATION[stage]
    if record.compilation is None:
        return "\n".join(f"refused: {refusal}" for refusal in record.refusals)
    return show(record, record.compilation)
