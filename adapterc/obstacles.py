"""Everything in a graph that the device compiler would not take, each reduced to the smallest part that it refuses alone.

The compiler stops at the first obstacle. Here the place is cut out, as if it were mended: its value becomes an input and its operands outputs,
and the compiler is asked again, until it takes the rest. A place that repeats in every layer is found once and cut out everywhere.

`frontend.refusals` also goes on behind an obstacle, in one pass, by guessing a mended form (a host step, a default layout). It serves a count; for
the work here it gives less: what it says behind the first obstacle depends on the guess (an op that is guessed wrong can stop Inductor's own
lowering), it knows no smallest part, and of GPT-2's prefill and decode graphs it lists no obstacle that cutting out does not find.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import fx

from adapterc.codegen.runtime.graph import packet
from adapterc.known_faults import FAULT, fault_obstacles
from adapterc.spyre_runtime.frontend import Compilation, compile_graph
from adapterc.spyre_runtime.ir import DeviceLayout, OpKind
from adapterc.spyre_runtime.profile import Profile
from adapterc.spyre_runtime.refusal import Obstacle, Refusal
from adapterc.spyre_runtime.source_lines import source_line
from adapterc.subgraph import ancestors, calls, is_tensor, part, results, structure

FALLBACK = "cpu_fallback"
SPAN = "span_overflow"
DEPTHS = (0, 1, 2, 3, 4, 6, 8)
MOST_OBSTACLES = 64


@dataclass(frozen=True)
class Place:
    """An obstacle and where it stands.

    `nodes`: the nodes of the captured graph, in order, that the compiler refuses when it sees nothing else; the last one is where it refuses.
    `module`, `layouts`: that part as a graph, and the layouts of its inputs. `sites`: the last nodes of all places in the graph with the same structure.
    """

    obstacle: Obstacle
    nodes: tuple[str, ...]
    module: fx.GraphModule
    layouts: Mapping[str, DeviceLayout]
    sites: tuple[str, ...]


@dataclass
class Compiler:
    """Asks the compiler and remembers its answers by the structure of the graph."""

    profile: Profile
    answers: dict[str, Refusal | Compilation] = field(default_factory=dict)

    def ask(self, module: fx.GraphModule, layouts: Mapping[str, DeviceLayout]) -> Refusal | Compilation:
        """What the compiler says. A failure of its own, as opposed to a refusal, is raised as it is."""
        key = structure(module, layouts)
        if key not in self.answers:
            known = {node.name for node in module.graph.find_nodes(op="placeholder")}
            try:
                self.answers[key] = compile_graph(module, self.profile, {name: layout for name, layout in layouts.items() if name in known})
            except Refusal as refusal:
                self.answers[key] = refusal
        return self.answers[key]

    def refuses(self, module: fx.GraphModule, layouts: Mapping[str, DeviceLayout], kind: str) -> bool:
        """Whether the graph has the obstacle `kind`; as a refusal, a host step or a span."""
        answer = self.ask(module, layouts)
        if isinstance(answer, Refusal):
            return answer.obstacle.kind == kind
        return any(obstacle.kind == kind for obstacle in asked_for(answer, kind, self.profile))


def asked_for(compilation: Compilation, kind: str, profile: Profile) -> Iterator[Obstacle]:
    """The obstacles of a compiled graph among which `kind` would be."""
    return fault_obstacles(compilation, profile) if kind.startswith(FAULT) else quiet_obstacles(compilation)


def quiet_obstacles(compilation: Compilation) -> Iterator[Obstacle]:
    """What the compiler takes and the user pays for or falls over later: host steps, and spans that the device aborts on."""
    for op in compilation.padded.ops:
        if op.kind is OpKind.FALLBACK:
            yield Obstacle(
                f"{FALLBACK}:{op.function}",
                f"{op.function} runs on the host; its operands and result cross the bus and the compile unit ends there",
                stage="lower",
                op=op.function,
                node=op.origin.node,
                source=op.origin.source,
            )
    for span in compilation.plan.spans:
        yield Obstacle(SPAN, str(span), stage="divide", op=span.op, sizes=(span.bytes, span.limit), source=span.source)


def find(
    module: fx.GraphModule, layouts: Mapping[str, DeviceLayout], profile: Profile, compiler: Compiler | None = None
) -> tuple[Place, ...]:
    """All obstacles of a captured graph, in the order in which the compiler meets them. `layouts` as in `ModelGraph`."""
    compiler = compiler or Compiler(profile)
    places: list[Place] = []
    cut: set[fx.Node] = set()
    for _ in range(MOST_OBSTACLES):
        if cut.issuperset(calls(module.graph)):
            break  # nothing is left to ask about
        rest = _without(module, cut)
        answer = compiler.ask(rest, layouts)
        if not isinstance(answer, Refusal):
            return (*places, *_quiet_places(module, cut, layouts, answer, compiler))
        place = _locate(module, cut, layouts, answer.obstacle, compiler)
        places.append(place)
        cut.update(node for node in module.graph.nodes if node.name in place.sites)
    return tuple(places)


def all_places(module: fx.GraphModule, layouts: Mapping[str, DeviceLayout], compiler: Compiler) -> Iterator[Place]:
    """What is refused or runs on the host, in the order of the compiler, then documented faults of the device."""
    places = find(module, layouts, compiler.profile, compiler)
    yield from places
    yield from known_faults(module, layouts, places, compiler)


def known_faults(
    module: fx.GraphModule, layouts: Mapping[str, DeviceLayout], places: Sequence[Place], compiler: Compiler
) -> tuple[Place, ...]:
    """Where the graph, with the refused places cut out, meets documented device faults; `places` as `find` gave them for the same graph."""
    gone = {name for place in places if not _quiet(place.obstacle) for name in place.sites}
    cut = {node for node in module.graph.nodes if node.name in gone}
    if cut.issuperset(calls(module.graph)):
        return ()
    answer = compiler.ask(_without(module, cut), layouts)
    if isinstance(answer, Refusal):
        return ()
    return tuple(_distinct(module, cut, layouts, fault_obstacles(answer, compiler.profile), compiler))


def _quiet(obstacle: Obstacle) -> bool:
    return obstacle.kind.startswith((FALLBACK, FAULT)) or obstacle.kind == SPAN


def _without(module: fx.GraphModule, cut: set[fx.Node]) -> fx.GraphModule:
    """The graph with the values of `cut` as inputs and their operands as outputs."""
    (end,) = module.graph.find_nodes(op="output")
    kept = [node for node in calls(module.graph) if node not in cut]
    chosen = set(kept)
    wanted = {n for n in end.all_input_nodes if n in chosen}
    wanted |= {source for node in cut for source in node.all_input_nodes if source in chosen}
    return part(module, kept, [node for node in kept if node in wanted and is_tensor(node)])


def _quiet_places(
    module: fx.GraphModule, cut: set[fx.Node], layouts: Mapping[str, DeviceLayout], compilation: Compilation, compiler: Compiler
) -> Iterator[Place]:
    yield from _distinct(module, cut, layouts, quiet_obstacles(compilation), compiler)


def _distinct(
    module: fx.GraphModule, cut: set[fx.Node], layouts: Mapping[str, DeviceLayout], obstacles: Iterable[Obstacle], compiler: Compiler
) -> Iterator[Place]:
    """One place for all sites of an obstacle."""
    seen: set[tuple[str, str]] = set()
    for obstacle in obstacles:
        if (obstacle.kind, obstacle.node) in seen:
            continue
        place = _locate(module, cut, layouts, obstacle, compiler)
        if (obstacle.kind, place.nodes[-1]) not in seen:
            seen.update((obstacle.kind, site) for site in (*place.sites, obstacle.node))
            yield place


def _locate(
    module: fx.GraphModule, cut: set[fx.Node], layouts: Mapping[str, DeviceLayout], obstacle: Obstacle, compiler: Compiler
) -> Place:
    stop = frozenset(cut)
    chosen = _near(module, stop, layouts, obstacle, compiler) or _by_prefix(module, stop, layouts, obstacle, compiler)
    return _described(module, chosen, layouts, obstacle, compiler)


def _described(
    module: fx.GraphModule, chosen: Sequence[fx.Node], layouts: Mapping[str, DeviceLayout], obstacle: Obstacle, compiler: Compiler
) -> Place:
    nodes = _smaller(module, chosen, layouts, obstacle, compiler)
    alone = part(module, nodes, results_of(nodes))
    answer = compiler.ask(alone, layouts)
    found = (
        answer.obstacle
        if isinstance(answer, Refusal)
        else next(o for o in asked_for(answer, obstacle.kind, compiler.profile) if o.kind == obstacle.kind)
    )
    last = nodes[-1]
    # An answer that is remembered may be from another graph with the same structure: where it stands is said here.
    facts = replace(found, gap=obstacle.gap, fault=obstacle.fault, node=last.name, source=source_line(last) or obstacle.source)
    facts = facts.at(op=packet(last) or str(last.target))
    return Place(facts, tuple(n.name for n in nodes), alone, layouts, _sites(module, nodes, layouts))


def results_of(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """What a part returns: what others read of it, its last value at least."""
    found = results(nodes)
    return found if nodes[-1] in found or not is_tensor(nodes[-1]) else [*found, nodes[-1]]


def _near(
    module: fx.GraphModule, stop: frozenset[fx.Node], layouts: Mapping[str, DeviceLayout], obstacle: Obstacle, compiler: Compiler
) -> list[fx.Node] | None:
    """The shallowest neighbourhood of a node on the refused line that is refused alone."""
    nodes = [node for node in calls(module.graph) if node not in stop]
    on_line = [node for node in nodes if obstacle.source and source_line(node) == obstacle.source]
    for depth in DEPTHS:
        tried: set[str] = set()
        for node in on_line:
            hood = sorted(ancestors(node, depth, stop))
            alone = part(module, hood, results_of(hood))
            key = structure(alone, layouts)
            if key not in tried and compiler.refuses(alone, layouts, obstacle.kind):
                return hood
            tried.add(key)
    return None


def _by_prefix(
    module: fx.GraphModule, stop: frozenset[fx.Node], layouts: Mapping[str, DeviceLayout], obstacle: Obstacle, compiler: Compiler
) -> list[fx.Node]:
    """Where no line helps: the shortest beginning of the graph that is refused, by bisection."""
    nodes = [node for node in calls(module.graph) if node not in stop]
    low, high = 1, len(nodes)
    while low < high:
        middle = (low + high) // 2
        if compiler.refuses(part(module, nodes[:middle], results_of(nodes[:middle])), layouts, obstacle.kind):
            high = middle
        else:
            low = middle + 1
    return nodes[:high]


def _smaller(
    module: fx.GraphModule, nodes: Sequence[fx.Node], layouts: Mapping[str, DeviceLayout], obstacle: Obstacle, compiler: Compiler
) -> list[fx.Node]:
    """Leave out nodes, halves first, as long as the rest is still refused for the same reason."""
    kept = list(nodes)
    chunk = len(kept) // 2
    while chunk:
        start = 0
        while start < len(kept) and len(kept) > 1:
            trial = kept[:start] + kept[start + chunk :]
            if trial and compiler.refuses(part(module, trial, results_of(trial)), layouts, obstacle.kind):
                kept = trial
            else:
                start += chunk
        chunk //= 2
    return kept


def _sites(module: fx.GraphModule, nodes: Sequence[fx.Node], layouts: Mapping[str, DeviceLayout]) -> tuple[str, ...]:
    """The last nodes of all parts of the graph that look like `nodes`."""
    wanted = _shape_of(module, nodes, layouts)
    last, order = nodes[-1], calls(module.graph)
    found = []
    for node in order:
        if node.target != last.target:
            continue
        twin = _twin(nodes, node)
        if twin is not None and _shape_of(module, twin, layouts) == wanted:
            found.append(node.name)
    return tuple(found) if last.name in found else (last.name, *found)


def _shape_of(module: fx.GraphModule, nodes: Sequence[fx.Node], layouts: Mapping[str, DeviceLayout]) -> str:
    return structure(part(module, nodes, [nodes[-1]] if is_tensor(nodes[-1]) else []), layouts)


def _twin(nodes: Sequence[fx.Node], root: fx.Node) -> list[fx.Node] | None:
    """The nodes that stand to `root` as `nodes` stand to their last one, walking operands side by side."""
    wanted = set(nodes)
    pairs = {nodes[-1]: root}
    queue = deque([nodes[-1]])
    while queue:
        mine = queue.popleft()
        theirs = pairs[mine]
        if mine.target != theirs.target or len(mine.all_input_nodes) != len(theirs.all_input_nodes):
            return None
        for ours, other in zip(mine.all_input_nodes, theirs.all_input_nodes, strict=True):
            if ours in wanted and ours not in pairs:
                pairs[ours] = other
                queue.append(ours)
    return [pairs[n] for n in nodes] if wanted <= pairs.keys() and len(set(pairs.values())) == len(pairs) else None
