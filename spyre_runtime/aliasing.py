"""Which values of an ATen graph may share memory, and which memory is written."""

import operator
from dataclasses import dataclass
from typing import Any

from torch import fx


@dataclass(frozen=True)
class Aliases:
    """``root``: the value whose memory a node's result may lie in (itself for fresh memory). ``written``: roots that some op writes.
    ``escaping``: roots that an output of the graph lies in. ``writers``: nodes that write memory.
    """

    root: dict[fx.Node, fx.Node]
    written: frozenset[fx.Node]
    escaping: frozenset[fx.Node]
    writers: frozenset[fx.Node]

    @staticmethod
    def of(graph: fx.Graph) -> "Aliases":
        root: dict[fx.Node, fx.Node] = {}
        written: set[fx.Node] = set()
        writers: set[fx.Node] = set()
        for node in graph.nodes:
            sources = _aliased(node)
            root[node] = root[sources[0]] if sources else node
            targets = _written_arguments(node)
            written.update(root[target] for target in targets)
            if targets:
                writers.add(node)
        escaping = {root[source] for end in graph.find_nodes(op="output") for source in end.all_input_nodes}
        return Aliases(root, frozenset(written), frozenset(escaping), frozenset(writers))

    def is_written(self, node: fx.Node) -> bool:
        return self.root[node] in self.written

    def writes(self, node: fx.Node) -> bool:
        return node in self.writers

    def may_share(self, copy: fx.Node, source: Any) -> bool:
        """Whether a copy may stand for its source without anyone noticing: neither is written, and no output of the graph is the copy."""
        mine, theirs = self.root[copy], self.root[source]
        return not {mine, theirs} & self.written and mine not in self.escaping


def _aliased(node: fx.Node) -> list[fx.Node]:
    """The arguments whose memory the node's result lies in, by its schema."""
    if node.target is operator.getitem:
        return list(node.all_input_nodes[:1])
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(r.alias_info is not None for r in schema.returns):
        return []
    return [value for value, argument in _arguments(node, schema) if argument.alias_info is not None]


def _written_arguments(node: fx.Node) -> list[fx.Node]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    return [value for value, argument in _arguments(node, schema) if argument.alias_info is not None and argument.alias_info.is_write]


def _arguments(node: fx.Node, schema: Any) -> list[tuple[fx.Node, Any]]:
    pairs: list[tuple[Any, Any]] = list(zip(node.args, schema.arguments, strict=False))
    pairs += [(node.kwargs[argument.name], argument) for argument in schema.arguments if argument.name in node.kwargs]
    flat: list[tuple[fx.Node, Any]] = []
    for value, argument in pairs:
        members = value if isinstance(value, (list, tuple)) else (value,)
        flat += [(member, argument) for member in members if isinstance(member, fx.Node)]
    return flat
