"""The sign of NaN: IEEE 754 defines it for sign changes and for what is passed on unchanged, and there two equal sides may differ in it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from adapterc.verify import floats
from adapterc.verify.terms import Term, ordered, variables

Pair = tuple[Term, Term]


def differs(pairs: Iterable[Pair], format_name: str = "float32") -> bool:
    """Whether some pair of one variable gives NaN of one sign on the left and of the other on the right, both as the standard defines them."""
    return any(_differs(pair, format_name) for pair in pairs)


def _differs(pair: Pair, format_name: str) -> bool:
    found = variables(pair)
    if len(found) != 1 or found[0].dtype in ("bool", "int32", "int64"):
        return False
    left, right = (_signs(side, found[0], format_name) for side in pair)
    return left is not None and right is not None and left != right


def _signs(root: Term, variable: Term, format_name: str) -> tuple[int, int] | None:
    """The signs of the result for NaN of sign + and of sign -; None where it is no NaN or its sign is not defined."""
    values = floats.run([root], {variable.serial: np.array([np.nan], dtype=np.longdouble)}, 1, format_name)
    signs: dict[int, tuple[int, int] | None] = {}
    for term in ordered([root]):
        below = [signs[a.serial] for a in term.args]
        match term.op:
            case "var":
                found: tuple[int, int] | None = (1, -1)
            case "neg" if below[0] is not None:
                found = (-below[0][0], -below[0][1])
            case "abs" if below[0] is not None:
                found = (1, 1)
            case "where":
                found = below[1 if bool(values.of(term.args[0])[0]) else 2]
            case _:
                found = None
        signs[term.serial] = found
    return signs[root.serial]
