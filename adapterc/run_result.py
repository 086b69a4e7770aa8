"""What a run found: the comparison with the CPU, the generated tokens, and the facts of each compiled graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from rich.console import Console

from adapterc.check import RuleReport
from adapterc.layer_errors import LayerError
from adapterc.obstacles import Place
from adapterc.run_facts import GraphFacts
from adapterc.run_show import (
    agreement,
    comparison_line,
    cost_table,
    fired_lines,
    graph_lines,
    obstacle_lines,
    stock_sentence,
    unknown_lines,
)


@dataclass(frozen=True)
class Comparison:
    """The patched model on the device against stock float32 on the CPU.

    `cosines`: one a sequence, of the mean of the valid positions of the model's main output; `largest`: largest absolute difference of
    that output; `scale`: largest absolute value of the stock output; `top1`: share of positions with the same best token (causal LM).
    """

    cosines: tuple[float, ...]
    largest: float
    scale: float
    top1: float | None = None


@dataclass(frozen=True)
class Generation:
    """Greedy tokens of stock `generate` with the static cache: on the CPU in float32, and on the device."""

    expected: tuple[tuple[int, ...], ...]
    produced: tuple[tuple[int, ...], ...]
    vocabulary: int

    @property
    def same(self) -> bool:
        return self.expected == self.produced

    @property
    def inside(self) -> bool:
        """Whether every token is one of the vocabulary; padded logits that win would not be."""
        return all(0 <= token < self.vocabulary for row in self.produced for token in row)


@dataclass(frozen=True)
class RunReport:
    model: str
    profile: str
    numerics: str
    refused: tuple[Place, ...]
    rules: tuple[RuleReport, ...]
    fired: Mapping[str, int]
    comparison: Comparison | None
    generation: Generation | None
    refusal: str | None  # why the patched model does not run, if it does not
    cpu_bitwise: bool
    restored: bool
    compilations: int
    seconds: float
    embeddings: torch.Tensor | None = None  # [sequences, width], of unit length
    dumped: str | None = None  # the stage that was asked for, as text
    graphs: tuple[GraphFacts, ...] = ()
    layers: tuple[LayerError, ...] = ()  # where a report was asked for
    faults: tuple[str, ...] = ()  # that were injected
    device: str = "simulated"
    written: tuple[str, ...] = ()  # files

    @property
    def ok(self) -> bool:
        return self.refusal is None and self.cpu_bitwise and self.restored and (self.generation is None or self.generation.inside)

    def to_json(self) -> Mapping[str, object]:
        return {
            "model": self.model,
            "profile": self.profile,
            "numerics": self.numerics,
            "stock_refused_for": [_place_json(place) for place in self.refused],
            "rules": [{**rule.to_json(), "fired": self.fired.get(rule.name, 0)} for rule in self.rules],
            "refusal": self.refusal,
            "comparison": None if self.comparison is None else vars(self.comparison),
            "generation": None if self.generation is None else {**vars(self.generation), "same": self.generation.same},
            "cpu_bitwise": self.cpu_bitwise,
            "restored": self.restored,
            "compilations": self.compilations,
            "seconds": round(self.seconds, 2),
            "device": self.device,
            "faults": list(self.faults),
            "graphs": [graph.to_json() for graph in self.graphs],
            "layer_errors": [vars(layer) for layer in self.layers],
            "written": list(self.written),
            **({} if self.dumped is None else {"dump": self.dumped}),
        }

    def show(self, console: Console) -> None:
        if self.dumped is not None:
            console.print(self.dumped, markup=False, soft_wrap=True)
            return
        console.print(f"[bold]{self.model}[/] on profile {self.profile}, numbers: {self.numerics}")
        console.print(f"\n[bold]stock[/]: {stock_sentence(self.refused)}")
        if self.refused:
            for line in obstacle_lines(self.refused):
                console.print(line, soft_wrap=True)
        console.print("\n[bold]adapters that attach[/]")
        for line in fired_lines(self.rules, self.fired, console.width):
            console.print(line, soft_wrap=True)
        console.print("\n[bold]patched[/]")
        for line in self.result_lines():
            console.print(line, soft_wrap=True)
        self._show_graphs(console)
        for file in self.written:
            console.print(f"wrote {file}", markup=False, soft_wrap=True)

    def _show_graphs(self, console: Console) -> None:
        if not self.graphs:
            return
        console.print("\n[bold]compiled[/]")
        for line in graph_lines(self.graphs):
            console.print(line, soft_wrap=True)
        costly = max((graph for graph in self.graphs if graph.cost is not None), key=_time, default=None)
        if costly is not None and costly.cost is not None:
            own = "" if costly.cost.known else "; constants carried over from another release, unknown for this one"
            console.print(f"\n[bold]predicted time[/] of the longest graph[dim]{own}[/]")
            console.print(cost_table(costly))
        console.print("\n[bold]unknowns that the numbers lean on[/]")
        for line in unknown_lines(self.graphs):
            console.print(line, soft_wrap=True)

    def result_lines(self) -> Iterator[str]:
        if self.refusal is not None:
            yield f"[bold red]does not run[/]: {self.refusal}"
        if self.comparison is not None:
            yield comparison_line(self.comparison)
        if self.generation is not None:
            same = (
                "the same greedy tokens as the CPU"
                if self.generation.same
                else f"greedy tokens differ after {agreement(self.generation)} of the CPU's"
            )
            yield f"stock generate() with the static cache: {same}; {'no token outside' if self.generation.inside else '[bold red]a token outside[/]'} the vocabulary of {self.generation.vocabulary}"
        yield f"CPU output while patched: {'bitwise stock' if self.cpu_bitwise else '[bold red]changed[/]'}; module after un-patching: {'as it was' if self.restored else '[bold red]changed[/]'}"
        yield f"[dim]{self.compilations} graphs compiled, {self.seconds:.1f} s in all[/]"


def _time(graph: GraphFacts) -> float:
    return graph.cost.us if graph.cost is not None else 0.0


def _place_json(place: Place) -> Mapping[str, object]:
    obstacle = place.obstacle
    return {
        "kind": obstacle.kind,
        "verdict": obstacle.verdict,
        "message": obstacle.message,
        "op": obstacle.op,
        "source": obstacle.source,
        "sizes": list(obstacle.sizes),
        "gap": obstacle.gap,
        "places": len(place.sites),
    }
