"""The type of an expression, from the types of its names: kinds, formats and symbolic shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from adapterc.dsl.ast import NOWHERE, Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Span, Subscript
from adapterc.dsl.diagnostics import Diagnostic, SpecError, did_you_mean
from adapterc.dsl.ops import DTYPE_NAMES, KNOWN_NAMES, bind, expand_once, lookup, truth
from adapterc.dsl.opspec import OpSpec, Param
from adapterc.dsl.poly import ONE, Poly, atom, divide, number, symbol
from adapterc.dsl.printer import short_text, to_text
from adapterc.dsl.shapeargs import NONE, Arguments
from adapterc.dsl.shapelayout import elements, sliced
from adapterc.dsl.shapes import rule_of
from adapterc.dsl.sizes import derive
from adapterc.dsl.values import (
    UNKNOWN,
    Axis,
    ListValue,
    Mismatch,
    NumberValue,
    StaticValue,
    TensorValue,
    TypeOf,
    UnknownValue,
    axis_at,
    category,
    rank,
    shape_text,
    type_of_text,
)
from adapterc.dsl.values import (
    Rest as RestAxis,
)

_ARITHMETIC = ("add", "sub", "mul", "div", "neg", "pow")
_WHOLE = (
    "floor_div",
    "remainder",
    "ceil_div",
    "ceil_to",
    "gcd",
    "lcm",
    "lpf",
    "smooth",
    "stick",
    "maximum",
    "minimum",
    "abs",
    "floor",
    "ceil",
)


class Inference:
    """Types of expressions under one set of names. Shared subtrees are typed once."""

    def __init__(self, env: Mapping[str, TypeOf]) -> None:
        self._env = env
        self._done: dict[int, tuple[Expr, TypeOf]] = {}

    def type_of(self, node: Expr) -> TypeOf:
        """Raises SpecError ADC210 to ADC240 with the place of the innermost expression that does not fit."""
        known = self._done.get(id(node))
        if known is not None:
            return known[1]
        try:
            found = self._type_of(node)
        except Mismatch as error:
            raise SpecError(Diagnostic(error.code, error.message, node.span, error.hint)) from None
        self._done[id(node)] = (node, found)
        return found

    def _type_of(self, node: Expr) -> TypeOf:
        match node:
            case Literal(value=value):
                return _literal(value)
            case Name(id=name):
                return self._name(name, node.span)
            case Attribute():
                return self._attribute(node)
            case Sequence(items=items):
                return ListValue(tuple(self.type_of(item) for item in items))
            case Subscript():
                return self._subscript(node)
            case Call():
                return self._call(node)
        raise SpecError(Diagnostic("ADC201", f"`{short_text(node)}` stands outside brackets.", node.span, "Write it as `x[…]`."))

    def _name(self, name: str, span: Span) -> TypeOf:
        if name in self._env:
            return self._env[name]
        if name in ("inf", "nan", "pi"):
            return NumberValue("float")
        if name in ("stick", "cores"):
            return NumberValue("int", symbol(name))
        if name in DTYPE_NAMES:
            return StaticValue("dtype", name)
        if name in KNOWN_NAMES:
            return StaticValue("dtype" if name == "dtype" else "text" if name == "device" else "record")
        hint = did_you_mean(name, (*self._env, *KNOWN_NAMES)) or "Bind it in `where:`, `let:` or `constants:`."
        raise SpecError(Diagnostic("ADC220", f"`{name}` is not bound here.", span, hint))

    def _attribute(self, node: Attribute) -> TypeOf:
        base = self.type_of(node.base)
        if (isinstance(base, StaticValue) and base.kind == "record") or isinstance(node.base, Attribute):
            return NumberValue("any", symbol(to_text(node)))
        hint = "Only `config` (and `module`) have fields; sizes are `size(x, dim)`."
        raise SpecError(Diagnostic("ADC230", f"`{short_text(node.base)}` has no fields.", node.span, hint))

    def _call(self, call: Call) -> TypeOf:
        spec = lookup(call)
        bound = bind(call)
        if spec.name == "choose":
            return self._choose(call, bound)
        types = {name: self.type_of(argument) for name, argument in bound.items()}
        try:
            for param in spec.params:
                _check_kind(spec, param, types[param.name])
            static = self._static(spec, types)
            if static is not None:
                return static
            if spec.shape:
                return rule_of(spec.shape)(types)
            inner = expand_once(call)
            assert inner is not None, f"{spec.name} has neither a shape rule nor a definition"
            return self.type_of(inner)
        except Mismatch as error:
            raise SpecError(Diagnostic(error.code, error.message, call.span, error.hint or f"It is `{spec.signature}`.")) from None
        except SpecError as error:
            # What goes wrong inside a definition is shown at the call: the user wrote no other place.
            here = (
                replace(d, span=call.span) if d.span == NOWHERE or d.span.file == NOWHERE.file != call.span.file else d
                for d in error.diagnostics
            )
            raise SpecError(*here) from None

    def _choose(self, call: Call, bound: Mapping[str, Expr]) -> TypeOf:
        decided = truth(bound["condition"])
        if decided is None:
            decided = self._decided(bound["condition"])
        if decided is not None:
            return self.type_of(bound["value" if decided else "otherwise"])
        self.type_of(bound["condition"])
        return rule_of("choose")({"value": self.type_of(bound["value"]), "otherwise": self.type_of(bound["otherwise"])})

    def _decided(self, condition: Expr) -> bool | None:
        """Conditions that types decide: `is_bool(mask)`."""
        if isinstance(condition, Call) and condition.op == "is_bool":
            found = self.type_of(condition.args[0])
            if isinstance(found, TensorValue) and category(found.element) != "any":
                return category(found.element) == "bool"
        return None

    def _static(self, spec: OpSpec, types: Arguments) -> TypeOf | None:
        """Numbers known at build, as polynomials; None for everything that is about tensors."""
        values = list(types.values())
        if spec.name in ("size", "numel", "rank"):
            return _measured(spec.name, types)
        if spec.name == "length" and isinstance(values[0], ListValue):
            return NumberValue("int", number(len(values[0].items)))
        if not values or not all(isinstance(v, NumberValue) for v in values):
            return None
        sizes = [v.size for v in values if isinstance(v, NumberValue)]
        kinds = {v.element for v in values if isinstance(v, NumberValue)}
        if "bool" in kinds or any(size is None for size in sizes):
            return None
        polys = [size for size in sizes if size is not None]
        kind = "int" if kinds == {"int"} and spec.name != "div" else "any"
        constant = all(p.constant is not None for p in polys)
        if spec.name in _ARITHMETIC and not (constant and spec.name == "pow"):
            found = _arithmetic(spec.name, polys)
            return NumberValue(kind, found) if found is not None else None
        if constant and spec.name in (*_WHOLE, "pow"):
            # Powers of numbers may be large: the exact evaluator bounds them.
            value = derive(Call(spec.name, tuple(Literal(_exact(p)) for p in polys)), {}).value
            return NumberValue("int", number(value)) if isinstance(value, int | Fraction) else None
        if spec.name in _WHOLE:
            return NumberValue("int", atom(f"{spec.name}({', '.join(str(p) for p in polys)})"))
        return None

    def _subscript(self, node: Subscript) -> TypeOf:
        base = self.type_of(node.base)
        if isinstance(base, UnknownValue):
            return UNKNOWN
        if isinstance(base, ListValue):
            return UNKNOWN
        if not isinstance(base, TensorValue):
            raise SpecError(
                Diagnostic("ADC230", f"`{short_text(node.base)}` is no tensor and has no elements.", node.span, "Index tensors only.")
            )
        if any(isinstance(self.type_of(i), TensorValue) for i in node.index if not isinstance(i, Slice | Rest)):
            hint = "Use `take`, `index_select` or `gather`."
            raise SpecError(Diagnostic("ADC230", "A tensor among several subscripts is not in the language.", node.span, hint))
        return TensorValue(base.element, self._indexed(base, node))

    def _indexed(self, base: TensorValue, node: Subscript) -> tuple[Axis, ...] | None:
        consumed = [i for i in node.index if not isinstance(i, Rest) and i != Literal(None)]
        shape = base.shape
        if shape is None:
            return None
        known = rank(shape)
        if known is not None and len(consumed) > known:
            message = f"{len(consumed)} subscripts for {shape_text(shape)}, which has {known} dimensions."
            raise Mismatch("ADC232", message, "Drop some of them.")
        at = next((i for i, item in enumerate(node.index) if isinstance(item, Rest)), len(node.index))
        before, after = node.index[:at], node.index[at + 1 :]
        head = self._walk(shape, before, node)
        taken = sum(1 for i in after if i != Literal(None))
        if head is None:
            return None
        done, left = head
        if any(isinstance(axis, RestAxis) for axis in left[len(left) - taken :]) or taken > len(left):
            return None
        tail = self._walk(left[len(left) - taken :], after, node)
        return None if tail is None else (*done, *left[: len(left) - taken], *tail[0])

    def _walk(self, shape: tuple[Axis, ...], index: tuple[Expr, ...], node: Subscript) -> tuple[tuple[Axis, ...], tuple[Axis, ...]] | None:
        """The axes that the subscripts leave, and the axes that they do not reach; None when a rest is met."""
        done: list[Axis] = []
        left = list(shape)
        for item in index:
            if item == Literal(None):
                done.append(ONE)
                continue
            axis = left.pop(0)
            if isinstance(axis, RestAxis):
                return None
            if isinstance(item, Slice):
                length = sliced(axis, *(self._bound(part) for part in (item.start, item.stop, item.step)))
                assert length is not None
                done.append(length)
                continue
            place = self._bound(item)
            outside = place is not None and place.constant is not None and axis.constant is not None
            if outside and place is not None and not -_exact(axis) <= _exact(place) < _exact(axis):
                raise Mismatch("ADC232", f"There is no index {place} in a dimension of size {axis}.", "Count from 0.")
        return tuple(done), tuple(left)

    def _bound(self, part: Expr | None) -> Poly | None:
        if part is None:
            return None
        found = self.type_of(part)
        if isinstance(found, NumberValue):
            return found.size if found.size is not None else atom(to_text(part))
        if isinstance(found, UnknownValue):
            return atom(to_text(part))
        raise SpecError(
            Diagnostic("ADC230", f"`{short_text(part)}` is no size.", part.span, "Subscripts are sizes, slices, `...` and None.")
        )


def _literal(value: int | Fraction | str | bool | None) -> TypeOf:
    match value:
        case None:
            return NONE
        case bool():
            return NumberValue("bool", number(int(value)))
        case str():
            return StaticValue("text", value)
        case int():
            return NumberValue("int", number(value))
    return NumberValue("float", number(value))


def _exact(poly: Poly) -> Fraction:
    assert poly.constant is not None
    return poly.constant


def _measured(name: str, types: Arguments) -> TypeOf:
    x = types["x"]
    if isinstance(x, UnknownValue):
        return NumberValue("int", None)
    if not isinstance(x, TensorValue):
        raise Mismatch("ADC230", f"`{name}` measures tensors.")
    if name == "rank":
        known = rank(x.shape)
        return NumberValue("int", number(known) if known is not None else None)
    if name == "numel":
        return NumberValue("int", elements(x.shape))
    dim = types["dim"]
    place = dim.size.constant if isinstance(dim, NumberValue) and dim.size is not None else None
    return NumberValue("int", axis_at(x.shape, int(place)) if place is not None else None)


def _arithmetic(name: str, polys: list[Poly]) -> Poly | None:
    a, b = polys[0], polys[-1]
    match name:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "neg":
            return -a
        case "div":
            if b.constant == 0:
                raise Mismatch("ADC240", "This divides by zero.", "Mend the divisor.")
            return divide(a, b)
    exponent = b.constant
    if exponent is not None and exponent.denominator == 1 and 0 <= exponent <= 8:
        power = ONE
        for _ in range(int(exponent)):
            power = power * a
        return power
    return None


_NEEDS = {
    "tensor": "a tensor",
    "tensors": "a list of tensors",
    "operand": "a tensor or a number",
    "number": "a number",
    "dim": "the number of a dimension",
    "dims": "numbers of dimensions",
    "size": "a size",
    "sizes": "sizes",
    "bool": "true or false",
    "dtype": "a number format",
    "string": "text",
}


def _check_kind(spec: OpSpec, param: Param, found: TypeOf) -> None:
    """Raises Mismatch ADC230 when an argument is of a kind that the parameter cannot be."""
    optional = isinstance(param.default, Literal) and param.default.value is None
    if isinstance(found, UnknownValue) or param.kind == "static" or (optional and found == NONE):
        return
    number_like = isinstance(found, NumberValue)
    fits = {
        "tensor": isinstance(found, TensorValue),
        "tensors": isinstance(found, ListValue),
        "operand": isinstance(found, TensorValue) or number_like or _comparable(spec, found),
        "number": number_like or (isinstance(found, TensorValue) and found.shape == ()),
        "dim": number_like and found != NONE,
        "dims": number_like or isinstance(found, ListValue),
        "size": number_like,
        "sizes": number_like or isinstance(found, ListValue),
        "bool": number_like,
        "dtype": isinstance(found, StaticValue) and found.kind in ("dtype", "record"),
        "string": (isinstance(found, StaticValue) and found.kind == "text") or number_like,
    }[param.kind]
    if not fits:
        message = f"`{param.name}` of `{spec.name}` must be {_NEEDS[param.kind]}, not {type_of_text(found)}."
        raise Mismatch("ADC230", message, f"It is `{spec.signature}`.")


def _comparable(spec: OpSpec, found: TypeOf) -> bool:
    """Texts, formats, config fields and None can be compared, in conditions."""
    return spec.name in ("eq", "ne") and isinstance(found, StaticValue)
