"""Concrete sizes for a claim, and both of its sides evaluated to terms at them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from adapterc.dsl.ast import Expr, Name, names
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.types import RestDims, ScalarType, TensorType, Type
from adapterc.verify.build import build
from adapterc.verify.claim import Claim, size_symbols
from adapterc.verify.interpret import Interpreter, Unbound, Value
from adapterc.verify.tensors import MAX_ELEMENTS, ShapeError, Tensor, constant, integer
from adapterc.verify.terms import INTEGER_DTYPES, Arena, Term, TooLarge, ordered

SMALL = (4, 6, 2, 8, 3, 5, 1, 7, 9)
STICK_EDGES = (63, 64, 65)
FEW_TERMS = 6_000


@dataclass(frozen=True, slots=True)
class Instance:
    """A claim at concrete sizes. `right` is None with `fault` where the right side cannot be evaluated though the left one can.

    `guards` are the data conditions left over: scalar truth terms that all hold.
    """

    sizes: Mapping[str, int]
    rest: tuple[int, ...]
    arena: Arena
    inputs: Mapping[str, Tensor]
    left: Tensor
    right: Tensor | None
    fault: str = ""
    guards: tuple[Term, ...] = ()
    env: Mapping[str, Value] = field(default_factory=dict)

    @property
    def pairs(self) -> list[tuple[Term, Term]]:
        assert self.right is not None
        return list(zip(self.left.cells.reshape(-1), self.right.cells.reshape(-1), strict=True))

    def describe(self) -> str:
        parts = [f"{name}={value}" for name, value in self.sizes.items()]
        if self.rest:
            parts.append(f"...={list(self.rest)}")
        return ", ".join(parts) or "no sizes"


@dataclass(slots=True)
class Catalogue:
    """The instances of a claim, and why other sizes gave none (for the message when there are none at all)."""

    found: list[Instance] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def instances(claim: Claim, most: int = 5, stick_edges: bool = True) -> Catalogue:
    """A handful of instances: distinct small sizes first, then ones, equal sizes, then one size at a time around the stick."""
    catalogue = Catalogue()
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    small_terms = True
    for sizes, rest, kind in _candidates(claim):
        if kind == "edge" and not (stick_edges and small_terms):
            break
        if kind == "small" and len(catalogue.found) >= most:
            continue
        key = (tuple(sizes.values()), rest)
        if key in seen:
            continue
        seen.add(key)
        try:
            found = instantiate(claim, sizes, rest)
        except (ShapeError, TooLarge) as refusal:
            catalogue.refusals.append(f"{', '.join(f'{k}={v}' for k, v in sizes.items())}: {refusal}")
            continue
        if found is not None:
            catalogue.found.append(found)
            small_terms = small_terms and len(found.arena.nodes) < FEW_TERMS
        if len(seen) > 400:
            break
    return catalogue


def _candidates(claim: Claim) -> Iterator[tuple[dict[str, int], tuple[int, ...], str]]:
    symbols = size_symbols(claim.where)
    rests: tuple[tuple[int, ...], ...] = ((2,), ()) if _has_rest(claim.where) else ((),)
    if not symbols:
        for rest in (*rests, (3,), (1,)) if len(rests) > 1 else rests:
            yield {}, rest, "small"
        return
    ranked = (
        sorted(itertools.product(SMALL[:6], repeat=len(symbols)), key=lambda t: -len(set(t)))
        if len(symbols) <= 4
        else _varied(len(symbols))
    )
    for count, choice in enumerate(ranked):
        yield dict(zip(symbols, choice, strict=True)), rests[count % len(rests)], "small"
        if count == 1:
            yield dict.fromkeys(symbols, 1), rests[-1], "small"
        if count == 2:
            yield dict.fromkeys(symbols, 2), rests[0], "small"
    edges = STICK_EDGES if len(symbols) == 1 else STICK_EDGES[1:] if len(symbols) == 2 else STICK_EDGES[2:]
    for other, edge in enumerate(edges):
        for symbol in symbols[:4]:
            yield {s: edge if s == symbol else 1 + other % 2 for s in symbols}, rests[-1], "edge"


def _varied(count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(7)
    return [tuple(int(v) for v in rng.choice(SMALL[:6], size=count)) for _ in range(300)]


def _has_rest(where: Sequence[tuple[str, Type]]) -> bool:
    return any(isinstance(d, RestDims) for _, t in where if isinstance(t, TensorType) for d in t.dims)


def stick_for(sizes: Mapping[str, int]) -> int:
    """Rules must hold for any stick, so small sizes are checked with a small one."""
    return 64 if max(sizes.values(), default=0) >= 32 else 4


def instantiate(claim: Claim, sizes: Mapping[str, int], rest: tuple[int, ...]) -> Instance | None:
    """Both sides at these sizes; None where the guard refuses them. Raises ShapeError where the left side has no value."""
    arena = Arena()
    env: dict[str, Value] = {**sizes, "stick": stick_for(sizes), "cores": 4, "dtype": "float"}
    inputs: dict[str, Tensor] = {}
    for name, kind in claim.where:
        tensor = _input(arena, name, kind, env, rest)
        if tensor is not None:
            inputs[name] = env[name] = tensor
    guards: list[Term] = []
    for condition in claim.guard:
        verdict = guard_terms(condition, env, arena)
        if verdict is False:
            return None
        if isinstance(verdict, list):
            guards.extend(verdict)
    left = _tensor(claim.left, env, arena)
    guards.extend(_divisors(left, arena))
    try:
        right = _tensor(claim.right, env, arena)
    except SpecError as error:
        return Instance(sizes, rest, arena, inputs, left, None, error.diagnostics[0].message, tuple(guards), env)
    except ShapeError as error:
        return Instance(sizes, rest, arena, inputs, left, None, str(error), tuple(guards), env)
    if claim.crop and len(right.shape) == len(left.shape) and all(r >= n for r, n in zip(right.shape, left.shape, strict=True)):
        right = Tensor(right.cells[tuple(slice(n) for n in left.shape)], right.dtype)
    if right.shape != left.shape:
        fault = f"the left side has shape {list(left.shape)}, the right side {list(right.shape)}"
        return Instance(sizes, rest, arena, inputs, left, None, fault, tuple(guards), env)
    return Instance(sizes, rest, arena, inputs, left, right, "", tuple(guards), env)


def _divisors(left: Tensor, arena: Arena) -> list[Term]:
    """An integer division by zero raises: the pattern has no value there, so nothing is claimed."""
    divisors = {t.args[1].serial: t.args[1] for t in ordered(left.cells.reshape(-1)) if t.op in ("floor_div", "remainder")}
    return [build(arena, "ne", d, constant(arena, 0)) for d in divisors.values() if d.dtype in INTEGER_DTYPES and d.op != "const"]


def _tensor(expression: Expr, env: Mapping[str, Value], arena: Arena) -> Tensor:
    run = Interpreter(env, arena)
    return run.tensor(run.evaluate(expression))


def guard_terms(condition: Expr, env: Mapping[str, Value], arena: Arena) -> bool | list[Term] | None:
    """True or False where sizes decide; terms where data does; None where it speaks of what is not known here (config, device)."""
    try:
        run = Interpreter(env, arena)
        value = run.evaluate(condition)
    except (Unbound, SpecError):
        return None
    except ShapeError:
        return None if names(condition) - set(env) else False
    if isinstance(value, bool):
        return value
    if isinstance(value, Tensor):
        cells = list(value.cells.reshape(-1))
        if any(c.payload is False for c in cells if c.op == "const"):
            return False
        return [c for c in cells if c.op != "const"]
    return None


def _input(arena: Arena, name: str, kind: Type, env: Mapping[str, Value], rest: tuple[int, ...]) -> Tensor | None:
    if isinstance(kind, ScalarType):
        if kind.element == "size":
            return None
        cells = np.empty((), dtype=object)
        cells[()] = arena.make("var", (), (name,), "weak")
        return Tensor(cells, "weak")
    shape: list[int] = []
    for dim in kind.dims:
        if isinstance(dim, RestDims):
            shape.extend(rest)
        elif isinstance(dim, Name) and isinstance(env.get(dim.id), int):
            shape.append(integer(env[dim.id]))
        else:
            shape.append(integer(Interpreter(env, arena).evaluate(dim)))
    if any(n < 0 for n in shape) or np.prod(shape, dtype=float) > MAX_ELEMENTS:
        raise ShapeError(f"`{name}` would have the shape {shape}")
    dtype = {"float": "float", "any": "float", "int": "int64"}.get(kind.element, kind.element)
    cells = np.empty(tuple(shape), dtype=object)
    for place in np.ndindex(*shape):
        cells[place] = arena.make("var", (), (name, *place), dtype)
    return Tensor(cells, dtype)
