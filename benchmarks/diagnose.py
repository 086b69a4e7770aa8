"""Scores `adapterc diagnose` on device faults injected into real graphs: each family, each fault, several places, one op at a time.

    python benchmarks/diagnose.py [--families bert,gpt2,llama] [--faults exp-floor,…] [--places 3] [--json]

Right is: the op that the fault was put into, and the class of the fault. A place whose fault moves the output by less than admissible rounding does
is counted apart: nothing there is wrong that anyone could see. Runs without a fault, summing and rounding in the other admissible way, must accuse nobody.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from adapterc import specs
from adapterc.attach import rules_of
from adapterc.codegen.runtime import PatchSet
from adapterc.diagnose import FUSION, LAYOUT, LEAK, LOWERING, ORIGIN, Diagnosis, diagnose_subject
from adapterc.diagnose_model import DeviceGraph, device_graphs
from adapterc.dsl.loader import load_all
from adapterc.models import load
from adapterc.spyre_runtime.execute_tiled import link
from adapterc.spyre_runtime.faults import FAULTS
from adapterc.spyre_runtime.formats import DEFAULT_RULES, NumberRules
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.spyre_runtime.tiled_options import TiledOptions
from adapterc.subject import GARBAGE, QUIET, Subject, made

FAMILIES = {
    "bert": "config:bert,num_hidden_layers=2,hidden_size=128,num_attention_heads=2,intermediate_size=256,vocab_size=120",
    "gpt2": "config:GPT2LMHeadModel,n_layer=2,n_embd=128,n_head=2,vocab_size=120",
    "llama": "config:LlamaForCausalLM,num_hidden_layers=2,hidden_size=128,num_attention_heads=2,num_key_value_heads=1,intermediate_size=256,vocab_size=120",
    "stock_rope": "config:LlamaForCausalLM,num_hidden_layers=1,hidden_size=256,num_attention_heads=2,num_key_value_heads=2,intermediate_size=256,vocab_size=120",
}
WITHOUT = {"stock_rope": ("rope",)}  # heads of 128: the stock rotation compiles, and has a fault of its own
CONSTANT_TOKEN = 7
# What the documented symptom of each fault is, in the words of diagnose. Faults of transfers have no op and are left out.
CLASSES = {
    "storage-offset-dropped": LAYOUT,
    "stick-offset-dropped": LAYOUT,
    "rotate-half-slice": LAYOUT,
    "wrong-stick-after-view": LAYOUT,
    "norm-of-transposed-input": LAYOUT,
    "stick-split-collapses": LAYOUT,
    "broadcast-result-misread": FUSION,
    "constant-not-broadcast": LAYOUT,
    "gather-offset-dropped": LAYOUT,
    "scatter-wrong-rows": LAYOUT,
    "size-one-cat-misplaced": LAYOUT,
    "copy-into-view-misplaced": LAYOUT,
    "mutation-lost": LOWERING,
    "padding-not-masked": LEAK,
    "exp-floor": LOWERING,
    "exp-floor-fp32": LOWERING,
    "exp-saturates-fp32": LOWERING,
    "layernorm-constant-rows-nan": ORIGIN,
    "mean-floor": LOWERING,
    "silu-of-minus-inf": LOWERING,
    "softplus-drops-beta": LOWERING,
    "floor-of-minus-zero": LOWERING,
}


@dataclass(frozen=True)
class Score:
    family: str
    fault: str
    op: str
    said_op: str
    said_class: str
    error: float
    bound: float
    runs: int
    ops: int

    @property
    def visible(self) -> bool:
        return self.error > self.bound

    @property
    def right_op(self) -> bool:
        return self.op == self.said_op

    @property
    def right_class(self) -> bool:
        return self.said_class == CLASSES[self.fault]


def graphs(family: str, profile: Profile) -> tuple[DeviceGraph, ...]:
    loaded = load(FAMILIES[family])
    _harden(loaded.model)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 100, (2, 20), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0  # most of a short sentence in a batch is masked
    ids[0, 3] = CONSTANT_TOKEN
    patches = PatchSet(
        tuple(rule for adapter in load_all(specs.find(())) if adapter.name not in WITHOUT.get(family, ()) for rule in rules_of(adapter))
    )
    return device_graphs(loaded, {"input_ids": ids, "attention_mask": mask}, patches.patched, profile)


def _harden(model: torch.nn.Module) -> None:
    """Random weights keep activations small and alike; real ones have outliers and sharp attention."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.mul_(4.0)
                weight[:, : max(1, weight.shape[1] // 64)].mul_(3.0)
                if "position" in name or "type" in name or "wpe" in name:
                    weight.mul_(0.0)
                elif weight.shape[0] == 120:
                    weight[CONSTANT_TOKEN] = (
                        4.0 + torch.arange(weight.shape[1]) % 2 / 128
                    )  # near-constant rows, as documented for LayerNorm
            elif "bias" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)


def injected(graph: DeviceGraph, fault: str, profile: Profile, places: int) -> Iterator[tuple[str, Subject]]:
    """The graph with the fault in one op, for up to `places` of the ops that it applies to."""
    expected = link(graph.compilation, profile, TiledOptions(checks=QUIET, padding=GARBAGE), DEFAULT_RULES)
    faulty = link(graph.compilation, profile, TiledOptions(checks=QUIET, padding=GARBAGE, faults=frozenset({fault})), DEFAULT_RULES)
    touched = [name for _, name in faulty.faults.fired]
    chosen = dict.fromkeys(touched[i * max(1, len(touched) - 1) // max(1, places - 1)] for i in range(min(places, len(touched))))
    for name in chosen:
        steps = tuple(f if getattr(e, "name", "") == name else e for e, f in zip(expected.steps, faulty.steps, strict=True))
        device = dataclasses.replace(faulty, steps=steps, faults=expected.faults, residents={})
        yield name, made(graph.compilation, graph.inputs, profile, DEFAULT_RULES, expected, device)


def scored(family: str, fault: str, op: str, found: Diagnosis) -> Score:
    first = found.culprits[0] if found.culprits else None
    only = first is not None and len(found.culprits) == 1
    return Score(family, fault, op, first.op if first and only else "", found.klass, found.error, found.bound, found.runs, found.ops)


def fault_free(graph: DeviceGraph, profile: Profile) -> Iterator[Diagnosis]:
    """Devices that are right and sum or round in another admissible way."""
    expected = link(graph.compilation, profile, TiledOptions(checks=QUIET, padding=GARBAGE), DEFAULT_RULES)
    for sums, rules in (("float32", DEFAULT_RULES), ("dl16", DEFAULT_RULES), ("dl16", NumberRules("nearest_even"))):
        device = link(graph.compilation, profile, TiledOptions(checks=QUIET, padding=GARBAGE, partial_sums=sums), rules)  # type: ignore[arg-type]
        yield diagnose_subject(made(graph.compilation, graph.inputs, profile, DEFAULT_RULES, expected, device), picture=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--faults", default=",".join(CLASSES))
    parser.add_argument("--places", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    profile = load_profile()
    scores: list[Score] = []
    accused = clean = 0
    for family in options.families.split(","):
        for graph in graphs(family, profile):
            for found in fault_free(graph, profile):
                clean, accused = clean + 1, accused + bool(found.culprits)
            for fault in options.faults.split(","):
                if fault not in FAULTS or fault not in profile.faults:
                    continue
                for op, subject in injected(graph, fault, profile, options.places):
                    score = scored(family, fault, op, diagnose_subject(subject, picture=False))
                    scores.append(score)
                    print(
                        f"{family} {fault} {op}: {score.said_op or '-'} {score.said_class}; error {score.error:.1e} bound {score.bound:.1e}",
                        file=sys.stderr,
                        flush=True,
                    )
    print(json.dumps(summary(scores, clean, accused), indent=2) if options.json else table(summary(scores, clean, accused)))


def summary(scores: list[Score], clean: int, accused: int) -> dict[str, object]:
    visible = [s for s in scores if s.visible]
    wrong = [dataclasses.asdict(s) for s in visible if not (s.right_op and s.right_class)]
    return {
        "injected": len(scores),
        "visible": len(visible),
        "right_op": sum(s.right_op for s in visible),
        "right_class": sum(s.right_class for s in visible),
        "right_both": len(visible) - len(wrong),
        "below_drift_accused": sum(bool(s.said_op) for s in scores if not s.visible),
        "faults_seen": sorted({s.fault for s in visible}),
        "fault_free_runs": clean,
        "fault_free_accused": accused,
        "largest_runs_per_log2_ops": max((s.runs / max(1, s.ops - 1).bit_length() for s in visible), default=0.0),
        "wrong": wrong,
    }


def table(found: dict[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in found.items())


if __name__ == "__main__":
    main()
