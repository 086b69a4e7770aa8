"""What is wrong with a rule before any value is looked at: names, arguments, kinds, formats, shapes.

`match` and `substitute` must have the same type: the same shape for all sizes, and the same number format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from adapterc.dsl.adapter import Adapter, Boundary, Header, Pad, Place, Replace, Require, Rewrite, Rule, Weights
from adapterc.dsl.ast import Call, Expr, Literal, Name, Span, children, names, walk
from adapterc.dsl.diagnostics import Diagnostic, SpecError, did_you_mean
from adapterc.dsl.infer import Inference
from adapterc.dsl.ops import KNOWN_NAMES, bind, lookup
from adapterc.dsl.opspec import Param
from adapterc.dsl.poly import Poly, symbol
from adapterc.dsl.printer import short_text
from adapterc.dsl.resolve import is_tensor
from adapterc.dsl.sizes import whole_size
from adapterc.dsl.types import RestDims, ScalarType, TensorType, Type
from adapterc.dsl.values import UNKNOWN, Axis, NumberValue, Rest, TensorValue, TypeOf, UnknownValue, category, shape_text, type_of_text

Bindings = Sequence[tuple[str, Expr]]


def check_types(adapter: Adapter) -> tuple[Diagnostic, ...]:
    """All faults and warnings of an adapter's rules, in the order of the file (codes ADC2xx)."""
    found: list[Diagnostic] = []
    if adapter.when is not None:
        found += _Checker({}).condition(adapter.when)
    for rule in adapter.rules:
        found += check_rule_types(rule)
    return tuple(sorted(found, key=lambda d: (d.span.line, d.span.column)))


def check_rule_types(rule: Rule) -> list[Diagnostic]:
    """The faults and warnings of one rule."""
    match rule:
        case Rewrite():
            faults = _rewrite(rule.header, rule.match, rule.substitute, rule.where, rule.lets, rule.constants, ())
        case Weights():
            faults = _rewrite(rule.header, rule.match, rule.substitute, rule.where, (), (), rule.program)
        case Replace():
            faults = _replace(rule)
        case Pad():
            faults = _pad(rule)
        case Place() | Boundary():
            faults = _matched(rule.header, rule.match, rule.where)
        case Require():
            faults = _Checker({}).condition(rule.condition)
    config = _Checker({})
    for expectation in rule.header.expect:
        faults += config.condition(expectation.when) if expectation.when is not None else []
        for bound in (expectation.least, expectation.most):
            faults += config.size(bound) if bound is not None else []
    return list(dict.fromkeys(faults))


def environment(where: Sequence[tuple[str, Type]]) -> dict[str, TypeOf]:
    """The types of the variables and sizes that `where` declares. Raises SpecError for a dimension that is no size."""
    env: dict[str, TypeOf] = {}
    dims = [d for _, found in where if isinstance(found, TensorType) for d in found.dims if not isinstance(d, RestDims)]
    for dim in dims:
        for name in names(dim) - set(KNOWN_NAMES):
            env[name] = NumberValue("int", symbol(name))
    sizes = Inference(env)
    for name, found in where:
        if isinstance(found, ScalarType):
            whole = found.element == "size"
            env[name] = NumberValue("int" if whole else "any", symbol(name) if whole else None)
        else:
            env[name] = TensorValue(found.element, tuple(_axis(d, name, sizes) for d in found.dims))
    return env


def _axis(dim: Expr | RestDims, variable: str, sizes: Inference) -> Axis:
    if isinstance(dim, RestDims):
        # A rest without a name is the variable's own: it only has to broadcast with the others.
        return Rest(frozenset({dim.name if dim.name is not None else f".{variable}"}))
    found = sizes.type_of(dim)
    if isinstance(found, NumberValue) and found.size is not None:
        return found.size
    raise SpecError(Diagnostic("ADC231", f"The dimension `{short_text(dim)}` is no size.", dim.span, "Use names and whole numbers."))


@dataclass
class _Checker:
    """Collects faults, so that one bad expression does not hide the next."""

    env: dict[str, TypeOf]
    faults: list[Diagnostic] = field(default_factory=list)

    def type_of(self, expression: Expr) -> TypeOf:
        try:
            return Inference(self.env).type_of(expression)
        except SpecError as error:
            self.faults += error.diagnostics
            return UNKNOWN

    def condition(self, expression: Expr) -> list[Diagnostic]:
        """A predicate: true or false. One over the values of a tensor can be assumed by a proof, but no graph can decide it: a warning."""
        tensors = frozenset(name for name, value in self.env.items() if isinstance(value, TensorValue))
        if is_tensor(expression, tensors):
            read = next(n for n in walk(expression) if isinstance(n, Name) and n.id in tensors)
            message = (
                f"The condition reads the values of `{read.id}`, which no graph knows: the rule can be checked under it, but not built."
            )
            return [
                Diagnostic(
                    "ADC226", message, read.span, "Use sizes, `scalar` variables or config, or a pattern that implies it.", "warning"
                )
            ]
        checker = _Checker(self.env)
        found = checker.type_of(expression)
        fits = isinstance(found, UnknownValue) or (isinstance(found, NumberValue) and found.element in ("bool", "any"))
        if not checker.faults and not fits:
            message = f"The condition is {type_of_text(found)}, not true or false."
            return [Diagnostic("ADC244", message, expression.span, "Compare it, as in `… != 0`.")]
        return checker.faults

    def size(self, expression: Expr) -> list[Diagnostic]:
        """A whole number; a constant one must fit the span."""
        checker = _Checker(self.env)
        found = checker.type_of(expression)
        if checker.faults or isinstance(found, UnknownValue):
            return checker.faults
        if not isinstance(found, NumberValue) or found.element == "bool":
            return [
                Diagnostic("ADC242", f"A size is a whole number, not {type_of_text(found)}.", expression.span, "Use names and `ceil_to`.")
            ]
        if found.size is not None and found.size.constant is not None:
            try:
                whole_size(found.size.constant, expression)
            except SpecError as error:
                return list(error.diagnostics)
        return []

    def bind(self, bindings: Bindings, taken: Iterable[str]) -> None:
        """Bindings in order, each seeing those before it."""
        used = set(taken)
        for name, value in bindings:
            if name in used or name in KNOWN_NAMES:
                what = "a name of the language" if name in KNOWN_NAMES else "bound already"
                self.faults.append(Diagnostic("ADC222", f"`{name}` is {what}.", value.span, "Choose another name."))
            used.add(name)
            self.env[name] = self.type_of(value)


def _declared(header: Header, where: Sequence[tuple[str, Type]]) -> tuple[dict[str, TypeOf], list[Diagnostic]]:
    faults: list[Diagnostic] = []
    sizes = {n for _, t in where if isinstance(t, TensorType) for d in t.dims if not isinstance(d, RestDims) for n in names(d)}
    for name, found in where:
        shared = name in sizes and found != ScalarType("size")  # a number that is also a dimension may well be declared as one
        if name in KNOWN_NAMES or shared:
            what = "a name of the language" if name in KNOWN_NAMES else "also the name of a size"
            faults.append(Diagnostic("ADC222", f"The variable `{name}` is {what}.", found.span, "Choose another name."))
    try:
        return environment(where), faults
    except SpecError as error:
        unknown: dict[str, TypeOf] = dict.fromkeys((*(name for name, _ in where), *sizes), UNKNOWN)
        return unknown, [*faults, *error.diagnostics]


def attribute_variables(match: Expr) -> dict[str, Param]:
    """Variables that stand only where an op takes a number, flag, format, text or an optional tensor, with the parameter that they stand for.

    They need no type in `where`: `sdpa(q, k, v, mask, scale=s)` binds `mask` and `s` to what the graph has there, None included.
    """
    found: dict[str, Param] = {}
    elsewhere: set[str] = set()
    for node in walk(match):
        for child, param in _operands(node):
            if isinstance(child, Name) and child.id not in KNOWN_NAMES:
                if param is not None and (param.kind in _ATTRIBUTE_KINDS or param.default == Literal(None)):
                    found.setdefault(child.id, param)
                else:
                    elsewhere.add(child.id)
    return {name: param for name, param in found.items() if name not in elsewhere}


_ATTRIBUTE_KINDS = ("number", "dim", "dims", "size", "sizes", "bool", "dtype", "string", "static")


def _operands(node: Expr) -> list[tuple[Expr, Param | None]]:
    if not isinstance(node, Call):
        return [(child, None) for child in children(node)]
    spec = lookup(node)
    return [(value, spec.param(name)) for name, value in bind(node).items()]


def _pattern(match: Expr, where: Sequence[tuple[str, Type]], env: dict[str, TypeOf], typed: bool) -> list[Diagnostic]:
    """Every variable of the pattern has a type, and every declared one occurs; untyped ones are unknown where that is allowed."""
    faults: list[Diagnostic] = []
    try:
        attributes = attribute_variables(match)
    except SpecError:
        attributes = {}  # the same fault is reported when the pattern gets its type
    for node in walk(match):
        if isinstance(node, Name) and node.id not in env and node.id not in KNOWN_NAMES:
            if typed and node.id not in attributes:
                hint = did_you_mean(node.id, env) or f'Add `{node.id}: "float[...]"` to `where:`.'
                faults.append(Diagnostic("ADC223", f"The variable `{node.id}` has no type.", node.span, hint))
            env[node.id] = UNKNOWN
    read = names(match)
    for name, found in where:
        if name not in read:
            faults.append(
                Diagnostic("ADC221", f"The variable `{name}` does not occur in `match`.", found.span, "Use it there, or remove it.")
            )
    return faults


def _rewrite(
    header: Header,
    match: Expr,
    substitute: Expr,
    where: Sequence[tuple[str, Type]],
    lets: Bindings,
    constants: Bindings,
    program: Bindings,
) -> list[Diagnostic]:
    env, faults = _declared(header, where)
    faults += _pattern(match, where, env, typed=True)
    checker = _Checker(env, faults)
    if header.when is not None:
        checker.faults += checker.condition(header.when)
    checker.faults += _trivial(match, substitute)
    before = checker.type_of(match)
    tensors = frozenset(name for name, value in env.items() if isinstance(value, TensorValue | UnknownValue))
    taken = set(env)
    for name, value in constants:
        _only(checker, value, tensors, f"The constant `{name}` is built before any tensor is seen, and cannot read")
    weights = frozenset(name for name, found in where if isinstance(found, TensorType) and found.weight)
    for name, value in program:
        _only(checker, value, tensors - weights, f"`{name}` is computed at load from weights, and cannot read")
    for bindings in (constants, program, lets):
        checker.bind(bindings, taken)
        taken |= {name for name, _ in bindings}
    after = checker.type_of(substitute)
    checker.faults += _differ(before, after, substitute)
    used = names(substitute).union(*(names(value) for _, value in (*lets, *constants, *program)))
    for name, value in (*lets, *constants, *program):
        if name not in used:
            checker.faults.append(_unused(name, value.span, "binding"))
    for name, found in where:
        conditions = names(header.when) if header.when is not None else frozenset()
        if name not in used | conditions and name in names(match):
            checker.faults.append(_unused(name, found.span, "variable"))
    return checker.faults


def _trivial(match: Expr, substitute: Expr) -> list[Diagnostic]:
    """A rule that would match everything, or find its own result again."""
    if isinstance(match, Name | Literal):
        return [Diagnostic("ADC228", "The pattern is a single name or number and would match everything.", match.span, "Match an op.")]
    if match == substitute:
        return [Diagnostic("ADC228", "The substitute is the match itself.", substitute.span, "Write what it should become.")]
    return []


def _unused(name: str, span: Span, what: str) -> Diagnostic:
    message = f"The {what} `{name}` plays no part in the result."
    return Diagnostic("ADC224", message, span, "Check that nothing was forgotten.", "warning")


def _only(checker: _Checker, value: Expr, forbidden: frozenset[str], message: str) -> None:
    for node in walk(value):
        if isinstance(node, Name) and node.id in forbidden:
            hint = "Move it to `let:`, or declare the variable as `weight`."
            checker.faults.append(Diagnostic("ADC225", f"{message} `{node.id}`.", node.span, hint))
            return


def _differ(before: TypeOf, after: TypeOf, substitute: Expr) -> list[Diagnostic]:
    """The fault when the substitute certainly has another type than the match."""
    if isinstance(before, UnknownValue) or isinstance(after, UnknownValue):
        return []
    if isinstance(before, TensorValue) and isinstance(after, TensorValue):
        if "any" not in (before.element, after.element) and not _same_element(before.element, after.element):
            message = f"The match is {before.element}, and the substitute {after.element}."
            return [Diagnostic("ADC234", message, substitute.span, f"Cast it back, as in `to(…, {before.element})`.")]
        if before.shape is not None and after.shape is not None and before.shape != after.shape:
            message = f"The match has the shape {shape_text(before.shape)}, and the substitute {shape_text(after.shape)}."
            return [Diagnostic("ADC233", message, substitute.span, "Both sides need one shape, for all sizes that `where` admits.")]
        return []
    if isinstance(before, TensorValue) and isinstance(after, NumberValue):
        if before.shape == ():
            return []
        message = f"The match is a tensor of shape {shape_text(before.shape)}, and the substitute a number."
        return [Diagnostic("ADC233", message, substitute.span, "Fill a tensor with it: `full_like(x, value)`.")]
    if type(before) is not type(after):
        message = f"The match is {type_of_text(before)}, and the substitute {type_of_text(after)}."
        return [Diagnostic("ADC233", message, substitute.span, "Both sides must be of one type.")]
    return []


def _same_element(a: str, b: str) -> bool:
    return a == b or (category(a) == category(b) and category(a) == "bool")


def _replace(rule: Replace) -> list[Diagnostic]:
    typed = (*rule.inputs, *((name, found) for name, _, found in rule.attributes if found is not None))
    env, faults = _declared(rule.header, typed)
    env |= {name: UNKNOWN for name, _, found in rule.attributes if found is None}
    checker = _Checker(env, faults)
    if rule.header.when is not None:
        checker.faults += checker.condition(rule.header.when)
    checker.bind(rule.lets, set(env))
    checker.type_of(rule.forward)
    used = names(rule.forward).union(*(names(value) for _, value in rule.lets))
    checker.faults += [_unused(name, value.span, "binding") for name, value in rule.lets if name not in used]
    checker.faults += [_unused(name, found.span, "input") for name, found in rule.inputs if name not in used]
    return checker.faults


def _pad(rule: Pad) -> list[Diagnostic]:
    env, faults = _declared(rule.header, rule.where)
    faults += _pattern(rule.match, rule.where, env, typed=False)
    checker = _Checker(env, faults)
    checker.type_of(rule.match)
    if rule.header.when is not None:
        checker.faults += checker.condition(rule.header.when)
    carriers = [n for n, t in rule.where if isinstance(t, TensorType) and Name(rule.dim) in t.dims]
    if not carriers:
        sizes = sorted(name for name, value in env.items() if isinstance(value, NumberValue) and isinstance(value.size, Poly))
        hint = did_you_mean(rule.dim, sizes) or f"Sizes of `where`: {', '.join(sizes) or 'none'}."
        checker.faults.append(Diagnostic("ADC227", f"No tensor of `where` has the dimension `{rule.dim}`.", rule.header.span, hint))
    checker.faults += checker.size(rule.size)
    for name, value in rule.fill:
        if carriers and name not in carriers:
            hint = did_you_mean(name, carriers) or f"Tensors with `{rule.dim}`: {', '.join(carriers)}."
            checker.faults.append(Diagnostic("ADC227", f"`{name}` has no dimension `{rule.dim}` to fill.", value.span, hint))
        found = checker.type_of(value)
        if not isinstance(found, NumberValue | UnknownValue):
            message = f"A fill is a number, not {type_of_text(found)}."
            checker.faults.append(Diagnostic("ADC230", message, value.span, "Use 0, 1 or `-inf`."))
    return checker.faults


def _matched(header: Header, match: Expr | None, where: Sequence[tuple[str, Type]]) -> list[Diagnostic]:
    env, faults = _declared(header, where)
    checker = _Checker(env, faults)
    if match is not None:
        checker.faults += _pattern(match, where, env, typed=False)
        checker.type_of(match)
    if header.when is not None:
        checker.faults += checker.condition(header.when)
    return checker.faults


def sizes_of(where: Sequence[tuple[str, Type]]) -> Mapping[str, None]:
    """The size names that the types of `where` bind, in order of appearance."""
    found: dict[str, None] = {}
    for _, declared in where:
        for dim in declared.dims if isinstance(declared, TensorType) else ():
            if not isinstance(dim, RestDims):
                found |= {n.id: None for n in walk(dim) if isinstance(n, Name) and n.id not in KNOWN_NAMES}
    return found
