"""Index expressions as nested JSON lists and back, without a parser and without evaluating any text.

    128*d0 + ModularIndexing(d1, 4, 64)   is   ["+", ["*", 128, "d0"], ["index", "d1", 4, 64]]

A loop symbol of the compiler (a whole number, not negative) is its name; any other symbol is ["symbol", name].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
from torch._inductor.utils import sympy_index_symbol
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing, PythonMod

DEEPEST = 32
_FUNCTIONS: Mapping[str, tuple[type[sympy.Basic], Callable[..., Any]]] = {
    "+": (sympy.Add, sympy.Add),
    "*": (sympy.Mul, sympy.Mul),
    "//": (FloorDiv, FloorDiv),
    "index": (ModularIndexing, ModularIndexing),
    "mod": (sympy.Mod, sympy.Mod),
    "torch_mod": (Mod, Mod),
    "python_mod": (PythonMod, PythonMod),
    "floor": (sympy.floor, sympy.floor),
}


def write_index(expr: sympy.Expr) -> Any:
    """Raises TypeError for an expression that no index is made of."""
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Rational):
        return ["/", int(expr.p), int(expr.q)]
    if isinstance(expr, sympy.Symbol):
        return expr.name if expr == sympy_index_symbol(expr.name) else ["symbol", expr.name]
    for name, (kind, _) in _FUNCTIONS.items():
        if isinstance(expr, kind):
            return [name, *map(write_index, expr.args)]
    raise TypeError(f"an index holds {expr}, which JSON has no form for")


def read_index(data: Any, depth: int = 0) -> sympy.Expr:
    """Raises ValueError for data that is no index."""
    if isinstance(data, int) and not isinstance(data, bool):
        return sympy.Integer(data)
    if isinstance(data, str) and data.isidentifier():
        return sympy_index_symbol(data)
    if not isinstance(data, list) or not data or depth > DEEPEST:
        raise ValueError(f"{str(data)[:40]} is no index")
    name, *args = data
    if name == "symbol" and len(args) == 1 and isinstance(args[0], str) and args[0].isidentifier():
        return sympy.Symbol(args[0])
    if name == "/" and len(args) == 2 and all(isinstance(a, int) for a in args):
        return sympy.Rational(*args)
    if not isinstance(name, str) or name not in _FUNCTIONS or not args:
        raise ValueError(f"an index has no {str(name)[:40]!r}")
    return _FUNCTIONS[name][1](*(read_index(a, depth + 1) for a in args))
