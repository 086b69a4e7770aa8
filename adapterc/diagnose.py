"""`adapterc diagnose`: which op makes a number wrong on the device, of which class the fault is, and how sure that is.

An op is accused only if undoing it mends the output. The last op that matters is found by bisection: with the first k ops done by reference the error
is gone from some k on, and that takes log2(n) runs. What the two admissible ways to sum and round can explain is no error, it is drift.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from adapterc.diagnose_rounding import MARGIN, Admissible, ran, suspects, within_rounding
from adapterc.reproducer import program_text
from adapterc.spyre_runtime.dispatch import is_view
from adapterc.spyre_runtime.formats import NumberRules, carrier_dtype
from adapterc.spyre_runtime.frontend import Compilation, compile_graph
from adapterc.spyre_runtime.ir import Op
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.tile_ops import Memory
from adapterc.spyre_runtime.tiled_options import Padding
from adapterc.subgraph import part
from adapterc.subject import Subject, at, distance, host_view, subject_of, variant

DRIFT, LOWERING, FUSION, LEAK, ORIGIN, LAYOUT, TRANSFER = (
    "drift",
    "lowering error",
    "fusion error",
    "padding leak",
    "overflow/NaN origin",
    "layout/offset error",
    "transfer error",
)
ADVICE: Mapping[str, str] = {
    DRIFT: "nothing to mend; if the application needs less error, state a `budget:` and compute the op that drifts most in float32",
    LOWERING: "rewrite the op into others (`adapterc draft` with its name), and report the reproducer",
    FUSION: "put a `boundary` with action clone between the op and what it reads",
    LEAK: "mask the padding, or grow the dimension with a `pad` rule whose fill is neutral",
    ORIGIN: "keep the op's input in range: finite masks (adapter masks), a scaled norm, or a clamp",
    LAYOUT: "materialise the operand first: a `boundary` with action contiguous, or a form without the slice or view",
    TRANSFER: "keep such values off the bus: round or mask them on the host first",
}
FLOOR = 2.0**-12  # an eighth of the last bit of the largest output
MOST_CULPRITS = 8


@dataclass(frozen=True)
class Culprit:
    """One op (or "transfer") and what was measured: the output's error with it on the device alone, before and after it is undone.

    `certainty`: how far the error that it makes alone stands above the bound, 1 being proof; half of it where undoing all culprits leaves an error.
    """

    klass: str
    op: str
    function: str
    node: str
    source: str
    error_before: float
    error_after: float
    error_alone: float
    evidence: str
    reproducer: str = ""
    certainty: float = 0.0


@dataclass(frozen=True)
class Diagnosis:
    """`error`: of the device's output against the expected one; `bound`: what admissible rounding explains; `errors`: per op, (name, source, error)."""

    error: float
    bound: float
    culprits: tuple[Culprit, ...]
    runs: int
    ops: int
    errors: tuple[tuple[str, str, float], ...] = ()

    @property
    def klass(self) -> str:
        return self.culprits[0].klass if self.culprits else DRIFT

    @property
    def advice(self) -> str:
        return ADVICE[self.klass]


def diagnose_subject(subject: Subject, *, picture: bool = True) -> Diagnosis:
    """Find every op that is wrong, the last one first.

    The search starts with the narrow bound (partial sums). An op whose own output is off by no more than a rounding is no culprit; where the search
    ends at one, the device rounds otherwise than the profile says. Then many ops differ a little and no bisection can tell them apart: each op is
    compared by itself, and those that rounding does not explain are accused where they alone move the output by more than the narrow bound.
    """
    narrow = bound = drift_bound(subject)
    culprits: list[Culprit] = []
    mended: frozenset[int] = frozenset()
    transfers = False
    whole = before = distance(subject.run(mended, transfers), subject.reference)
    while before > bound and len(culprits) < MOST_CULPRITS:
        if distance(subject.run(mended | frozenset(subject.ops), transfers), subject.reference) > bound:
            found, transfers = _transfer(subject, before, distance(subject.run(mended, True), subject.reference)), True
        else:
            position = _last(subject, mended, transfers, bound)
            meant, done = _outputs(subject, position, subject.before(position))
            if within_rounding(meant, done, subject.op(position).is_reduction):
                bound = max(bound, wide_bound(subject))
                culprits += _among_rounding(subject, mended, transfers, narrow)
                break
            mended = mended | {position}
            found = _accused(subject, position, before, distance(subject.run(mended, transfers), subject.reference), bound)
        culprits.append(found)
        before = distance(subject.run(mended, transfers), subject.reference)
    search = subject.runs
    errors = tuple((subject.op(i).name, subject.op(i).origin.source, error) for i, error in subject.local_errors()) if picture else ()
    drifts = bound > narrow
    sure = tuple(dataclasses.replace(c, certainty=_certainty(c.error_alone, narrow, drifts or before <= bound)) for c in culprits)
    return Diagnosis(whole, bound, sure, search, len(subject.ops), errors)


def _among_rounding(subject: Subject, mended: frozenset[int], transfers: bool, narrow: float) -> Iterator[Culprit]:
    """The ops that are wrong on a device that rounds otherwise everywhere, the last one first."""
    admissible = Admissible(subject)
    wrong = [position for position in suspects(subject, admissible.allows) if position not in mended][:MOST_CULPRITS]
    for position in reversed(wrong):
        lone = at(subject, position)
        alone = distance(lone.run(frozenset()), subject.reference)
        subject.runs += lone.runs
        if alone > narrow:
            before = distance(subject.run(mended, transfers), subject.reference)
            mended = mended | {position}
            yield _accused(subject, position, before, distance(subject.run(mended, transfers), subject.reference), narrow)


def _certainty(alone: float, bound: float, mended: bool) -> float:
    share = max(0.0, 1 - bound / alone) if alone else 0.0
    return share if mended else share / 2


def drift_bound(subject: Subject) -> float:
    """What the width of partial sums, which is not public, can move the output by."""
    subject.runs += 1
    return max(FLOOR, MARGIN * distance(variant(subject, "dl16", subject.rules), subject.reference))


def wide_bound(subject: Subject) -> float:
    """What another rule for ties can move the output by besides."""
    other = NumberRules("nearest_even", subject.rules.host_rounding)
    subject.runs += 2
    return MARGIN * max(distance(variant(subject, sums, other), subject.reference) for sums in ("float32", "dl16"))


def _last(subject: Subject, mended: frozenset[int], transfers: bool, bound: float) -> int:
    """The last op that matters: the smallest beginning of the graph whose undoing mends the output ends with it."""
    low, high = 1, len(subject.ops)
    while low < high:
        middle = (low + high) // 2
        if distance(subject.run(mended | frozenset(subject.ops[:middle]), transfers), subject.reference) <= bound:
            high = middle
        else:
            low = middle + 1
    return subject.ops[high - 1]


def _transfer(subject: Subject, before: float, after: float) -> Culprit:
    subject.runs += 1
    return Culprit(TRANSFER, "transfer", "host <-> device", "", "", before, after, before, "the ops are right, what crosses the bus is not")


def _accused(subject: Subject, position: int, before: float, after: float, bound: float) -> Culprit:
    op = subject.op(position)
    lone = at(subject, position)
    alone = distance(lone.run(frozenset()), subject.reference)
    klass, evidence = _classify(subject, lone, position, bound)
    subject.runs += lone.runs
    return Culprit(klass, op.name, op.function, op.origin.node, op.origin.source, before, after, alone, evidence, _reproducer(subject, op))


def _classify(subject: Subject, lone: Subject, position: int, bound: float) -> tuple[str, str]:
    """The class of an op that is wrong, from what it does to memory: its own, one of constants, and one with other padding."""
    memory = subject.before(position)
    meant, done = _outputs(subject, position, memory)
    name = subject.linked(position, subject.expected).site.write.buffer
    if bool((~done.isfinite() & meant.isfinite()).any()) if meant.is_floating_point() else False:
        return ORIGIN, f"{int((~done.isfinite()).sum())} elements of its output are not finite, and its operands' are"
    before = host_view(subject.expected.link, memory, name)
    if torch.equal(_bits(done), _bits(before)) and not torch.equal(_bits(meant), _bits(before)):
        return LOWERING, "its output is what the memory held before: the store does not arrive"
    paddings = [lone.run(frozenset(), padding=padding) for padding in (Padding.ZERO, Padding.LARGE)]
    if distance(paddings[1], paddings[0]) > bound:
        if subject.op(position).is_reduction:
            return LEAK, "its result changes with what the unused lanes of its operands hold"
        return (
            LAYOUT,
            "it writes what unused lanes of an operand hold, where each element has one lane to read: it reads at the wrong place",
        )
    wrong = _constant_errors(subject, position, memory, Admissible(subject))
    if wrong:
        return LOWERING, f"wrong where every operand is one constant, so it is the value and not the place: {wrong}"
    if _right_alone(subject, position):
        return FUSION, "right on the same views of materialised operands, wrong behind the ops that make them here"
    return LAYOUT, "right on constants, wrong on values that differ: it reads or writes other elements than meant"


def _outputs(subject: Subject, position: int, memory: Memory) -> tuple[Tensor, Tensor]:
    """The elements of the op's output, by reference and by the device, from the same memory."""
    return ran(subject, position, subject.expected, memory), ran(subject, position, subject.device, memory)


def _bits(value: Tensor) -> Tensor:
    return value.nan_to_num(nan=12345.0) if value.is_floating_point() else value


def _constant_errors(subject: Subject, position: int, memory: Memory, admissible: Admissible) -> str:
    """The first constant with which the op is wrong. The constants are values that its operands have here, and ones."""
    step = subject.linked(position, subject.expected)
    stored = subject.expected.link.storage(step.site.write.buffer).name
    read = {subject.expected.link.storage(walk.buffer).name for walk in step.site.reads}
    floats = [memory[name] for name in read if memory[name].is_floating_point()]
    if not floats:
        return ""
    values = torch.cat([value.flatten() for value in floats])
    for constant in dict.fromkeys((values.min().item(), values.max().item(), values.median().item(), 1.0, -1.0)):
        trial = {n: torch.full_like(v, constant) if n in read and v.is_floating_point() else v for n, v in memory.items()}
        # A store at the wrong place then writes what is there.
        trial[stored] = subject.after(position, trial)[stored]
        meant, done = _outputs(subject, position, trial)
        if not admissible.allows(position, trial, meant, done):
            return f"with {constant:.4g}"
    return ""


def _alone(subject: Subject, op: Op) -> tuple[fx.GraphModule, fx.Node] | None:
    """The op's node of the functional graph with the views above it, on materialised operands."""
    if not isinstance(subject.source, Compilation):
        return None
    module = subject.source.functional
    root = next((node for node in module.graph.nodes if node.name == op.origin.node and node.op == "call_function"), None)
    if root is None or not isinstance(root.meta.get("val"), Tensor):
        return None
    chosen, edge = {root}, [root]
    while edge:
        for source in edge.pop().all_input_nodes:
            if source not in chosen and _is_view(source):
                chosen.add(source)
                edge.append(source)
    return part(module, chosen, [root]), root


def _is_view(node: fx.Node) -> bool:
    """Whether the node makes nothing: a view, or one of the views that a split returns."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0])
    return isinstance(node.target, torch._ops.OpOverload) and is_view(node.target)


def _right_alone(subject: Subject, position: int) -> bool:
    """Whether the device computes the op rightly in a graph of its own."""
    found = _alone(subject, subject.op(position))
    faults = subject.device.options.faults
    if found is None or not faults:
        return False
    try:
        compilation = compile_graph(found[0], subject.profile)
    except Refusal:
        return False
    generator = torch.Generator().manual_seed(0)
    tensors = [n.meta["val"] for n in found[0].graph.find_nodes(op="placeholder") if isinstance(n.meta.get("val"), Tensor)]
    alone = subject_of(compilation, [_values(value, generator) for value in tensors], subject.profile, subject.rules, faults)
    return distance(alone.run(frozenset(), False), alone.reference) <= FLOOR


def _values(like: Tensor, generator: torch.Generator) -> Tensor:
    """A carrier with values that tell elements apart."""
    sizes = [int(size) for size in like.shape]
    values = torch.randn(sizes, generator=generator) if like.is_floating_point() else torch.randint(0, 2, sizes, generator=generator)
    carrier = torch.empty_strided(sizes, [int(s) for s in like.stride()], dtype=carrier_dtype(like.dtype))
    return carrier.copy_(values.to(carrier.dtype))


def _reproducer(subject: Subject, op: Op) -> str:
    found = _alone(subject, op)
    return program_text(found[0], {}) if found is not None else ""


def bars(errors: Sequence[tuple[str, str, float]], rows: int = 24, width: int = 32) -> Iterator[str]:
    """A picture of the error by op, from first to last: one bar a group of ops, on a logarithmic scale from 2^-12 to 1."""
    share = max(1, -(-len(errors) // rows))
    for start in range(0, len(errors), share):
        group = errors[start : start + share]
        worst = max(group, key=lambda entry: entry[2])
        level = 0 if worst[2] <= FLOOR else min(width, math.ceil((math.log2(min(worst[2], 1.0)) + 12) / 12 * width))
        label = worst[1].rpartition("/")[2] or worst[0]
        yield f"{group[0][0]:>8} {'█' * level:<{width}} {worst[2]:8.1e}  {label}"


def to_json(diagnosis: Diagnosis) -> Mapping[str, Any]:
    return {
        "class": diagnosis.klass,
        "error": diagnosis.error,
        "drift_bound": diagnosis.bound,
        "runs": diagnosis.runs,
        "ops": diagnosis.ops,
        "advice": diagnosis.advice,
        "culprits": [{**dataclasses.asdict(c), "certainty": round(c.certainty, 4)} for c in diagnosis.culprits],
        "error_by_op": [{"op": n, "source": s, "error": e} for n, s, e in diagnosis.errors],
    }
