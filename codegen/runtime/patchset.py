"""A generated package's rules, installed on one model: checked against its config, applied to each graph that is compiled from it, counted, taken off."""

from __future__ import annotations

import dataclasses
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import fx

from adapterc.spyre_runtime import patches
from adapterc.spyre_runtime.capture import CapturedGraph
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.spyre_runtime.settings import current_settings

from ..patch_error import EXPECTATION, INSTALLED, REQUIREMENT, PatchError
from .context import Config, Context
from .graph import placeholder_kinds, remove_dead
from .inplace import functionalise
from .match import Miss
from .pads import apply_pad
from .place import bound, counters_on_host, place, spread_load
from .replace import Replaced, replace_modules
from .rewrite import apply_rewrites, tidy
from .rules import Boundary, Expectation, Origin, Pad, Place, Replace, Require, Rewrite, Rule
from .trace import Tracer, fake_mode, refresh

# A graph with this share of the model's weights is the whole model (a task may leave a pooler or a head out), so `expect: at least` holds for it.
WHOLE = 0.9


@dataclass(frozen=True)
class GraphReport:
    """What the rules did to one graph: sites a rule, and for rules without any, what came nearest."""

    fired: Mapping[str, int]
    misses: Mapping[str, Miss]
    whole: bool


@dataclass(frozen=True)
class PatchSet:
    """The rules of a package. Installing them touches nothing but instances; graph rules wait in `spyre_runtime.patches`."""

    rules: tuple[Rule, ...]

    def install(self, model: torch.nn.Module, profile: Profile | None = None) -> Handle:
        """Install on one model. Raises PatchError ADC413 with a rule's sentence when a `require` refuses its config, ADC415 when already installed."""
        if any(handle.model() is model and handle.active for handle in _HANDLES):
            raise PatchError(INSTALLED, "the model is patched already.", hint="Remove the first handle, or leave its `with` block.")
        context = context_of(model, profile)
        refuse(self.rules, context)
        handle = Handle(weakref.ref(model), self.rules, context)
        for rule in self.rules:
            if isinstance(rule, Replace):
                handle.replaced.extend(replace_modules(model, rule, context))
        handle.registration = patches.install(model, (GraphRules(handle),))
        _HANDLES.append(handle)
        return handle

    @contextmanager
    def patched(self, model: torch.nn.Module, profile: Profile | None = None) -> Iterator[Handle]:
        """The model with the patches inside the block, and as it was behind it, also after an error."""
        handle = self.install(model, profile)
        try:
            yield handle
        finally:
            handle.remove()


@dataclass(eq=False)
class Handle:
    """One installation."""

    model: weakref.ref[torch.nn.Module]
    rules: tuple[Rule, ...]
    context: Context
    replaced: list[Replaced] = field(default_factory=list)
    graphs: list[GraphReport] = field(default_factory=list)
    registration: patches.Handle | None = None
    active: bool = True

    def fired(self) -> dict[str, int]:
        """Sites by rule, over all graphs compiled so far; a rule that never fired is there with 0."""
        counts = Counter({rule.origin.name: 0 for rule in self.rules if not isinstance(rule, Require)})
        counts.update(Counter(replaced.rule for replaced in self.replaced))
        for graph in self.graphs:
            counts.update(graph.fired)
        return dict(counts)

    def why(self, rule: str) -> Miss | None:
        """For a rule that did not fire in the graph compiled last, what came nearest and where it ended."""
        return self.graphs[-1].misses.get(rule) if self.graphs else None

    def remove(self) -> None:
        """Take everything off again; doing it twice does no harm."""
        if not self.active:
            return
        self.active = False
        if self.registration is not None:
            self.registration.remove()
        for replaced in reversed(self.replaced):
            replaced.restore()
        if self in _HANDLES:
            _HANDLES.remove(self)


_HANDLES: list[Handle] = []


@dataclass(frozen=True, eq=False)
class GraphRules:
    """The graph patch that spyre_runtime's backend calls."""

    handle: Handle
    name: str = "adapterc"

    def __call__(self, captured: CapturedGraph) -> tuple[CapturedGraph, int]:
        rewritten, report = rewrite_graph(captured, self.handle.rules, self.handle.context, _parameters(self.handle))
        self.handle.graphs.append(report)
        check_expectations(self.handle.rules, report, self.handle.context)
        return rewritten, sum(report.fired.values())


def _parameters(handle: Handle) -> int:
    model = handle.model()
    return 0 if model is None else sum(1 for _ in model.parameters())


def context_of(model: torch.nn.Module, profile: Profile | None = None) -> Context:
    """What rules may ask about a model: its config (text part of a multimodal one included as it is), its dtype, the profile in force."""
    floating = (p.dtype for p in model.parameters() if p.is_floating_point())
    return Context(
        Config(getattr(model, "config", None)), profile or load_profile(current_settings().profile), next(floating, torch.float16)
    )


def refuse(rules: tuple[Rule, ...], context: Context) -> None:
    """Raise PatchError ADC413 with the sentence of the first `require` that does not hold."""
    for rule in rules:
        if isinstance(rule, Require) and (rule.origin.when is None or rule.origin.when(context)) and not rule.condition(context):
            raise PatchError(REQUIREMENT, rule.message, rule.origin.place)


def rewrite_graph(
    captured: CapturedGraph, rules: tuple[Rule, ...], context: Context, parameters: int = 0
) -> tuple[CapturedGraph, GraphReport]:
    """A patched copy of the graph and what was done to it. Order: rewrites to their fixed point, pads, boundaries, stages."""
    graph, module = _copy(captured)
    try:
        fake_mode(graph)
    except LookupError:
        return captured, GraphReport({}, {}, False)
    kinds = placeholder_kinds(graph, captured.parameters, captured.buffers)
    tracer = Tracer(graph)
    functionalise(graph, tracer)
    tidy(graph)
    if any(isinstance(rule, Place) and rule.what == "parameter-free" for rule in rules):
        counters_on_host(graph, kinds, tracer)
    fired, misses = apply_rewrites(graph, [r for r in rules if isinstance(r, Rewrite)], kinds, context, tracer)
    for rule in rules:
        if isinstance(rule, Pad):
            done, reasons = apply_pad(graph, rule, kinds, context, tracer)
            fired[rule.origin.name] += done
            if reasons and not done:
                misses[rule.origin.name] = max(reasons, key=lambda miss: miss.depth)
    remove_dead(graph)
    for rule in rules:
        if isinstance(rule, Boundary):
            fired[rule.origin.name] += len(bound(graph, rule, kinds, context, tracer))
    spread_load(graph, kinds)
    for rule in rules:
        if isinstance(rule, Place):
            fired[rule.origin.name] += int(place(graph, rule, kinds, context, tracer) > 0)
    refresh(graph, tracer)
    graph.lint()
    module.recompile()
    whole = bool(parameters) and len(captured.parameters) >= WHOLE * parameters
    report = GraphReport(dict(fired), misses, whole)
    return dataclasses.replace(captured, module=module), report


def _copy(captured: CapturedGraph) -> tuple[fx.Graph, fx.GraphModule]:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in captured.module.graph.nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    module = fx.GraphModule(captured.module, graph)
    return module.graph, module


def check_expectations(rules: tuple[Rule, ...], report: GraphReport, context: Context) -> None:
    """Raise PatchError ADC410 for a rule that fired less often (in a whole graph) or more often than its spec says."""
    for rule in rules:
        for expectation in rule.origin.expect:
            if expectation.when is not None and not expectation.when(context):
                continue
            _check(rule.origin, expectation, report, context)


def _check(origin: Origin, expectation: Expectation, report: GraphReport, context: Context) -> None:
    found = report.fired.get(origin.name, 0)
    least = expectation.least(context)
    most = expectation.most(context) if expectation.most is not None else None
    if report.whole and found < least:
        miss = report.misses.get(origin.name)
        hint = f"Nearest miss: {miss}." if miss is not None else "No place came near; `adapterc why` shows the graph."
        raise PatchError(
            EXPECTATION, f"{origin.name} fired {found} times, and {expectation.place} expects {_at_least(least, most)}.", origin.place, hint
        )
    if most is not None and found > most:
        raise PatchError(
            EXPECTATION,
            f"{origin.name} fired {found} times, and {expectation.place} expects at most {most}.",
            origin.place,
            "Narrow its match or its `when:`.",
        )


def _at_least(least: int, most: int | None) -> str:
    return f"{least}" if least == most else f"at least {least}"
