"""The JSON Schema of a spec, and its complaints in our own sentences with the place in the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from adapterc.dsl import yamltree
from adapterc.dsl.ast import Span
from adapterc.dsl.diagnostics import Diagnostic, did_you_mean, shorten

RULE_KINDS = ("rewrite", "weights", "replace", "pad", "place", "boundary", "require")

_TYPE_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
}


@cache
def schema() -> Mapping[str, Any]:
    """The published schema (dsl/schema/adapter.schema.json, draft 2020-12)."""
    text = files("adapterc.dsl").joinpath("schema", "adapter.schema.json").read_text(encoding="utf-8")
    return cast(Mapping[str, Any], json.loads(text))


@cache
def _validator(part: str | None) -> Draft202012Validator:
    whole = dict(schema())
    if part is None:
        # Each rule is checked against its own kind, which gives one clear complaint instead of seven.
        whole["properties"] = {**whole["properties"], "rules": {**whole["properties"]["rules"], "items": {"type": "object"}}}
        return Draft202012Validator(whole)
    return Draft202012Validator({"$defs": whole["$defs"], "$ref": f"#/$defs/{part}"})


def validate(root: yamltree.Node) -> list[Diagnostic]:
    """All complaints about a spec's form, in the order of the file."""
    split = _split_values(root)
    if split:
        # What a comma cut in two only gives complaints that lead away from the cause.
        return split
    found = _complaints(root, None)
    rules = root.get("rules") if isinstance(root, yamltree.Mapping) else None
    for rule in rules.items if isinstance(rules, yamltree.List) else ():
        if isinstance(rule, yamltree.Mapping):
            kind = _kind(rule)
            found += [kind] if isinstance(kind, Diagnostic) else _complaints(rule, kind)
    return sorted(found, key=lambda d: (d.span.line, d.span.column, d.code))


def _split_values(root: yamltree.Node) -> list[Diagnostic]:
    """Expressions without quotes inside `{…}`, which YAML cuts at their first comma: `{w: transpose(x, 0, 1)}`."""
    found: list[Diagnostic] = []
    if isinstance(root, yamltree.List):
        for item in root.items:
            found += _split_values(item)
    if isinstance(root, yamltree.Mapping):
        for (key, value), after in zip(root.entries, root.entries[1:], strict=False):
            if isinstance(value, yamltree.Scalar) and value.style is None:
                opened = value.text.count("(") > value.text.count(")") or value.text.count("[") > value.text.count("]")
                if opened and isinstance(after[1], yamltree.Scalar) and after[1].value is None:
                    message = f"The value of `{shorten(key.text)}` ends at its first comma: inside {{…}}, YAML separates entries there."
                    found.append(Diagnostic("ADC116", message, value.span, "Put the expression in quotes."))
                    break
        for _, value in root.entries:
            found += _split_values(value)
    return found


def _kind(rule: yamltree.Mapping) -> str | Diagnostic:
    present = [key for key, _ in rule.entries if key.text in RULE_KINDS]
    if len(present) == 1:
        return present[0].text
    kinds = ", ".join(RULE_KINDS)
    if present:
        both = " and ".join(f"`{key.text}`" for key in present)
        return Diagnostic("ADC113", f"The rule has {both}; it is of one kind only.", present[1].span, "Make two rules of it.")
    near = [(key, did_you_mean(key.text, RULE_KINDS)) for key, _ in rule.entries]
    key, hint = next(((k, h) for k, h in near if h), (rule.entries[0][0] if rule.entries else None, ""))
    if key is not None and hint:
        return Diagnostic("ADC113", f"There is no rule kind `{shorten(key.text)}`.", key.span, hint)
    return Diagnostic("ADC113", "The rule does not say its kind.", key.span if key else rule.span, f"Start it with one of {kinds}.")


def _complaints(root: yamltree.Node, part: str | None) -> list[Diagnostic]:
    errors: Iterable[ValidationError] = _validator(part).iter_errors(cast(Any, yamltree.plain(root)))
    found = [d for error in errors for d in _sentences(error, root)]
    # A key that is missing because it is misspelt is one fault, not two.
    meant = {d.hint.split('"')[1] for d in found if d.code == "ADC110" and '"' in d.hint}
    return [d for d in found if not (d.code == "ADC111" and any(d.message == _missing(key) for key in meant))]


def _missing(key: str) -> str:
    return f"The key `{key}` is missing."


def _sentences(error: ValidationError, root: yamltree.Node) -> list[Diagnostic]:
    node, owner = _at(root, list(error.absolute_path))
    name = f"`{shorten(owner.text)}`" if owner is not None else "The value"
    if owner is not None and error.absolute_path and isinstance(error.absolute_path[-1], int):
        name = f"An entry of {name}"
    detail = error.schema if isinstance(error.schema, Mapping) else {}
    match error.validator:
        case "additionalProperties" if isinstance(node, yamltree.Mapping):
            known = tuple(detail.get("properties", {}))
            return [
                Diagnostic(
                    "ADC110",
                    f"There is no key `{shorten(key.text)}` here.",
                    key.span,
                    did_you_mean(key.text, known) or f"Known keys: {', '.join(known)}.",
                )
                for key, _ in node.entries
                if key.text not in known
            ]
        case "required" if isinstance(node, yamltree.Mapping):
            missing = [key for key in _rule(error) if node.get(key) is None]
            # Several missing keys come as several errors, each naming its own.
            key = next((key for key in missing if f"'{key}'" in error.message), missing[0])
            return [Diagnostic("ADC111", _missing(key), _head(node), f"Add `{key}:`. {_description(detail, key)}".rstrip())]
        case "type":
            wanted = _rule(error) if isinstance(_rule(error), list) else [_rule(error)]
            words = " or ".join(_TYPE_WORDS.get(str(w), str(w)) for w in wanted)
            return [Diagnostic("ADC112", f"{name} must be {words}, not {_kind_of(node)}.", node.span, _help(detail))]
        case "enum":
            allowed = [str(value) for value in _rule(error)]
            hint = did_you_mean(str(error.instance), allowed) or f"Write one of {', '.join(allowed)}."
            return [Diagnostic("ADC112", f"{name} cannot be `{shorten(str(error.instance))}`.", node.span, hint)]
        case "pattern" | "maxLength" if "propertyNames" in error.absolute_schema_path:
            key = _named(node, str(error.instance))
            return [Diagnostic("ADC112", f"`{shorten(str(error.instance))}` cannot be a name.", key, _help(detail))]
        case "pattern":
            return [Diagnostic("ADC112", f"{name} cannot be `{shorten(str(error.instance))}`.", node.span, _help(detail))]
        case "minLength" | "minItems" | "minProperties":
            return [Diagnostic("ADC112", f"{name} is empty.", node.span, _help(detail))]
        case "maxLength" | "maxItems":
            return [Diagnostic("ADC112", f"{name} is too long: at most {_rule(error)}.", node.span, "Shorten it.")]
        case "uniqueItems":
            return [Diagnostic("ADC112", f"{name} lists a value twice.", node.span, "Remove one.")]
        case "anyOf":
            return _alternatives(error, root, name, node)
        case "oneOf":
            choices = ", ".join(f"`{key}`" for branch in _rule(error) for key in branch.get("required", ()))
            return [Diagnostic("ADC111", f"Exactly one of {choices} must be given.", _head(node), "Keep the one that says what is meant.")]
    return [Diagnostic("ADC112", f"{name} does not fit the schema: {shorten(str(error.message))}.", node.span, _help(detail))]


def _alternatives(error: ValidationError, root: yamltree.Node, name: str, node: yamltree.Node) -> list[Diagnostic]:
    """The complaints of the alternative whose type the value already has; if none, what the alternatives are."""
    branches: dict[object, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.schema_path[0], []).append(inner)
    fitting = [b for b in branches.values() if not any(e.validator == "type" and not e.path for e in b)]
    if fitting:
        base = list(error.absolute_path)
        return [d for inner in fitting[0] for d in _sentences(_rebased(inner, base), root)]
    wanted = [
        str(e.validator_value) if not isinstance(e.validator_value, list) else e.validator_value for b in branches.values() for e in b
    ]
    flat = [w for item in wanted for w in (item if isinstance(item, list) else [item])]
    words = " or ".join(dict.fromkeys(_TYPE_WORDS.get(str(w), str(w)) for w in flat))
    detail = error.schema if isinstance(error.schema, Mapping) else {}
    return [Diagnostic("ADC112", f"{name} must be {words}, not {_kind_of(node)}.", node.span, _help(detail))]


def _rule(error: ValidationError) -> Any:
    """What the schema says where it failed: a list for `required` and `enum`, a number for bounds."""
    return error.validator_value


def _rebased(error: ValidationError, base: list[str | int]) -> ValidationError:
    # Errors of a context already know their parents, so that absolute_path is whole.
    assert list(error.absolute_path)[: len(base)] == base
    return error


def _at(root: yamltree.Node, path: list[str | int]) -> tuple[yamltree.Node, yamltree.Scalar | None]:
    """The node under a path, and the key that it stands under."""
    node, owner = root, None
    for step in path:
        if isinstance(node, yamltree.Mapping):
            owner = node.key(str(step))
            node = node.get(str(step)) or node
        elif isinstance(node, yamltree.List):
            node = node.items[int(step)]
    return node, owner


def _named(node: yamltree.Node, name: str) -> Span:
    key = node.key(name) if isinstance(node, yamltree.Mapping) else None
    return key.span if key is not None else node.span


def _head(node: yamltree.Node) -> Span:
    """The first key of a mapping: a caret under a whole rule would say nothing."""
    return node.entries[0][0].span if isinstance(node, yamltree.Mapping) and node.entries else node.span


def _kind_of(node: yamltree.Node) -> str:
    if isinstance(node, yamltree.Mapping):
        return "a mapping"
    if isinstance(node, yamltree.List):
        return "a list"
    match node.value:
        case None:
            return "empty"
        case bool():
            return f"the truth value {node.text}"
        case int() | float():
            return f"the number {shorten(str(node.text))}"
    return "text"


def _help(detail: Mapping[str, Any]) -> str:
    return str(detail.get("description", "See docs/spec-reference.md."))


def _description(detail: Mapping[str, Any], key: str) -> str:
    return str(detail.get("properties", {}).get(key, {}).get("description", ""))
