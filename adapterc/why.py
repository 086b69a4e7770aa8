"""`adapterc why RULE MODEL`: whether a rule fires on a model, and if not: the clause that failed with its values, the nearest miss, or the rule in its way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from rich.console import Console

from adapterc.attach import Attached, attach, context_for, rules_of
from adapterc.capturing import ModelGraph, graphs_of_loaded
from adapterc.codegen.runtime import Context, Miss, numbers
from adapterc.codegen.runtime.graph import placeholder_kinds, source_line
from adapterc.codegen.runtime.match import Matcher
from adapterc.codegen.runtime.pattern import Pattern
from adapterc.codegen.runtime.rewrite import local_context, weight_only
from adapterc.codegen.runtime.rules import Replace, Require, Rule
from adapterc.codegen.text_predicate import predicate_text
from adapterc.dsl.adapter import Adapter
from adapterc.dsl.adapter import Rule as SpecRule
from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, walk
from adapterc.dsl.diagnostics import did_you_mean
from adapterc.dsl.loader import load_all
from adapterc.dsl.printer import to_text
from adapterc.errors import UserError
from adapterc.gaps import profile_named
from adapterc.inputs import seeded_inputs
from adapterc.models import Loaded, load
from adapterc.spyre_runtime.profile import Profile


@dataclass(frozen=True)
class Clause:
    """One part of a `when:` that does not hold, and the values of the names in it."""

    text: str
    values: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        found = ", ".join(f"{name} = {value}" for name, value in self.values)
        return f"`{self.text}` is false" + (f" ({found})" if found else "")


@dataclass(frozen=True)
class Answer:
    """For one graph. `reason`: fired, when (a clause failed), shadowed (another rule took the place), miss (the pattern stopped) or absent."""

    reason: str
    fired: int
    sentence: str
    clauses: tuple[Clause, ...] = ()
    shadowed_by: tuple[str, ...] = ()
    miss: Miss | None = None


@dataclass(frozen=True)
class WhyReport:
    rule: str
    model: str
    profile: str
    answers: tuple[Answer, ...]
    ok: bool = True

    def to_json(self) -> Mapping[str, object]:
        return {
            "rule": self.rule,
            "model": self.model,
            "profile": self.profile,
            "graphs": [
                {
                    "reason": a.reason,
                    "fired": a.fired,
                    "sentence": a.sentence,
                    "failed_clauses": [{"text": c.text, "values": dict(c.values)} for c in a.clauses],
                    "shadowed_by": list(a.shadowed_by),
                    "nearest_miss": None if a.miss is None else vars(a.miss),
                }
                for a in self.answers
            ],
        }

    def show(self, console: Console) -> None:
        for answer in self.answers:
            console.print(f"{self.rule} on {self.model}: {answer.sentence}", markup=False, soft_wrap=True)


def why_rule(name: str, model: str, specs: Sequence[Path], profile: str) -> WhyReport:
    """Raises UserError ADC604 for an unknown rule, and what loading the model raises."""
    backend = profile_named(profile)
    adapters = load_all(specs)
    known = {f"{rule.header.adapter}.{rule.header.name}": rule for adapter in adapters for rule in adapter.rules}
    if name not in known:
        raise UserError("ADC604", f"there is no rule `{name}`", did_you_mean(name, known) or "`adapterc list` shows all rules")
    loaded = load(model)
    answers = tuple(
        _answer(name, known[name], adapters, loaded, graph, backend) for graph in graphs_of_loaded(loaded, seeded_inputs(loaded))
    )
    return WhyReport(name, loaded.source.text, profile, answers)


def _answer(name: str, spec: SpecRule, adapters: Sequence[Adapter], loaded: Loaded, graph: ModelGraph, profile: Profile) -> Answer:
    rules = [rule for adapter in adapters for rule in rules_of(adapter)]
    mine = next(rule for rule in rules if rule.origin.name == name)
    context = context_for(graph.config, graph, profile)
    if isinstance(mine, Require):
        holds = mine.condition(context)
        return Answer(
            "fired" if not holds else "absent", int(not holds), "the model meets it" if holds else f"it refuses the model: {mine.message}"
        )
    if isinstance(mine, Replace):
        return _replace_answer(mine, spec, loaded, context, _when(name, adapters))
    together = attach(graph, rules, profile)
    if together.fired.get(name, 0):
        return Answer("fired", together.fired[name], f"it fires {_times(together.fired[name])}")
    alone = attach(graph, [mine], profile)
    if alone.fired.get(name, 0):
        return _shadowed(name, rules, graph, profile, together, alone)
    return _missed(mine, graph, context, _when(name, adapters), alone)


def _when(name: str, adapters: Sequence[Adapter]) -> tuple[Expr, ...]:
    """The conjuncts of the adapter's and the rule's `when:`."""
    adapter_name, _, rule_name = name.partition(".")
    adapter = next(a for a in adapters if a.name == adapter_name)
    rule = next(r for r in adapter.rules if r.header.name == rule_name)
    return tuple(part for when in (adapter.when, rule.header.when) if when is not None for part in _conjuncts(when))


def _conjuncts(when: Expr) -> Iterator[Expr]:
    if isinstance(when, Call) and when.op == "logical_and":
        for side in when.args:
            yield from _conjuncts(side)
    else:
        yield when


def _shadowed(name: str, rules: Sequence[Rule], graph: ModelGraph, profile: Profile, together: Attached, alone: Attached) -> Answer:
    """The rules without which this one fires again, found by leaving each out."""
    suspects = [other for other, sites in together.fired.items() if sites and other != name]
    guilty = tuple(o for o in suspects if attach(graph, [r for r in rules if r.origin.name != o], profile).fired.get(name, 0))
    who = " or ".join(guilty) if guilty else "several rules together"
    sentence = f"alone it fires {_times(alone.fired[name])}, but {who} took the place first"
    return Answer("shadowed", 0, sentence, shadowed_by=guilty)


def _missed(rule: Rule, graph: ModelGraph, context: Context, when: Sequence[Expr], alone: Attached) -> Answer:
    pattern = getattr(rule, "pattern", None)
    if isinstance(pattern, Pattern):
        failed = _failed_clauses(pattern, graph, context, when)
        if failed:
            where, clauses = failed
            return Answer("when", 0, f"its pattern matches at {where}, but {' and '.join(map(str, clauses))}", clauses)
    miss = alone.report.misses.get(rule.origin.name) or (_nearest(pattern, graph) if isinstance(pattern, Pattern) else None)
    if miss is None or miss.depth == 0:
        op = getattr(pattern, "name", type(rule).__name__.lower())
        return Answer(
            "absent",
            0,
            f"the graph has no `{op}` to start from" if pattern is not None else "nothing in the graph is what it places",
            miss=miss,
        )
    return Answer("miss", 0, f"nearest miss: {miss}", miss=miss)


def _failed_clauses(pattern: Pattern, graph: ModelGraph, context: Context, when: Sequence[Expr]) -> tuple[str, tuple[Clause, ...]] | None:
    """At the first node where the pattern holds: the clauses that do not."""
    module = graph.captured.module.graph
    weights = weight_only(module, placeholder_kinds(module, graph.captured.parameters, graph.captured.buffers))
    for node in module.nodes:
        match = Matcher(pattern, weights).at(node) if node.op == "call_function" and node.users else None
        if match is not None:
            here = local_context(context, match)
            failed = tuple(Clause(to_text(clause), _values(clause, here)) for clause in when if not _holds(clause, here))
            if failed:
                return f"{node.name} ({source_line(node)})", failed
    return None


def _nearest(pattern: Pattern, graph: ModelGraph) -> Miss | None:
    module = graph.captured.module.graph
    weights = weight_only(module, placeholder_kinds(module, graph.captured.parameters, graph.captured.buffers))
    best: Miss | None = None
    for node in module.nodes:
        if node.op != "call_function":
            continue
        matcher = Matcher(pattern, weights)
        if matcher.at(node) is None and matcher.miss is not None and (best is None or matcher.miss.depth > best.depth):
            best = matcher.miss
    return best


def _evaluate(expression: Expr, here: Context) -> object:
    names = {"math": math, "torch": torch, "here": here, **{n: getattr(numbers, n) for n in dir(numbers) if not n.startswith("_")}}
    return eval(predicate_text(expression), names)  # the language is total: the text comes from a parsed predicate


def _holds(clause: Expr, here: Context) -> bool:
    return bool(_evaluate(clause, here))


def _values(clause: Expr, here: Context) -> tuple[tuple[str, str], ...]:
    """The reads of config, sizes and context in a clause, with what they are here."""
    reads: dict[str, Expr] = {}
    inner: set[Expr] = set()
    for node in walk(clause):
        if isinstance(node, Attribute):
            reads.setdefault(to_text(node), node)
            inner.update(walk(node.base))
        elif isinstance(node, Call) and node.op == "gap":
            reads.setdefault(to_text(node), node)
    for node in walk(clause):
        if isinstance(node, Name) and node not in inner and node.id != "config" and not isinstance(node, Literal):
            reads.setdefault(node.id, node)
    return tuple((text, str(_evaluate(node, here)).removeprefix("torch.")) for text, node in reads.items())


def _replace_answer(rule: Replace, spec: SpecRule, loaded: Loaded, context: Context, when: Sequence[Expr]) -> Answer:
    classes = [type(module).__name__ for module in loaded.model.modules()]
    found = [name for name in classes if fnmatchcase(name, rule.module)]
    failed = tuple(Clause(to_text(clause), _values(clause, context)) for clause in when if not _holds(clause, context))
    if found and not failed:
        return Answer("fired", len(found), f"it replaces the forward of {_times(len(found))} {found[0]}")
    if failed:
        return Answer("when", 0, " and ".join(map(str, failed)), failed)
    near = did_you_mean(rule.module.strip("*"), sorted(set(classes)))
    return Answer("absent", 0, f"no module's class matches `{rule.module}`. {near}".strip())


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
