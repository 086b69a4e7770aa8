"""Python text that a formatter would leave as it is: calls that fit stay on a line, others get a line an argument."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

WIDTH = 100
INDENT = "    "


@dataclass(frozen=True)
class Brackets:
    """`head` + opening bracket + items + closing bracket: a call, a list, a tuple or a dict."""

    head: str
    items: tuple[Doc, ...]
    open: str = "("
    close: str = ")"


@dataclass(frozen=True)
class Join:
    """Text parts in a row, at most one of which is bracketed and may be broken."""

    parts: tuple[Doc, ...]


@dataclass(frozen=True)
class Chain:
    """Operands of operators of one precedence; where it does not fit, each operator starts a line."""

    operands: tuple[Doc, ...]
    operators: tuple[str, ...]
    precedence: int


@dataclass(frozen=True)
class Paren:
    """A chain that needs its parentheses."""

    inner: Doc


Doc: TypeAlias = "str | Brackets | Join | Chain | Paren"


def chain(left: Doc, operator: str, right: Doc, precedence: int) -> Doc:
    """`left operator right`; powers of simple operands have no spaces, as formatters write them."""
    if operator == "**":
        tight = all(re.fullmatch(r"-?[\w.]+", flat(side)) for side in (left, right))
        return f"{flat(left)}**{flat(right)}" if tight else f"{flat(left)} ** {flat(right)}"
    if isinstance(left, Chain) and left.precedence == precedence:
        return Chain((*left.operands, right), (*left.operators, operator), precedence)
    return Chain((left, right), (operator,), precedence)


def call(head: str, *items: Doc) -> Brackets:
    return Brackets(head, items)


def listing(*items: Doc) -> Brackets:
    return Brackets("", items, "[", "]")


def named(name: str, doc: Doc) -> Doc:
    """A keyword argument."""
    return Join((f"{name}=", doc))


def flat(doc: Doc) -> str:
    match doc:
        case str():
            return doc
        case Join(parts=parts):
            return "".join(flat(part) for part in parts)
        case Paren(inner=inner):
            return f"({flat(inner)})"
        case Chain(operands=operands, operators=operators):
            rest = (f" {operator} {flat(operand)}" for operator, operand in zip(operators, operands[1:], strict=True))
            return flat(operands[0]) + "".join(rest)
        case Brackets(head=head, items=items, open=opening, close=closing):
            comma = "," if _single(doc) else ""
            return f"{head}{opening}{', '.join(flat(item) for item in items)}{comma}{closing}"


def render(doc: Doc, indent: int = 0, before: int = 0, behind: int = 0) -> str:
    """The text of `doc` at `indent` levels, `before` columns into its line and with `behind` more to come on its last line."""
    text = flat(doc)
    if before + len(text) + behind <= WIDTH or isinstance(doc, str):
        return text
    if isinstance(doc, Join):
        return _joined(doc, indent, before, behind)
    if isinstance(doc, Paren):
        inner = INDENT * (indent + 1)
        return f"(\n{inner}{render(doc.inner, indent + 1, len(inner))}\n{INDENT * indent})"
    if isinstance(doc, Chain):
        return _chained(doc, indent, before, behind)
    if not doc.items:
        return text
    inside = INDENT * (indent + 1)
    together = ", ".join(flat(item) for item in doc.items)
    if len(inside) + len(together) <= WIDTH and not _single(doc):
        return f"{doc.head}{doc.open}\n{inside}{together}\n{INDENT * indent}{doc.close}"
    lines = [f"{inside}{render(item, indent + 1, len(inside), 1)},\n" for item in doc.items]
    return f"{doc.head}{doc.open}\n{''.join(lines)}{INDENT * indent}{doc.close}"


def _single(doc: Brackets) -> bool:
    """A tuple of one element, which Python reads by its comma."""
    return not doc.head and doc.open == "(" and len(doc.items) == 1


def _chained(doc: Chain, indent: int, before: int, behind: int) -> str:
    lines = [render(doc.operands[0], indent, before)]
    for position, (operator, operand) in enumerate(zip(doc.operators, doc.operands[1:], strict=True)):
        start = f"{INDENT * indent}{operator} "
        last = position == len(doc.operators) - 1
        lines.append(start + render(operand, indent, len(start), behind if last else 0))
    return "\n".join(lines)


def _statement(doc: Doc, indent: int, before: int) -> str:
    """A statement's value. A chain that does not fit stands in parentheses, but for one operator whose last operand has brackets to break."""
    if not isinstance(doc, Chain) or before + len(flat(doc)) <= WIDTH:
        return render(doc, indent, before)
    last = doc.operands[-1]
    if len(doc.operators) == 1 and isinstance(last, (Brackets, Paren)):
        start = f"{flat(doc.operands[0])} {doc.operators[0]} "
        text = start + render(last, indent, WIDTH)
        if all(len(line) <= WIDTH - (before if number == 0 else 0) for number, line in enumerate(text.split("\n"))):
            return text
    return render(Paren(doc), indent, before)


def _joined(doc: Join, indent: int, before: int, behind: int) -> str:
    out = ""
    for position, part in enumerate(doc.parts):
        rest = sum(len(flat(p)) for p in doc.parts[position + 1 :]) if isinstance(part, str) else 0
        column = before + len(out) if "\n" not in out else len(out) - out.rindex("\n") - 1
        out += render(part, indent, column, behind if not rest else 0)
    return out


def assign(name: str, doc: Doc, indent: int = 0) -> str:
    """`name = doc` as one statement."""
    start = f"{INDENT * indent}{name} = "
    return start + _statement(doc, indent, len(start))


def give(doc: Doc, indent: int = 1) -> str:
    """`return doc`."""
    start = f"{INDENT * indent}return "
    return start + _statement(doc, indent, len(start))


def quote(text: str) -> str:
    """A string literal as a formatter writes it: double quotes unless that needs more escapes."""
    if '"' in text and "'" not in text:
        return "'" + text.replace("\\", "\\\\") + "'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def docstring(text: str, indent: int = 0) -> str:
    """A docstring, wrapped; never with a triple quote or a backslash that Python would read."""
    safe = text.replace("\\", "\\\\").replace('"""', "'''").strip()
    lines = [piece for line in safe.splitlines() for piece in _wrap(line, WIDTH - 4 * indent - 8)]
    pad = INDENT * indent
    if len(lines) == 1:
        space = " " if lines[0].endswith('"') else ""
        return f'{pad}"""{lines[0]}{space}"""'
    body = "\n".join(f"{pad}{line}".rstrip() for line in lines[1:])
    return f'{pad}"""{lines[0]}\n{body}\n{pad}"""'


def comment(text: str, indent: int = 0) -> str:
    pad = INDENT * indent
    return "\n".join(f"{pad}# {line}" for line in _wrap(text, WIDTH - 4 * indent - 2))


def _wrap(line: str, width: int) -> list[str]:
    words, out = line.split(" "), [""]
    for word in words:
        if out[-1] and len(out[-1]) + 1 + len(word) > width:
            out.append(word)
        else:
            out[-1] = f"{out[-1]} {word}" if out[-1] else word
    return out
