"""The spec reference, written from the schema, the op table and the code table: `python -m adapterc.dsl.reference [FILE]`.

docs/spec-reference.md is its output; a test keeps the two the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adapterc.dsl.codes import CODES
from adapterc.dsl.ops import CONSTANT_NAMES, CONTEXT_NAMES, DTYPE_NAMES, OPS, RECORD_NAMES, SIZE_NAMES
from adapterc.dsl.opspec import FAMILIES, OpSpec
from adapterc.dsl.parser import MAX_DEPTH, MAX_LENGTH
from adapterc.dsl.printer import INFIX, PREFIX
from adapterc.dsl.schema import RULE_KINDS, schema
from adapterc.dsl.types import DTYPES, KINDS
from adapterc.dsl.yamltree import MAX_BYTES, MAX_NESTING

EXAMPLE = """\
# yaml-language-server: $schema=../dsl/schema/adapter.schema.json
adapter: gelu_new
summary: The tanh GELU cubes by multiplication; torch.pow(x, 3) does not lower.
lifetime: scaffold
gap: pow-integer-exponent
rules:
  - rewrite: cube
    match: pow(x, 3)
    where: {x: "float[...]"}
    substitute: x * x * x
    reason: The backend has no power with an integer exponent.
"""

_FAMILY_TITLES = {
    "elementwise": "Elementwise",
    "reduction": "Reductions and norms",
    "scan": "Scans and sorting",
    "layout": "Layout",
    "index": "Indexing",
    "contraction": "Products and convolutions",
    "source": "Constants",
    "static": "Sizes and facts known at build",
    "predicate": "Conditions",
}


def reference() -> str:
    """The whole document as Markdown."""
    return "\n".join(_document())


def _document() -> Iterator[str]:
    yield "# Spec reference"
    yield ""
    yield "<!-- Written by `python -m adapterc.dsl.reference`; change the schema, the op table or the code table instead. -->"
    yield ""
    yield "A spec is one YAML file with one adapter. Editors complete and check it with `dsl/schema/adapter.schema.json`."
    yield ""
    yield f"```yaml\n{EXAMPLE}```"
    yield ""
    yield "## Adapter"
    yield ""
    yield from _keys(schema())
    yield "## Rules"
    yield ""
    for kind in RULE_KINDS:
        yield from _kind(kind)
    yield from _language()
    yield from _ops()
    yield from _codes()


def _kind(kind: str) -> Iterator[str]:
    part = schema()["$defs"][kind]
    name, _, meaning = str(part["title"]).partition(": ")
    yield f"### `{name}`"
    yield ""
    yield f"{meaning[0].upper()}{meaning[1:]}."
    yield ""
    if "oneOf" in part:
        choices = ", ".join(f"`{branch['required'][0]}`" for branch in part["oneOf"])
        yield f"Exactly one of {choices} is given."
        yield ""
    yield from _keys(part)


def _keys(part: Mapping[str, Any]) -> Iterator[str]:
    required = set(part.get("required", ()))
    yield "| key | | value | meaning |"
    yield "|---|---|---|---|"
    for key, found in part["properties"].items():
        need = "required" if key in required else ""
        yield f"| `{key}` | {need} | {_value(found)} | {_cell(_description(found))} |"
    yield ""


def _value(found: Mapping[str, Any]) -> str:
    """What may stand there, in a word or two."""
    if "enum" in found:
        return " · ".join(f"`{value}`" for value in found["enum"])
    if "anyOf" in found:
        return " or ".join(dict.fromkeys(_value(branch) for branch in found["anyOf"]))
    if "$ref" in found:
        name = str(found["$ref"]).rpartition("/")[2]
        target = schema()["$defs"][name]
        if "$ref" in target or "enum" in target:
            return _value(target)
        words = {
            "bindings": "names and expressions",
            "where": "names and types",
            "sentence": "text",
            "reason": "text",
            "predicate": "condition",
        }
        return words.get(name, _value(target) if name not in ("expression", "size", "type", "name", "glob") else name)
    kind = found["type"]
    kinds: list[str] = kind if isinstance(kind, list) else [kind]
    words = {"string": "text", "object": "mapping", "array": "list", "number": "number"}
    return " or ".join(words.get(k, k) for k in kinds)


def _description(found: Mapping[str, Any]) -> str:
    if "description" in found:
        return str(found["description"])
    if "$ref" in found:
        return _description(schema()["$defs"][str(found["$ref"]).rpartition("/")[2]])
    return ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _language() -> Iterator[str]:
    yield "## The expression language"
    yield ""
    yield "Patterns, substitutes, conditions and sizes are one language: names, numbers, operators, calls of ops, subscripts, lists."
    yield "Numbers are exact: `0.044715` is the fraction 44715/1000000. Nothing is executed as Python, and there are no methods."
    yield f"An expression has at most {MAX_LENGTH:,} characters and {MAX_DEPTH} levels, a file {MAX_BYTES // 1024} KiB and {MAX_NESTING} levels."
    yield ""
    yield "| written | op |"
    yield "|---|---|"
    for op, (sign, *_) in INFIX.items():
        yield f"| `a {_cell(sign)} b` | `{op}` |"
    for op, (sign, _) in PREFIX.items():
        yield f"| `{sign}a` | `{op}` |"
    yield "| `a if c else b` | `choose`, decided when the rule is built; for tensors there is `where` |"
    yield "| `x[..., d/2:]`, `x[None, 0]`, `x[::2]` | static slicing, as in torch |"
    yield "| `w[ids]` with a tensor | `take` |"
    yield ""
    yield "Operators bind as in Python, and comparisons chain: `0 < d <= 64`."
    yield ""
    yield "Names that mean the same everywhere:"
    yield ""
    yield f"- {_code(CONSTANT_NAMES)}: numbers"
    yield f"- {_code(SIZE_NAMES)}: elements of the rule's number format in a stick, and cores of the device"
    yield f"- {_code(RECORD_NAMES)}: the model's config; a field that it lacks reads as `None`"
    yield f"- {_code(CONTEXT_NAMES)}: number format, device type and class of the module of the place"
    yield f"- {_code(DTYPE_NAMES)}: number formats"
    yield ""
    yield "### Types"
    yield ""
    yield f"`[weight] ELEMENT[DIM, …]`, where ELEMENT is one of {_code((*KINDS, *DTYPES))}, and a DIM is a size expression, `...` (any number of"
    yield "dimensions, which have to broadcast with those of the other variables) or `*B` (any number, the same wherever `*B` stands). `weight` admits only"
    yield "parameters and buffers. `scalar` is a real number and `size` a whole one that the pattern binds. Variables that stand where an op takes a number,"
    yield "flag, format or optional tensor need no type: they bind what is there, `None` included."
    yield ""


def _code(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _ops() -> Iterator[str]:
    yield "## Ops"
    yield ""
    yield "A composite's definition is its meaning over the real numbers; floating point is evaluated by its torch form."
    yield "*Commutes* says in which class the first two operands may swap."
    yield ""
    for family in FAMILIES:
        yield f"### {_FAMILY_TITLES[family]}"
        yield ""
        yield "| op | meaning | definition | torch | commutes |"
        yield "|---|---|---|---|---|"
        for spec in OPS.values():
            if spec.family == family:
                yield _op_row(spec)
        yield ""


def _op_row(spec: OpSpec) -> str:
    also = f" (also {_code(spec.aliases)})" if spec.aliases else ""
    torch = f"`{spec.torch.target}`" if spec.torch else ""
    return f"| `{_cell(spec.signature)}`{also} | {_cell(spec.meaning)} | {_definition(spec)} | {torch} | {spec.commutes or ''} |"


def _definition(spec: OpSpec) -> str:
    if spec.primitive:
        return "primitive"
    return f"`{_cell(spec.definition)}`" if isinstance(spec.definition, str) else "composed from its arguments"


def _codes() -> Iterator[str]:
    yield "## Error codes"
    yield ""
    yield "`adapterc explain CODE` prints an entry with an example."
    yield ""
    yield "| code | title | meaning | mend |"
    yield "|---|---|---|---|"
    for entry in CODES.values():
        yield f"| {entry.code} | {_cell(entry.title)} | {_cell(entry.text)} | {_cell(entry.mend)} |"
    yield ""


def main() -> None:
    text = reference()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
