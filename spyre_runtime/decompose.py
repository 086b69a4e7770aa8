"""From a captured ATen graph to the graph that is lowered: functional, composites spelt out, one node for each rounding point.

Functionalisation, ATen's own decompositions and the generic clean-ups are torch's (AOTAutograd and Inductor, which the real compiler
uses as well); what is the device's own is in `decompositions.py` and `fx_rewrites.py`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast
from unittest.mock import patch

import torch
import torch.fx
import torch.fx.traceback as fx_traceback
import torch.utils._pytree as pytree
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import TracingContext, tracing
from torch._inductor import config as inductor_config
from torch._inductor import decomposition as inductor_decomposition
from torch._inductor.compile_fx import record_original_output_strides
from torch._inductor.fx_passes import fuse_attention, joint_graph
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .decompositions import COMPOSITES, PRIMITIVES, Decomposition, named
from .distinct import trace_distinct
from .fx_rewrites import batch_matmuls
from .profile import Profile
from .refusal import Found, Obstacle, Refusal, meet
from .session import known_device
from .source_lines import innermost_line, source_line

_HALF_AS_IS = {torch.bfloat16: torch.bfloat16, torch.float16: torch.float16, torch.complex32: torch.complex32}
# Torch spells a matmul with K=1 as a product of flattened tensors; the device keeps the batch dimensions (see fx_rewrites.py).
_LOWERED_AS_THEY_ARE = frozenset({"aten.mm", "aten.bmm"})


class _SpelledOut(torch.fx.Interpreter):
    """Runs a graph with the composites of `table` replaced; a refusal raised inside gets the node and the user's line."""

    def __init__(self, module: torch.fx.GraphModule, table: dict[Any, Decomposition], found: Found) -> None:
        super().__init__(module)
        self.table = table
        self.found = found

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            return super().run_node(n)
        except Refusal as refusal:
            raise Refusal(refusal.obstacle.at(node=n.name, source=source_line(n))) from None

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in self.table:
            try:
                replaced = self.table[target](*args, **kwargs)
            except Refusal as refusal:
                meet(refusal, self.found, **_current_place())
                replaced = NotImplemented
            if replaced is not NotImplemented:
                return replaced
        return super().call_function(target, args, kwargs)


def _current_place() -> dict[str, str]:
    """Node and user line that a trace is at, where the graph that is read carries them."""
    meta = fx_traceback.get_current_meta() or {}
    return {"source": innermost_line(meta.get("stack_trace") or "")}


def _tolerant(function: Decomposition, found: list[Obstacle]) -> Decomposition:
    """Leaves an op as it is where its decomposition refuses, and notes the refusal."""

    @functools.wraps(function)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Refusal as refusal:
            meet(refusal, found, **_current_place())
            return NotImplemented

    return attempt


def decomposition_table(profile: Profile) -> dict[Any, Decomposition]:
    """ATen's and Inductor's decompositions, without those that the device replaces or runs on the host."""
    table = dict(inductor_decomposition.decompositions)
    kept = profile.fallbacks | _LOWERED_AS_THEY_ARE
    for op in [op for op in table if str(op) in kept or str(op).rsplit(".", 1)[0] in kept]:
        del table[op]
    active = profile.decompositions
    return {**table, **named(COMPOSITES, active), **named(PRIMITIVES, active)}


@contextlib.contextmanager
def half_stays_half() -> Iterator[None]:
    """ATen's decompositions otherwise compute float16 in float32."""
    from torch import _prims_common

    saved = _prims_common._computation_dtype_map
    _prims_common._computation_dtype_map = _HALF_AS_IS
    try:
        yield
    finally:
        _prims_common._computation_dtype_map = saved


@contextlib.contextmanager
def _joint_patterns() -> Iterator[None]:
    """The device compiler keeps the scale outside of softmax, so the last group of joint patterns is off."""
    saved = list(joint_graph.pass_patterns)
    joint_graph.pass_patterns.pop()
    try:
        yield
    finally:
        joint_graph.pass_patterns[:] = saved


@contextlib.contextmanager
def _patterns_spelt(profile: Profile) -> Iterator[None]:
    """What a pattern puts in place is taken apart by the same table as the graph."""
    table = decomposition_table(profile)
    spelt = COMPOSITES[torch.ops.aten.scaled_dot_product_attention.default]
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(inductor_decomposition, "fast_random_decomps", lambda: table))
        if "aten.scaled_dot_product_attention" in profile.decompositions:
            stack.enter_context(patch.object(fuse_attention, "_scaled_dot_product_attention", spelt))
        yield


def fake_inputs(graph: torch.fx.GraphModule) -> list[Any]:
    """Example values of the placeholders: fake tensors, and plain numbers for what is no tensor."""
    return [n.meta.get("val", 0) for n in graph.graph.nodes if n.op == "placeholder"]


def fake_mode_of(graph: torch.fx.GraphModule) -> FakeTensorMode:
    """The mode of the graph's own fake tensors."""
    for value in pytree.tree_leaves([n.meta.get("val") for n in graph.graph.nodes]):
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode()


def _functional(graph: torch.fx.GraphModule, mode: FakeTensorMode, profile: Profile, found: Found) -> torch.fx.GraphModule:
    """The functional graph, by its distinct nodes where it has repetition. A refusal is raised by the trace of the graph itself, which names its place."""
    if found is None:
        with contextlib.suppress(Refusal):
            assembled = trace_distinct(graph, mode, lambda kinds, inputs: _traced(kinds, inputs, mode, profile, None))
            if assembled is not None:
                return assembled
    return _traced(graph, fake_inputs(graph), mode, profile, found)


def _traced(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, profile: Profile, found: Found
) -> torch.fx.GraphModule:
    caught: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        caught.append(module)

        def never_run(*_: Any) -> Any:
            raise RuntimeError("this graph was only captured")

        never_run._boxed_call = True  # type: ignore[attr-defined]
        return never_run

    class Program(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return tuple(pytree.tree_leaves(_SpelledOut(graph, named(COMPOSITES, profile.decompositions), found).run(*args)))

    table = decomposition_table(profile)
    if found is not None:
        table |= {op: _tolerant(function, found) for op, function in named(PRIMITIVES, profile.decompositions).items()}
    with torch.no_grad(), fx_traceback.preserve_node_meta(), tracing(TracingContext(mode)), V.set_fake_mode(mode):
        aot_module_simplified(
            Program(),  # type: ignore[arg-type]
            inputs,
            fw_compiler=cast(Any, keep),
            inference_compiler=cast(Any, keep),
            decompositions=table,
            keep_inference_input_mutations=True,
        )
    return caught[0]


def _output(graph: torch.fx.GraphModule) -> torch.fx.Node:
    return graph.graph.output_node()


def decompose(graph: torch.fx.GraphModule, profile: Profile, found: Found = None) -> torch.fx.GraphModule:
    """A new functional graph over the same placeholders; inputs that are mutated get a copy_ at the end.

    graph: ATen ops, every placeholder with a fake tensor in meta["val"]. Where a decomposition cannot take the sizes it raises
    Refusal, or leaves the op alone when `found` collects.
    """
    mode = fake_mode_of(graph)
    with half_stays_half(), known_device():
        functional = _functional(graph, mode, profile, found)
        with (
            torch.no_grad(),
            V.set_fake_mode(mode),
            _joint_patterns(),
            _patterns_spelt(profile),
            inductor_config.patch({"permute_fusion": False}),
        ):
            functional = joint_graph.joint_graph_passes(functional)
            output = _output(functional)
            output.meta["user_visible_output_idxs"] = [i for i, n in enumerate(output.args[0]) if isinstance(n, torch.fx.Node)]  # type: ignore[arg-type]
            view_to_reshape(functional)
            record_original_output_strides(functional)
            with inductor_config.patch({"post_grad_custom_post_pass": functools.partial(batch_matmuls, found=found)}):
                post_grad_passes(functional, is_inference=True)
        functional.recompile()
    return cast(torch.fx.GraphModule, functional)
