"""The op table of the language, and the three questions that everyone asks it: which op is this, what are its arguments, what does it mean.

Adding an op is one entry in one of dsl/table_*.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TypeAlias

from adapterc.dsl.ast import NOWHERE, Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript
from adapterc.dsl.diagnostics import Diagnostic, SpecError, did_you_mean
from adapterc.dsl.opspec import OpSpec
from adapterc.dsl.parser import Bindings, parse_definition
from adapterc.dsl.table_arithmetic import ARITHMETIC_OPS
from adapterc.dsl.table_functions import FUNCTION_OPS
from adapterc.dsl.table_index import INDEX_OPS
from adapterc.dsl.table_layout import LAYOUT_OPS
from adapterc.dsl.table_model import MODEL_OPS
from adapterc.dsl.table_reductions import REDUCTION_OPS
from adapterc.dsl.table_torch import TORCH_OPS

Visit: TypeAlias = Callable[[Expr], Expr]

_TABLE = (*ARITHMETIC_OPS, *FUNCTION_OPS, *REDUCTION_OPS, *LAYOUT_OPS, *INDEX_OPS, *MODEL_OPS, *TORCH_OPS)

OPS: Mapping[str, OpSpec] = MappingProxyType({spec.name: spec for spec in _TABLE})
ALIASES: Mapping[str, str] = MappingProxyType({alias: spec.name for spec in OPS.values() for alias in spec.aliases})

# Other libraries' words for arguments, read where the op has no argument of that name itself.
KEYWORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "axis": ("dim", "dims"),
        "axes": ("dim", "dims"),
        "dims": ("dim",),
        "keepdims": ("keepdim",),
        "input": ("x", "a"),
        "other": ("b",),
        "weight": ("w",),
        "bias": ("b",),
        "normalized_shape": ("normalized",),
        "num_groups": ("groups",),
        "negative_slope": ("slope",),
        "kernel_size": ("kernel",),
        "attn_mask": ("mask",),
        "is_causal": ("causal",),
        "ddof": ("correction",),
        "shape": ("sizes",),
        "src": ("source",),
        "lambd": ("threshold",),
    }
)

# Names that mean the same everywhere; all others are variables, sizes or bindings of the rule.
CONSTANT_NAMES = ("inf", "nan", "pi")
RECORD_NAMES = ("config",)
SIZE_NAMES = ("stick", "cores")
CONTEXT_NAMES = ("dtype", "device", "module")
DTYPE_NAMES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
KNOWN_NAMES = (*CONSTANT_NAMES, *RECORD_NAMES, *SIZE_NAMES, *CONTEXT_NAMES, *DTYPE_NAMES)


def lookup(call: Call) -> OpSpec:
    """The op of a call, through aliases. Raises SpecError ADC210 for an unknown one."""
    spec = OPS.get(ALIASES.get(call.op, call.op))
    if spec is None:
        hint = did_you_mean(call.op, (*OPS, *ALIASES)) or "docs/spec-reference.md lists the ops."
        # Only a call by name can be unknown, so that its name stands where the call starts.
        end = call.span.column + len(call.op)
        place = replace(call.span, end_line=call.span.line, end_column=end) if call.span != NOWHERE else call.span
        raise SpecError(Diagnostic("ADC210", f"There is no op `{call.op}`.", place, hint))
    return spec


def bind(call: Call) -> dict[str, Expr]:
    """Arguments by parameter name, defaults filled in, in the order of the parameters. Raises SpecError ADC210, ADC211 or ADC212."""
    spec = lookup(call)
    names = [p.name for p in spec.params]
    if len(call.args) > len(names):
        most = "no argument" if not names else f"at most {len(names)} argument{'s' if len(names) > 1 else ''}"
        raise SpecError(Diagnostic("ADC211", f"`{spec.name}` takes {most}, not {len(call.args)}.", call.span, f"It is `{spec.signature}`."))
    given = dict(zip(names, call.args, strict=False))
    for word, value in call.kwargs:
        key = word if word in names else next((n for n in KEYWORDS.get(word, ()) if n in names), word)
        if key not in names:
            hint = did_you_mean(key, names) or f"It is `{spec.signature}`."
            raise SpecError(Diagnostic("ADC212", f"`{spec.name}` has no argument `{key}`.", value.span, hint))
        if key in given:
            raise SpecError(Diagnostic("ADC211", f"`{spec.name}` gets `{key}` twice.", value.span, "Give it by place or by name."))
        given[key] = value
    bound: dict[str, Expr] = {}
    for param in spec.params:
        value_or_default = given.get(param.name, param.default)
        if value_or_default is None:
            message = f"`{spec.name}` lacks its argument `{param.name}`."
            raise SpecError(Diagnostic("ADC211", message, call.span, f"It is `{spec.signature}`."))
        bound[param.name] = value_or_default
    return bound


@cache
def _definition(text: str) -> tuple[Bindings, Expr]:
    return parse_definition(text)


def expand_once(call: Call) -> Expr | None:
    """The meaning of a composite call, one level down, with choices over literals decided; None for a primitive.

    A subtree that the definition reads more than once is one shared object, so a walk that remembers nodes by `id` stays linear.
    Raises SpecError as `bind`, and ADC213 where the arguments do not fit the definition.
    """
    spec = lookup(call)
    if spec.definition is None:
        return None
    bound = bind(call)
    if callable(spec.definition):
        try:
            return spec.definition(bound)
        except ValueError as error:
            raise SpecError(Diagnostic("ADC213", f"{error}.", call.span, f"It is `{spec.signature}`.")) from None
    bindings, result = _definition(spec.definition)
    scope: dict[str, Expr] = dict(bound)
    for name, value in bindings:
        scope[name] = substitute(value, scope)
    return substitute(result, scope)


def expand(expression: Expr) -> Expr:
    """The same meaning over primitives only. Shared subtrees stay shared (see `expand_once`). Raises SpecError as `expand_once`."""
    done: dict[int, tuple[Expr, Expr]] = {}

    def visit(node: Expr) -> Expr:
        known = done.get(id(node))
        if known is not None:
            return known[1]
        # Arguments first: a definition that is a function reads them (a list of dimensions, say) and must see what they mean.
        result = map_children(node, visit)
        if isinstance(result, Call):
            inner = expand_once(result)
            result = visit(inner) if inner is not None else _decided(_canonical(result))
        # Nodes are kept next to their ids, so that no id is used again while the table lives.
        done[id(node)] = (node, result)
        done[id(result)] = (result, result)
        return result

    return visit(expression)


def _canonical(call: Call) -> Call:
    """The call under the op's own name with every argument by place; keeps operators and lists as they are."""
    spec = lookup(call)
    return Call(spec.name, tuple(bind(call).values()), (), call.span)


def substitute(expression: Expr, scope: Mapping[str, Expr]) -> Expr:
    """Names replaced by the expressions of `scope`; `a if c else b` is decided where `c` compares literals."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, Name):
            return scope.get(node.id, node)
        if isinstance(node, Call) and node.op == "choose":
            condition = truth(visit(node.args[0]))
            if condition is not None:
                return visit(node.args[1 if condition else 2])
        return map_children(node, visit)

    return visit(expression)


def _decided(node: Expr) -> Expr:
    if isinstance(node, Call) and node.op == "choose":
        condition = truth(node.args[0])
        if condition is not None:
            return node.args[1 if condition else 2]
    return node


def truth(condition: Expr) -> bool | None:
    """The value of a condition over literals, or None when it needs sizes, types or a config.

    An expression that is not a literal is never None: `w == None` is false for a tensor `w`.
    """
    match condition:
        case Literal(value=bool() as value):
            return value
        case Call(op="logical_not", args=(inner,)):
            known = truth(inner)
            return None if known is None else not known
        case Call(op="logical_and" | "logical_or" as op, args=(left, right)):
            a, b = truth(left), truth(right)
            decisive = op == "logical_or"
            if decisive in (a, b):
                return decisive
            return None if a is None or b is None else not decisive
        case Call(op="eq" | "ne" as op, args=(left, right)):
            same = _same_literal(left, right)
            return None if same is None else same == (op == "eq")
    return None


def _same_literal(left: Expr, right: Expr) -> bool | None:
    if isinstance(left, Literal) and isinstance(right, Literal):
        return (type(left.value) is type(right.value) and left.value == right.value) or _equal_numbers(left.value, right.value)
    if Literal(None) in (left, right):
        other = right if left == Literal(None) else left
        # A field of a config may well be None; a tensor, a number or a list is not.
        return None if isinstance(other, Attribute) or other == Name("dtype") else False
    if isinstance(left, Name) and isinstance(right, Name) and {left.id, right.id} <= {*CONSTANT_NAMES, *DTYPE_NAMES}:
        return left.id == right.id
    if {type(left), type(right)} == {Literal, Name}:
        name = left if isinstance(left, Name) else right
        return False if isinstance(name, Name) and name.id in CONSTANT_NAMES else None
    return None


def _equal_numbers(left: object, right: object) -> bool:
    return not isinstance(left, bool | str) and not isinstance(right, bool | str) and left is not None and left == right


def map_children(node: Expr, visit: Visit) -> Expr:
    """The node with `visit` applied to its children; the node itself when none changes."""
    match node:
        case Attribute(base=base, name=name, span=span):
            new_base = visit(base)
            return node if new_base is base else Attribute(new_base, name, span)
        case Call(op=op, args=args, kwargs=kwargs, span=span):
            new_args = tuple(visit(a) for a in args)
            new_kwargs = tuple((k, visit(v)) for k, v in kwargs)
            same = all(a is b for a, b in zip(args, new_args, strict=True)) and all(
                a[1] is b[1] for a, b in zip(kwargs, new_kwargs, strict=True)
            )
            return node if same else Call(op, new_args, new_kwargs, span)
        case Sequence(items=items, span=span):
            new_items = tuple(visit(i) for i in items)
            return node if all(a is b for a, b in zip(items, new_items, strict=True)) else Sequence(new_items, span)
        case Slice(start=start, stop=stop, step=step, span=span):
            bounds = [None if p is None else visit(p) for p in (start, stop, step)]
            same = all(a is b for a, b in zip((start, stop, step), bounds, strict=True))
            return node if same else Slice(bounds[0], bounds[1], bounds[2], span)
        case Subscript(base=base, index=index, span=span):
            new_base, new_index = visit(base), tuple(visit(i) for i in index)
            same = new_base is base and all(a is b for a, b in zip(index, new_index, strict=True))
            return node if same else Subscript(new_base, new_index, span)
        case Literal() | Name() | Rest():
            return node
