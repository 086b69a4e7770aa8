"""One adapter as one Python module: the text that a reviewer reads."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapterc.dsl.adapter import Adapter, Boundary, Header, Pad, Place, Replace, Require, Rewrite, Rule, Weights
from adapterc.dsl.ast import Call, Expr, Name, walk
from adapterc.dsl.printer import to_text, type_text
from adapterc.dsl.types import RestDims, TensorType, Type

from .errors import unsupported
from .layout import Brackets, Doc, assign, call, docstring, give, named, quote
from .text_pattern import pattern_body
from .text_predicate import predicate_doc, predicate_text
from .text_torch import bindings, needed_names, statements

RUNTIME = "adapterc.codegen.runtime"
_CONTEXT_TYPES = {"dtype": "torch.dtype", "device": "torch.device", "stick": "int", "cores": "int"}


@dataclass(frozen=True)
class Source:
    """A spec file as the generated text names it: never an absolute path, so that the same specs give the same bytes anywhere."""

    shown: str  # adapter_specs/rope.yaml
    verdicts: Mapping[str, str]  # rule -> "REAL PROVED"


def module_text(adapter: Adapter, source: Source) -> str:
    """The module of an adapter. Raises SpecError ADC403 for a rule that has no Python form."""
    functions: list[str] = []
    instances: list[str] = []
    for rule in adapter.rules:
        made, instance = _rule(rule, adapter, source)
        functions += made
        instances.append(instance)
    names = ", ".join(_constant(rule.header.name) for rule in adapter.rules)
    rules = "RULES: tuple[Rule, ...] = (" + names + ("," if len(adapter.rules) == 1 else "") + ")"
    if len(rules) > 100:
        listed = "\n".join(f"    {_constant(rule.header.name)}," for rule in adapter.rules)
        rules = f"RULES: tuple[Rule, ...] = (\n{listed}\n)"
    body = "\n\n\n".join(functions)
    tail = "\n\n".join([*instances, rules])
    blocks = [b for b in (body, tail) if b]
    text = "\n\n\n".join(blocks) if body else tail
    separator = "\n\n\n" if body else "\n\n"
    return f"{_head(adapter, source)}\n\n{_imports(text)}{separator}{text}\n"


def _head(adapter: Adapter, source: Source) -> str:
    gap = f" Gap: {adapter.gap}." if adapter.gap else ""
    life = {"scaffold": "it goes when the backend closes the gap", "hardware": "it stays"}[adapter.lifetime]
    return docstring(
        f"{adapter.summary}\n\nGenerated from {source.shown}; change the spec, not this file.\nLifetime: {adapter.lifetime}, {life}.{gap}"
    )


def _imports(text: str) -> str:
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}  # what docstrings speak of is not used
    runtime = [n for n in ("Anything", "Boundary", "Context", "DType", "Dim", "Expectation", "Origin", "Pad", "Pattern", "Place", "Replace", "Require", "Rest", "Rewrite", "Rule", "Scalar", "Tensor", "op") if n in used]  # fmt: skip
    numbers = [n for n in ("ceil_div", "ceil_to", "gcd", "glob", "is_integer", "is_power_of_two", "lcm", "lpf", "smooth") if n in used]
    lines = ["import math\n"] if "math" in used else []
    third = (["import torch"] if "torch" in used else []) + (["import torch.nn.functional as F"] if "F" in used else [])
    if third:
        lines.append("\n".join(third) + "\n")
    own = [_from(RUNTIME, runtime)]
    if numbers:
        own.append(_from(f"{RUNTIME}.numbers", numbers))
    return "\n".join([*lines, "\n".join(own)])


def _from(module: str, names: Sequence[str]) -> str:
    ordered = sorted(names, key=lambda n: (n.islower(), n))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= 100:
        return line
    listed = "\n".join(f"    {n}," for n in ordered)
    return f"from {module} import (\n{listed}\n)"


def _constant(name: str) -> str:
    return name.upper()


def _function(name: str, parameters: str, returns: str, doc: str, lines: list[str]) -> str:
    head = f"def {name}({parameters}) -> {returns}:"
    if len(head) > 100:
        listed = "".join(f"    {p},\n" for p in parameters.split(", "))
        inline = f"    {parameters}\n"
        head = f"def {name}(\n{inline if len(inline) <= 101 else listed}) -> {returns}:"
    return "\n".join([head, docstring(doc, 1), *lines])


def _rule(rule: Rule, adapter: Adapter, source: Source) -> tuple[list[str], str]:
    match rule:
        case Rewrite():
            return _rewrite(rule, source, adapter, rule.match, rule.where, rule.constants, rule.lets, rule.substitute)
        case Weights():
            return _rewrite(rule, source, adapter, rule.match, rule.where, rule.program, (), rule.substitute)
        case Pad():
            return _pad(rule, adapter, source)
        case Place():
            return _place(rule, adapter, source)
        case Boundary():
            return _boundary(rule, adapter, source)
        case Replace():
            return _replace(rule, adapter, source)
        case Require():
            return _require(rule, adapter, source)


def _place_of(header: Header, source: Source) -> str:
    return f"{source.shown}:{header.span.line}"


def _origin(header: Header, adapter: Adapter, source: Source) -> tuple[Doc, list[str]]:
    functions = []
    items: list[Doc] = [
        named("name", quote(f"{header.adapter}.{header.name}")),
        named("place", quote(_place_of(header, source))),
        named("verdict", quote(source.verdicts.get(header.name, "unchecked"))),
        named("reason", quote(header.reason)),
    ]
    condition = _conditions(adapter.when, header.when)
    if condition is not None:
        name = f"when_{header.name}"
        functions.append(_function(name, "here: Context", "bool", to_text(condition), [give(predicate_doc(condition))]))
        items.append(named("when", name))
    if header.expect:
        expectations: list[Doc] = []
        for number, expect in enumerate(header.expect, start=1):
            parts: list[Doc] = [named("least", _lambda(expect.least))]
            if expect.most is not None:
                parts.append(named("most", _lambda(expect.most)))
            if expect.when is not None:
                name = f"expects_{header.name}_{number}" if len(header.expect) > 1 else f"expects_{header.name}"
                functions.append(_function(name, "here: Context", "bool", to_text(expect.when), [give(predicate_doc(expect.when))]))
                parts.append(named("when", name))
            parts.append(named("place", quote(f"{source.shown}:{expect.span.line}")))
            expectations.append(call("Expectation", *parts))
        items.append(named("expect", Brackets("", tuple(expectations))))
    return call("Origin", *items), functions


def _lambda(node: Expr) -> Doc:
    return f"lambda here: {predicate_text(node)}"


def _conditions(adapter: Expr | None, rule: Expr | None) -> Expr | None:
    if adapter is None or rule is None:
        return rule if adapter is None else adapter
    return Call("logical_and", (adapter, rule))


def _cite(header: Header, source: Source, what: str) -> str:
    verdict = source.verdicts.get(header.name, "unchecked")
    return f"{what}\n\n{header.adapter}.{header.name}, {_place_of(header, source)}, {verdict}: {header.reason}"


def _match_function(header: Header, match: Expr, where: tuple[tuple[str, Type], ...], source: Source) -> str:
    typed = "".join(f"\n    {name}: {type_text(found)}" for name, found in where)
    doc = f"{to_text(match)}\n{typed}" if typed else to_text(match)
    return _function(f"match_{header.name}", "", "Pattern", doc, pattern_body(match, dict(where)))


def _rewrite(
    rule: Rewrite | Weights,
    source: Source,
    adapter: Adapter,
    match: Expr,
    where: tuple[tuple[str, Type], ...],
    loaded: tuple[tuple[str, Expr], ...],
    lets: tuple[tuple[str, Expr], ...],
    substitute: Expr,
) -> tuple[list[str], str]:
    header = rule.header
    functions = [_match_function(header, match, where, source)]
    types = _parameter_types(where, match)
    made = {name for name, _ in loaded}
    if loaded:
        names = needed_names(value for _, value in loaded) - made
        doc = "Once, when the model is loaded: " + "; ".join(f"{name} = {to_text(value)}" for name, value in loaded) + "."
        functions.append(
            _function(f"load_{header.name}", _parameters(names, types), "dict[str, torch.Tensor]", doc, bindings(loaded, names))
        )
    names = needed_names([*(value for _, value in lets), substitute]) - {name for name, _ in lets}
    types |= dict.fromkeys(made, "torch.Tensor")
    body = statements(lets, substitute, names)
    functions.append(
        _function(f"substitute_{header.name}", _parameters(names, types), "torch.Tensor", _cite(header, source, to_text(substitute)), body)
    )
    origin, more = _origin(header, adapter, source)
    items = [named("origin", origin), named("pattern", call(f"match_{header.name}")), named("substitute", f"substitute_{header.name}")]
    if loaded:
        items.append(named("load", f"load_{header.name}"))
    return functions + more, assign(_constant(header.name), call("Rewrite", *items))


def _parameter_types(where: tuple[tuple[str, Type], ...], match: Expr) -> dict[str, str]:
    types = dict(_CONTEXT_TYPES)
    for name, found in where:
        types[name] = "torch.Tensor" if isinstance(found, TensorType) else "int" if found.element == "size" else "float"
        if isinstance(found, TensorType):
            for dim in found.dims:
                if not isinstance(dim, RestDims):
                    types |= {n.id: "int" for n in walk(dim) if isinstance(n, Name) and n.id not in types}
    return types


def _parameters(names: set[str], types: Mapping[str, str]) -> str:
    order = [*(n for n in types if n in names), *sorted(n for n in names if n not in types)]
    tensors = [n for n in order if types.get(n) == "torch.Tensor"]
    rest = [n for n in order if n not in tensors]
    return ", ".join(f"{n}: {types.get(n, 'object')}" for n in (*tensors, *rest))


def _pad(rule: Pad, adapter: Adapter, source: Source) -> tuple[list[str], str]:
    header = rule.header
    if rule.consumers == "mask":
        raise unsupported("`consumers: mask`; a masked dimension needs a rewrite of its reader", header.span)
    functions = [_match_function(header, rule.match, rule.where, source)]
    doc = _cite(header, source, f"{rule.dim} becomes {to_text(rule.size)}")
    functions.append(_function(f"size_{header.name}", "here: Context", "int", doc, [give(predicate_doc(rule.size))]))
    origin, more = _origin(header, adapter, source)
    fills = ", ".join(f"{quote(name)}: {_fill(value)}" for name, value in rule.fill)
    items: list[Doc] = [
        named("origin", origin),
        named("pattern", call(f"match_{header.name}")),
        named("dim", quote(rule.dim)),
        named("size", f"size_{header.name}"),
        named("fills", f"{{{fills}}}"),
        named("consumers", quote(rule.consumers)),
    ]
    return functions + more, assign(_constant(header.name), call("Pad", *items))


def _fill(value: Expr) -> str:
    return predicate_text(value)


def _place(rule: Place, adapter: Adapter, source: Source) -> tuple[list[str], str]:
    origin, functions = _origin(rule.header, adapter, source)
    items: list[Doc] = [named("origin", origin), named("what", quote(rule.what))]
    if rule.match is not None:
        functions = [_match_function(rule.header, rule.match, rule.where, source), *functions]
        items.append(named("pattern", call(f"match_{rule.header.name}")))
    if rule.module is not None:
        items.append(named("module", quote(rule.module)))
    return functions, assign(_constant(rule.header.name), call("Place", *items))


def _boundary(rule: Boundary, adapter: Adapter, source: Source) -> tuple[list[str], str]:
    if rule.action == "split":
        raise unsupported("`action: split`; the compile unit is the whole graph", rule.header.span)
    origin, more = _origin(rule.header, adapter, source)
    items = [named("origin", origin), named("pattern", call(f"match_{rule.header.name}")), named("action", quote(rule.action))]
    functions = [_match_function(rule.header, rule.match, rule.where, source), *more]
    return functions, assign(_constant(rule.header.name), call("Boundary", *items))


def _replace(rule: Replace, adapter: Adapter, source: Source) -> tuple[list[str], str]:
    header = rule.header
    names = needed_names([*(value for _, value in rule.lets), rule.forward]) - {name for name, _ in rule.lets}
    inputs = [name for name, _ in rule.inputs]
    attributes = {name: path for name, path, _ in rule.attributes}
    lines = [f"    {name} = module.{path}" for name, path in attributes.items() if name in names]
    first = inputs[0] if inputs else "module"
    lines += [f"    {name} = {first}.{name}" for name in ("dtype", "device") if name in names]
    unknown = names - set(inputs) - set(attributes) - {"dtype", "device"}
    if unknown:
        raise unsupported(f"`{sorted(unknown)[0]}` in a forward: it is no input and no attribute", header.span)
    lines += statements(rule.lets, rule.forward, names)
    parameters = ", ".join(["module: torch.nn.Module", *(f"{name}: torch.Tensor" for name in inputs)])
    forward = _function(f"forward_{header.name}", parameters, "torch.Tensor", _cite(header, source, to_text(rule.forward)), lines)
    origin, more = _origin(header, adapter, source)
    items = [named("origin", origin), named("module", quote(rule.module)), named("forward", f"forward_{header.name}")]
    return [forward, *more], assign(_constant(header.name), call("Replace", *items))


def _require(rule: Require, adapter: Adapter, source: Source) -> tuple[list[str], str]:
    header = rule.header
    condition = _function(
        f"condition_{header.name}",
        "here: Context",
        "bool",
        _cite(header, source, to_text(rule.condition)),
        [give(predicate_doc(rule.condition))],
    )
    origin, more = _origin(header, adapter, source)
    items = [named("origin", origin), named("condition", f"condition_{header.name}"), named("message", quote(rule.message))]
    return [condition, *more], assign(_constant(header.name), call("Require", *items))
