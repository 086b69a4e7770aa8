"""Rules from specs put to captured graphs without a verdict: to see where they match and what they change. Nothing is installed and nothing built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import transformers
from torch import fx

from adapterc.capturing import ModelGraph
from adapterc.codegen.module import Source, module_text
from adapterc.codegen.runtime import Config, Context, GraphReport, rewrite_graph
from adapterc.codegen.runtime.rules import Require, Rule
from adapterc.dsl.adapter import Adapter
from adapterc.spyre_runtime.ir import DeviceLayout
from adapterc.spyre_runtime.profile import Profile
from adapterc.spyre_runtime.stages import partition
from adapterc.spyre_runtime.weight_layouts import linear_layouts


@dataclass(frozen=True)
class Attached:
    """A graph after rules: the device's part of it, layouts of its inputs, and what each rule did."""

    whole: fx.GraphModule
    device: fx.GraphModule
    layouts: Mapping[str, DeviceLayout]
    report: GraphReport

    @property
    def fired(self) -> Mapping[str, int]:
        return self.report.fired


def rules_of(adapter: Adapter) -> tuple[Rule, ...]:
    """The adapter's rules as the generated patch has them. Raises SpecError ADC403 for a rule that has no Python form."""
    namespace: dict[str, Any] = {}
    exec(compile(module_text(adapter, Source(adapter.file, {})), f"<patch {adapter.name}>", "exec"), namespace)
    rules: tuple[Rule, ...] = namespace["RULES"]
    return rules


def context_for(config: transformers.PretrainedConfig, graph: ModelGraph, profile: Profile) -> Context:
    values = [
        node.meta.get("val") for node in graph.captured.module.graph.find_nodes(op="placeholder") if node.name in graph.captured.parameters
    ]
    floating = next((v.dtype for v in values if v is not None and v.is_floating_point()), None)
    return Context(Config(config), profile) if floating is None else Context(Config(config), profile, floating)


def attach(graph: ModelGraph, rules: Sequence[Rule], profile: Profile) -> Attached:
    """Apply rules to a copy of the graph. Requirements are not asked; `refusals_of` does."""
    chosen = tuple(rule for rule in rules if not isinstance(rule, Require))
    captured, report = rewrite_graph(graph.captured, chosen, context_for(graph.config, graph, profile))
    staged = partition(captured)
    # Load-time twins of linear weights are moved as Module.to moves the weights themselves.
    twins = {name: layout for name, layout in linear_layouts(staged).items() if name not in graph.layouts}
    return Attached(captured.module, staged.device.module, {**graph.layouts, **twins}, report)


def refusals_of(graph: ModelGraph, rules: Iterable[Rule], profile: Profile) -> tuple[str, ...]:
    """The sentences of the requirements that the model's config does not meet."""
    context = context_for(graph.config, graph, profile)
    return tuple(
        rule.message
        for rule in rules
        if isinstance(rule, Require) and (rule.origin.when is None or rule.origin.when(context)) and not rule.condition(context)
    )
