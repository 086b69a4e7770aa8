"""The fast executor: a graph becomes straight-line code over CPU carriers, whole tensors, rounded where the device rounds.

Each op computes in float32 and its half-precision output is rounded in place, so sums inside an op accumulate in float32
(the width of the device's accumulators is not public). Views stay views, and a value dies after its last use.
"""

import keyword
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import fx
from torch.utils import _pytree as pytree

from . import custom_ops as custom_ops  # defines torch.ops.spyre_sim, which decomposed graphs call
from .aliasing import Aliases
from .dispatch import VALUE_PRESERVING, is_view
from .formats import HALF_DTYPES, Rounding, carrier_dtype, pieces, round_dl16_
from .reuse import CASTS, COPIES, out_overload, reusable_operands
from .tensor import DEVICE_TYPE, SpyreTensor

aten = torch.ops.aten

RoundingPoint = Rounding | Literal["host"] | None


@dataclass(frozen=True)
class Program:
    """Compiled code for one graph.

    ``run`` takes the CPU carrier of each placeholder in order and returns the outputs' carriers. ``outputs``: each output's fake
    tensor, which says its logical dtype and device (None for an output that is no tensor). ``mutated``: positions of the inputs
    that a run writes. ``code``: the source that runs, to be read.
    """

    run: Callable[..., Sequence[Any]]
    outputs: tuple[Any, ...]
    mutated: tuple[int, ...]
    code: str


@dataclass
class _Code:
    """Source under construction: ``names`` are the objects that it refers to, ``constants`` the nodes that are known already."""

    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    constants: dict[fx.Node, Any] = field(default_factory=dict)
    _known: dict[int, str] = field(default_factory=dict)

    def refer(self, value: Any, hint: str) -> str:
        """A name for an object of any kind; one object has one name."""
        if id(value) not in self._known:
            self._known[id(value)] = name = f"{hint}_{len(self.names)}"
            self.names[name] = value
        return self._known[id(value)]

    def literal(self, value: Any) -> str:
        """Source for an argument: nodes by name, constants and everything without exact source by reference."""
        if isinstance(value, fx.Node):
            return self.refer(self.constants[value], "constant") if value in self.constants else _local(value)
        if isinstance(value, (list, tuple)):
            inner = ", ".join(self.literal(v) for v in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if len(value) == 1 else f"({inner})"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        return self.refer(value, type(value).__name__.replace(".", "_"))


def compile_program(graph: fx.GraphModule, rounding: RoundingPoint) -> Program:
    """Compile an ATen graph whose nodes carry fake tensors in ``meta["val"]``.

    ``rounding``: the device's rule after each op, "host" for the rounding of the host's own half precision, None for none.
    What depends on no input is computed here, once. Raises TypeError for dtypes that the device lacks.
    """
    aliases = Aliases.of(graph.graph)
    code = _Code()
    last_use = _last_uses(graph.graph)
    reusable = reusable_operands(graph.graph, aliases, last_use)
    placeholders = graph.graph.find_nodes(op="placeholder")
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            code.constants[node] = _carried(getattr(graph, cast(str, node.target)))
        elif node.op == "call_function":
            step = _step(node, aliases)
            if _is_constant(node, code, aliases):
                code.constants[node] = _evaluate(step, node, code, rounding)
            else:
                into = reusable.get(node)
                _emit(step if into is None or into in code.constants else _written_over(step, node, into), node, code, rounding)
        elif node.op == "output":
            code.lines.append(f"return {code.literal(tuple(pytree.tree_leaves(node.args[0], is_leaf=lambda v: v is None)))}")
        dead = [_local(n) for n in last_use.get(node, ()) if n not in code.constants]
        if dead and node.op != "output":
            code.lines.append(f"del {', '.join(dead)}")
    source = f"def run({', '.join(_local(n) for n in placeholders)}):\n" + "".join(f"    {line}\n" for line in code.lines)
    namespace = dict(code.names)
    exec(compile(source, "<spyre program>", "exec"), namespace)
    (end,) = graph.graph.find_nodes(op="output")
    outputs = tuple(
        v.meta.get("val") if isinstance(v, fx.Node) else None for v in pytree.tree_leaves(end.args[0], is_leaf=lambda v: v is None)
    )
    return Program(namespace["run"], outputs, tuple(i for i, n in enumerate(placeholders) if aliases.is_written(n)), source)


@dataclass(frozen=True)
class _Step:
    """What a node does on carriers. ``call`` None: the value of its first argument, not copied."""

    call: Callable[..., Any] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def _step(node: fx.Node, aliases: Aliases) -> _Step:
    args = pytree.tree_map(_on_carriers, tuple(node.args))
    kwargs = {name: pytree.tree_map(_on_carriers, value) for name, value in node.kwargs.items() if name not in ("pin_memory", "layout")}
    target: Any = node.target
    if target in COPIES and _changes_nothing(node) and aliases.may_share(node, node.args[0]):
        return _Step(None, args[:1], {})
    if target is torch.ops.prims.convert_element_type.default:
        # The reference implementation of this one is Python; _to_copy is a kernel.
        return _Step(aten._to_copy.default._op, args[:1], {"dtype": args[1]})
    if target is aten.view.default and not aliases.is_written(node):
        # A CPU kernel may have chosen other strides than the device's; reshape views where it can.
        return _Step(aten.reshape.default, args, kwargs)
    return _Step(getattr(target, "_op", target), args, kwargs)


def _written_over(step: _Step, node: fx.Node, into: fx.Node) -> _Step:
    """The same step with its result in the memory of one of its operands."""
    if step.call is None:
        return step
    return _Step(out_overload(node.target)._op, step.args, {**step.kwargs, "out": into})


def _changes_nothing(node: fx.Node) -> bool:
    """Whether a cast or copy gives the carrier of its input again: same carrier type, same strides."""
    source = cast(fx.Node, node.args[0]).meta["val"]
    value = node.meta["val"]
    return bool(carrier_dtype(source.dtype) is carrier_dtype(value.dtype) and source.stride() == value.stride() and not _rounds(node))


def _rounds(node: fx.Node) -> bool:
    """Whether the device rounds this node's output: a half-precision result that is not moved or selected from such values."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in HALF_DTYPES:
        return False
    target: Any = node.target
    if target is operator.getitem:
        parent = cast(fx.Node, node.args[0])
        return not is_view(parent.target) and _name(parent) not in VALUE_PRESERVING
    if target in CASTS or target is aten.copy_.default:
        source = node.args[1 if target is aten.copy_.default else 0]
        return isinstance(source, fx.Node) and source.meta["val"].dtype not in HALF_DTYPES
    return not is_view(target) and target not in COPIES and _name(node) not in VALUE_PRESERVING


def _name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name if schema is not None else str(node.target)


def _emit(step: _Step, node: fx.Node, code: _Code, rounding: RoundingPoint) -> None:
    arguments = [code.literal(a) for a in step.args] + [f"{name}={code.literal(value)}" for name, value in step.kwargs.items()]
    if step.call is None:
        code.lines.append(f"{_local(node)} = {arguments[0]}")
    elif step.call is operator.getitem:
        code.lines.append(f"{_local(node)} = {arguments[0]}[{arguments[1]}]")
    else:
        code.lines.append(f"{_local(node)} = {code.refer(step.call, _hint(node))}({', '.join(arguments)})")
    rounder = _rounder(node, rounding)
    if rounder is not None:
        code.lines.append(f"{code.refer(rounder, 'round')}({_local(node)})")


def _evaluate(step: _Step, node: fx.Node, code: _Code, rounding: RoundingPoint) -> Any:
    args, kwargs = fx.map_arg((step.args, dict(step.kwargs)), lambda n: cast(Any, code.constants[n]))
    value = args[0] if step.call is None else step.call(*args, **kwargs)
    rounder = _rounder(node, rounding)
    if rounder is not None:
        rounder(value)
    return value


def _is_constant(node: fx.Node, code: _Code, aliases: Aliases) -> bool:
    tags = getattr(node.target, "tags", ())
    fixed = torch.Tag.nondeterministic_seeded not in tags and not aliases.is_written(node) and not aliases.writes(node)
    return fixed and all(source in code.constants for source in node.all_input_nodes)


def _rounder(node: fx.Node, rounding: RoundingPoint) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if rounding is None or not _rounds(node):
        return None
    dtype = node.meta["val"].dtype
    if rounding != "host":
        return _ROUND[rounding]
    return _HOST_ROUND[dtype]


def _round_up(raw: torch.Tensor) -> torch.Tensor:
    return round_dl16_(raw, "nearest_up")


def _round_even(raw: torch.Tensor) -> torch.Tensor:
    return round_dl16_(raw, "nearest_even")


def _truncate(raw: torch.Tensor) -> torch.Tensor:
    return round_dl16_(raw, "truncate")


def _round_float16(raw: torch.Tensor) -> torch.Tensor:
    for piece in pieces(raw):
        piece.copy_(piece.to(torch.float16))
    return raw


def _round_bfloat16(raw: torch.Tensor) -> torch.Tensor:
    for piece in pieces(raw):
        piece.copy_(piece.to(torch.bfloat16))
    return raw


_ROUND: dict[Rounding, Callable[[torch.Tensor], torch.Tensor]] = {
    "nearest_up": _round_up,
    "nearest_even": _round_even,
    "truncate": _truncate,
}
_HOST_ROUND = {torch.float16: _round_float16, torch.bfloat16: _round_bfloat16}


def _on_carriers(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return carrier_dtype(value)
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == DEVICE_TYPE else value


def _carried(value: Any) -> Any:
    if isinstance(value, SpyreTensor):
        return value.raw
    return value.to(carrier_dtype(value.dtype)) if isinstance(value, torch.Tensor) else value


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each node the values that nothing after it needs (results without users die where they are made)."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "call_function"):
            last[node] = node
        for source in node.all_input_nodes:
            last[source] = node
    uses: dict[fx.Node, list[fx.Node]] = {}
    for value, node in last.items():
        if not (value.op == "placeholder" and value is node):  # an unused input has no line to die after
            uses.setdefault(node, []).append(value)
    return uses


def _local(node: fx.Node) -> str:
    return f"{node.name}_" if keyword.iskeyword(node.name) or node.name == "run" else node.name


def _hint(node: fx.Node) -> str:
    return "".join(c if c.isalnum() else "_" for c in str(node.target))
