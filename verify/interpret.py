"""Evaluates an expression of the adapter language to a tensor of terms, at concrete sizes.

Composite ops are expanded through their definition in the op table, so only primitives have code, in verify/primitives.py. A composite that
rounds is a library kernel: its inner terms are marked (computed wide, rounded once at the end), because how a kernel computes inside is the
backend's affair: equal over the reals to its definition, but not bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript, walk
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.ops import DTYPE_NAMES, bind, expand_once, lookup
from adapterc.dsl.printer import to_text
from adapterc.verify.build import build, convert, number
from adapterc.verify.primitive_integers import INTEGER_PRIMITIVES, whole_operands
from adapterc.verify.primitives import PLAIN, POINTWISE, PRIMITIVES, ROUNDING
from adapterc.verify.tensors import Scalar, ShapeError, Tensor, as_cells, elementwise, integer, require, scalar_tensor
from adapterc.verify.terms import EXACT_OPS, INTEGER_DTYPES, Arena, Term, ordered

Value: TypeAlias = Tensor | Scalar | tuple[Any, ...]


class Unbound(ShapeError):
    """A name that neither the rule nor the language binds."""

    def __init__(self, name: str) -> None:
        super().__init__(f"`{name}` has no value here")
        self.name = name


@dataclass(slots=True)
class Interpreter:
    """One evaluation: `env` holds inputs, sizes and known names; `kernel` is the library kernel inside which terms are made, or ""."""

    env: Mapping[str, Value]
    arena: Arena = field(default_factory=Arena)
    kernel: str = ""
    memo: dict[int, tuple[Expr, Value]] = field(default_factory=dict)

    def evaluate(self, node: Expr) -> Value:
        """The value of `node`; raises ShapeError where its ops cannot be applied, SpecError where its text is not well formed."""
        known = self.memo.get(id(node))
        if known is None:
            # The node is kept next to its value, so that its id is not used again while the table lives.
            known = self.memo[id(node)] = (node, self._evaluate(node))
        return known[1]

    def _evaluate(self, node: Expr) -> Value:
        match node:
            case Literal(value=value):
                return value
            case Name(id=name):
                return self._name(name)
            case Sequence(items=items):
                return tuple(self.evaluate(item) for item in items)
            case Call(op="choose", args=(condition, value, otherwise)):
                return self.evaluate(value if self.truth(condition) else otherwise)
            case Call():
                return self._call(node)
            case Subscript(base=base, index=index):
                return self._subscript(self.evaluate(base), index)
            case Attribute(name=name):
                raise Unbound(name)
        raise ShapeError(f"{type(node).__name__} cannot stand alone")

    def truth(self, node: Expr) -> bool:
        """A condition that must be known while the expression is read."""
        value = self.evaluate(node)
        if isinstance(value, Tensor) and value.shape == () and value.only.op == "const":
            value = value.only.payload
        if not isinstance(value, bool):
            raise ShapeError("a condition on data cannot choose between forms: use `where`")
        return value

    def tensor(self, value: Value) -> Tensor:
        """A tensor from any value; numbers become tensors of rank 0."""
        if isinstance(value, Tensor):
            return value
        if not isinstance(value, bool | int | Fraction):
            raise ShapeError(f"a tensor or a number is needed, not {value!r}")
        return scalar_tensor(self.arena, value)

    def _name(self, name: str) -> Value:
        if name in self.env:
            return self.env[name]
        if name in ("inf", "nan", "pi"):
            return scalar_tensor(self.arena, name, "weak")
        if name in DTYPE_NAMES:
            return name
        raise Unbound(name)

    def make(self, op: str, *args: Term) -> Term:
        return build(self.arena, op, *args, kernel=self.kernel)

    def map(self, op: str, *operands: Value) -> Tensor:
        """An elementwise primitive over broadcast operands."""
        tensors = [self.tensor(v) for v in operands]
        cells = elementwise(lambda *terms: self.make(op, *terms), *(t.cells for t in tensors))
        probe = build(Arena(), op, *(Term("var", (), (i,), t.dtype, "", i) for i, t in enumerate(tensors)))
        return Tensor(cells, probe.dtype)

    def _call(self, call: Call) -> Value:
        spec = lookup(call)
        bound = bind(call)
        if spec.name in INTEGER_PRIMITIVES:
            operands = {name: self.evaluate(value) for name, value in bound.items()}
            if whole_operands(operands.values()):
                return INTEGER_PRIMITIVES[spec.name](self, *(self.tensor(v) for v in operands.values()))
        primitive = PRIMITIVES.get(spec.name)
        if primitive is not None:
            values = {name: self.evaluate(value) for name, value in bound.items()}
            try:
                found: Value = primitive(self, **values)
            except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError) as fault:
                # An argument of a kind or size that the op does not take; dsl's checks say it better, but not for every size.
                raise ShapeError(f"`{spec.name}` cannot take these arguments: {fault}") from fault
            return found
        if spec.primitive:
            raise ShapeError(f"`{spec.name}` has no value in the checker")
        # Arguments are evaluated outside the kernel; the definition sees them as names (literals stay, definitions choose by them).
        scope: dict[str, Value] = {}
        opened = {key: self._opened(value, scope) for key, value in bound.items()}
        body = expand_once(Call(spec.name, (), tuple(opened.items()), call.span))
        assert body is not None
        env = {**self.env, **scope}
        if self.kernel == "" and may_round(spec.name):
            value = Interpreter(env, self.arena, f"in:{spec.name}").evaluate(body)
            if isinstance(value, Tensor) and _computes(value) and not _rounds_once(value):
                attributes = "" if pointwise(spec.name) else ",".join(to_text(v) for v in opened.values() if not isinstance(v, Name))
                return self.rounded(spec.name, tuple(scope.values()), value, attributes)
        return Interpreter(env, self.arena, self.kernel).evaluate(body)

    def _opened(self, node: Expr, scope: dict[str, Value]) -> Expr:
        match node:
            case Literal() | Name(id="inf" | "nan" | "pi"):
                return node
            case Sequence(items=items):
                return Sequence(tuple(self._opened(item, scope) for item in items), node.span)
        value = self.evaluate(node)
        if not isinstance(value, Tensor | tuple):
            return Literal(value, node.span)
        if isinstance(value, tuple) and all(isinstance(v, int | Fraction) for v in value):
            return Sequence(tuple(Literal(v) for v in value), node.span)
        name = f"%{len(scope)}.{id(scope)}"
        scope[name] = value
        return Name(name, node.span)

    def inside(self, name: str) -> Interpreter:
        """The interpreter for the inside of a library kernel, which is this one when it is inside one already."""
        return self if self.kernel else Interpreter(self.env, self.arena, f"in:{name}")

    def rounded(self, name: str, operands: tuple[Value, ...], value: Tensor, attributes: str = "") -> Tensor:
        """The result of a library kernel: each element that it computed is rounded once. Other shapes or attributes are another kernel."""
        if self.kernel:
            return value
        shapes = "" if pointwise(name) else ",".join(str(list(v.shape)) for v in operands if isinstance(v, Tensor))
        tag = f"{name}[{shapes}]{attributes}"

        def boundary(term: Term) -> Term:
            return self.arena.make("round", (term,), None, term.dtype, tag) if term.kernel.startswith("in:") else term

        return Tensor(elementwise(boundary, value.cells), value.dtype)

    def _subscript(self, base: Value, index: tuple[Expr, ...]) -> Value:
        if isinstance(base, tuple):
            require(len(index) == 1, "a list takes one index")
            at = integer(self.evaluate(index[0]), "an index")
            require(-len(base) <= at < len(base), f"index {at} is out of range")
            item: Value = base[at]
            return item
        if not isinstance(base, Tensor):
            raise ShapeError("only tensors and lists can be indexed")
        consumed = sum(not isinstance(i, Rest) and not (isinstance(i, Literal) and i.value is None) for i in index)
        require(consumed <= len(base.shape), f"{consumed} indices for rank {len(base.shape)}")
        if not any(isinstance(i, Rest) for i in index):
            index = (*index, Rest())
        require(sum(isinstance(i, Rest) for i in index) == 1, "one `...` at most")
        x, at = base, 0
        for part in index:
            lead: tuple[Any, ...] = (slice(None),) * at
            if isinstance(part, Rest):
                at += len(base.shape) - consumed
            elif isinstance(part, Slice):
                x = Tensor(x.cells[(*lead, self._slice(part, x.shape[at]))], x.dtype)
                at += 1
            elif isinstance(part, Literal) and part.value is None:
                x = Tensor(x.cells[(*lead, None)], x.dtype)
                at += 1
            else:
                value = self.evaluate(part)
                if isinstance(value, Tensor):
                    taken = PRIMITIVES["index_select"](self, x=x, dim=at, index=value)
                    assert isinstance(taken, Tensor)
                    x, at = taken, at + len(value.shape)
                    continue
                where = integer(value, "an index")
                require(-x.shape[at] <= where < x.shape[at], f"index {where} is out of range for {x.shape[at]}")
                x = Tensor(as_cells(x.cells[(*lead, where)]), x.dtype)
        return x

    def _slice(self, item: Slice, size: int) -> slice:
        """Bounds beyond the size are a fault of the sizes tried, not a shorter slice: no pattern means that."""
        parts = [None if part is None else integer(self.evaluate(part), "a slice bound") for part in (item.start, item.stop, item.step)]
        require(parts[2] is None or parts[2] > 0, "a slice step must be positive")
        require(all(p is None or -size <= p <= size for p in parts[:2]), f"a slice bound is beyond the size {size}")
        return slice(*parts)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return Tensor(elementwise(lambda t: convert(self.arena, t, dtype), x.cells), dtype)

    def static(self, value: Value, what: str = "a size") -> int:
        """An integer that must be known: a size, or a tensor of rank 0 that folded to a constant."""
        if isinstance(value, Tensor) and value.shape == ():
            found = number(value.only)
            require(found is not None, f"{what} must be known before the model runs")
            return integer(found, what)
        return integer(value, what)


@cache
def _below(op: str) -> frozenset[str]:
    """The primitives that a composite may come down to (read off a call with names for arguments)."""
    if op in PRIMITIVES:
        return frozenset({op})
    spec = lookup(Call(op, ()))
    if spec.primitive:
        return frozenset()
    required = tuple((p.name, Name(p.name)) for p in spec.params if p.default is None)
    try:
        body = expand_once(Call(op, (), required))
    except SpecError:
        # The form depends on the arguments (einsum, conv): all of these are contractions.
        return frozenset({"matmul"})
    assert body is not None
    used = {lookup(n).name for n in walk(body) if isinstance(n, Call)} | (
        {"index_select"} if any(isinstance(n, Subscript) for n in walk(body)) else set()
    )
    return frozenset().union(*(_below(u) for u in used)) - PLAIN


def may_round(op: str) -> bool:
    """Whether the composite uses arithmetic at all; `_computes` then says whether it was on data or on sizes."""
    return bool(_below(op) & ROUNDING)


def _computes(value: Tensor) -> bool:
    """Whether the composite did arithmetic that rounds, so that its last bits are its kernel's."""
    stack, seen = list(value.cells.reshape(-1)), set()
    while stack:
        term = stack.pop()
        if term.serial in seen or not term.wide:
            continue
        if term.op not in EXACT_OPS and term.dtype not in INTEGER_DTYPES:
            return True
        seen.add(term.serial)
        stack.extend(term.args)
    return False


CORRECTLY_ROUNDED = frozenset({"add", "sub", "mul", "div", "sqrt"})


def _rounds_once(value: Tensor) -> bool:
    """Whether no path through the composite rounds twice, and only by ops that IEEE 754 rounds correctly: then it has one right result."""
    depth: dict[int, int] = {}
    for term in ordered(value.cells.reshape(-1)):
        below = max((depth[a.serial] for a in term.args), default=0)
        if not term.wide:
            depth[term.serial] = 0
        elif term.op in EXACT_OPS or term.dtype in INTEGER_DTYPES:
            depth[term.serial] = below
        elif term.op in CORRECTLY_ROUNDED and below == 0:
            depth[term.serial] = 1
        else:
            return False
    return True


def pointwise(op: str) -> bool:
    """Whether each output element depends on its own position only, so that the kernel is the same wherever the element lies."""
    return _below(op) <= POINTWISE
