"""Scalar terms: what one element of a result is made of.

A rule's sides are evaluated once per choice of sizes (verify/interpret.py): every element of the result becomes a `Term`, a node of a shared
DAG over the elements of the inputs. All reasoning happens on terms: identity of nodes is bitwise equality, a finite field decides real
equality, number formats are emulated on sample vectors, z3 sees the same nodes. Structure (reshape, cat, pad, …) is gone by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

Payload: TypeAlias = int | Fraction | bool | str | tuple[object, ...] | None

# Ops whose float result is one of their operands, a sign flip, or a truth value: they never round.
EXACT_OPS = frozenset(
    [
        "const",
        "var",
        "neg",
        "abs",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "amax",
        "amin",
        "where",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "not",
        "xor",
        "floor",
        "ceil",
        "round",
        "sign",
        "argmax",
        "argmin",
        "argkth",
        "kth",
        "select",
        "isnan",
        "isinf",
    ]
)
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne", "and", "or", "xor", "bits_and", "bits_or", "bits_xor"})
REDUCTIONS = frozenset({"sum", "prod", "dot", "amax", "amin", "argmax", "argmin", "kth", "argkth"})
INTEGER_DTYPES = frozenset({"int32", "int64"})


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One scalar operation. `dtype` is a name of dsl.types.DTYPES, "bool", or "float" for the format under test.

    `kernel` names what computes the node when that is not the plain op: a library kernel such as softmax (its inner nodes run in wide
    precision and are rounded once, at a `round` node), or a reduction together with the shape that it reduces. Two nodes of different
    kernels may differ in their last bits even where they are equal over the reals.
    """

    op: str
    args: tuple[Term, ...]
    payload: Payload
    dtype: str
    kernel: str
    serial: int = field(repr=False)

    @property
    def wide(self) -> bool:
        return self.kernel.startswith("in:")

    def __repr__(self) -> str:
        return f"{self.op}#{self.serial}"


@dataclass(slots=True)
class Arena:
    """Hash-consing: equal terms of one arena are one object, so identity is equality."""

    nodes: dict[tuple[object, ...], Term] = field(default_factory=dict)
    limit: int = 400_000

    def make(self, op: str, args: tuple[Term, ...] = (), payload: Payload = None, dtype: str = "float", kernel: str = "") -> Term:
        if op in COMMUTATIVE and args[0].serial > args[1].serial:
            args = (args[1], args[0])
        tag = type(payload).__name__  # 1, 1.0 and True are one dict key
        key = (op, tuple(a.serial for a in args), tag, payload, dtype, kernel)
        found = self.nodes.get(key)
        if found is None:
            if len(self.nodes) >= self.limit:
                raise TooLarge(f"more than {self.limit:,} scalar terms")
            found = Term(op, args, payload, dtype, kernel, len(self.nodes))
            self.nodes[key] = found
        return found


class TooLarge(Exception):
    """The sizes chosen make more terms than a check may spend."""


def ordered(roots: Iterable[Term]) -> list[Term]:
    """All nodes below `roots`, operands before users."""
    seen: dict[int, Term] = {}
    stack = list(roots)
    while stack:
        term = stack.pop()
        if term.serial not in seen:
            seen[term.serial] = term
            stack.extend(term.args)
    return [seen[serial] for serial in sorted(seen)]


def variables(roots: Iterable[Term]) -> list[Term]:
    return [t for t in ordered(roots) if t.op == "var"]


def kernels(roots: Iterable[Term]) -> Iterator[Term]:
    """The nodes whose last bits belong to a kernel: library kernels and reductions."""
    return (t for t in ordered(roots) if t.kernel)
