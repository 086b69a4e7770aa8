"""How well each text family lowers on a backend release: stock, and patched by the shipped rules.

    python benchmarks/lowering.py [--json] [--only FAMILY] [--lengths 7,64,128,512] [--batches 1,4] [--profile NAME] [--no-stock]

One layer of each kind at real widths with the real embedding and LM head, from ids to logits: prefill without a cache, and one decode step on a
static cache. Graphs are captured on fake tensors and compiled, never run, so widths cost nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import transformers
from lowering_families import FAMILIES, Family
from torch._subclasses.fake_tensor import FakeTensorMode

from adapterc.attach import rules_of
from adapterc.capturing import DEVICE, fake_twin
from adapterc.codegen.patch_error import PatchError
from adapterc.codegen.runtime import Config, Context, Rule, rewrite_graph
from adapterc.codegen.runtime.rules import Require
from adapterc.dsl.loader import load_all
from adapterc.specs import find
from adapterc.spyre_runtime.capture import CapturedGraph, capture
from adapterc.spyre_runtime.frontend import Compilation, compile_graph
from adapterc.spyre_runtime.ir import OpKind
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.stages import partition
from adapterc.spyre_runtime.weight_layouts import linear_layouts

PROFILE, LENGTHS, BATCHES = "torch-spyre-2026-06", (7, 64, 128, 512), (1, 4)
CACHE, ENCODED = 256, 64  # places of a decoder's cache, tokens that an encoder has seen
MOST_RESTICKIFIES, LEAST_HEAD_CORES = 1, 24


@dataclass(frozen=True)
class Case:
    """A prefill of `length` tokens, or one token on a static cache where `length` is None."""

    length: int | None
    batch: int

    def __str__(self) -> str:
        return f"{'decode' if self.length is None else f'L={self.length}'} B={self.batch}"


@dataclass(frozen=True)
class Measured:
    """One compilation. `problem`: why there is none; then the numbers are zero. Cores are those of device ops; `spans`: ops above the span."""

    problem: str = ""
    graphs: int = 0
    restickifies: int = 0
    fallbacks: int = 0
    ops: int = 0
    least_cores: int = 0
    median_cores: float = 0.0
    head_cores: int = 0
    spans: int = 0


@dataclass(frozen=True)
class Row:
    family: str
    case: str
    layers: int
    patched: Measured
    stock: Measured | None
    reference_ops: int | None
    peer: str

    @property
    def good(self) -> bool:
        """The goal: one graph, at most one restickify a layer, no fallback, an LM head on most cores and within the span."""
        m = self.patched
        lowered = not m.problem and m.graphs == 1 and m.fallbacks == 0 and m.restickifies <= MOST_RESTICKIFIES * self.layers
        return lowered and m.spans == 0 and m.head_cores >= LEAST_HEAD_CORES


def config_of(family: Family) -> Any:
    return getattr(transformers, family.model_class).config_class(**family.fields)


def _cache(config: Any, model: Any, batch: int, dtype: torch.dtype) -> Any:
    """A static cache as `generate` would have made it, its tensors on the device."""
    text = config.get_text_config(decoder=True)
    heads = text.num_attention_heads
    sizes = getattr(text, "head_dim", None) or getattr(text, "d_kv", None) or text.hidden_size // heads
    kv_heads = getattr(text, "num_key_value_heads", None) or getattr(text, "num_kv_heads", None) or heads
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        kv_heads = 1

    def filled(cache: Any) -> Any:
        for layer in cache.layers:  # a counter without a known value, which fake tensors would carry along
            layer.cumulative_length = torch.empty((), dtype=torch.int64, device=DEVICE)
        cache.early_initialization(batch, kv_heads, sizes, dtype, torch.device(DEVICE))
        return cache

    new = transformers.StaticCache(config=config, max_cache_len=CACHE)
    if not config.is_encoder_decoder:
        return filled(new)
    cache = transformers.EncoderDecoderCache(new, transformers.StaticCache(config=config, max_cache_len=ENCODED))
    filled(cache.self_attention_cache), filled(cache.cross_attention_cache)
    cache.is_updated = dict.fromkeys(range(len(cache.self_attention_cache)), True)
    return cache


def _inputs(family: Family, config: Any, model: Any, case: Case, dtype: torch.dtype) -> dict[str, Any]:
    def ids(length: int) -> torch.Tensor:
        return torch.zeros(case.batch, length, dtype=torch.int64, device=DEVICE)

    if case.length is None:
        given = {"past_key_values": _cache(config, model, case.batch, dtype), "use_cache": True}
        if not config.is_encoder_decoder:
            return {"input_ids": ids(1), "attention_mask": ids(CACHE), **given}
        encoded = transformers.modeling_outputs.BaseModelOutput(
            torch.empty(case.batch, ENCODED, config.d_model, dtype=dtype, device=DEVICE)
        )
        return {"decoder_input_ids": ids(1), "encoder_outputs": encoded, "attention_mask": ids(ENCODED), **given}
    inputs: dict[str, Any] = {"input_ids": ids(case.length), "attention_mask": ids(case.length)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids(case.length)
    if model.can_generate():
        inputs["use_cache"] = False
    return inputs


def graphs_of(family: Family, case: Case, dtype: torch.dtype) -> tuple[Any, list[CapturedGraph]]:
    """The config and the graphs of one call. Raises what the model's own forward raises."""
    config = config_of(family)
    with torch.device("meta"):
        model = getattr(transformers, family.model_class)(config).eval()
    found: list[CapturedGraph] = []

    def keep(module: torch.fx.GraphModule, examples: list[Any]) -> Any:
        found.append(capture(module, examples))
        return module.forward

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    twin: Any = fake_twin(model, mode, dtype)
    torch._dynamo.reset()
    try:
        with mode, torch.no_grad():
            torch.compile(twin, backend=keep, dynamic=False)(**_inputs(family, config, twin, case, dtype))
    finally:
        torch._dynamo.reset()
    return config, [graph for graph in found if any(node.op == "call_function" for node in graph.module.graph.nodes)]


def measured(config: Any, graphs: Sequence[CapturedGraph], rules: Sequence[Rule], profile: Profile, dtype: torch.dtype) -> Measured:
    """Compile each graph behind the rules, and count."""
    total = Measured(graphs=len(graphs))
    cores: list[int] = []
    for graph in graphs:
        chosen = tuple(rule for rule in rules if not isinstance(rule, Require))
        try:
            if chosen:
                graph, _ = rewrite_graph(graph, chosen, Context(Config(config), profile, dtype))
            staged = partition(graph)
            found = compile_graph(staged.device.module, profile, linear_layouts(staged))
        except Refusal as refusal:
            return replace(total, problem=_short(f"{refusal.obstacle.kind}: {refusal.obstacle}"))
        except PatchError as error:
            return replace(total, problem=_short(str(error)))
        total = replace(
            total,
            restickifies=total.restickifies + found.restickifies,
            fallbacks=total.fallbacks + len(found.fallbacks),
            ops=total.ops + len(found.plan.ops),
            spans=total.spans + len(found.plan.spans),
            head_cores=max(total.head_cores, _head_cores(found, config)),
        )
        cores += [op.cores for op in found.plan.ops]
    if cores:
        total = replace(total, least_cores=min(cores), median_cores=statistics.median(cores))
    return total


def _head_cores(found: Compilation, config: Any) -> int:
    """Cores of the product that makes the logits: the one whose result is at least as wide as the vocabulary."""
    vocabulary = config.get_text_config(decoder=True).vocab_size
    sizes = {buffer.name: buffer.size for buffer in found.plan.buffers}
    return max((op.cores for op in found.plan.ops if op.kind is OpKind.MATMUL and sizes[op.output][-1] >= vocabulary), default=0)


def _short(text: str) -> str:
    return " ".join(text.split())[:160]


def _reference(family: Family, case: Case) -> int | None:
    """The front-end was asked for batches of one, at whole sticks and at seven tokens."""
    if case.batch != 1:
        return None
    whole, part, decode = family.reference
    return decode if case.length is None else part if case.length % 64 else whole


def row_of(family: Family, case: Case, rules: Sequence[Rule], profile: Profile, stock: bool) -> Row:
    reference = _reference(family, case)
    problem = ""
    for dtype in (torch.float16, torch.bfloat16):  # some models branch on values in float16, which no graph can hold
        try:
            config, graphs = graphs_of(family, case, dtype)
        except Exception as error:  # a model's own forward may raise anything
            problem = _short(f"{type(error).__name__}: {error}")
            continue
        patched = measured(config, graphs, rules, profile, dtype)
        if patched.problem and dtype == torch.float16 and len(graphs) > 1:
            problem = patched.problem
            continue
        return Row(
            family.name,
            str(case),
            family.layers,
            patched,
            measured(config, graphs, (), profile, dtype) if stock else None,
            reference,
            family.peer,
        )
    return Row(family.name, str(case), family.layers, Measured(f"not traced: {problem}"), None, reference, family.peer)


def cases(family: Family, lengths: Sequence[int], batches: Sequence[int]) -> Iterator[Case]:
    for batch in batches:
        yield from (Case(length, batch) for length in lengths)
    model = getattr(transformers, family.model_class)
    if issubclass(model, transformers.GenerationMixin):
        yield from (Case(None, batch) for batch in batches)


def shipped_rules() -> tuple[Rule, ...]:
    return tuple(rule for adapter in load_all(find(())) for rule in rules_of(adapter))


def _counts(m: Measured) -> str:
    return m.problem[:60] if m.problem else f"{m.restickifies} restickifies, {m.fallbacks} fallbacks, {m.ops} ops"


def _line(row: Row) -> str:
    m, stock = row.patched, "-" if row.stock is None else _counts(row.stock)
    if m.problem:
        return f"{row.family:20} {row.case:12} -    {m.problem[:90]}  | stock: {stock}"
    reference = f" ({row.reference_ops} a layer)" if row.reference_ops else ""
    return (
        f"{row.family:20} {row.case:12} {'good' if row.good else '-':4} {m.graphs} graph {m.restickifies}/{row.layers} restickify "
        f"{m.fallbacks} fallback {m.ops} ops{reference} cores {m.least_cores}/{m.median_cores:g} head {m.head_cores}"
        f"{f' SPAN {m.spans}' if m.spans else ''}  | stock: {stock}  | peer: {row.peer}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", default="", help="families whose name holds this text; several with commas")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--profile", default=PROFILE)
    parser.add_argument("--no-stock", action="store_true", help="compile the patched graphs only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rules, profile = shipped_rules(), load_profile(given.profile)
    wanted = [part.strip().lower() for part in given.only.split(",")]
    lengths, batches = ([int(n) for n in text.split(",") if n] for text in (given.lengths, given.batches))
    rows: list[Row] = []
    with contextlib.suppress(KeyboardInterrupt):
        for family in FAMILIES:
            if any(part in family.name.lower() for part in wanted):
                for case in cases(family, lengths, batches):
                    rows.append(row_of(family, case, rules, profile, not given.no_stock))
                    print(json.dumps(asdict(rows[-1]) | {"good": rows[-1].good}) if given.json else _line(rows[-1]), flush=True)
    good = sum(row.good for row in rows)
    print(f"{good} of {len(rows)} cases meet the goal", file=sys.stderr)


if __name__ == "__main__":
    main()
