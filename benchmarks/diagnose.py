"""Scores `adapterc diagnose` on device faults injected into real graphs: each family, each fault, several places, one op at a time.

    python benchmarks/diagnose.py [--families bert,gpt2,llama] [--faults exp-floor,…] [--values hard,plain] [--devices exact,drifting] [--places 3] [--json]

Right is: the op that the fault was put into and no other, and the class of the fault. Values are `plain` (seeded weights as Transformers draws them)
or `hard` (outliers, sharp attention, near-constant rows, mostly masked sentences). Devices are `exact`, or `drifting`: every op sums and rounds in
another admissible way, so that the fault stands in an output that differs everywhere. A place counts where the fault by itself moves the output of the
exact device by more than the width of partial sums does; below that nothing is wrong that anyone could see, and nobody may be accused. Devices without
a fault, summing and rounding in each admissible way, must accuse nobody either.
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
from adapterc.diagnose import FUSION, LAYOUT, LEAK, LOWERING, ORIGIN, Diagnosis, diagnose_subject, drift_bound
from adapterc.diagnose_model import DeviceGraph, device_graphs
from adapterc.dsl.loader import load_all
from adapterc.models import load
from adapterc.spyre_runtime.execute_tiled import TiledProgram, link
from adapterc.spyre_runtime.faults import FAULTS
from adapterc.spyre_runtime.formats import DEFAULT_RULES, NumberRules
from adapterc.spyre_runtime.profile import Profile, load_profile
from adapterc.spyre_runtime.tiled_options import TiledOptions
from adapterc.subject import GARBAGE, QUIET, Subject, distance, made

SMALL = "num_hidden_layers=2,hidden_size=128,num_attention_heads=2,intermediate_size=256,vocab_size=120"
GROUPED = "num_hidden_layers=2,hidden_size=128,num_attention_heads=2,num_key_value_heads=1,head_dim=64,intermediate_size=256,vocab_size=120"
FAMILIES = {
    "bert": f"config:bert,{SMALL}",
    "gpt2": "config:GPT2LMHeadModel,n_layer=2,n_embd=128,n_head=2,vocab_size=120,bos_token_id=1,eos_token_id=2",
    "llama": f"config:LlamaForCausalLM,{GROUPED}",
    "stock_rope": "config:LlamaForCausalLM,num_hidden_layers=1,hidden_size=256,num_attention_heads=2,num_key_value_heads=2,intermediate_size=256,vocab_size=120",
    "roberta": f"config:RobertaModel,{SMALL},max_position_embeddings=64",
    "distilbert": "config:distilbert,n_layers=2,dim=128,n_heads=2,hidden_dim=256,vocab_size=120",
    "modernbert": f"config:modernbert,{SMALL},pad_token_id=0,cls_token_id=1,sep_token_id=2,bos_token_id=1,eos_token_id=2",
    "mpnet": f"config:mpnet,{SMALL}",
    "albert": f"config:albert,{SMALL},embedding_size=128",
    "qwen3": f"config:Qwen3ForCausalLM,{GROUPED}",
    "mistral": f"config:MistralForCausalLM,{GROUPED},sliding_window=8",
    "gemma": f"config:GemmaForCausalLM,{GROUPED}",
    "gpt_neox": f"config:GPTNeoXForCausalLM,{SMALL}",
    "opt": "config:OPTForCausalLM,num_hidden_layers=2,hidden_size=128,num_attention_heads=2,ffn_dim=256,vocab_size=120,word_embed_proj_dim=128",
    "phi": f"config:PhiForCausalLM,{SMALL},num_key_value_heads=2",
    "deep_bert": f"config:bert,{SMALL.replace('num_hidden_layers=2', 'num_hidden_layers=8')}",
}
WITHOUT = {"stock_rope": ("rope",)}  # heads of 128: the stock rotation compiles, and has a fault of its own
VALUES, DEVICES = ("hard", "plain"), ("exact", "drifting")
ROUNDED_OTHERWISE = NumberRules("nearest_even")
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
    """`alone`: what the fault by itself moves the exact device's output by; `narrow`: what the width of partial sums can."""

    family: str
    values: str
    device: str
    fault: str
    op: str
    said_op: str
    said_class: str
    alone: float
    narrow: float
    runs: int
    ops: int

    @property
    def visible(self) -> bool:
        return self.alone > self.narrow

    @property
    def right_op(self) -> bool:
        return self.op == self.said_op

    @property
    def right_class(self) -> bool:
        return self.said_class == CLASSES[self.fault]


def graphs(family: str, profile: Profile, values: str = "hard") -> tuple[DeviceGraph, ...]:
    loaded = load(FAMILIES[family])
    if values == "hard":
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


def options(faults: frozenset[str] = frozenset(), drifting: bool = False) -> TiledOptions:
    return TiledOptions(checks=QUIET, padding=GARBAGE, faults=faults, partial_sums="dl16" if drifting else None)


def injected(
    graph: DeviceGraph, fault: str, profile: Profile, places: int, drifting: bool = False
) -> Iterator[tuple[str, Subject, float, float]]:
    """The graph with the fault in one op, for up to `places` of the ops that it applies to; what the fault does alone, and what partial sums do."""
    expected = link(graph.compilation, profile, options(), DEFAULT_RULES)
    rules = ROUNDED_OTHERWISE if drifting else DEFAULT_RULES
    sound = link(graph.compilation, profile, options(drifting=drifting), rules)
    faulty = link(graph.compilation, profile, options(frozenset({fault}), drifting), rules)
    exactly = faulty if not drifting else link(graph.compilation, profile, options(frozenset({fault})), DEFAULT_RULES)
    touched = [name for _, name in faulty.faults.fired]
    chosen = dict.fromkeys(touched[i * max(1, len(touched) - 1) // max(1, places - 1)] for i in range(min(places, len(touched))))
    for name in chosen:

        def device(base: TiledProgram, with_fault: TiledProgram, name: str = name) -> TiledProgram:
            steps = tuple(f if getattr(e, "name", "") == name else e for e, f in zip(base.steps, with_fault.steps, strict=True))
            return dataclasses.replace(with_fault, steps=steps, faults=base.faults, residents={})

        lone = made(graph.compilation, graph.inputs, profile, DEFAULT_RULES, expected, device(expected, exactly))
        alone, narrow = distance(lone.run(frozenset()), lone.reference), drift_bound(lone)
        subject = made(graph.compilation, graph.inputs, profile, DEFAULT_RULES, expected, device(sound, faulty))
        subject.runs = 0
        yield name, subject, alone, narrow


def scored(family: str, values: str, device: str, fault: str, op: str, found: Diagnosis, alone: float, narrow: float) -> Score:
    first = found.culprits[0] if found.culprits else None
    said = "" if first is None else first.op if len(found.culprits) == 1 else "several"
    return Score(family, values, device, fault, op, said, found.klass, alone, narrow, found.runs, found.ops)


def fault_free(graph: DeviceGraph, profile: Profile) -> Iterator[Diagnosis]:
    """Devices that are right and sum or round in another admissible way."""
    expected = link(graph.compilation, profile, options(), DEFAULT_RULES)
    for sums, rules in (("float32", DEFAULT_RULES), ("dl16", DEFAULT_RULES), ("float32", ROUNDED_OTHERWISE), ("dl16", ROUNDED_OTHERWISE)):
        device = link(graph.compilation, profile, TiledOptions(checks=QUIET, padding=GARBAGE, partial_sums=sums), rules)  # type: ignore[arg-type]
        yield diagnose_subject(made(graph.compilation, graph.inputs, profile, DEFAULT_RULES, expected, device), picture=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--faults", default=",".join(CLASSES))
    parser.add_argument("--values", default=",".join(VALUES))
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--places", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    profile = load_profile()
    faults = [fault for fault in asked.faults.split(",") if fault in FAULTS and fault in profile.faults]
    scores: list[Score] = []
    accused = clean = 0
    for family in asked.families.split(","):
        for values in asked.values.split(","):
            for graph in graphs(family, profile, values):
                for found in fault_free(graph, profile):
                    clean, accused = clean + 1, accused + bool(found.culprits)
                for device in asked.devices.split(","):
                    for fault in faults:
                        for op, subject, alone, narrow in injected(graph, fault, profile, asked.places, device == "drifting"):
                            score = scored(family, values, device, fault, op, diagnose_subject(subject, picture=False), alone, narrow)
                            scores.append(score)
                            print(
                                f"{family} {values} {device} {fault} {op}: {score.said_op or '-'} {score.said_class}; alone {alone:.1e} of {narrow:.1e}",
                                file=sys.stderr,
                                flush=True,
                            )
    print(json.dumps(summary(scores, clean, accused), indent=2) if asked.json else table(summary(scores, clean, accused)))


def summary(scores: list[Score], clean: int, accused: int) -> dict[str, object]:
    visible = [s for s in scores if s.visible]
    wrong = [dataclasses.asdict(s) for s in visible if not (s.right_op and s.right_class)]
    return {
        "injected": len(scores),
        "visible": len(visible),
        "right_op": sum(s.right_op for s in visible),
        "right_class": sum(s.right_class for s in visible),
        "right_both": len(visible) - len(wrong),
        "share": (len(visible) - len(wrong)) / max(1, len(visible)),
        "share_by_device": {d: _share([s for s in visible if s.device == d]) for d in dict.fromkeys(s.device for s in visible)},
        "share_by_fault": {f: _share([s for s in visible if s.fault == f]) for f in sorted({s.fault for s in visible})},
        "below_drift_accused": sum(bool(s.said_op) for s in scores if not s.visible),
        "below_drift_accused_wrongly": sum(s.said_op not in ("", s.op) for s in scores if not s.visible),
        "fault_free_runs": clean,
        "fault_free_accused": accused,
        "largest_runs_per_log2_ops": max((s.runs / max(1, s.ops - 1).bit_length() for s in visible), default=0.0),
        "wrong": wrong,
    }


def _share(scores: list[Score]) -> str:
    return f"{sum(s.right_op and s.right_class for s in scores)} of {len(scores)}"


def table(found: dict[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in found.items())


if __name__ == "__main__":
    main()
