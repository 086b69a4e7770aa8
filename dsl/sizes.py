"""Exact values of sizes and conditions: what `ceil_to(d, stick)` is for this model, and how it came about.

Numbers are integers and fractions; `d / 2` is exact, and a size that is not whole in the end is a fault. A field that a config lacks reads as
None, and so does a field of None: `config.rope_scaling.rope_type == "longrope"` is then false. All that could grow is bounded.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, cast

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Sequence, Span
from adapterc.dsl.diagnostics import Diagnostic, SpecError, shorten
from adapterc.dsl.ops import OPS, bind, expand_once, lookup
from adapterc.dsl.printer import short_text, to_text

SPAN_BYTES = 256 * 2**20  # one core addresses 256 MiB (torch-spyre, work-division limits): no dimension is longer, even of bytes
_MAX_BITS = 4096  # of an intermediate number
_MAX_FACTORED = 2**40  # trial division stays below a million steps

Number: TypeAlias = int | Fraction
Value: TypeAlias = object  # Number, float (inf, nan), str, bool, None, tuple of values, or a record (mapping or object)

STICK_ELEMENTS: Mapping[str, int] = {
    "float16": 64, "bfloat16": 64, "float32": 32, "int8": 128, "uint8": 32, "int32": 32, "int64": 32, "bool": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a derivation: a part of the expression as written, and its value."""

    text: str
    value: Value


@dataclass(frozen=True, slots=True)
class Derivation:
    """The value of an expression and the steps to it, innermost first."""

    value: Value
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(f"{step.text} = {value_text(step.value)}" for step in self.steps)


def evaluate_size(expression: Expr, env: Mapping[str, Value]) -> int:
    """The size as a whole number of elements, 0 to SPAN_BYTES.

    `env` gives the values of names: sizes, `stick`, `cores`, `dtype` (a string such as "float16"), `config` (a mapping or an object), and
    `gaps` (the open gap ids). Raises SpecError: ADC240 division by zero, ADC241 too large, ADC242 not whole, ADC243 no value.
    """
    return whole_size(derive(expression, env).value, expression)


def whole_size(value: Value, expression: Expr) -> int:
    """The value as a size, or the SpecError that says why it is none."""
    text = short_text(expression)
    if isinstance(value, Fraction) and value.denominator == 1:
        value = value.numerator
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"The size `{text}` is {shorten(value_text(value))}, not a whole number."
        raise SpecError(Diagnostic("ADC242", message, expression.span, "Round it with `ceil_div`, `ceil_to` or `//`."))
    if value < 0:
        raise SpecError(Diagnostic("ADC242", f"The size `{text}` is {_amount(value)}, below zero.", expression.span, "Use `max(…, 0)`."))
    if value > SPAN_BYTES:
        message = f"The size `{text}` is {_amount(value)} elements, beyond the 256 MiB span of a core ({SPAN_BYTES:,} bytes)."
        raise SpecError(Diagnostic("ADC241", message, expression.span, "Check its factors."))
    return value


def _amount(value: Number) -> str:
    """A number in a sentence: digits, or its magnitude where they would fill the screen."""
    bits = int(value).bit_length()
    return f"{value:,}" if bits <= 64 else f"{'-' if value < 0 else ''}2^{bits - 1} or more"


def evaluate_condition(expression: Expr, env: Mapping[str, Value]) -> bool:
    """Whether a predicate holds. Raises SpecError as `evaluate_size`, and ADC244 when the result is no truth value."""
    value = derive(expression, env).value
    if not isinstance(value, bool):
        message = f"The condition `{short_text(expression)}` is {shorten(value_text(value))}, not true or false."
        raise SpecError(Diagnostic("ADC244", message, expression.span, "Compare it, as in `… != 0` or `… != None`."))
    return value


def derive(expression: Expr, env: Mapping[str, Value]) -> Derivation:
    """The value of a size or condition with its steps. Raises SpecError ADC240, ADC241, ADC243 or ADC245."""
    evaluator = _Evaluator(env)
    value = evaluator.value(expression)
    return Derivation(value, tuple(evaluator.steps))


def value_text(value: Value) -> str:
    """A value as the language writes it."""
    match value:
        case None | bool() | int() | Fraction() | str():
            return to_text(Literal(value))
        case tuple():
            return f"[{', '.join(value_text(v) for v in value)}]"
        case float():
            return str(value)
    return f"a {type(value).__name__}"


class _Evaluator:
    def __init__(self, env: Mapping[str, Value]) -> None:
        self._env = env
        self.steps: list[Step] = []
        self._done: dict[int, tuple[Expr, Value]] = {}

    def value(self, node: Expr) -> Value:
        # Definitions read an argument more than once: remembered, nested ones cost their length and not a power of their depth.
        known = self._done.get(id(node))
        if known is None:
            known = (node, self._value(node))
            self._done[id(node)] = known
        return known[1]

    def _value(self, node: Expr) -> Value:
        match node:
            case Literal(value=value):
                return value
            case Name(id=name):
                return self._traced(node, self._name(name, node.span))
            case Attribute(base=base, name=name):
                return self._traced(node, _field(self.value(base), name))
            case Sequence(items=items):
                return tuple(self.value(item) for item in items)
            case Call():
                return self._traced(node, self._call(node))
        message = f"`{short_text(node)}` has no value outside a tensor expression."
        raise SpecError(Diagnostic("ADC243", message, node.span, "A size or condition reads names, config and numbers."))

    def _traced(self, node: Expr, value: Value) -> Value:
        step = Step(to_text(node), value)
        if isinstance(value, None | bool | int | Fraction | str | float) and step not in self.steps:
            self.steps.append(step)
        return value

    def _name(self, name: str, span: Span) -> Value:
        if name in self._env:
            return self._env[name]
        if name == "inf":
            return math.inf
        if name == "stick" and isinstance(self._env.get("dtype"), str):
            return _stick(self._env["dtype"], span)
        if name in STICK_ELEMENTS:
            return name  # a number format stands for itself
        known = ", ".join(sorted(self._env)) or "none"
        raise SpecError(Diagnostic("ADC243", f"`{name}` has no value here.", span, f"Names with a value: {known}."))

    def _call(self, call: Call) -> Value:
        spec = lookup(call)
        bound = bind(call)
        if spec.name in ("logical_and", "logical_or"):
            left = self._truth(bound["a"])
            return left if left == (spec.name == "logical_or") else self._truth(bound["b"])
        if spec.name == "choose":
            return self.value(bound["value"] if self._truth(bound["condition"]) else bound["otherwise"])
        if spec.name == "gap":
            gaps = self._env.get("gaps", ())
            return isinstance(gaps, tuple | list | set | frozenset) and self.value(bound["id"]) in gaps
        meaning = _MEANINGS.get(spec.name)
        if meaning is not None:
            return _bounded(meaning([self.value(argument) for argument in bound.values()], call), call)
        inner = expand_once(call)
        if inner is None or spec.family not in ("static", "elementwise", "predicate"):
            message = f"`{spec.name}` works on tensors; it has no value in a size or condition."
            raise SpecError(Diagnostic("ADC243", message, call.span, "Use sizes, config fields and numbers."))
        # Arguments first, so that nested composites do not nest the evaluation of their definitions.
        for argument in bound.values():
            self.value(argument)
        return _bounded(self.value(inner), call)

    def _truth(self, node: Expr) -> bool:
        value = self.value(node)
        if isinstance(value, bool):
            return value
        message = f"`{short_text(node)}` is {shorten(value_text(value))}, not true or false."
        raise SpecError(Diagnostic("ADC244", message, node.span, "Compare it, as in `… != None`."))


def _field(record: Value, name: str) -> Value:
    # A record is data: private names and methods are no fields of it.
    found = None if name.startswith("_") else record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)
    if isinstance(found, float):
        return Fraction(repr(found)) if math.isfinite(found) else found
    if isinstance(found, list):
        return tuple(found)
    return None if callable(found) else found


def _numbers(values: Listing[Value], call: Call) -> list[Number]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            message = f"`{short_text(call)}` needs numbers and gets {shorten(value_text(value))}."
            raise SpecError(Diagnostic("ADC245", message, call.span, "Guard it with a test such as `config.field != None and …`."))
    return [v for v in values if isinstance(v, int | Fraction)]


def _integers(values: Listing[Value], call: Call, least: int) -> list[int]:
    found: list[int] = []
    for value in _numbers(values, call):
        if value.denominator != 1 or value < least:
            message = f"`{short_text(call)}` needs whole numbers from {least} and gets {shorten(value_text(value))}."
            raise SpecError(Diagnostic("ADC242", message, call.span, "Round it with `ceil_div` or `//`."))
        if value > _MAX_FACTORED:
            raise SpecError(
                Diagnostic("ADC241", f"`{short_text(call)}` gets {_amount(value)}, beyond 2^40.", call.span, "Check its factors.")
            )
        found.append(int(value))
    return found


def _bounded(value: Value, call: Call) -> Value:
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        message = f"`{short_text(call)}` has more than {_MAX_BITS} bits, far beyond the 256 MiB span of a core."
        raise SpecError(Diagnostic("ADC241", message, call.span, "Check its factors."))
    return value


def _divided(values: Listing[Value], call: Call, divide: Callable[[Number, Number], Number]) -> Number:
    a, b = _numbers(values, call)
    if b == 0:
        raise SpecError(
            Diagnostic("ADC240", f"`{short_text(call)}` divides by zero.", call.span, "Guard it with `when:`, or mend the divisor.")
        )
    return divide(a, b)


def _power(values: Listing[Value], call: Call) -> Number:
    base, exponent = _numbers(values, call)
    if exponent.denominator != 1:
        raise SpecError(Diagnostic("ADC242", f"`{short_text(call)}` is not a whole power.", call.span, "Sizes take whole exponents."))
    if base == 0 and exponent < 0:
        raise SpecError(Diagnostic("ADC240", f"`{short_text(call)}` divides by zero.", call.span, "Guard it with `when:`."))
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * abs(int(exponent)) > 2 * _MAX_BITS:
        raise SpecError(Diagnostic("ADC241", f"`{short_text(call)}` grows beyond {_MAX_BITS} bits.", call.span, "Check its exponent."))
    # The base is -1, 0 or 1 where the exponent may still be large.
    power = int(exponent) if bits > 1 else exponent.numerator % 2 or (2 if exponent else 0)
    return Fraction(base) ** power


def _order(values: Listing[Value], call: Call, holds: Callable[[Number, Number], bool]) -> bool:
    if None in values:
        return False
    finite = [v for v in values if not isinstance(v, float)]
    _numbers(finite, call)
    a, b = (cast(Number, v) for v in values)  # or an infinity, which compares with numbers
    return holds(a, b)


def _same(a: Value, b: Value) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return a == b


def _stick(dtype: Value, span: Span) -> int:
    elements = STICK_ELEMENTS.get(str(dtype).removeprefix("torch."))
    if elements is None:
        raise SpecError(
            Diagnostic("ADC243", f"The format {value_text(dtype)} has no stick.", span, f"Formats: {', '.join(STICK_ELEMENTS)}.")
        )
    return elements


def largest_prime_factor(n: int) -> int:
    """The largest prime factor of n ≥ 1; 1 for 1."""
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            largest, n = factor, n // factor
        factor += 1 if factor == 2 else 2
    return n if n > 1 else largest


def next_smooth(n: int, limit: int) -> int:
    """The smallest m ≥ n ≥ 1 without a prime factor above limit ≥ 2."""
    if limit >= n:
        return max(n, 1)
    primes = [p for p in range(2, min(limit, 50) + 1) if largest_prime_factor(p) == p]
    if limit > 50:
        # Numbers this smooth lie close together, so that walking up finds one soon.
        while largest_prime_factor(n) > limit:
            n += 1
        return n
    best = 1 << (n - 1).bit_length()
    products = [1]
    for prime in reversed(primes):
        if prime == 2:
            break
        grown = list(products)
        for product in products:
            while (product := product * prime) < best:
                grown.append(product)
        products = grown
    for product in products:
        # The missing factor is the smallest power of two that reaches n.
        best = min(best, product << max(0, (-(-n // product) - 1).bit_length()))
    return best


_MEANINGS: Mapping[str, Callable[[list[Value], Call], Value]] = {
    "add": lambda v, c: sum(_numbers(v, c)),
    "sub": lambda v, c: _numbers(v, c)[0] - _numbers(v, c)[1],
    "mul": lambda v, c: _numbers(v, c)[0] * _numbers(v, c)[1],
    "div": lambda v, c: _divided(v, c, lambda a, b: Fraction(a) / Fraction(b)),
    "floor_div": lambda v, c: _divided(v, c, lambda a, b: a // b),
    "remainder": lambda v, c: _divided(v, c, lambda a, b: a % b),
    "pow": _power,
    "neg": lambda v, c: -_numbers(v, c)[0],
    "abs": lambda v, c: abs(_numbers(v, c)[0]),
    "floor": lambda v, c: math.floor(_numbers(v, c)[0]),
    "ceil": lambda v, c: math.ceil(_numbers(v, c)[0]),
    "maximum": lambda v, c: max(_numbers(v, c)),
    "minimum": lambda v, c: min(_numbers(v, c)),
    "eq": lambda v, c: _same(v[0], v[1]),
    "ne": lambda v, c: not _same(v[0], v[1]),
    "lt": lambda v, c: _order(v, c, lambda a, b: a < b),
    "le": lambda v, c: _order(v, c, lambda a, b: a <= b),
    "gt": lambda v, c: _order(v, c, lambda a, b: a > b),
    "ge": lambda v, c: _order(v, c, lambda a, b: a >= b),
    "logical_not": lambda v, c: _negated(v[0], c),
    "contains": lambda v, c: isinstance(v[1], tuple) and any(_same(v[0], item) for item in v[1]),
    "has": lambda v, c: _field(v[0], str(v[1])) is not None,
    "glob": lambda v, c: isinstance(v[0], str) and fnmatch.fnmatchcase(v[0], str(v[1])),
    "length": lambda v, c: len(v[0]) if isinstance(v[0], tuple | str) else 0,
    "stick": lambda v, c: _stick(v[0], c.span),
    "gcd": lambda v, c: math.gcd(*_integers(v, c, 0)),
    "lcm": lambda v, c: math.lcm(*_integers(v, c, 0)),
    "lpf": lambda v, c: largest_prime_factor(_integers(v, c, 1)[0]),
    "smooth": lambda v, c: next_smooth(max(_integers(v[:1], c, 0)[0], 1), _integers(v[1:], c, 2)[0]),
    "is_power_of_two": lambda v, c: (n := _integers(v, c, 0)[0]) > 0 and n & (n - 1) == 0,
    "is_integer": lambda v, c: _numbers(v, c)[0].denominator == 1,
}
assert set(_MEANINGS) <= set(OPS)


def _negated(value: Value, call: Call) -> bool:
    if isinstance(value, bool):
        return not value
    raise SpecError(Diagnostic("ADC244", f"`{short_text(call)}` negates {value_text(value)}.", call.span, "Compare it first."))
