"""From the tree as written to the tree as meant: op aliases get their own name, and `w[ids]` with a tensor becomes `take(w, ids)`."""

from __future__ import annotations

from adapterc.dsl.ast import Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript, children
from adapterc.dsl.ops import ALIASES, OPS, lookup, map_children


def resolve(expression: Expr, tensors: frozenset[str]) -> Expr:
    """`tensors` are the names that stand for tensors. Raises SpecError ADC210 for an unknown op."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, Call):
            lookup(node)
            if node.op in ALIASES:
                node = Call(ALIASES[node.op], node.args, node.kwargs, node.span)
        result = map_children(node, visit)
        if isinstance(result, Subscript) and len(result.index) == 1 and is_tensor(result.index[0], tensors):
            return Call("take", (result.base, result.index[0]), (), result.span)
        return result

    return visit(expression)


def is_tensor(expression: Expr, tensors: frozenset[str]) -> bool:
    """Whether the expression can only be a tensor, judged by its names: sizes read from a tensor are none."""
    match expression:
        case Name(id=name):
            return name in tensors
        case Literal() | Slice() | Rest() | Sequence():
            return False
        case Call(op=op) if op in OPS and OPS[op].family in ("static", "predicate"):
            return False
    return any(is_tensor(child, tensors) for child in children(expression))
