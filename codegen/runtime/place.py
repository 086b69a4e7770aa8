"""The `place` and `boundary` rules, and the stages that follow from the other rules.

A stage is a mark on a node: "load" (once, from weights), "host" (each call, from ids, masks and positions), "device" (no mark). The cut is where a
marked value meets an unmarked reader; `spyre_runtime.stages` moves the values across it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch
from torch.fx import Graph, Node

from .context import Context
from .graph import BUFFER, INDEX, WEIGHT, dependences, mutates, value
from .match import Match, Matcher
from .rewrite import local_context, weight_only
from .rules import Boundary, Place
from .trace import Tracer

aten = torch.ops.aten


def place(graph: Graph, rule: Place, kinds: Mapping[Node, str], context: Context, tracer: Tracer) -> int:
    """Mark what the rule places on the host. Returns how many nodes (parameter-free) or sites were marked."""
    if rule.what == "parameter-free":
        return _parameter_free(graph, kinds)
    if rule.what == "module":
        assert rule.module is not None
        return _early(graph, [n for n in graph.nodes if n.op == "call_function" and _inside(n, rule.module)], kinds)
    assert rule.pattern is not None
    weights = weight_only(graph, kinds)
    found: list[Node] = []
    for node in graph.nodes:
        match = Matcher(rule.pattern, weights).at(node) if node.op == "call_function" else None
        if match is not None and (rule.origin.when is None or rule.origin.when(local_context(context, match))):
            found.extend(match.interior)
    return _early(graph, found, kinds)


def _parameter_free(graph: Graph, kinds: Mapping[Node, str]) -> int:
    """Masks, positions and tables: whatever depends on no weight and no hidden state."""
    depends = dependences(graph, kinds)
    marked = 0
    for node in graph.nodes:
        if node.op != "call_function" or "stage" in node.meta or mutates(node):
            continue
        ready = all(source.op != "call_function" or source.meta.get("stage") is not None for source in node.all_input_nodes)
        if ready and depends[node] <= {BUFFER, INDEX}:  # what reads memory that the device writes is not ready
            node.meta["stage"] = "host"
            marked += 1
    return marked


def counters_on_host(graph: Graph, kinds: Mapping[Node, str], tracer: Tracer) -> int:
    """A cache counts its tokens in place, and a rotary table picks its frequencies so. What is written becomes a value, and the memory gets it by a copy.

    Comes before all rules: stages follow from what a value depends on.
    """
    depends = dependences(graph, kinds)
    done = 0
    for node in list(graph.nodes):
        target = node.args[0] if mutates(node) and node.args else None
        if (
            not isinstance(target, Node)
            or not depends[node] <= {BUFFER, INDEX}
            or (str(node.target) not in _FUNCTIONAL and not _overwrites(node))
        ):
            continue
        with graph.inserting_before(node):
            if _overwrites(node):
                written = tracer.insert(_as_written, {"target": target, "source": node.args[1]}, node, rule="counter")
            else:
                written = tracer.call(_FUNCTIONAL[str(node.target)], node.args, node.kwargs, node, rule="counter")
            copy = tracer.call(aten.copy_.default, (target, written), {}, node, rule="counter")
        copy.meta["val"] = target.meta["val"]
        if target.op == "placeholder":
            _read_written(target, copy, written)
        node.replace_all_uses_with(written)
        graph.erase_node(node)
        done += 1
    return done


_FUNCTIONAL = {"aten.add_.Tensor": aten.add.Tensor, "aten.add_.Scalar": aten.add.Scalar, "aten.sub_.Tensor": aten.sub.Tensor}


def _overwrites(node: Node) -> bool:
    return node.target is aten.copy_.default and len(node.args) == 2 and isinstance(node.args[1], Node)


def _as_written(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return source.to(target.dtype).expand(target.shape).contiguous()


def _read_written(target: Node, copy: Node, written: Node) -> None:
    """Readers behind the copy read what was written, which is there before the device starts."""
    behind = False
    for node in target.graph.nodes:
        if behind and target in node.all_input_nodes and not mutates(node):
            node.replace_input_with(target, written)
        behind = behind or node is copy


def _early(graph: Graph, nodes: list[Node], kinds: Mapping[Node, str]) -> int:
    """Mark the nodes, and the parameter-free nodes before them, host; a node that needs a device result stays where it is."""
    early: set[Node] = set()
    chosen, marked = set(nodes), 0
    for node in graph.nodes:
        ready = all(source.op in ("placeholder", "get_attr") or source in early for source in node.all_input_nodes)
        if node.op == "call_function" and ready and node.meta.get("stage") in ("host", "load"):
            early.add(node)
        elif node.op == "call_function" and ready and node in chosen and not mutates(node):
            node.meta["stage"] = "host"
            early.add(node)
            marked += 1
    return marked


def _inside(node: Node, pattern: str) -> bool:
    stack = node.meta.get("nn_module_stack") or {}
    classes = [entry[1] for entry in stack.values()]
    return any(fnmatchcase(str(getattr(c, "__name__", c)).rsplit(".", 1)[-1], pattern) for c in classes)


def spread_load(graph: Graph, kinds: Mapping[Node, str]) -> None:
    """What a load node reads is loaded too, and so is whatever depends on weights and load nodes only: it is the same in every call."""
    depends = dependences(graph, kinds)
    for node in reversed(list(graph.nodes)):
        if node.meta.get("stage") == "load":
            for source in node.all_input_nodes:
                if source.op == "call_function":
                    source.meta["stage"] = "load"
    for node in graph.nodes:
        if node.op != "call_function" or node.meta.get("stage") is not None or mutates(node) or value(node) is None:
            continue
        if WEIGHT not in depends[node] or not depends[node] <= {WEIGHT, BUFFER}:
            continue
        constant = {n for n in node.all_input_nodes if n.op == "call_function" and not depends[n]}
        if all(_loaded(n) or n in constant for n in node.all_input_nodes):
            node.meta["stage"] = "load"
            _load_all(constant)


def _load_all(nodes: set[Node]) -> None:
    """Values that depend on nothing, such as the buckets of relative positions, are loaded where a load node reads them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node.meta.get("stage") != "load":
            node.meta["stage"] = "load"
            waiting.extend(node.all_input_nodes)


def _loaded(node: Node) -> bool:
    return node.op in ("placeholder", "get_attr") or node.meta.get("stage") == "load"


def bound(graph: Graph, rule: Boundary, kinds: Mapping[Node, str], context: Context, tracer: Tracer) -> list[Match]:
    """Materialise the matched values. A value that already is gets no second copy."""
    op = aten.clone.default if rule.action == "clone" else aten.contiguous.default
    done: list[Match] = []
    weights = weight_only(graph, kinds)
    for node in list(graph.nodes):
        match = Matcher(rule.pattern, weights).at(node) if node.op == "call_function" and node.users else None
        if match is None or any(user.target is op for user in node.users):
            continue
        if rule.origin.when is not None and not rule.origin.when(local_context(context, match)):
            continue
        with graph.inserting_after(node):
            copy = tracer.call(op, (node,), {}, node, rule=rule.origin.name)
        node.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
        done.append(match)
    return done
