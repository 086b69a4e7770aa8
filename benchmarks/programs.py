"""Straight-line programs of an oracle file (`v0=mul(x0,2.0); v1=getitem(v0,(:,None)); ret (v1)`) as FX graphs.

The notation is what Dynamo records: torch functions, tensor methods and operators by name, without their module. A
parenthesised single item is a tuple of one, strings have no quotes, and indexing prints slices.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.nn.functional as functional

import adapterc.spyre_runtime.custom_ops  # noqa: F401  (registers the backend's own ops, which programs name)

DEVICE = "spyre"
_OPENING, _CLOSING = "([{", ")]}"
_CONSTANTS = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan"), "Ellipsis": Ellipsis}
_INDEXING = ("getitem", "setitem")
_KEEP_CPU = "wrapped_"  # a NumPy scalar that Dynamo wrapped


class ProgramError(ValueError):
    """The text is not a program in this notation, or names an op that torch does not have."""


def split_top(text: str, separator: str = ",") -> list[str]:
    """`text` cut at the separators that stand outside all brackets."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


class _Values:
    """Turns argument texts into Python values, names of earlier results into FX nodes."""

    def __init__(self, names: dict[str, torch.fx.Node]) -> None:
        self.names = names

    def __call__(self, text: str) -> Any:
        if re.fullmatch(rf"{DEVICE}(:\d+)?", text):
            return torch.device(DEVICE, 0)
        if text in ("cpu",):
            return torch.device(text)
        if text.startswith("(") and text.endswith(")") and not re.fullmatch(r"\([-+.\dej]*j\)", text):
            return tuple(self(part) for part in split_top(text[1:-1]))
        if text.startswith("[") and text.endswith("]"):
            return [self(part) for part in split_top(text[1:-1])]
        try:
            return self._scalar(ast.parse(text, mode="eval").body)
        except (SyntaxError, TypeError):
            return text

    def index(self, text: str) -> Any:
        """An index expression: slices, None, Ellipsis, numbers and tensors, in parentheses when there are several."""
        if text.startswith("(") and text.endswith(")"):
            return tuple(self.index(part) for part in split_top(text[1:-1]))
        if ":" in text:
            bounds = [self(part) if part else None for part in split_top(text, ":")] + ([None] if text.endswith(":") else [])
            return slice(*(bounds if len(bounds) > 1 else [None, None]))
        return self(text)

    def _scalar(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._scalar(node.operand)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            left, right = self._scalar(node.left), self._scalar(node.right)
            return left + right if isinstance(node.op, ast.Add) else left - right
        if isinstance(node, ast.Name):
            if node.id in self.names:
                return self.names[node.id]
            return _CONSTANTS.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            return getattr(torch, node.attr)
        raise TypeError(ast.dump(node))


def _named(space: Any, name: str) -> Callable[..., Any] | None:
    found = getattr(space, name, None)
    return found if callable(found) and not isinstance(found, torch.dtype) else None


def _overload(name: str) -> Callable[..., Any] | None:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload) if overload and hasattr(torch.ops.aten, packet) else None


def _custom(name: str) -> Callable[..., Any] | None:
    """The backend's own op of that name, whose CPU meaning the simulator registers."""
    space = torch.ops.spyre_sim
    return getattr(space, name) if hasattr(space, name) else None


_OPERATORS = frozenset(
    [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "neg",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and_",
        "or_",
        "xor",
        "invert",
        "pow",
        "getitem",
        "setitem",
        "matmul",
        "iadd",
        "imul",
        "isub",
    ]
)


def resolve(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any]:
    """("call_function", callable) or ("call_method", name). Raises ProgramError for a name that torch does not have."""
    if name == "getattr":
        return "call_function", getattr
    if name.startswith(_KEEP_CPU):
        dtype = getattr(torch, name.removeprefix(_KEEP_CPU))
        return "call_function", lambda value: torch.tensor(value, dtype=dtype)
    if name in _OPERATORS and not kwargs:
        return "call_function", getattr(operator, name)
    on_tensor = isinstance(args[0] if args else None, torch.fx.Node) and hasattr(torch.Tensor, name)
    if on_tensor and len(args) > 1 and all(type(a) is int for a in args[1:]):
        return "call_method", name  # only methods take sizes and dimensions one by one: reshape(x, 1, -1)
    # torch.nn.functional before torch: where both have a name (embedding, dropout), Dynamo records the former's arguments.
    found = _overload(name) or _named(functional, name) or _named(torch, name)
    if found is not None:
        return "call_function", found
    if on_tensor:
        return "call_method", name
    for space in (torch._C._nn, torch.special):
        if (found := _named(space, name)) is not None:
            return "call_function", found
    if name.startswith("linalg_") and (found := _named(torch.linalg, name.removeprefix("linalg_"))) is not None:
        return "call_function", found
    if (found := _custom(name)) is not None:
        return "call_function", found
    raise ProgramError(f"torch has no operation called {name!r}")


def _call(graph: torch.fx.Graph, name: str, text: str, values: _Values) -> torch.fx.Node:
    pieces = split_top(text)
    if name == "einsum":  # the equation's own commas are not separators
        first = next((i for i, p in enumerate(pieces) if p in values.names or p.startswith(("(", "["))), len(pieces))
        pieces = [",".join(pieces[:first]), *pieces[first:]]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, piece in enumerate(pieces):
        keyword = re.match(r"([a-z_]\w*)=(?!=)(.*)", piece, re.DOTALL)
        if keyword:
            kwargs[keyword[1]] = values(keyword[2])
        elif name in _INDEXING and position == 1:
            args.append(values.index(piece))
        elif name == "einsum" and position == 0:
            args.append(piece)
        else:
            args.append(values(piece))
    kind, target = resolve(name, tuple(args), kwargs)
    return graph.create_node(kind, target, tuple(args), kwargs)


def _listed(text: str, names: dict[str, torch.fx.Node]) -> tuple[torch.fx.Node, ...]:
    complete = split_top(text.removeprefix("("))[:-1]
    return tuple(names[name] for name in complete if name in names)


def parse_program(text: str, inputs: int) -> torch.fx.GraphModule:
    """The program over placeholders x0 … x<inputs-1>. Raises ProgramError when it cannot be read."""
    graph = torch.fx.Graph()
    names = {f"x{i}": graph.placeholder(f"x{i}") for i in range(inputs)}
    values = _Values(names)
    result: Any = ()
    for statement in filter(None, (s.strip() for s in text.split("; "))):
        if statement.startswith("ret"):
            text_of_result = statement.removeprefix("ret").strip()
            # The table cuts off very long lists of results; what is left of them is returned.
            result = values(text_of_result) if text_of_result.endswith(")") else _listed(text_of_result, names)
            continue
        match = re.fullmatch(r"(v\d+)=([A-Za-z_][\w.]*)\((.*)\)", statement, re.DOTALL)
        if match is None:
            raise ProgramError(f"not a statement: {statement!r}")
        names[match[1]] = _call(graph, match[2], match[3], values)
    graph.output(result)
    return torch.fx.GraphModule(torch.nn.Module(), graph)
