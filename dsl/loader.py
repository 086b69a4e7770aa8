"""Spec file to `Adapter`: read, check the form, parse every expression, and settle names. Types and shapes are dsl/check.py's.

All faults of a file are reported together where that is possible: form first, then every expression.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from adapterc.dsl import yamltree
from adapterc.dsl.adapter import (
    DEFAULT_ALLOW,
    Adapter,
    Boundary,
    Expect,
    Header,
    Pad,
    Place,
    Replace,
    Require,
    Rewrite,
    Rule,
    Weights,
)
from adapterc.dsl.ast import Expr, Literal, Name, Span
from adapterc.dsl.diagnostics import Diagnostic, SpecError
from adapterc.dsl.parser import parse_expression, parse_type
from adapterc.dsl.resolve import resolve
from adapterc.dsl.schema import RULE_KINDS, validate
from adapterc.dsl.source import Origin
from adapterc.dsl.types import RestDims, TensorType, Type
from adapterc.dsl.yamltree import List, Mapping, Node, Scalar


def load(path: Path | str) -> Adapter:
    """Load one spec file. Raises SpecError (ADC1xx, ADC2xx)."""
    name = str(path)
    text = yamltree.read_source(path)
    return load_text(text, name)


def load_all(paths: Iterable[Path | str]) -> tuple[Adapter, ...]:
    """Load spec files; a folder stands for its `*.yaml` files in order of name. Raises one SpecError with the faults of all files."""
    adapters: list[Adapter] = []
    faults: list[Diagnostic] = []
    for path in paths:
        try:
            adapters += [load(file) for file in _files(Path(path))]
        except SpecError as error:
            faults += error.diagnostics
    seen: dict[str, str] = {}
    for adapter in adapters:
        if adapter.name in seen:
            place = Span(adapter.file, 1, 1, 1, 1)
            message = f"The adapter `{adapter.name}` is already in {seen[adapter.name]}."
            faults.append(Diagnostic("ADC114", message, place, "Rename one of them."))
        seen.setdefault(adapter.name, adapter.file)
    if faults:
        raise SpecError(*faults)
    return tuple(adapters)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.yaml"))
    if not found:
        place = Span(str(path), 1, 1, 1, 1)
        raise SpecError(Diagnostic("ADC115", "The folder holds no *.yaml file.", place, "Name a folder of specs, or a spec."))
    return found


def load_text(text: str, name: str) -> Adapter:
    """Load a spec from its text; `name` stands for the file in messages. Raises SpecError."""
    root = yamltree.parse_yaml(text, name)
    faults = validate(root)
    if faults:
        raise SpecError(*faults)
    return _Builder(text, name).adapter(cast(Mapping, root))


class _Builder:
    """From a valid tree to rules. Faults of expressions are gathered, so that one run reports them all."""

    def __init__(self, source: str, name: str) -> None:
        self._source = source
        self._name = name
        self._faults: list[Diagnostic] = []

    def adapter(self, root: Mapping) -> Adapter:
        gap = root.get("gap")
        digest = hashlib.sha256(self._source.encode()).hexdigest()
        rules = self._rules(root)
        when = self._optional(root, "when")
        if self._faults:
            raise SpecError(*sorted(self._faults, key=lambda d: (d.span.line, d.span.column)))
        return Adapter(
            name=_text(root, "adapter"),
            summary=_text(root, "summary"),
            lifetime=_text(root, "lifetime"),
            gap=cast(Scalar, gap).text if gap is not None else None,
            rules=tuple(rules),
            file=self._name,
            source_sha256=digest,
            when=when,
        )

    def _rules(self, root: Mapping) -> list[Rule]:
        adapter = _text(root, "adapter")
        seen: dict[str, Span] = {}
        rules: list[Rule] = []
        for node in cast(List, root.get("rules")).items:
            rule = self._rule(cast(Mapping, node), adapter)
            name = rule.header.name
            if name in seen:
                message = f"The rule name `{name}` is taken in line {seen[name].line}."
                self._faults.append(Diagnostic("ADC114", message, rule.header.span, "Rename one of them."))
            seen.setdefault(name, rule.header.span)
            rules.append(rule)
        return rules

    def _rule(self, node: Mapping, adapter: str) -> Rule:
        kind = next(key.text for key, _ in node.entries if key.text in RULE_KINDS)
        header = self._header(node, kind, adapter)
        where = self._types(node, "where")
        match kind:
            case "rewrite":
                lets, constants = self._bindings(node, "let", where), self._bindings(node, "constants", where)
                known = _tensors(where, (*lets, *constants))
                return Rewrite(header, self._pattern(node, where), self._expr(node, "substitute", known), where, lets, constants)
            case "weights":
                program = self._bindings(node, "program", where)
                known = _tensors(where, program)
                return Weights(header, self._pattern(node, where), program, self._expr(node, "substitute", known), where)
            case "replace":
                return self._replace(node, header)
            case "pad":
                return self._pad(node, header, where)
            case "place":
                what = "parameter-free" if node.get("what") else "match" if node.get("match") else "module"
                match = self._pattern(node, where) if what == "match" else None
                module = _text(node, "module") if what == "module" else None
                return Place(header, what, match, where, module, _text(node, "to"))
            case "boundary":
                return Boundary(header, self._pattern(node, where), where, _text(node, "action"))
        return self._require(node, header)

    def _header(self, node: Mapping, kind: str, adapter: str) -> Header:
        named = cast(Scalar, node.get(kind))
        reason = node.get("reason")
        accepts = cast(Mapping | None, node.get("accepts"))
        allow = cast(List | None, node.get("allow"))
        claim, budget = cast(Scalar | None, node.get("claim")), cast(Scalar | None, node.get("budget"))
        return Header(
            adapter=adapter,
            name=named.text,
            reason=_text(node, "reason" if reason is not None else "message"),
            span=named.span,
            when=self._optional(node, "when"),
            claim=claim.text if claim else None,
            allow=tuple(cast(Scalar, item).text for item in allow.items) if allow else DEFAULT_ALLOW,
            accepts=tuple((key.text, cast(Scalar, value).text) for key, value in accepts.entries) if accepts else (),
            budget=budget.text if budget else None,
            expect=self._expect(node),
        )

    def _expect(self, node: Mapping) -> tuple[Expect, ...]:
        listed = cast(List | None, node.get("expect"))
        return tuple(self._expectation(cast(Mapping, item)) for item in listed.items) if listed else ()

    def _expectation(self, node: Mapping) -> Expect:
        when, fires = self._optional(node, "when"), node.get("fires")
        if isinstance(fires, Mapping):
            least, most = self._optional(fires, "at_least"), self._optional(fires, "at_most")
            return Expect(when, least if least is not None else Literal(0), most, fires.span)
        count = self._parse(cast(Scalar, fires))
        return Expect(when, count, count, cast(Scalar, fires).span)

    def _replace(self, node: Mapping, header: Header) -> Replace:
        inputs = self._types(node, "inputs")
        attributes = self._attributes(node)
        typed = (*inputs, *((name, found) for name, _, found in attributes if found is not None))
        lets = self._bindings(node, "let", typed)
        forward = self._expr(node, "forward", _tensors(typed, lets))
        return Replace(header, _text(node, "module"), inputs, attributes, lets, forward)

    def _attributes(self, node: Mapping) -> tuple[tuple[str, str, Type | None], ...]:
        listed = cast(Mapping | None, node.get("attributes"))
        found: list[tuple[str, str, Type | None]] = []
        for key, value in listed.entries if listed else ():
            if isinstance(value, Mapping):
                declared = cast(Scalar | None, value.get("type"))
                found.append((key.text, _text(value, "path"), self._type(declared) if declared else None))
            else:
                found.append((key.text, cast(Scalar, value).text, None))
        return tuple(found)

    def _pad(self, node: Mapping, header: Header, where: tuple[tuple[str, Type], ...]) -> Pad:
        dim, fill = _text(node, "dim"), cast(Node, node.get("fill"))
        values: tuple[tuple[str, Expr], ...]
        if isinstance(fill, Mapping):
            values = tuple((key.text, self._parse(cast(Scalar, value))) for key, value in fill.entries)
        else:
            value = self._parse(cast(Scalar, fill))
            values = tuple((name, value) for name, found in where if _has_dim(found, dim))
        size = self._parse(cast(Scalar, node.get("size")))
        return Pad(header, self._pattern(node, where), where, dim, size, values, _text(node, "consumers"))

    def _require(self, node: Mapping, header: Header) -> Require:
        examples = cast(Mapping, node.get("examples"))
        accepted, refused = (
            tuple(
                tuple((key.text, yamltree.plain(value)) for key, value in cast(Mapping, item).entries)
                for item in cast(List, examples.get(side)).items
            )
            for side in ("accepted", "refused")
        )
        return Require(header, self._expr(node, "condition", frozenset()), _text(node, "message"), accepted, refused)

    def _pattern(self, node: Mapping, where: Sequence[tuple[str, Type]]) -> Expr:
        return self._expr(node, "match", _tensors(where, ()))

    def _bindings(self, node: Mapping, key: str, typed: Sequence[tuple[str, Type]]) -> tuple[tuple[str, Expr], ...]:
        listed = cast(Mapping | None, node.get(key))
        done: list[tuple[str, Expr]] = []
        for name, value in listed.entries if listed else ():
            done.append((name.text, self._parse(cast(Scalar, value), _tensors(typed, done))))
        return tuple(done)

    def _types(self, node: Mapping, key: str) -> tuple[tuple[str, Type], ...]:
        listed = cast(Mapping | None, node.get(key))
        found = ((name.text, self._type(cast(Scalar, value))) for name, value in (listed.entries if listed else ()))
        return tuple((name, value) for name, value in found if value is not None)

    def _type(self, scalar: Scalar) -> Type | None:
        try:
            return parse_type(scalar.text, self._origin(scalar))
        except SpecError as error:
            self._faults += error.diagnostics
            return None

    def _optional(self, node: Mapping, key: str) -> Expr | None:
        value = cast(Scalar | None, node.get(key))
        return self._parse(value) if value is not None else None

    def _expr(self, node: Mapping, key: str, tensors: frozenset[str]) -> Expr:
        return self._parse(cast(Scalar, node.get(key)), tensors)

    def _parse(self, scalar: Scalar, tensors: frozenset[str] = frozenset()) -> Expr:
        """The expression of a scalar; after a fault a stand-in that no one sees, because the load fails as a whole."""
        try:
            return resolve(parse_expression(scalar.text, self._origin(scalar)), tensors)
        except SpecError as error:
            self._faults += error.diagnostics
            return Name("_", scalar.span)

    def _origin(self, scalar: Scalar) -> Origin:
        return yamltree.scalar_origin(scalar, self._source)


def _text(node: Mapping, key: str) -> str:
    return cast(Scalar, node.get(key)).text


def _tensors(typed: Sequence[tuple[str, Type]], bound: Sequence[tuple[str, Expr]]) -> frozenset[str]:
    """The names that may stand for tensors: by declaration, or bound by the rule itself."""
    return frozenset(name for name, found in typed if isinstance(found, TensorType)) | {name for name, _ in bound}


def _has_dim(found: Type, dim: str) -> bool:
    dims = found.dims if isinstance(found, TensorType) else ()
    return any(not isinstance(d, RestDims) and d == Name(dim) for d in dims)
