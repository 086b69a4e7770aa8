"""`adapterc explain`: the long form of an error code, a rule, or a size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from adapterc import specs
from adapterc.dsl.adapter import Adapter, Rule
from adapterc.dsl.codes import CODES
from adapterc.dsl.loader import load_all
from adapterc.dsl.parser import parse_expression
from adapterc.dsl.printer import to_text
from adapterc.dsl.sizes import STICK_ELEMENTS, Value, derive, value_text, whole_size
from adapterc.errors import UserError

_CODE = re.compile(r"ADC\d{3}", re.IGNORECASE)
_RULE = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")


@dataclass(frozen=True)
class Explanation:
    subject: str
    kind: str  # code, adapter, rule or size
    lines: tuple[str, ...]
    value: int | None = None
    ok: bool = True

    def to_json(self) -> Mapping[str, object]:
        value = {} if self.value is None else {"value": self.value}
        return {"subject": self.subject, "kind": self.kind, "text": "\n".join(self.lines), **value}

    def show(self, console: Console) -> None:
        for line in self.lines:
            console.print(line, markup=False, soft_wrap=True)


def explain_what(what: str, settings: Sequence[str] = ()) -> Explanation:
    """Explain `what`. Raises UserError ADC903 for an unknown code or a bad setting, SpecError for a size that has no value."""
    if _CODE.fullmatch(what):
        return _code(what.upper())
    if _RULE.fullmatch(what) and not settings and (found := _rule(what)) is not None:
        return found
    return _size(what, settings)


def _code(code: str) -> Explanation:
    if code not in CODES:
        raise UserError("ADC903", f"there is no error code {code}", f"the codes go from {min(CODES)} to {max(CODES)}")
    entry = CODES[code]
    return Explanation(code, "code", (f"{code}: {entry.title}", "", entry.text, "", f"Example: {entry.example}", f"Mend: {entry.mend}"))


def _rule(name: str) -> Explanation | None:
    adapters = load_all(specs.find(()))
    adapter_name, _, rule_name = name.partition(".")
    for adapter in adapters:
        if adapter.name == name:
            return Explanation(name, "adapter", _adapter_lines(adapter))
        for rule in adapter.rules:
            if rule.header.name in (name, rule_name) and (not rule_name or adapter.name == adapter_name):
                return Explanation(f"{adapter.name}.{rule.header.name}", "rule", _rule_lines(adapter, rule))
    return None


def _adapter_lines(adapter: Adapter) -> tuple[str, ...]:
    gap = f", bridges gap {adapter.gap}" if adapter.gap else ""
    rules = (line for rule in adapter.rules for line in ("", *_rule_lines(adapter, rule)[1:]))
    return (f"{adapter.name}: {adapter.summary}", f"{adapter.lifetime}{gap}; {adapter.file}", *rules)


def _rule_lines(adapter: Adapter, rule: Rule) -> tuple[str, ...]:
    header = rule.header
    parts = [
        f"{adapter.name}: {adapter.summary}",
        f"{type(rule).__name__.lower()} {header.name} ({header.span})",
        f"  why: {header.reason}",
    ]
    parts += [
        f"  {key}: {to_text(value)}"
        for key in ("match", "substitute", "forward", "condition", "size")
        if (value := getattr(rule, key, None)) is not None
    ]
    if header.when is not None:
        parts.append(f"  when: {to_text(header.when)}")
    parts += [f"  accepts {edge}: {why}" for edge, why in header.accepts]
    return tuple(parts)


def _size(text: str, settings: Sequence[str]) -> Explanation:
    expression = parse_expression(text)
    env: dict[str, Value] = {"cores": 32, "dtype": "float16"}
    for setting in settings:
        name, equals, given = setting.partition("=")
        if not equals or not name.isidentifier():
            raise UserError("ADC903", f"`{setting}` is not a setting", "write NAME=VALUE, as in d=32")
        env[name] = given if name == "dtype" else derive(parse_expression(given), env).value
    env.setdefault("stick", STICK_ELEMENTS.get(str(env["dtype"]), 64))
    derivation = derive(expression, env)
    value = whole_size(derivation.value, expression)
    lines = (*(f"{step.text} = {value_text(step.value)}" for step in derivation.steps), f"{to_text(expression)} is {value}")
    return Explanation(to_text(expression), "size", lines, value)
