"""A run's report on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from adapterc.check import RuleReport
from adapterc.obstacles import FALLBACK, Place
from adapterc.run_facts import GraphFacts, by_kernel

if TYPE_CHECKING:
    from adapterc.run_result import Comparison, Generation

KERNELS = 8  # rows of the cost table


def stock_sentence(places: Sequence[Place]) -> str:
    refusals = [place for place in places if not place.obstacle.kind.startswith(FALLBACK)]
    if not refusals:
        return "compiles as it is" + (f", with {len(places)} kinds of CPU fallback" if places else "")
    return f"does not compile; {len(refusals)} kinds of place are refused" + (
        f", {len(places) - len(refusals)} fall back to the CPU" if len(places) > len(refusals) else ""
    )


def obstacle_lines(places: Sequence[Place]) -> Iterator[str]:
    """Each kind of refusal with its number of places, the Transformers line and the reason; the CPU fallbacks, which do run, on one line."""
    fallbacks: Counter[str] = Counter()
    for place in places:
        obstacle = place.obstacle
        if obstacle.kind.startswith(FALLBACK):
            fallbacks[obstacle.op] += len(place.sites)
        else:
            yield f"  {len(place.sites)} × [bold]{escape(obstacle.kind)}[/] at {short_source(obstacle.source)}"
            yield f"      {escape(obstacle.message)}"
    if fallbacks:
        yield f"  on the CPU instead: {', '.join(f'{escape(op)} ({count})' for op, count in fallbacks.items())}"


def short_source(source: str) -> str:
    """`…/site-packages/transformers/models/bert/modeling_bert.py:42` as `bert/modeling_bert.py:42`."""
    return "/".join(source.rsplit("/", 2)[-2:])


def fired_lines(rules: Sequence[RuleReport], fired: Mapping[str, int], width: int) -> Iterator[str]:
    """The rules that fired, how often, their verdict, and as much of the reason as fits `width`."""
    active = [rule for rule in rules if fired.get(rule.name, 0)]
    longest = max((len(rule.name) for rule in active), default=0)
    for rule in active:
        head = f"  {rule.name:<{longest}}  {fired[rule.name]:>4} ×  {rule.verdict.klass:<7} {rule.verdict.status:<8}"
        reason = rule.rule.header.reason
        room = max(20, width - len(head) - 2)
        yield f"{head} [dim]{escape(reason if len(reason) <= room else reason[: room - 1] + '…')}[/]"
    if not active:
        yield "  none"


def comparison_line(comparison: Comparison) -> str:
    lowest = min(comparison.cosines)
    top1 = "" if comparison.top1 is None else f", same best token at {comparison.top1:.1%} of positions"
    return f"cosine with stock fp32 on CPU: lowest {lowest:.6f} of {len(comparison.cosines)} sequences; largest difference {comparison.largest:.2e} (values up to {comparison.scale:.3g}){top1}"


def agreement(generation: Generation) -> str:
    same = min(
        next((i for i, (a, b) in enumerate(zip(e, p, strict=False)) if a != b), len(p))
        for e, p in zip(generation.expected, generation.produced, strict=True)
    )
    return f"{same} tokens"


def cost_table(graph: GraphFacts) -> Table:
    """Predicted time by device program, the most expensive first, and the whole graph at the foot."""
    assert graph.cost is not None
    kernels = by_kernel(graph.cost.ops)
    rest = kernels[KERNELS:]
    table = Table(box=None, pad_edge=False, header_style="dim", show_footer=True, footer_style="bold")
    cost = graph.cost
    moved = sum(k.bytes for k in kernels)
    table.add_column("program", footer=f"graph {graph.name}" + (f" (and {len(rest)} more)" if rest else ""), no_wrap=True)
    table.add_column("ops", justify="right", footer=str(len(cost.ops)))
    table.add_column("cores", justify="right", footer=str(max((k.cores for k in kernels), default=0)))
    table.add_column("MB moved", justify="right", footer=f"{moved / 1e6:.2f}")
    table.add_column("M MAC", justify="right", footer=f"{sum(k.macs for k in kernels) / 1e6:.1f}")
    table.add_column("µs", justify="right", footer=f"{cost.us:.1f}")
    table.add_column("from–to", justify="right", footer=f"{cost.low:.1f}–{cost.high:.1f}", no_wrap=True)
    table.add_column("× floor", justify="right", footer=f"{cost.distance:.1f}")
    table.add_column("bound by", footer="")
    for k in kernels[:KERNELS]:
        row = (f"{k.bytes / 1e6:.2f}", f"{k.macs / 1e6:.1f}", f"{k.us:.1f}", f"{k.low:.1f}–{k.high:.1f}", f"{k.distance:.1f}")
        table.add_row(escape(k.kernel), str(k.ops), str(k.cores), *row, k.bound)
    return table


def graph_lines(graphs: Sequence[GraphFacts]) -> Iterator[str]:
    """One line a compiled graph: what it was compiled for and what the compiler made of it."""
    for graph in graphs:
        sizes = " ".join("×".join(map(str, shape)) or "scalar" for shape in graph.inputs)
        if graph.plan is None or graph.cost is None:
            yield f"  graph {graph.name} for {sizes}: refused"
            continue
        host = Counter(graph.fallbacks)
        fallbacks = f", on the CPU {', '.join(f'{escape(op)} ({n})' for op, n in host.items())}" if host else ""
        yield (
            f"  graph {graph.name} for {sizes}: {len(graph.cost.ops)} ops in {len(graph.plan.bundles)} bundles, {graph.restickifies} restickifies,"
            f" LX {bytes_text(graph.plan.lx_peak)} a core{fallbacks}; {graph.cost.us:.1f} µs predicted; compiled in {graph.seconds:.1f} s"
        )


def unknown_lines(graphs: Sequence[GraphFacts]) -> Iterator[str]:
    """What nobody has stated and the numbers lean on, once each with the ops of all graphs; reports and --json say what each means."""
    values = {item.choice.name: item.choice.value for graph in graphs for item in graph.leanings}
    ops: Counter[str] = Counter()
    for graph in graphs:
        ops.update({item.choice.name: item.ops for item in graph.leanings})
    if values:
        found = (f"{name} = {value} ({f'{ops[name]} ops' if ops[name] else 'transfers'})" for name, value in values.items())
        yield f"  {', '.join(map(escape, found))}"


def bytes_text(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB"
