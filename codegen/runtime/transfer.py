"""Per op: what its operands must become so that its value grows, and what becomes of the op when an operand has grown.

Both directions speak through the `Plan` protocol; `grow.py` keeps the books, proves the lanes harmless and edits the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from torch.fx import Node

from .graph import arguments, is_getitem, mutates, packet, shape, value
from .growth import CannotGrow, Growth, broadcast_axis, through_permute, through_view

UNARY_KEEPING_ZERO = frozenset(
    [
        "neg",
        "relu",
        "silu",
        "gelu",
        "tanh",
        "abs",
        "sqrt",
        "sin",
        "floor",
        "erf",
        "mish",
        "hardswish",
        "leaky_relu",
        "elu",
        "expm1",
        "log1p",
        "relu6",
        "square",
        "to",
        "_to_copy",
        "dropout",
        "contiguous",
        "clone",
        "alias",
        "detach",
    ]
)
UNARY_FINITE = frozenset(["sigmoid", "cos", "softplus", "hardsigmoid"])
UNARY = UNARY_KEEPING_ZERO | UNARY_FINITE | {"pow", "exp", "rsqrt", "log", "reciprocal", "clamp"}
BINARY = frozenset(["add", "sub", "mul", "div", "maximum", "minimum", "rsub"])
VIEWS = frozenset(["view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze"])
PERMUTES = frozenset(["transpose", "permute", "t", "numpy_T", "mT"])
SPLITS = frozenset(["split", "chunk", "split_with_sizes"])
REDUCTIONS = frozenset(["sum", "mean", "amax", "amin"])
ROWWISE = frozenset(["softmax", "log_softmax", "cumsum"])
PRODUCTS = frozenset(["matmul", "mm", "bmm"])


class Plan(Protocol):
    """What the rules may ask for while a growth spreads."""

    def operand(self, user: Node, node: Any, growth: Growth) -> None: ...
    def grow(self, node: Node, growth: Growth) -> None: ...
    def contract(self, user: Node, *operands: Node) -> None: ...
    def sum_of_zeros(self, user: Node, operand: Node) -> None: ...
    def compensate(self, user: Node, growth: Growth) -> None: ...
    def cut(self, user: Node, node: Node) -> None: ...


def produce(plan: Plan, node: Node, growth: Growth) -> None:
    """Ask the operands of `node` to grow so that its own value can. Raises CannotGrow."""
    if is_getitem(node):
        _produce_piece(plan, node, growth)
        return
    name = packet(node)
    if node.op == "placeholder":
        raise CannotGrow(f"{node.name} is an input of the graph")
    if name is None or mutates(node):
        raise CannotGrow(f"{node.name} ({node.target}) writes in place or is no ATen op")
    given = arguments(node)
    if name in UNARY:
        plan.operand(node, given["self"] if "self" in given else given["input"], growth)
    elif name in BINARY or name == "where":
        for key in ("condition", "self", "other"):
            _broadcast(plan, node, given.get(key), growth)
    elif name in VIEWS:
        plan.operand(node, given["self"], through_view(shape(node), growth, shape(given["self"])))
    elif name in PERMUTES:
        plan.operand(node, given["self"], replace(growth, axis=_order(node, given)[growth.axis]))
    elif name in ("expand", "expand_as"):
        _broadcast(plan, node, given["self"], growth, must=True)
    elif name == "slice":
        plan.operand(node, given["self"], _whole_slice(node, given, growth))
    elif name == "select":
        dim = given["dim"] % len(shape(given["self"]))
        plan.operand(node, given["self"], replace(growth, axis=growth.axis + (growth.axis >= dim)))
    elif name == "cat":
        dim = given.get("dim", 0) % len(shape(node))
        for part in given["tensors"]:
            plan.operand(node, part, growth.at(growth.axis, shape(part)[growth.axis]) if growth.axis == dim else growth)
    elif name == "linear":
        _produce_linear(plan, node, given["input"], given["weight"], given["bias"], growth, weight_axis=0)
    elif name == "addmm":
        _produce_linear(plan, node, given["mat1"], given["mat2"], given["self"], growth, weight_axis=1)
    elif name in PRODUCTS:
        _produce_matmul(plan, node, given, growth)
    elif name == "scaled_dot_product_attention":
        _attention(plan, node, given, growth)
    elif name in ("embedding",):
        _last_axis(node, growth)
        plan.operand(node, given["weight"], replace(growth, axis=1))
    elif name == "rms_norm":
        plan.operand(node, given["input"], growth)
    elif name in ROWWISE:
        _across(node, given, growth, name)
        plan.operand(node, given["self"], growth)
    elif name == "layer_norm":
        if growth.axis >= len(shape(node)) - len(given["normalized_shape"]):
            raise CannotGrow(_CENTRES.format(f"{name} ({node.name})"))
        plan.operand(node, given["input"], growth)
    else:
        raise CannotGrow(f"{name} ({node.name}) has no rule by which its value could grow")


def consume(plan: Plan, user: Node, node: Node, growth: Growth) -> None:
    """Say what becomes of `user` now that its operand `node` has grown. Raises CannotGrow."""
    name = packet(user)
    if user.op == "output" or (name == "copy_" and user.args[0] is not node):
        plan.cut(user, node)  # who reads it outside the graph gets the size that it knows
        return
    if name is None or mutates(user):
        raise CannotGrow(f"{user.name} ({user.target}) keeps the value of {node.name} outside the graph")
    given = arguments(user)
    if name in UNARY or name == "dropout":
        plan.grow(user, growth)
    elif name in BINARY or name in ("where", "expand", "expand_as"):
        plan.grow(user, replace(growth, axis=growth.axis + len(shape(user)) - len(shape(node))))
    elif name in VIEWS:
        plan.grow(user, through_view(shape(node), growth, shape(user)))
    elif name in PERMUTES:
        plan.grow(user, through_permute(growth, _order(user, given)))
    elif name in SPLITS:
        for piece in user.users:
            plan.grow(piece, _piece_growth(piece, growth))
    elif name == "unbind":
        dim = given["dim"] % len(shape(node))
        if dim == growth.axis:
            raise CannotGrow(f"{user.name} takes the grown dimension apart")
        for piece in user.users:
            plan.grow(piece, replace(growth, axis=growth.axis - (growth.axis > dim)))
    elif name == "slice":
        _consume_slice(plan, user, given, growth)
    elif name == "select":
        dim = given["dim"] % len(shape(node))
        if dim == growth.axis:
            raise CannotGrow(f"{user.name} takes one element of the grown dimension")
        plan.grow(user, replace(growth, axis=growth.axis - (growth.axis > dim)))
    elif name == "cat":
        _consume_cat(plan, user, given, growth)
    elif name == "linear":
        _consume_linear(plan, user, node, given["input"], given["weight"], growth, weight_axis=1)
    elif name == "addmm":
        _consume_linear(plan, user, node, given["mat1"], given["mat2"], growth, weight_axis=0)
    elif name in PRODUCTS:
        _consume_matmul(plan, user, node, given, growth)
    elif name == "scaled_dot_product_attention":
        _consume_attention(plan, user, node, given, growth)
    elif name in REDUCTIONS:
        _consume_reduction(plan, user, node, given, growth, name)
    elif name in ("rms_norm", "layer_norm"):
        _consume_norm(plan, user, node, given, growth, name)
    elif name in ROWWISE:
        _across(user, given, growth, name)
        plan.grow(user, growth)
    else:
        raise CannotGrow(f"{name} ({user.name}) has no rule for a grown operand")


_CENTRES = "{} subtracts a mean over the grown dimension, and the new lanes would no longer be zero"


def _across(node: Node, given: dict[str, Any], growth: Growth, name: str) -> None:
    if given["dim"] % len(shape(node)) == growth.axis:
        raise CannotGrow(f"{name} ({node.name}) runs along the grown dimension, and the new lanes would change it")


def _broadcast(plan: Plan, user: Node, operand: Any, growth: Growth, *, must: bool = False) -> None:
    if not isinstance(operand, Node) or value(operand) is None:
        return
    axis = broadcast_axis(len(shape(user)), growth, shape(operand))
    if axis is not None:
        plan.operand(user, operand, growth.at(axis))
    elif must:
        raise CannotGrow(f"{user.name} makes the grown dimension by repeating one element")


def _order(node: Node, given: dict[str, Any]) -> tuple[int, ...]:
    """`order[axis of the result]` is the axis of the operand."""
    rank = len(shape(given["self"]))
    if "dims" in given:
        return tuple(d % rank for d in given["dims"])
    first, second = (given["dim0"] % rank, given["dim1"] % rank) if "dim0" in given else (rank - 2, rank - 1)
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return tuple(order)


def slice_bounds(node: Node, given: dict[str, Any]) -> tuple[int, int, int, int]:
    """dim, start, stop and step of a slice node, non-negative and inside the operand's size."""
    sizes = shape(given["self"])
    dim = given["dim"] % len(sizes)
    start, stop, step = slice(given.get("start"), given.get("end"), given.get("step", 1)).indices(sizes[dim])
    return dim, start, max(start, stop), step


def _whole_slice(node: Node, given: dict[str, Any], growth: Growth) -> Growth:
    dim, start, _, step = slice_bounds(node, given)
    if dim != growth.axis:
        return growth
    if step != 1 or start % growth.unit:
        raise CannotGrow(f"{node.name} cuts through groups of {growth.unit}")
    return growth.at(dim, shape(given["self"])[dim])


def _consume_slice(plan: Plan, user: Node, given: dict[str, Any], growth: Growth) -> None:
    dim, start, stop, step = slice_bounds(user, given)
    if dim != growth.axis:
        plan.grow(user, growth)
    elif step == 1 and start % growth.unit == 0 and (stop - start) % growth.unit == 0 and stop > start:
        plan.grow(user, growth.at(dim, stop - start))
    elif growth.outer == 1 and growth.inner == 1:
        return  # it takes real elements only, wherever the dimension ends
    else:
        raise CannotGrow(f"{user.name} cuts through groups of {growth.unit}")


def _split_dim(node: Node) -> tuple[Node, int]:
    given = arguments(node)
    return given["self"], (given.get("dim") or 0) % len(shape(given["self"]))


def _piece_growth(piece: Node, growth: Growth) -> Growth:
    source = piece.args[0]
    assert isinstance(source, Node)
    _, dim = _split_dim(source)
    return growth.at(dim, shape(piece)[dim]) if dim == growth.axis else growth


def _produce_piece(plan: Plan, node: Node, growth: Growth) -> None:
    source = node.args[0]
    assert isinstance(source, Node)
    base, dim = _split_dim(source) if packet(source) in (*SPLITS, "unbind") else (source, 0)
    if packet(source) == "unbind":
        plan.operand(source, base, replace(growth, axis=growth.axis + (growth.axis >= dim)))
        return
    if base is source:
        raise CannotGrow(f"{node.name} is one result of {source.target}")
    plan.operand(source, base, growth.at(dim, shape(base)[dim]) if dim == growth.axis else growth)


def _consume_cat(plan: Plan, user: Node, given: dict[str, Any], growth: Growth) -> None:
    dim = given.get("dim", 0) % len(shape(user))
    plan.grow(user, growth.at(dim, shape(user)[dim]) if dim == growth.axis else growth)


def _last_axis(node: Node, growth: Growth) -> None:
    if growth.axis != len(shape(node)) - 1:
        raise CannotGrow(f"{node.name} grows along dimension {growth.axis}, which is not its last")


def _produce_linear(plan: Plan, node: Node, x: Node, weight: Node, bias: Node | None, growth: Growth, *, weight_axis: int) -> None:
    if growth.axis != len(shape(node)) - 1:
        plan.operand(node, x, growth)
        return
    plan.operand(node, weight, replace(growth, axis=weight_axis))
    if bias is not None:
        plan.operand(node, bias, replace(growth, axis=len(shape(bias)) - 1))


def _consume_linear(plan: Plan, user: Node, node: Node, x: Node, weight: Node, growth: Growth, *, weight_axis: int) -> None:
    if node is not x:
        raise CannotGrow(f"{node.name} is the weight of {user.name}, and grows only as a copy made at load")
    if growth.axis != len(shape(x)) - 1:
        plan.grow(user, growth)
        return
    plan.operand(user, weight, replace(growth, axis=weight_axis))
    plan.contract(user, x, weight)


def _matrices(given: dict[str, Any]) -> tuple[Node, Node]:
    return given["self"], given["other"] if "other" in given else given["mat2"]


def _produce_matmul(plan: Plan, node: Node, given: dict[str, Any], growth: Growth) -> None:
    left, right = _matrices(given)
    rank = len(shape(node))
    if growth.axis == rank - 1:
        plan.operand(node, right, replace(growth, axis=len(shape(right)) - 1))
    elif growth.axis == rank - 2 and len(shape(left)) >= 2:
        plan.operand(node, left, replace(growth, axis=len(shape(left)) - 2))
    else:
        raise CannotGrow(f"{node.name} would grow along a batch dimension")


def _consume_matmul(plan: Plan, user: Node, node: Node, given: dict[str, Any], growth: Growth) -> None:
    left, right = _matrices(given)
    if len(shape(left)) < 2 or len(shape(right)) < 2:
        raise CannotGrow(f"{user.name} multiplies by a vector")
    if node is left and growth.axis == len(shape(left)) - 1:
        plan.operand(user, right, replace(growth, axis=len(shape(right)) - 2))
        plan.contract(user, left, right)
    elif node is right and growth.axis == len(shape(right)) - 2:
        plan.operand(user, left, replace(growth, axis=len(shape(left)) - 1))
        plan.contract(user, left, right)
    elif node is right and growth.axis == len(shape(right)) - 1:
        plan.grow(user, replace(growth, axis=len(shape(user)) - 1))
    elif node is left and growth.axis == len(shape(left)) - 2:
        plan.grow(user, replace(growth, axis=len(shape(user)) - 2))
    else:
        raise CannotGrow(f"{user.name} has the grown dimension as a batch")


def _attention(plan: Plan, node: Node, given: dict[str, Any], growth: Growth) -> None:
    _last_axis(node, growth)
    for key in ("query", "key", "value"):
        plan.operand(node, given[key], growth)
    plan.contract(node, given["query"], given["key"])


def _consume_attention(plan: Plan, user: Node, node: Node, given: dict[str, Any], growth: Growth) -> None:
    if node is given["attn_mask"] or growth.axis != len(shape(node)) - 1:
        raise CannotGrow(f"{user.name} has the grown dimension as a batch, a head or a position")
    plan.grow(user, growth)


def _consume_reduction(plan: Plan, user: Node, node: Node, given: dict[str, Any], growth: Growth, name: str) -> None:
    rank = len(shape(node))
    dims = given.get("dim")
    listed = range(rank) if dims in (None, []) else [dims] if isinstance(dims, int) else dims
    reduced = {d % rank for d in listed}
    if growth.axis not in reduced:
        kept = growth.axis if given.get("keepdim") else growth.axis - sum(d < growth.axis for d in reduced)
        plan.grow(user, replace(growth, axis=kept))
    elif name == "sum":
        plan.sum_of_zeros(user, node)
    elif name == "mean":
        plan.sum_of_zeros(user, node)
        plan.compensate(user, growth)
    else:
        raise CannotGrow(f"{name} ({user.name}) runs over the grown dimension, and the new lanes could win")


def _consume_norm(plan: Plan, user: Node, node: Node, given: dict[str, Any], growth: Growth, name: str) -> None:
    if node is not given["input"]:
        raise CannotGrow(f"{node.name} is a weight of {user.name}")
    if growth.axis < len(shape(node)) - len(given["normalized_shape"]):
        plan.grow(user, growth)
        return
    if name == "layer_norm" or len(given["normalized_shape"]) != 1:
        raise CannotGrow(_CENTRES.format(f"{name} ({user.name})"))
    plan.sum_of_zeros(user, node)
    plan.compensate(user, growth)
    plan.grow(user, growth)
    if given["weight"] is not None:
        plan.operand(user, given["weight"], replace(growth, axis=0))


Rules = Callable[[Plan, Node, Growth], None]
