"""Does a pattern match at a node, with which captures, and if not: how far did it get and what stood in the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch.fx import Node

from adapterc.dsl.ops import OPS

from .graph import dtype, mutated_inputs, shape, source_line, value
from .normal import Form, default_of, equal_values, forms, identity_source, name_of, parameters
from .pattern import Anything, DType, Op, Pattern, Rest, Scalar, Subscript, Tensor, show, walk
from .sizes import Dim, Unbound, evaluate, solve

_LIMITS = {"finfo_min": "min", "finfo_max": "max", "finfo_eps": "eps"}


@dataclass(frozen=True)
class Match:
    """One place where a pattern holds: captures by name (nodes, numbers or None), bound sizes, and the nodes between root and captures."""

    root: Node
    captures: Mapping[str, Any]
    sizes: Mapping[str, int]
    interior: tuple[Node, ...]
    axes: Mapping[tuple[str, str], int]  # (capture, name of a size) -> the axis that has it


@dataclass(frozen=True)
class Miss:
    """The deepest failed attempt: how many ops had matched, the node where it ended, and the clause that it broke, with the values found."""

    depth: int
    node: str
    clause: str
    line: str = ""

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        return f"{self.depth} ops matched, then {self.node}{where}: {self.clause}"


@dataclass(frozen=True)
class _State:
    captures: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    interior: tuple[Node, ...] = ()
    pending: tuple[tuple[Dim, int, Node], ...] = ()  # a size expression that had unbound names when it was met

    def capture(self, name: str, found: object) -> _State:
        return _State({**self.captures, name: found}, self.sizes, self.interior, self.pending)

    def size(self, name: str, found: int) -> _State:
        return _State(self.captures, {**self.sizes, name: found}, self.interior, self.pending)

    def through(self, node: Node) -> _State:
        return _State(self.captures, self.sizes, (*self.interior, node), self.pending)

    def later(self, dim: Dim, found: int, node: Node) -> _State:
        return _State(self.captures, self.sizes, self.interior, (*self.pending, (dim, found, node)))


class Matcher:
    """One pattern against one graph. `weights` are the nodes that depend on nothing but weights and constants."""

    def __init__(self, pattern: Pattern, weights: frozenset[Node]) -> None:
        self.pattern = pattern
        self.weights = weights
        self.miss: Miss | None = None
        self._root: Node | None = None

    def at(self, root: Node) -> Match | None:
        """The first way in which the pattern holds at `root`; None records the nearest miss in `self.miss`."""
        if value(root) is None:
            return None
        self._root = root
        for state in self._pattern(self.pattern, root, _State(), root):
            settled = self._settle(state)
            if settled is None:
                continue
            hazard = _written_between(settled, root)
            if hazard is not None:
                self._fail(settled, hazard, "is written in place between the matched ops, so its value is not the same at both")
                continue
            return Match(root, settled.captures, settled.sizes, settled.interior, _axes(self.pattern, settled.captures))
        return None

    def _fail(self, state: _State, node: object, clause: str) -> None:
        depth = len(state.interior)
        if self.miss is None or depth > self.miss.depth:
            line = source_line(node) if isinstance(node, Node) else ""
            self.miss = Miss(depth, node.name if isinstance(node, Node) else repr(node), clause, line)

    def _settle(self, state: _State) -> _State | None:
        """Every size expression has the size that was found; a name that nothing else binds follows from the first one that it stands in."""
        for dim, found, node in state.pending:
            try:
                expected = evaluate(dim, state.sizes)
            except Unbound as unbound:
                solved = solve(dim, found, state.sizes)
                if solved is None:
                    self._fail(state, node, f"size {found} for `{dim}` gives no whole `{unbound}`")
                    return None
                state = state.size(*solved)
                continue
            if expected != found:
                self._fail(state, node, f"size {found} where the pattern has `{dim}` = {expected}")
                return None
        return state

    def _pattern(self, pattern: object, found: Any, state: _State, user: Node) -> Iterator[_State]:
        match pattern:
            case Tensor():
                yield from self._tensor(pattern, found, state, user)
            case Scalar():
                yield from self._scalar(pattern, found, state, user)
            case Anything(name=name):
                yield from self._bind(name, found, state, user)
            case DType(name=name):
                yield from self._dtype(name, found, state, user)
            case Op():
                yield from self._op(pattern, found, state, user)
            case Subscript():
                yield from self._subscript(pattern, found, state, user)
            case Dim():
                yield from self._dim(pattern, found, state, user)
            case list() | tuple():
                yield from self._items(pattern, found, state, user)
            case _:
                yield from self._literal(pattern, found, state, user)

    def _bind(self, name: str, found: object, state: _State, user: Node) -> Iterator[_State]:
        if name not in state.captures:
            yield state.capture(name, found)
        elif equal_values(state.captures[name], found):
            yield state
        else:
            self._fail(
                state, found if isinstance(found, Node) else user, f"`{name}` was already {state.captures[name]}, and this is another value"
            )

    def _tensor(self, pattern: Tensor, found: Any, state: _State, user: Node) -> Iterator[_State]:
        if found is None and pattern.element == "any" and pattern.shape == (Ellipsis,):
            yield from self._bind(pattern.name, None, state, user)  # `any[...]` admits an optional operand that is absent
            return
        if not isinstance(found, Node) or value(found) is None:
            self._fail(state, user, f"`{pattern.name}` must be a tensor, and here is {found!r}")
            return
        kind = dtype(found)
        if not _element(pattern.element, kind):
            self._fail(state, found, f"`{pattern.name}` is {pattern.element} in the pattern and {str(kind).removeprefix('torch.')} here")
            return
        if pattern.weight and found not in self.weights:
            self._fail(state, found, f"`{pattern.name}` must depend on weights only")
            return
        if pattern.shape is None:
            yield from self._bind(pattern.name, found, state, user)
            return
        for sized in self._shape(pattern, found, state):
            yield from self._bind(pattern.name, found, sized, user)

    def _shape(self, pattern: Tensor, found: Node, state: _State) -> Iterator[_State]:
        sizes = shape(found)
        dims = pattern.shape or ()
        rest = [i for i, d in enumerate(dims) if d is Ellipsis or isinstance(d, Rest)]
        fixed = len(dims) - len(rest)
        if len(sizes) < fixed or (not rest and len(sizes) != fixed):
            self._fail(
                state, found, f"`{pattern.name}` has {len(sizes)} dimensions {list(sizes)}, the pattern {fixed}{' or more' if rest else ''}"
            )
            return
        if rest:
            head, spare = rest[0], len(sizes) - fixed
            named = dims[head]
            if isinstance(named, Rest):
                leading = sizes[head : head + spare]
                bound = state.captures.get(f"*{named.name}")
                if bound is not None and bound != leading:
                    self._fail(state, found, f"leading dimensions {list(leading)} where `*{named.name}` is {list(bound)}")
                    return
                state = state.capture(f"*{named.name}", leading)
            dims, sizes = (*dims[:head], *dims[head + 1 :]), (*sizes[:head], *sizes[head + spare :])
        for dim, size in zip(dims, sizes, strict=True):
            advanced = next(self._dim(dim, size, state, found), None)
            if advanced is None:
                return
            state = advanced
        yield state

    def _dim(self, dim: object, found: Any, state: _State, user: Node) -> Iterator[_State]:
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            self._fail(state, user, f"`{dim}` is a size, and here is {found!r}")
            return
        if isinstance(dim, Dim) and dim.name is not None and dim.name not in state.sizes:
            yield state.size(dim.name, found)
            return
        assert isinstance(dim, (Dim, int))
        try:
            expected = evaluate(dim, state.sizes)
        except Unbound:
            assert isinstance(dim, Dim)
            yield state.later(dim, found, user)
            return
        if expected == found:
            yield state
        else:
            self._fail(state, user, f"size {found} where the pattern has `{dim}`" + (f" = {expected}" if str(expected) != str(dim) else ""))

    def _scalar(self, pattern: Scalar, found: Any, state: _State, user: Node) -> Iterator[_State]:
        number = _number(found)
        if number is None:
            self._fail(state, user, f"`{pattern.name}` must be a number, and here is {found}")
            return
        yield from self._bind(pattern.name, number, state, user)

    def _dtype(self, name: str, found: Any, state: _State, user: Node) -> Iterator[_State]:
        assert self._root is not None
        expected = dtype(self._root) if name == "dtype" else getattr(torch, name)
        if found == expected:
            yield state
        else:
            self._fail(state, user, f"dtype {found} where the pattern has {name}")

    def _literal(self, literal: object, found: Any, state: _State, user: Node) -> Iterator[_State]:
        number = _number(found)
        if _same_literal(literal, number if number is not None else found):
            yield state
        else:
            self._fail(state, user, f"{found} where the pattern has {literal}")

    def _items(self, items: list[Any] | tuple[Any, ...], found: Any, state: _State, user: Node) -> Iterator[_State]:
        if not isinstance(found, (list, tuple)) or len(found) != len(items):
            self._fail(
                state, user, f"{len(items)} operands in the pattern, {len(found) if isinstance(found, (list, tuple)) else 'no list'} here"
            )
            return
        if not items:
            yield state
            return
        for advanced in self._pattern(items[0], found[0], state, user):
            yield from self._items(items[1:], found[1:], advanced, user)

    def _op(self, pattern: Op, found: Any, state: _State, user: Node) -> Iterator[_State]:
        limit = self._limit(pattern)
        if limit is not None:
            yield from self._literal(limit, found, state, user)
            return
        if not isinstance(found, Node):
            self._fail(state, user, f"`{show(pattern)}` in the pattern, {found!r} here")
            return
        matched = False
        for form in forms(found, pattern.name):
            matched = True
            yield from self._operands(pattern, form, found, state.through(found))
        if not matched and pattern.name == "to" and found is not self._root and _is_cast_to(pattern, found):
            yield from self._pattern(pattern.args[0], found, state, user)  # a cast to the dtype that the value has anyway
        elif not matched:
            self._fail(state, found, f"`{pattern.name}` in the pattern, {name_of(found)} here")
        source = identity_source(found)
        if source is not None and found is not self._root:
            yield from self._op(pattern, source, state, user)

    def _limit(self, pattern: Op) -> float | None:
        """The number that `finfo_min(float32)` or `finfo_min(dtype)` is; it stands in the graph as a literal. None for any other op."""
        wanted = pattern.args[0] if len(pattern.args) == 1 else None
        if pattern.name not in _LIMITS or not isinstance(wanted, DType):
            return None
        assert self._root is not None
        kind = dtype(self._root) if wanted.name == "dtype" else getattr(torch, wanted.name)
        return float(getattr(torch.finfo(kind), _LIMITS[pattern.name])) if kind.is_floating_point else None

    def _operands(self, pattern: Op, form: Form, node: Node, state: _State) -> Iterator[_State]:
        names = parameters(form.op)
        wanted = dict(zip(names, pattern.args, strict=False)) | dict(pattern.kwargs)
        found = form.named()
        order = [name for name in names if name in wanted]
        arrangements = [[found[name] for name in order]]
        # Only where swapping changes no bit; EXACT-Z (maximum) may swap a zero's sign and so is not tried.
        if OPS[form.op].commutes == "EXACT" and len(order) == 2:
            arrangements.append(list(reversed(arrangements[0])))
        first = next((f for f in found.values() if isinstance(f, Node) and value(f) is not None), node)
        rank = len(shape(node if form.op in ("unsqueeze", "stack", "cat") else first))
        for name in names:
            if name not in wanted and not _is_default(form.op, name, found[name], rank):
                self._fail(state, node, f"{form.op} has {name}={found[name]} here, which the pattern does not mention")
                return
        for arranged in arrangements:
            items = tuple(_axis(wanted[name], form.op, name, rank) for name in order)
            yield from self._items(items, tuple(arranged), state, node)

    def _subscript(self, pattern: Subscript, found: Any, state: _State, user: Node) -> Iterator[_State]:
        """`x[..., a:b]` against a slice node; parts that take a whole dimension are no node, so at most one part may cut."""
        if not isinstance(found, Node):
            self._fail(state, user, f"`{show(pattern)}` in the pattern, {found!r} here")
            return
        form = next(forms(found, "slice"), None)
        if form is not None:
            operands = form.named()
            base = operands["x"]
            rank = len(shape(base))
            for advanced in self._cut(pattern.index, operands, rank, shape(base), state.through(found), found):
                yield from self._pattern(pattern.base, base, advanced, found)
        else:
            self._fail(state, found, f"a slice in the pattern, {name_of(found)} here")
        source = identity_source(found)
        if source is not None:
            yield from self._subscript(pattern, source, state, user)

    def _cut(
        self, index: tuple[object, ...], operands: Mapping[str, Any], rank: int, sizes: tuple[int, ...], state: _State, node: Node
    ) -> Iterator[_State]:
        places = _places(index, rank)
        if places is None:
            return
        cutting = [(axis, part) for axis, part in places if part != slice(None) and isinstance(part, slice)]
        if len(cutting) != 1 or cutting[0][0] != operands["dim"]:
            self._fail(state, node, f"a slice of dimension {operands['dim']} here, the pattern cuts {[axis for axis, _ in cutting]}")
            return
        axis, part = cutting[0]
        if (part.step if part.step is not None else 1) != operands["step"]:
            self._fail(state, node, f"step {operands['step']} where the pattern has {part.step or 1}")
            return
        start, stop = part.start if part.start is not None else 0, part.stop if part.stop is not None else sizes[axis]
        for begun in self._end(start, operands["start"], sizes[axis], state, node):
            yield from self._end(stop, operands["stop"], sizes[axis], begun, node)

    def _end(self, wanted: object, found: int, size: int, state: _State, node: Node) -> Iterator[_State]:
        if isinstance(wanted, int):
            expected = wanted + size if wanted < 0 else min(wanted, size)
            if expected == found:
                yield state
            else:
                self._fail(state, node, f"a slice ends at {found}, the pattern's at {expected}")
            return
        yield from self._dim(wanted, found, state, node)


def _axes(pattern: Pattern, captures: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    found = {}
    for tensor in walk(pattern):
        if not isinstance(tensor, Tensor) or tensor.shape is None or not isinstance(captures.get(tensor.name), Node):
            continue
        spare = len(shape(captures[tensor.name])) - len(tensor.shape)
        axis = 0
        for dim in tensor.shape:
            if dim is Ellipsis or isinstance(dim, Rest):
                axis += spare + 1
                continue
            if isinstance(dim, Dim) and dim.name is not None:
                found[tensor.name, dim.name] = axis
            axis += 1
    return found


def _places(index: tuple[object, ...], rank: int) -> list[tuple[int, object]] | None:
    """Each index part with the axis that it indexes; `...` stands for the axes left over."""
    parts = [part for part in index if part is not Ellipsis]
    if len(parts) > rank or len(index) - len(parts) > 1:
        return None
    if Ellipsis not in index:
        return list(enumerate(parts))
    before = index.index(Ellipsis)
    behind = len(index) - before - 1
    return [*((i, index[i]) for i in range(before)), *((rank - behind + i, index[before + 1 + i]) for i in range(behind))]


def _axis(wanted: object, op: str, name: str, rank: int) -> object:
    """A negative axis in the pattern counts from the end, as in torch."""
    param = OPS[op].param(name)
    if param is not None and param.kind in ("dim", "dims") and isinstance(wanted, int) and wanted < 0:
        return wanted + rank
    return wanted


def _is_default(op: str, name: str, found: object, rank: int) -> bool:
    if isinstance(found, Node):
        return False
    default = _axis(default_of(op, name), op, name, rank)
    if isinstance(found, (list, tuple)) and found and not isinstance(default, (list, tuple)):  # one number stands for every dimension
        return all(_is_default(op, name, one, rank) for one in found)
    return type(found) in (type(default), int, float) and found == default


def _element(element: str, kind: torch.dtype) -> bool:
    match element:
        case "any":
            return True
        case "float":
            return kind.is_floating_point
        case "int":
            return not kind.is_floating_point and not kind.is_complex and kind is not torch.bool
        case "bool":
            return kind is torch.bool
    return kind is getattr(torch, element)


def _is_cast_to(pattern: Op, found: Node) -> bool:
    wanted = pattern.args[1] if len(pattern.args) > 1 else dict(pattern.kwargs).get("dtype")
    return isinstance(wanted, DType) and wanted.name != "dtype" and value(found) is not None and dtype(found) is getattr(torch, wanted.name)


def _number(found: object) -> int | float | None:
    """A number of the graph, also where it stands as a scalar tensor that a node makes."""
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return found
    if isinstance(found, Node) and found.op == "call_function" and str(found.target) in ("aten.scalar_tensor.default", "aten.full.default"):
        filled = found.args[-1] if str(found.target) == "aten.full.default" else found.args[0]
        return filled if isinstance(filled, (int, float)) and not isinstance(filled, bool) else None
    return None


def _same_literal(literal: object, found: object) -> bool:
    if literal is None or isinstance(literal, (bool, str)):
        return type(literal) is type(found) and literal == found
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not isinstance(literal, (int, float, Fraction)):
        return False
    return float(literal) == found if isinstance(found, float) else literal == found


def _written_between(state: _State, root: Node) -> Node | None:
    """A captured or interior value that an op between the first matched node and the root writes in place."""
    if not state.interior:
        return None
    order = {node: position for position, node in enumerate(root.graph.nodes)}
    first, last = min(order[n] for n in state.interior), order[root]
    read = {n for n in (*state.interior, *state.captures.values()) if isinstance(n, Node)}
    for node in read:
        for user in node.users:
            if first < order[user] < last and node in mutated_inputs(user):
                return node
    return None


__all__ = ["Match", "Matcher", "Miss"]
