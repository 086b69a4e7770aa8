"""What the new lanes of a grown value hold, followed through the plan: zeros, finite numbers, or nothing that can be relied on.

The proof obligation of padding: every sum over new lanes adds exact zeros, so at least one factor of each product is a zero lane and the other is
finite. `0 * inf` is NaN, so an unbounded lane is as bad as a wrong one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.fx import Node

from .graph import arguments, is_getitem, packet, shape, value
from .growth import CannotGrow, Growth, broadcast_axis
from .transfer import BINARY, PERMUTES, PRODUCTS, UNARY_FINITE, UNARY_KEEPING_ZERO, VIEWS

if TYPE_CHECKING:
    from .grow import GrowthPlan

ZERO, FINITE, UNKNOWN = 0, 1, 2  # ordered: a value is as good as its worst lane
NAMES = ("zero", "finite", "unbounded")


def check_lanes(plan: GrowthPlan) -> None:
    """Raise CannotGrow unless each contraction and each sum of the plan adds zeros only."""
    lanes = lane_states(plan)
    for user, left, right in plan.contracted:
        found = sorted((_of(plan, lanes, user, left), _of(plan, lanes, user, right)))
        if found[0] != ZERO or found[1] == UNKNOWN:
            raise CannotGrow(f"{user.name} would sum products of {NAMES[found[0]]} and {NAMES[found[1]]} new lanes into real elements")
    for user, operand in plan.summed:
        if lanes[operand] != ZERO:
            raise CannotGrow(f"{user.name} would sum {NAMES[lanes[operand]]} new lanes of {operand.name} into real elements")


def lane_states(plan: GrowthPlan) -> dict[Node, int]:
    """The state of the new lanes of each grown node, in the order of the graph."""
    lanes: dict[Node, int] = {}
    for node in plan.graph.nodes:
        if node in plan.grown:
            lanes[node] = _state(plan, lanes, node, plan.grown[node])
    return lanes


def _of(plan: GrowthPlan, lanes: dict[Node, int], user: Node, operand: object) -> int:
    if not isinstance(operand, Node):
        return FINITE
    if (user, operand) in plan.copies:
        return ZERO if plan.fills.get(operand, 0.0) == 0.0 else FINITE
    return lanes.get(operand, FINITE)


def _state(plan: GrowthPlan, lanes: dict[Node, int], node: Node, growth: Growth) -> int:
    if is_getitem(node):
        source = node.args[0]
        assert isinstance(source, Node)
        base = arguments(source)["self"]
        return _of(plan, lanes, source, base)
    name = packet(node)
    given = arguments(node)

    def at(key: str) -> int:
        return _of(plan, lanes, node, given[key])

    if name in VIEWS or name in PERMUTES or name in ("slice", "select", "expand", "expand_as"):
        return at("self")
    if name in UNARY_KEEPING_ZERO:
        return at("input" if "input" in given and "self" not in given else "self")
    if name == "pow":
        exponent = given["exponent"]
        return at("self") if isinstance(exponent, (int, float)) and exponent > 0 else UNKNOWN
    if name in UNARY_FINITE:
        return FINITE if at("self") != UNKNOWN else UNKNOWN
    if name == "exp":
        return FINITE if at("self") == ZERO else UNKNOWN
    if name == "clamp":
        low, high = given["min"], given["max"]
        holds_zero = all(bound is None or isinstance(bound, (int, float)) for bound in (low, high)) and (low or 0) <= 0 <= (high or 0)
        return at("self") if holds_zero and at("self") == ZERO else FINITE
    if name in BINARY or name == "where":
        return _binary(plan, lanes, node, str(name), growth)
    if name == "cat":
        return max(_of(plan, lanes, node, part) for part in given["tensors"])
    if name in ("linear", "addmm"):
        return _linear(plan, lanes, node, growth)
    if name in PRODUCTS:
        other = given["other"] if "other" in given else given["mat2"]
        return _of(plan, lanes, node, other if growth.axis == len(shape(node)) - 1 else given["self"])
    if name == "scaled_dot_product_attention":
        return at("value")
    if name == "embedding":
        return at("weight")
    if name == "rms_norm":
        return at("input")
    return FINITE if name in ("softmax", "log_softmax") else UNKNOWN


def _binary(plan: GrowthPlan, lanes: dict[Node, int], node: Node, name: str, growth: Growth) -> int:
    given = arguments(node)
    states = []
    for key in ("self", "other"):
        operand = given[key]
        if isinstance(operand, Node) and value(operand) is not None:
            axis = broadcast_axis(len(shape(node)), growth, shape(operand))
            states.append(FINITE if axis is None else _of(plan, lanes, node, operand))
        else:
            states.append(ZERO if operand == 0 and name != "div" else FINITE)
    left, right = states
    if UNKNOWN in states:
        return UNKNOWN
    if name == "mul":
        return min(states)
    if name == "div":
        divisor = given["other"]
        grows = isinstance(divisor, Node) and broadcast_axis(len(shape(node)), growth, shape(divisor)) is not None
        return UNKNOWN if grows else left
    return ZERO if left == ZERO and right == ZERO else FINITE


def _linear(plan: GrowthPlan, lanes: dict[Node, int], node: Node, growth: Growth) -> int:
    given = arguments(node)
    x, weight, bias = ("input", "weight", "bias") if "input" in given else ("mat1", "mat2", "self")
    if growth.axis != len(shape(node)) - 1:
        source = _of(plan, lanes, node, given[x])
        return source if given[bias] is None or source == UNKNOWN else FINITE
    states = [_of(plan, lanes, node, given[key]) for key in (weight, bias) if given[key] is not None]
    return max(states)
