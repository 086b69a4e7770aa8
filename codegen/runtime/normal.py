"""Which op of the adapter language an ATen node is. The op table of the language says it; spellings of one layout op are joined here.

A form is exact: it has the value of the node bit for bit. What is only mathematically equal belongs in a spec, where it gets a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, cast

import torch
from torch.fx import Node

from adapterc.dsl.ast import Literal, Name
from adapterc.dsl.ast import Sequence as Listed
from adapterc.dsl.ops import OPS
from adapterc.dsl.opspec import Anything, CallForm, FormValue, OpSpec, Use

from .graph import arguments, dtype, is_getitem, packet, shape, value

_ABSENT = object()


@dataclass(frozen=True)
class Form:
    """An op of the language and its operands in the order of its parameters: a Node, a number, a dtype, a tuple or None."""

    op: str
    operands: tuple[tuple[str, Any], ...]

    def named(self) -> dict[str, Any]:
        return dict(self.operands)


@cache
def _by_target() -> Mapping[tuple[str, str], tuple[CallForm, ...]]:
    """The call forms of the op table by ATen target and op."""
    found: dict[tuple[str, str], tuple[CallForm, ...]] = {}
    for spec in OPS.values():
        for form in spec.aten:
            key = (form.target, spec.name)
            found[key] = (*found.get(key, ()), form)
    return found


def parameters(op: str) -> tuple[str, ...]:
    return tuple(p.name for p in OPS[op].params)


def forms(node: Node, op: str) -> Iterator[Form]:
    """The ways in which the node is the op `op`; none if it is not."""
    special = _SPELLINGS.get(op)
    if special is not None:
        found = special(node)
        if found is not None:
            yield found
        return
    source, index = cast("tuple[Node, int]", node.args) if is_getitem(node) else (node, None)
    target = source.target
    if not isinstance(target, torch._ops.OpOverload):
        return
    spec = OPS[op]
    for name in _functional_names(target):
        for form in _by_target().get((name, op), ()):
            bound = _bind(source, form, index)
            if bound is not None:
                yield Form(op, tuple(_operand(spec, source, key, bound) for key in parameters(op)))


def name_of(node: Node) -> str:
    """What a reader calls the node's op, for reports."""
    return packet(node) or str(getattr(node.target, "__name__", node.target))


def _functional_names(target: torch._ops.OpOverload) -> tuple[str, ...]:
    """The target's name, and for one that writes in place the name of the op whose value it writes."""
    name = str(target)
    namespace, base, overload = name.split(".")
    return (name, f"{namespace}.{base.removesuffix('_')}.{overload}") if base.endswith("_") and not base.endswith("__") else (name,)


def _bind(node: Node, form: CallForm, index: object) -> dict[str, Any] | None:
    bound: dict[str, Any] = {}
    if isinstance(form.output, Use):
        if index is None:
            return None
        bound[form.output.param] = index
    elif form.output != index:
        return None
    given = arguments(node)
    schema = cast("torch._ops.OpOverload", node.target)._schema.arguments
    wanted: dict[str, FormValue] = {a.name: v for a, v in zip(schema, form.positional, strict=False)} | dict(form.keyword)
    for argument in schema:
        found = given[argument.name]
        if argument.name in wanted:
            if not _bind_value(wanted[argument.name], found, bound):
                return None
        elif (
            argument.has_default_value()
            and found != argument.default_value
            and argument.name not in ("device", "layout", "pin_memory", "memory_format")
        ):
            return None
    return bound


def _bind_value(wanted: FormValue, found: Any, bound: dict[str, Any]) -> bool:
    match wanted:
        case Anything():
            return True
        case Use(param=param):
            bound[param] = found
            return True
        case Literal(value=literal):
            return type(found) in (type(literal), int, float) and not isinstance(found, Node) and found == literal
        case tuple():
            if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
                return False
            return all(_bind_value(w, f, bound) for w, f in zip(wanted, found, strict=True))
    return False


def default_of(op: str, name: str) -> object:
    """The default of a parameter as Python has it; a sentinel that equals nothing where the argument is required."""
    param = OPS[op].param(name)
    assert param is not None
    match param.default:
        case None:
            return _ABSENT
        case Literal(value=literal):
            return float(literal) if isinstance(literal, Fraction) else literal
        case Listed(items=items):
            return tuple(i.value for i in items if isinstance(i, Literal))
        case Name(id=name_):
            return name_
    return _ABSENT


def _operand(spec: OpSpec, node: Node, name: str, bound: Mapping[str, Any]) -> tuple[str, Any]:
    found = bound.get(name, default_of(spec.name, name))
    param = spec.param(name)
    assert param is not None
    first = next((v for v in bound.values() if isinstance(v, Node) and value(v) is not None), None)
    rank = len(shape(first)) if first is not None else len(shape(node))
    if spec.name in ("unsqueeze", "stack"):
        rank = len(shape(node))
    if spec.name == "cat":
        rank = len(shape(node))
    if param.kind == "dim" and isinstance(found, int) and not isinstance(found, bool):
        found = found % max(rank, 1)
    if param.kind == "dims" and found is not None:
        listed = [found] if isinstance(found, int) else list(found)
        found = tuple(d % max(rank, 1) for d in listed)
        found = found[0] if len(found) == 1 else found
    if param.kind == "sizes" and spec.name in ("expand",):
        found = shape(node)
    return name, tuple(found) if isinstance(found, list) else found


def _transpose(node: Node) -> Form | None:
    name = packet(node)
    if name not in ("transpose", "t", "numpy_T", "mT", "permute"):
        return None
    given = arguments(node)
    rank = len(shape(given["self"]))
    if name == "permute":
        moved = [axis for axis, source in enumerate(given["dims"]) if axis != source % rank]
        if len(moved) != 2:
            return None
        first, second = moved
    elif name == "transpose":
        first, second = sorted((given["dim0"] % rank, given["dim1"] % rank))
    elif rank < 2:
        return None
    else:
        first, second = rank - 2, rank - 1
    return Form("transpose", (("x", given["self"]), ("a", first), ("b", second)))


_RESHAPES = frozenset(["view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as"])


def _reshape(node: Node) -> Form | None:
    if packet(node) not in _RESHAPES:
        return None
    return Form("reshape", (("x", arguments(node)["self"]), ("sizes", shape(node))))


def _slice(node: Node) -> Form | None:
    """A slice, a narrow, one piece of a split or chunk, or an index by a list of neighbours (`x[:, [-2]]`), with bounds inside the size."""
    if is_getitem(node):
        return _piece(node)
    name = packet(node)
    if name == "index":
        return _known_places(node)
    if name not in ("slice", "narrow"):
        return None
    given = arguments(node)
    sizes = shape(given["self"])
    dim = given["dim"] % len(sizes)
    if name == "narrow":
        return _sliced(given["self"], dim, given["start"], given["start"] + given["length"], 1)
    start, stop, step = slice(given.get("start"), given.get("end"), given.get("step", 1)).indices(sizes[dim])
    return _sliced(given["self"], dim, start, max(start, stop), step)


def _piece(node: Node) -> Form | None:
    source, index = node.args
    assert isinstance(source, Node) and isinstance(index, int)
    if packet(source) not in ("split", "split_with_sizes", "chunk", "tensor_split"):
        return None
    given = arguments(source)
    base = given["self"]
    dim = (given.get("dim") or 0) % len(shape(base))
    lengths = [int(piece.shape[dim]) for piece in source.meta["val"]]
    start = sum(lengths[:index])
    return _sliced(base, dim, start, start + lengths[index], 1)


def _known_places(node: Node) -> Form | None:
    given = arguments(node)
    indexed = [(dim, index) for dim, index in enumerate(given["indices"]) if index is not None]
    if len(indexed) != 1:
        return None
    dim, index = indexed[0]
    places = _constant(index)
    if places is None or places.dim() != 1 or places.is_floating_point() or places.dtype == torch.bool or places.numel() == 0:
        return None
    size = shape(given["self"])[dim]
    found = [int(place) % size for place in places]
    neighbours = found == list(range(found[0], found[0] + len(found)))
    return _sliced(given["self"], dim, found[0], found[-1] + 1, 1) if neighbours else None


def _constant(node: Node) -> torch.Tensor | None:
    """The tensor that a node has in every call: a constant of the graph, perhaps moved to another device."""
    node = peel(node)
    known = getattr(node.graph.owning_module, str(node.target), None) if node.op == "get_attr" else None
    return known if isinstance(known, torch.Tensor) and not isinstance(known, torch.nn.Parameter) else None


def _sliced(base: Node, dim: int, start: int, stop: int, step: int) -> Form:
    return Form("slice", (("x", base), ("dim", dim), ("start", start), ("stop", stop), ("step", step)))


def _where(node: Node) -> Form | None:
    name = packet(node)
    if name == "masked_fill":
        given = arguments(node)
        return Form("where", (("condition", given["mask"]), ("a", given["value"]), ("b", given["self"])))
    if name != "where":
        return None
    given = arguments(node)
    return Form("where", (("condition", given["condition"]), ("a", given["self"]), ("b", given["other"]))) if "other" in given else None


def _pow(node: Node) -> Form | None:
    name = packet(node)
    if name == "square":
        return Form("pow", (("a", arguments(node)["self"]), ("b", 2)))
    if name != "pow":
        return None
    given = arguments(node)
    return Form("pow", (("a", given["self"]), ("b", given["exponent"])))


def _to(node: Node) -> Form | None:
    name = packet(node)
    if name not in ("to", "_to_copy", "type_as") or value(node) is None:
        return None
    source = arguments(node)["self"]
    return Form("to", (("x", source), ("dtype", dtype(node))))


# Ops that ATen spells in several ways, each way exactly the same value.
_SPELLINGS = {"transpose": _transpose, "reshape": _reshape, "slice": _slice, "where": _where, "pow": _pow, "to": _to}


def identity_source(node: Node) -> Node | None:
    """The operand that this node returns unchanged (same shape, dtype and values): a dropout at inference, a cast to the own dtype, a full slice."""
    name = packet(node)
    if name is None or value(node) is None:
        return None
    given = arguments(node)
    if name in ("dropout", "feature_dropout") and not given["train"]:
        return _node(given["input"])
    if name == "cat":
        parts = [part for part in given["tensors"] if 0 not in shape(part)]
        return parts[0] if len(parts) == 1 and shape(parts[0]) == shape(node) and dtype(parts[0]) == dtype(node) else None
    source = _node(given.get("self"))
    if source is None or value(source) is None:
        return None
    if name in ("alias", "detach", "contiguous", "lift_fresh", "lift_fresh_copy", "clone", "positive"):
        return source
    if name in ("to", "_to_copy", "type_as"):
        return source if dtype(source) == dtype(node) else _widened_from(source, dtype(node))
    if name in (*_RESHAPES, "expand", "expand_as", "slice") and shape(source) == shape(node):
        return source if name != "slice" or (given.get("step", 1) or 1) == 1 else None
    if name in ("mul", "div") and isinstance(given.get("other"), (int, float)) and given["other"] == 1 and dtype(source) == dtype(node):
        return source
    return None


def _widened_from(node: Node, narrow: torch.dtype) -> Node | None:
    """The half-precision value that this float32 node only widens, so that narrowing it again gives it back."""
    if dtype(node) is not torch.float32 or not narrow.is_floating_point or packet(node) not in ("to", "_to_copy", "type_as"):
        return None
    source = _node(arguments(node)["self"])
    return source if source is not None and dtype(source) == narrow else None


def _node(argument: object) -> Node | None:
    return argument if isinstance(argument, Node) else None


def peel(node: Node) -> Node:
    """The node behind all the identities in front of it."""
    while (source := identity_source(node)) is not None:
        node = source
    return node


def equal_values(left: object, right: object, depth: int = 12) -> bool:
    """Whether two arguments are the same value: the same node, or the same pure op on the same values, up to `depth` levels."""
    if isinstance(left, Node) and isinstance(right, Node):
        left, right = peel(left), peel(right)
        if left is right:
            return True
        first, second = left.target, right.target
        if depth == 0 or first != second or not isinstance(first, torch._ops.OpOverload):
            return False
        if first._schema.is_mutable or torch.Tag.nondeterministic_seeded in first.tags:
            return False
        mine, theirs = arguments(left), arguments(right)
        return all(equal_values(mine[key], theirs[key], depth - 1) for key in mine)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(equal_values(a, b, depth) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and left == right
