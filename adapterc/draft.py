"""`adapterc draft GAP`: a spec for a gap, its substitute found among known good forms, checked, and put to the compiler before it is written down."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from adapterc.attach import attach, rules_of
from adapterc.candidates import SPOKEN, Candidate, about, library, power_candidates
from adapterc.capturing import DEVICE, ModelGraph
from adapterc.codegen.runtime.graph import packet, placeholder_kinds
from adapterc.codegen.runtime.match import Matcher
from adapterc.codegen.runtime.pattern import Pattern
from adapterc.codegen.runtime.rewrite import weight_only
from adapterc.codegen.runtime.rules import Rewrite
from adapterc.coverage import ops_of
from adapterc.decoding import all_graphs
from adapterc.dsl.adapter import Adapter
from adapterc.dsl.ast import Name
from adapterc.dsl.check import check_types
from adapterc.dsl.diagnostics import SpecError, did_you_mean
from adapterc.dsl.loader import load_text
from adapterc.dsl.types import RestDims, ScalarType, TensorType, Type
from adapterc.errors import UserError
from adapterc.files import check_writable, write_whole
from adapterc.gaps import identity, profile_named
from adapterc.models import load
from adapterc.obstacles import Compiler, Place, all_places, find
from adapterc.spyre_runtime.profile import Profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.subgraph import part
from adapterc.verify import Verdict, check_adapter, problems

SCHEMA = "# yaml-language-server: $schema=../dsl/schema/adapter.schema.json"
_SIZE = 128  # whole sticks, so that a form is refused for what it is and not for the sample
_STEPS_DOWN = 6
_EDGE_QUESTION = "DRAFT: confirm that no model reaches this edge"
_NUMBER = re.compile(r"G\d+")


@dataclass(frozen=True)
class Trial:
    """One candidate and what came of it. `accepted`: the compiler takes it; None where it can only be asked on a model."""

    candidate: Candidate
    verdict: Verdict | None
    accepted: bool | None
    why: str

    @property
    def good(self) -> bool:
        return not self.why


@dataclass(frozen=True)
class DraftReport:
    """`text`: the spec. `trials`: everything that was tried, the chosen ones among them. `questions`: what a person has to settle."""

    gap: str
    name: str
    text: str
    trials: tuple[Trial, ...]
    questions: tuple[str, ...]
    written: Path | None = None

    @property
    def ok(self) -> bool:
        return any(trial.good for trial in self.trials)

    def to_json(self) -> Mapping[str, object]:
        return {
            "gap": self.gap,
            "adapter": self.name,
            "spec": self.text,
            "written": str(self.written) if self.written else None,
            "questions": list(self.questions),
            "tried": [
                {
                    "from": t.candidate.source,
                    "substitute": t.candidate.body.get("substitute"),
                    "class": t.verdict.klass if t.verdict else None,
                    "status": t.verdict.status if t.verdict else None,
                    "compiler_accepts": t.accepted,
                    "chosen": t.good,
                    "why_not": t.why or None,
                }
                for t in self.trials
            ],
        }

    def show(self, console: Console) -> None:
        console.print(self.text, markup=False, soft_wrap=True)
        if self.written:
            console.print(f"wrote {self.written}; next: adapterc check {self.written}", markup=False, soft_wrap=True)


def draft_gap(
    gap: str, specs: Sequence[Path], profile: str, *, model: str | None = None, name: str | None = None, output: Path | None = None
) -> DraftReport:
    """Draft an adapter for a gap: an id that `gaps` printed (with its model), a gap id of the profile, a topic, or an expression.

    Raises UserError ADC605 where nothing is known by that name, ADC606 where no candidate holds, ADC512 where `output` cannot be written.
    """
    backend = profile_named(profile)
    if output is not None:
        check_writable(output, "--output")
    known = library(specs)
    site: Site | None = None
    if _NUMBER.fullmatch(gap) and model is not None:
        site = _site(gap, model, backend)
        chosen = tuple(_at_site(site, known, backend))
        subject = f"{site.place.obstacle.kind} at {site.place.obstacle.source.rpartition('/')[2]}"
    else:
        chosen, subject = about(gap, known), gap
    if not chosen:
        topics = ("pow", *SPOKEN)
        hint = did_you_mean(gap, [*topics, *(candidate.name for candidate in known)])
        raise UserError(
            "ADC605",
            f"nothing is known about `{gap}`",
            f"{f'{hint} Else give' if hint else 'give'} a gap's number with --model, an expression, or one of: {', '.join(topics)}",
        )
    trials = tuple(_trials(chosen, backend, site))
    good = [trial for trial in trials if trial.good]
    if not good:
        tried = "; ".join(f"{t.candidate.source}: {t.why}" for t in trials)
        raise UserError(
            "ADC606",
            f"no form for `{gap}` was both proved and accepted ({tried})",
            "write the substitute by hand, starting from the nearest of these",
        )
    label = name or _label(gap, good[0].candidate)
    questions = tuple(_questions(good, site))
    text = _spec_text(label, subject, good, trials, questions, site)
    if output is not None:
        write_whole(output, text, "--output")
    return DraftReport(gap, label, text, trials, questions, output)


@dataclass(frozen=True)
class Site:
    """A gap of a model: the graph and the place in it."""

    graph: ModelGraph
    place: Place


def _site(gap: str, model: str, profile: Profile) -> Site:
    seen: set[tuple[object, ...]] = set()
    compiler = Compiler(profile)
    for graph in all_graphs(load(model))[0]:
        for place in all_places(graph.captured.module, graph.layouts, compiler):
            seen.add(identity(place.obstacle, ops_of(place)))
            if gap == f"G{len(seen)}":
                return Site(graph, place)
    raise UserError("ADC605", f"{model} has no gap {gap}; it has {len(seen)}", "take a number that `adapterc gaps` prints for this model")


def _at_site(site: Site, known: Sequence[Candidate], profile: Profile) -> Iterator[Candidate]:
    """Candidates whose pattern matches somewhere around the place, those that explain most of it first; powers where the place has one."""
    module = site.graph.captured.module
    nodes = [node for node in module.graph.nodes if node.name in site.place.nodes]
    around = _below(nodes)
    for node in nodes:
        exponent = node.args[1] if packet(node) == "pow" and len(node.args) == 2 else None
        if isinstance(exponent, int | float) and float(exponent * 2).is_integer():
            yield from power_candidates((Fraction(exponent),))
    weights = weight_only(module.graph, placeholder_kinds(module.graph, site.graph.captured.parameters, site.graph.captured.buffers))
    found = []
    for candidate in known:
        pattern = getattr(_runtime_rule(_adapter(candidate, "draft")), "pattern", None)
        if isinstance(pattern, Pattern):
            matches = [m for node in around if node.op == "call_function" and (m := Matcher(pattern, weights).at(node)) is not None]
            overlap = max((len(set(m.interior) & set(nodes)) for m in matches), default=0)
            if overlap:
                found.append((overlap, candidate))
    yield from (candidate for _, candidate in sorted(found, key=lambda pair: -pair[0]))


def _below(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes and what reads them, a few steps down: a pattern's root stands below the op that is refused."""
    found, edge = set(nodes), set(nodes)
    for _ in range(_STEPS_DOWN):
        edge = {user for node in edge for user in node.users} - found
        found |= edge
    return found


def _adapter(candidate: Candidate, name: str, body: Mapping[str, Any] | None = None) -> Adapter:
    data: dict[str, Any] = {"adapter": name, "summary": "A draft.", "lifetime": candidate.lifetime, "rules": [dict(body or candidate.body)]}
    return load_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), f"<draft of {candidate.source}>")


def _runtime_rule(adapter: Adapter) -> object:
    return rules_of(adapter)[0]


def _trials(candidates: Sequence[Candidate], profile: Profile, site: Site | None) -> Iterator[Trial]:
    """Check candidates one by one. A second form for a match that already has one is not needed."""
    done: set[str] = set()
    for candidate in candidates:
        if candidate.match in done:
            continue
        trial = _trial(candidate, profile, site)
        if trial.good:
            done.add(candidate.match)
        yield trial


def _trial(candidate: Candidate, profile: Profile, site: Site | None) -> Trial:
    try:
        adapter = _adapter(candidate, "draft")
        faults = [fault for fault in check_types(adapter) if fault.severity == "error"]
        if faults:
            return Trial(candidate, None, None, faults[0].message)
        verdict, candidate, adapter = _with_edges(candidate, adapter)
    except SpecError as error:
        return Trial(candidate, None, None, error.diagnostics[0].message)
    against = [problem for problem in problems(verdict, adapter.rules[0].header) if problem.severity == "error"]
    if against:
        return Trial(candidate, verdict, None, against[0].message)
    accepted, why = _accepted(adapter, profile, site)
    return Trial(candidate, verdict, accepted, why)


def _with_edges(candidate: Candidate, adapter: Adapter) -> tuple[Verdict, Candidate, Adapter]:
    """The verdict; where it depends on edges alone, they are accepted with a question, and the candidate says so."""
    (verdict,) = check_adapter(adapter)
    header = adapter.rules[0].header
    missing = [edge for edge in verdict.edges if edge not in dict(header.accepts)]
    if verdict.klass == "EDGE" and missing:
        accepts = {**dict(candidate.body.get("accepts", {})), **dict.fromkeys(missing, _EDGE_QUESTION)}
        candidate = Candidate(candidate.source, {**candidate.body, "accepts": accepts}, candidate.gap, candidate.lifetime)
        adapter = _adapter(candidate, "draft")
        (verdict,) = check_adapter(adapter)
    return verdict, candidate, adapter


def _accepted(adapter: Adapter, profile: Profile, site: Site | None) -> tuple[bool | None, str]:
    """Whether the compiler takes what the rule makes: on the gap's own model where there is one, else on samples of its types."""
    if site is not None:
        attached = attach(site.graph, rules_of(adapter), profile)
        if not sum(attached.fired.values()):
            return False, "it does not fire on the model"
        left = find(attached.device, attached.layouts, profile)
        kind, source = site.place.obstacle.kind, site.place.obstacle.source
        stands = any((p.obstacle.kind, p.obstacle.source) == (kind, source) for p in left)
        return (False, "the compiler still refuses the place") if stands else (True, "")
    rule = _runtime_rule(adapter)
    if not isinstance(rule, Rewrite):
        return None, ""
    where = dict(getattr(adapter.rules[0], "where", ()))
    try:
        module = _sample(rule, where)
    except (RuntimeError, TypeError, ValueError, KeyError, NotImplementedError):
        return None, ""  # the types leave sizes open that a sample would have to guess
    answer = Compiler(profile).ask(module, {})
    if isinstance(answer, Refusal):
        return False, f"the compiler refuses it: {answer.obstacle.message}"
    return True, ""


def _sample(rule: Rewrite, where: Mapping[str, Type]) -> Any:
    """The substitute on fake tensors of the types: named sizes are whole sticks, leading dimensions one row block."""
    sizes: dict[str, int] = {}
    mode = FakeTensorMode()
    with mode:
        tensors = {name: _fake(found, sizes) for name, found in where.items() if isinstance(found, TensorType)}
    scalars: dict[str, Any] = {
        name: 2 if found.element == "size" else 0.5 for name, found in where.items() if isinstance(found, ScalarType)
    }
    context: dict[str, Any] = {"dtype": torch.float16, "device": torch.device(DEVICE), "stick": 64, "cores": 32, **sizes, **scalars}
    wanted = _wanted(rule.substitute)
    names = list(tensors)

    def run(*values: torch.Tensor) -> Any:
        given = {**context, **dict(zip(names, values, strict=True))}
        loaded = rule.load(**{n: given[n] for n in _wanted(rule.load)}) if rule.load is not None else {}
        given.update(loaded)
        return (rule.substitute(**{n: given[n] for n in wanted}),)

    with mode, torch.no_grad():
        return _behind_prologue(make_fx(run, pre_dispatch=True)(*tensors.values()))


def _behind_prologue(module: fx.GraphModule) -> fx.GraphModule:
    """What is left for the device once the prologue adapter has put positions and masks on the host: nodes that read a floating input."""
    reads: set[fx.Node] = set()
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if (node.op == "placeholder" and isinstance(value, torch.Tensor) and value.is_floating_point()) or (
            node.op == "call_function" and reads.intersection(node.all_input_nodes)
        ):
            reads.add(node)
    (end,) = module.graph.find_nodes(op="output")
    return part(
        module, [n for n in reads if n.op == "call_function"], [n for n in end.all_input_nodes if n in reads and n.op == "call_function"]
    )


def _wanted(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def _fake(found: TensorType, sizes: dict[str, int]) -> torch.Tensor:
    shape = []
    for dim in found.dims:
        if isinstance(dim, RestDims):
            shape.append(_SIZE)
        elif isinstance(dim, Name):
            shape.append(sizes.setdefault(dim.id, _SIZE))
        else:
            raise ValueError("a size expression")
    dtype = {"int": torch.int64, "bool": torch.bool}.get(found.element, torch.float16)
    return torch.empty(shape, dtype=dtype, device=DEVICE)


def _label(gap: str, candidate: Candidate) -> str:
    word = re.sub(r"\W+", "_", gap.strip().lower()).strip("_")
    return f"draft_{candidate.name}" if _NUMBER.fullmatch(gap) or not word or not word[0].isalpha() else f"{word}_draft"


def _questions(good: Sequence[Trial], site: Site | None) -> Iterator[str]:
    if site is not None and site.place.obstacle.gap is None:
        yield "Which gap of the profile is this? Without `gap:`, audit cannot retire the adapter."
    for trial in good:
        if trial.accepted is None:
            yield f"{trial.candidate.name}: does the compiler take it on your model? `adapterc gaps MODEL --spec THIS` says."
        for edge, why in dict(trial.candidate.body.get("accepts", {})).items():
            if why == _EDGE_QUESTION:
                yield f"{trial.candidate.name}: it differs from stock at {edge}. Can a model get there?"
    yield "On which families must it fire, and how often? Write `expect:`, so that a silent miss becomes an error."


def _spec_text(
    label: str, subject: str, good: Sequence[Trial], trials: Sequence[Trial], questions: Sequence[str], site: Site | None
) -> str:
    first = good[0].candidate
    gap = (site.place.obstacle.gap if site is not None else None) or first.gap
    head: dict[str, Any] = {"adapter": label, "summary": f"A draft for {subject}.", "lifetime": "scaffold" if gap else first.lifetime}
    if gap:
        head["gap"] = gap
    comments = [f"Nearest template: {first.source}.", *(f"Tried {t.candidate.source}: {t.why}" for t in trials if not t.good)]
    lines = [
        SCHEMA,
        *(f"# {_one_line(c)}" for c in comments),
        *(f"# TODO {_one_line(q)}" for q in questions),
        _dump(head).rstrip(),
        "rules:",
    ]
    for trial in good:
        assert trial.verdict is not None
        lines.append(f"  # {trial.verdict.klass} {trial.verdict.status}: {_one_line(trial.verdict.how)}")
        lines += [f"  {'- ' if i == 0 else '  '}{line}" for i, line in enumerate(_dump(dict(trial.candidate.body)).rstrip().splitlines())]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _dump(data: Mapping[str, Any]) -> str:
    """One line a key; what is nested stands in brackets on that line, as in the shipped specs."""
    return "".join(f"{key}: {_inline(value)}\n" for key, value in data.items())


def _inline(value: Any) -> str:
    flow = isinstance(value, (dict, list))
    text = str(yaml.safe_dump(value, sort_keys=False, default_flow_style=flow, width=100_000, allow_unicode=True))
    return text.removesuffix("\n...\n").strip()
