"""Evaluates an expression at symbolic sizes to a function from places to elements (verify/index_terms.py).

Sizes are polynomials; what the left side needs of them (a bound within a size, two equal sizes) is assumed, for only such sizes are claimed
anything of; what the right side needs must be shown (`obliged`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from adapterc.dsl.ast import Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript
from adapterc.dsl.diagnostics import SpecError
from adapterc.dsl.infer import Inference
from adapterc.dsl.ops import DTYPE_NAMES, bind, expand_once, lookup
from adapterc.dsl.opspec import OpSpec
from adapterc.dsl.poly import ONE, Poly, number, symbol
from adapterc.dsl.values import ListValue, NumberValue, StaticValue, TensorValue, TypeOf
from adapterc.verify import index_folds as F
from adapterc.verify import index_layout as L
from adapterc.verify.index_facts import (
    ZERO,
    Digits,
    Facts,
    NoValue,
    Refine,
    Undecided,
    atoms,
    exact_quotient,
    fractions_of,
    halves,
    linear,
    whole,
    zero_or_more,
)
from adapterc.verify.index_folds import simplified
from adapterc.verify.index_table import LAYOUT, index_select, listed
from adapterc.verify.index_terms import Apply, Choice, Const, Element, Opaque, Place, Symbolic, Whole, position, renamed
from adapterc.verify.interpret import pointwise

Value: TypeAlias = "Symbolic | Poly | bool | str | tuple[Value, ...] | None"
OPENED = frozenset({"layout", "static", "source", "index", "predicate"})
NEGATED_NAMES = {"inf": "-inf", "-inf": "inf"}
ORDERS: dict[str, Callable[[Poly, Poly], Poly]] = {  # a comparison as a polynomial ≥ 0, over integers
    "ge": lambda a, b: a - b,
    "gt": lambda a, b: a - b - ONE,
    "le": lambda a, b: b - a,
    "lt": lambda a, b: b - a - ONE,
}


@dataclass(slots=True)
class SymbolicRun:
    """One side at a time, of one case. `real`: reductions are folds over an index, and an exact zero times anything is zero."""

    facts: Facts
    real: bool = False
    env: dict[str, Value] = field(default_factory=dict)
    obliged: bool = False
    depth: int = 0
    memo: dict[int, tuple[Expr, Value]] = field(default_factory=dict)

    # Conditions -----------------------------------------------------------------------------------------------------------------------------

    def need(self, poly: Poly, what: str) -> None:
        """poly ≥ 0, or the expression has no value: assumed on the left, to be shown on the right."""
        if self.facts.shown(poly):
            return
        if self.facts.shown(-poly - ONE):
            raise NoValue(what)
        if not self.obliged:
            self.facts.learn(poly)
        elif not self.facts.shown(poly, hard=True):
            raise Undecided(what)

    def same_size(self, a: Poly, b: Poly, what: str) -> None:
        gap = a - b
        if not gap.terms or self.facts.zero(gap):
            return
        if self.facts.shown(gap - ONE) or self.facts.shown(-gap - ONE):
            raise NoValue(what)
        if self.obliged:
            if not self.facts.zero(gap, hard=True):
                raise Undecided(what)
            return
        self._equate(gap)

    def _equate(self, gap: Poly) -> None:
        """Put one size in terms of the others, where it stands alone; otherwise keep both inequalities."""
        for monomial, coefficient in gap.terms:
            if abs(coefficient) == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                name = monomial[0][0]
                rest = linear(gap, name)
                if rest is not None and name not in atoms(rest[1]) and rest[0].constant is not None:
                    value = rest[1] * number(-1 / rest[0].constant)
                    raise Refine((Digits(name, value, (), (value,)),))
        self.facts.learn(gap)
        self.facts.learn(-gap)

    def assume(self, condition: Expr) -> None:
        """A guard, as far as it speaks of sizes; anything else is not used, which only makes the proof harder."""
        if isinstance(condition, Call) and condition.op in ("eq", "ne", *ORDERS) and len(condition.args) == 2:
            try:
                a, b = (self.evaluate(arg) for arg in condition.args)
            except (Undecided, NoValue, SpecError):
                return
            if isinstance(a, Poly) and isinstance(b, Poly) and whole(a) and whole(b):
                self._assume_order(condition.op, a, b)

    def _assume_order(self, op: str, a: Poly, b: Poly) -> None:
        gap = a - b
        if op in ORDERS:
            self.need(ORDERS[op](a, b), "the guard")
        elif op == "eq":
            self.same_size(a, b, "the guard")
        elif self.facts.zero(gap):
            raise NoValue("the guard")
        elif len(gap.terms) == 1 and len(gap.terms[0][0]) == 1:
            (name, exponent), bound = gap.terms[0][0][0], self.facts.bounds.get(gap.terms[0][0][0][0])
            if exponent == 1 and bound is not None and not self.facts.shown(gap - ONE):
                raise Refine((zero_or_more(name, bound),))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is learnt of an index inside holds only there."""
        positive, known = set(self.facts.positive), list(self.facts.known)
        try:
            yield
        finally:
            self.facts.positive, self.facts.known = positive, known

    @contextmanager
    def under(self, condition: Poly) -> Iterator[None]:
        with self.scope():
            self.facts.learn(condition)
            yield

    def choose(self, condition: Poly, then: Callable[[], Element], other: Callable[[], Element]) -> Element:
        """`then` where condition ≥ 0; each is evaluated under what holds there."""
        sign = self.facts.sign(condition)
        if sign is not None:
            return then() if sign else other()
        with self.under(condition):
            a = then()
        with self.under(-condition - ONE):
            b = other()
        return a if a == b else Choice(condition, a, b)

    def same_variable(self, v: str, m: Poly, w: str, body: Element, holds: Callable[[Element], bool]) -> bool:
        """Whether `holds` for the body of a fold over w, written over v."""
        with self.scope():
            self.facts.below(v, m)
            other = body if v == w else renamed(body, w, self.facts.now(symbol(v)))
            return other is not None and holds(other)

    # Values ---------------------------------------------------------------------------------------------------------------------------------

    def size(self, value: Value) -> Poly:
        """A whole number. Raises Refine where it is whole only for some sizes."""
        if not isinstance(value, Poly):
            raise Undecided("a size is not known")
        for name, denominator in fractions_of(value):
            raise Refine(halves(name, denominator)) if not self.obliged else Undecided(f"{value} may not be whole")
        if not whole(value):
            raise NoValue(f"{value} is no whole number")
        return value

    def static(self, value: Value) -> int:
        found = self.size(value).constant
        if found is None:
            raise Undecided("a number is not known before the sizes are")
        return int(found)

    def tensor(self, value: Value) -> Symbolic:
        if isinstance(value, Symbolic):
            return value
        if isinstance(value, bool):
            return Symbolic((), lambda _: Const(value), "bool")
        if isinstance(value, Poly):
            number_or_size: Element = Whole(value) if value.constant is None else Const(value.constant)
            return Symbolic((), lambda _: number_or_size, "weak")
        raise Undecided("a tensor is needed")

    def evaluate(self, node: Expr) -> Value:
        known = self.memo.get(id(node))
        if known is None:
            known = self.memo[id(node)] = (node, self._evaluate(node))
        return known[1]

    def _evaluate(self, node: Expr) -> Value:
        match node:
            case Literal(value=bool() | None | str() as value):
                return value
            case Literal(value=int() | Fraction() as value):
                return number(value)
            case Name(id=name) if name in self.env:
                return self.env[name]
            case Name(id="inf" | "nan" | "pi" as name):
                return Symbolic((), lambda _: Const(name), "weak")
            case Name(id=name) if name in DTYPE_NAMES or name == "dtype":
                return name
            case Sequence(items=items):
                return tuple(self.evaluate(item) for item in items)
            case Subscript(base=base, index=index):
                return self._subscript(self.evaluate(base), index)
            case Call(op="choose", args=(condition, then, other)):
                return self.evaluate(then if self._truth(condition) else other)
            case Call():
                return self._call(node)
        raise Undecided(f"{type(node).__name__} has no symbolic value")

    def _truth(self, node: Expr) -> bool:
        value = self.evaluate(node)
        if isinstance(value, bool):
            return value
        raise Undecided("a condition depends on the sizes")

    def _call(self, call: Call) -> Value:
        spec = lookup(call)
        values = {name: self.evaluate(value) for name, value in bind(call).items()}
        layout = LAYOUT.get(spec.name)
        if layout is not None:
            found: Value = layout(self, **values)
            return found
        if all(not isinstance(v, Symbolic) for v in values.values()) and spec.family in ("elementwise", "static", "predicate"):
            decided = self._on_sizes(spec.name, list(values.values()))
            if decided is not None:
                return decided[0]
        if not spec.primitive and (self.real or spec.family in OPENED or (spec.elementwise and not pointwise(spec.name))):
            return self._opened(call, values)
        if spec.elementwise:
            return self._pointwise(spec, values)
        if self.real:
            if spec.name in F.IDENTITIES:
                return F.reduce(self, spec.name, values)
            if spec.name == "matmul":
                return F.matmul(self, self.tensor(values["a"]), self.tensor(values["b"]))
        return self._opaque(spec, values)

    def _opened(self, call: Call, values: dict[str, Value]) -> Value:
        """The definition, with the arguments evaluated once."""
        names = {key: Name(f"%{key}.{id(call)}") for key in values}
        plain = {key: found for key, value in bind(call).items() if (found := _literal(value, values[key])) is not None}
        body = expand_once(Call(lookup(call).name, (), tuple({**names, **plain}.items()), call.span))
        assert body is not None
        self.env.update({name.id: values[key] for key, name in names.items()})
        return self.evaluate(body)

    # Sizes ----------------------------------------------------------------------------------------------------------------------------------

    def _on_sizes(self, op: str, values: list[Value]) -> tuple[Value] | None:
        """An op on numbers and sizes, in a box; None where it is no whole-number matter."""
        if op in ("logical_and", "logical_or", "logical_not") and all(isinstance(v, bool) for v in values):
            flags = [bool(v) for v in values]
            return (not flags[0] if op == "logical_not" else all(flags) if op == "logical_and" else any(flags),)
        if op in ("eq", "ne") and not all(isinstance(v, Poly) for v in values):
            a, b = values
            return ((a == b and type(a) is type(b)) == (op == "eq"),)
        if not all(isinstance(v, Poly) for v in values):
            return None
        polys = [v for v in values if isinstance(v, Poly)]
        if len(polys) == 1:
            if op == "neg" and not polys[0].terms and not self.real:
                return (Symbolic((), lambda _: Const("-0"), "weak"),)
            return (-polys[0],) if op == "neg" else None
        if len(polys) != 2:
            return None
        a, b = polys
        if op in ("add", "sub", "mul"):
            return (a + b if op == "add" else a - b if op == "sub" else a * b,)
        if op == "div":
            found = exact_quotient(a, b)
            return None if found is None else (found,)
        if op in ("floor_div", "remainder") and whole(a) and whole(b):
            self.need(b - ONE, "division by zero")
            return (self.facts.divide(a, b)[0 if op == "floor_div" else 1],)
        return self._compared(op, a, b)

    def _compared(self, op: str, a: Poly, b: Poly) -> tuple[Value] | None:
        gap = a - b
        if op in ("maximum", "minimum"):
            larger = self.facts.sign(gap)
            if larger is None and whole(gap):
                # Nothing is taken apart: the two cases only know which is larger.
                raise Refine((Digits(f"?{gap}", ZERO, (), (gap,)), Digits(f"?{gap}", ZERO, (), (-gap - ONE,))))
            return None if larger is None else (a if larger == (op == "maximum") else b,)
        if op in ORDERS:
            sign = self.facts.sign(ORDERS[op](a, b)) if whole(gap) else None
            return None if sign is None else (sign,)
        if op in ("eq", "ne"):
            if not gap.terms:
                return (op == "eq",)
            if self.facts.shown(gap - ONE) or self.facts.shown(-gap - ONE):
                return (op == "ne",)
        return None

    # Elements -------------------------------------------------------------------------------------------------------------------------------

    def _pointwise(self, spec: OpSpec, values: dict[str, Value]) -> Symbolic:
        operands = [self.tensor(v) for v in values.values() if isinstance(v, Symbolic | Poly | bool)]
        statics = tuple(v for v in values.values() if not isinstance(v, Symbolic | Poly | bool))
        shape = L.broadcast(self, [x.shape for x in operands])

        def at(place: Place) -> Element:
            return self.applied(spec.name, statics, [x.at(L.seen(place, x.shape)) for x in operands])

        kinds = {x.element for x in operands} - {"weak"}
        return Symbolic(shape, at, "bool" if spec.name in (*ORDERS, "eq", "ne", "logical_not") else next(iter(sorted(kinds)), "weak"))

    def applied(self, op: str, statics: tuple[object, ...], args: list[Element]) -> Element:
        if op == "where" and isinstance(args[0], Choice) and isinstance(args[0].then, Const) and isinstance(args[0].other, Const):
            chosen = args[0]
            yes, no = (args[1] if c.payload is True else args[2] for c in (chosen.then, chosen.other) if isinstance(c, Const))
            return Choice(chosen.condition, yes, no)
        if op == "where" and isinstance(args[0], Const):
            return args[1] if args[0].payload is True else args[2]
        if op == "neg" and isinstance(args[0], Const) and args[0].payload in NEGATED_NAMES:
            return Const(NEGATED_NAMES[str(args[0].payload)])
        numbers = [position(a) for a in args]
        if all(n is not None for n in numbers) and (
            op in ORDERS or op in ("add", "sub", "mul", "neg", "eq", "ne", "floor_div", "remainder")
        ):
            found = self._on_places(op, [n for n in numbers if n is not None])
            if found is not None:
                return found
        if self.real:
            simpler = simplified(op, args)
            if simpler is not None:
                return simpler
        return Apply(op, statics, tuple(args))

    def _on_places(self, op: str, values: list[Poly]) -> Element | None:
        yes, no = Const(True), Const(False)
        if op in ORDERS and all(whole(v) for v in values):
            return self.choose(ORDERS[op](values[0], values[1]), lambda: yes, lambda: no)
        if op in ("eq", "ne") and all(whole(v) for v in values):
            gap = values[0] - values[1]
            same, other = (yes, no) if op == "eq" else (no, yes)
            return self.choose(gap, lambda: self.choose(-gap, lambda: same, lambda: other), lambda: other)
        if op in ORDERS or op in ("eq", "ne"):
            return None
        decided = self._on_sizes(op, list(values))
        if decided is None or not isinstance(decided[0], Poly):
            return None
        constant = decided[0].constant
        return Whole(decided[0]) if constant is None else Const(constant)

    # Kernels ----------------------------------------------------------------------------------------------------------------------------------

    def _opaque(self, spec: OpSpec, values: dict[str, Value]) -> Symbolic:
        """A kernel on whole tensors: its shape by the op table's rule."""
        tensors, statics, types = [], [], {}
        for key, value in values.items():
            if isinstance(value, tuple) and any(isinstance(v, Symbolic) for v in value):
                raise Undecided(f"{spec.name} takes a list of tensors")
            types[key] = _type(value)
            if isinstance(value, Symbolic):
                tensors.append(value)
            else:
                statics.append(value)
        literals = {key: Literal(value) for key, value in values.items() if value is None or isinstance(value, bool | str)}
        call = Call(spec.name, (), tuple((key, literals.get(key, Name(f"%{key}"))) for key in values))
        found = Inference({f"%{key}": kind for key, kind in types.items()}).type_of(call)
        if not isinstance(found, TensorValue) or found.shape is None or not all(isinstance(n, Poly) for n in found.shape):
            raise Undecided(f"the shape of {spec.name} is not known")
        shape = tuple(n for n in found.shape if isinstance(n, Poly))
        inputs, fixed = tuple(tensors), (*statics, tuple(key for key in values if isinstance(values[key], Symbolic)))
        return Symbolic(shape, lambda place: Opaque(spec.name, fixed, inputs, place), found.element)

    # Indexing ---------------------------------------------------------------------------------------------------------------------------------

    def _subscript(self, base: Value, index: tuple[Expr, ...]) -> Value:
        if isinstance(base, tuple):
            at = self.static(self.evaluate(index[0]))
            if not -len(base) <= at < len(base):
                raise NoValue("an index beyond a list")
            return base[at]
        x = self.tensor(base)
        consumed = sum(not isinstance(i, Rest) and i != Literal(None) for i in index)
        if not any(isinstance(i, Rest) for i in index):
            index = (*index, Rest())
        at, rank = 0, len(x.shape)
        if consumed > rank:
            raise NoValue("more indices than dimensions")
        for part in index:
            if isinstance(part, Rest):
                at += rank - consumed
            elif isinstance(part, Slice):
                start, stop = (None if p is None else self.size(self.evaluate(p)) for p in (part.start, part.stop))
                step = 1 if part.step is None else self.static(self.evaluate(part.step))
                x, at = L.sliced(self, x, at, start, stop, step), at + 1
            elif part == Literal(None):
                x, at = L.unsqueeze(self, x, number(at)), at + 1
            else:
                value = self.evaluate(part)
                if isinstance(value, tuple):
                    value = listed(self, value)
                if isinstance(value, Symbolic):
                    x, at = index_select(self, x, number(at), value), at + len(value.shape)
                else:
                    x = L.select(self, x, number(at), value)
        return x


def _literal(node: Expr, value: Value) -> Expr | None:
    """The argument as a definition may want to read it: written out where it is known; None where only its value is."""
    if node in (Name("inf"), Name("pi")):
        return node
    if isinstance(value, Poly) and value.constant is not None:
        whole_number = value.constant.denominator == 1
        return Literal(int(value.constant) if whole_number else value.constant)
    if value is None or isinstance(value, bool) or (isinstance(value, str) and isinstance(node, Literal)):
        return Literal(value)
    if isinstance(value, tuple) and value and all(isinstance(v, Poly) and v.constant is not None for v in value):
        return Sequence(tuple(item for v in value if (item := _literal(node, v)) is not None))
    return node if isinstance(node, Sequence) else None


def _type(value: Value) -> TypeOf:
    if isinstance(value, Symbolic):
        return TensorValue("float" if value.element == "weak" else value.element, value.shape)
    if isinstance(value, bool):
        return NumberValue("bool", ONE if value else ZERO)
    if isinstance(value, Poly):
        return NumberValue("int" if whole(value) else "float", value)
    if value is None:
        return StaticValue("none")
    if isinstance(value, str):
        return StaticValue("dtype" if value in DTYPE_NAMES else "text", value)
    return ListValue(tuple(_type(v) for v in value))
