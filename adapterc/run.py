"""`adapterc run`: one stock model on the simulator, before and after its adapters, compared with itself on the CPU.

What is compared is always stock float32 on the CPU. The model is the user's own: it is patched, run, and left as it was.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from transformers import GenerationMixin

from adapterc.build import built
from adapterc.capturing import graphs_of_loaded
from adapterc.check import CheckReport
from adapterc.errors import UserError
from adapterc.inputs import choose
from adapterc.layer_errors import LayerError, blocks, layer_errors, on_cpu, recorded
from adapterc.models import Loaded, load
from adapterc.obstacles import Compiler, Place, find
from adapterc.run_facts import GraphFacts, facts_of
from adapterc.run_result import Comparison, Generation, RunReport
from adapterc.run_setup import AS_IT_IS, NO_FILES, Outputs, Setup, checked_setup
from adapterc.spyre_runtime import DEVICE_TYPE, SIMULATED
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log
from adapterc.spyre_runtime.dumps import STAGES, stage_text
from adapterc.spyre_runtime.findings import FindingError
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.settings import current_settings, settings


def run_source(
    text: str,
    *,
    texts: Sequence[str] = (),
    ids: str | None = None,
    specs: Sequence[Path] = (),
    profile: str = "torch-spyre-2026-06",
    numerics: str = "device",
    new_tokens: int = 8,
    dump: str | None = None,
    outputs: Outputs = NO_FILES,
    setup: Setup = AS_IT_IS,
) -> RunReport:
    """Load the model that `text` names and run it. Raises UserError, SpecError or PatchError with the reason where it cannot start."""
    if numerics not in ("device", "fp32"):
        raise UserError("ADC507", f"--dtype {numerics} is no number format of a run", "choose device or fp32")
    try:
        load_profile(profile)
    except FileNotFoundError as error:
        raise UserError("ADC508", str(error), "choose one of those") from None
    if dump is not None and dump not in STAGES:
        raise UserError("ADC514", f"--dump {dump} is no stage", f"choose one of {', '.join(STAGES)}")
    setup = checked_setup(setup, load_profile(profile))
    outputs.check()
    loaded = load(text)
    with built(specs) as (checked, package):
        layers = outputs.report is not None
        setup = replace(setup, layers=layers)
        report = run_loaded(
            loaded, choose(loaded, texts, ids), checked, package, profile, numerics, new_tokens, look=dump is None, setup=setup
        )
        report = report if dump is None else replace(report, dumped=_dumped(dump))
    return outputs.write(report)


def _dumped(stage: str) -> str:
    """A stage of the last graph that was compiled, as text; empty where there was none."""
    records = compile_log()
    return stage_text(records[-1], stage) if records else ""


def run_loaded(
    loaded: Loaded,
    inputs: Mapping[str, torch.Tensor],
    checked: CheckReport,
    package: ModuleType,
    profile: str,
    numerics: str,
    new_tokens: int,
    look: bool = True,
    *,
    setup: Setup = AS_IT_IS,
) -> RunReport:
    """Run a loaded model. It is moved to the device and stays there; on the CPU it is checked first, patched and un-patched.

    `look`: find what the stock model is refused for, which compiles many parts of its graph.
    """
    start = time.perf_counter()
    model, mask = loaded.model, inputs.get("attention_mask")
    accepted = {**inputs}
    with settings(profile=profile, numerics=numerics, **setup.settings()), torch.no_grad():
        paths = blocks(model) if setup.layers else ()
        with recorded(model, paths) as seen:
            stock = _main_output(model, accepted)
        expected, meant = _generate(loaded, inputs, new_tokens), on_cpu(seen)
        bitwise, restored = _check_cpu(model, package, accepted, stock)
        refused = _refused(loaded, inputs) if look and SIMULATED else ()
        clear_compile_log()
        torch._dynamo.reset()
        model.to(torch.device(DEVICE_TYPE), torch.float16)  # type: ignore[arg-type] # transformers' wrapper hides the signature
        moved = {
            name: value.to(DEVICE_TYPE, torch.float16) if value.is_floating_point() else value.to(DEVICE_TYPE)
            for name, value in accepted.items()
        }
        comparison, generation, refusal, embeddings, fired = None, None, None, None, {}
        graphs: tuple[GraphFacts, ...] = ()
        layers: tuple[LayerError, ...] = ()
        try:
            with package.patched(model) as handle:
                try:
                    output = _main_output(torch.compile(model, backend=DEVICE_TYPE, dynamic=False), moved)
                    comparison, embeddings = _compare(stock, output, mask, loaded.is_causal_lm), _pooled(output, mask)
                    if expected is not None:
                        with _compiled(model):
                            generation = Generation(expected, _generate(loaded, inputs, new_tokens) or (), _vocabulary(model))
                finally:
                    fired, graphs = handle.fired(), facts_of(compile_log())
                layers = layer_errors(meant, _layers_on_device(model, moved, paths), mask) if paths else ()
        except (Refusal, FindingError) as error:
            refusal = str(error)
    return RunReport(
        loaded.source.text, profile, numerics, refused, checked.rules, fired, comparison, generation, refusal, bitwise, restored,
        len(graphs), time.perf_counter() - start, embeddings, graphs=graphs, layers=layers, faults=setup.injected,
        device="simulated" if SIMULATED else "real",
    )  # fmt: skip


def _layers_on_device(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], paths: Sequence[str]) -> dict[str, torch.Tensor]:
    """What the blocks return on the device. They are outputs of a graph of their own, so that the graph that was measured stays as it is."""
    torch._dynamo.reset()
    with recorded(model, paths) as seen, settings(legality="report"):
        _main_output(torch.compile(model, backend=DEVICE_TYPE, dynamic=False), inputs)
    return on_cpu(seen)


def _refused(loaded: Loaded, inputs: Mapping[str, torch.Tensor]) -> tuple[Place, ...]:
    compiler = Compiler(current_settings().backend)
    graphs = graphs_of_loaded(loaded, inputs)
    return tuple(place for graph in graphs for place in find(graph.captured.module, graph.layouts, compiler.profile, compiler))


@contextlib.contextmanager
def _compiled(model: torch.nn.Module) -> Iterator[None]:
    """`model(…)` runs compiled inside the block; `generate` calls the model itself, so that is where it has to be."""
    model.compile(backend=DEVICE_TYPE, dynamic=False)
    try:
        yield
    finally:
        model._compiled_call_impl = None


def _main_output(model: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Logits, or the last hidden state, as float32 on the CPU."""
    result = model(**inputs, **({"use_cache": False} if _takes_cache(model) else {}))
    for name in ("logits", "last_hidden_state", "pooler_output"):
        value = getattr(result, name, None)
        if isinstance(value, torch.Tensor):
            return value.to("cpu", torch.float32)
    first = next(value for value in result.values() if isinstance(value, torch.Tensor))
    return first.to("cpu", torch.float32)


def _takes_cache(model: Any) -> bool:
    return hasattr(model.config, "use_cache")


def _check_cpu(model: torch.nn.Module, package: ModuleType, inputs: Mapping[str, torch.Tensor], stock: torch.Tensor) -> tuple[bool, bool]:
    """Whether the output while patched is stock's to the bit, and whether the model is as before once un-patched."""
    before = _shape_of(model)
    with package.patched(model):
        bitwise = torch.equal(_main_output(model, inputs), stock)
    return bitwise, _shape_of(model) == before and torch.equal(_main_output(model, inputs), stock)


def _shape_of(model: torch.nn.Module) -> tuple[tuple[object, ...], ...]:
    """What un-patching has to leave as it was: each module's class, instance attributes, parameters and hooks, by identity."""
    return tuple(
        (
            name,
            type(module),
            tuple(sorted(vars(module))),
            tuple((n, id(p)) for n, p in module.named_parameters(recurse=False)),
            len(module._forward_hooks),
        )
        for name, module in model.named_modules()
    )


def _pooled(output: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mean over the valid positions, of unit length: [sequences, width]."""
    if output.dim() == 2:
        pooled = output
    else:
        weight = torch.ones(output.shape[:2]) if mask is None or mask.shape != output.shape[:2] else mask.to("cpu", torch.float32)
        pooled = (output.flatten(2) * weight[..., None]).sum(1) / weight.sum(1, keepdim=True)
    return torch.nn.functional.normalize(pooled, dim=-1)


def _compare(stock: torch.Tensor, output: torch.Tensor, mask: torch.Tensor | None, causal: bool) -> Comparison:
    valid = torch.ones(stock.shape[:2], dtype=torch.bool) if mask is None or mask.shape != stock.shape[:2] else mask.to("cpu").bool()
    a, b = (stock[valid], output[valid]) if stock.dim() > 2 else (stock, output)
    cosines = (_pooled(stock, mask).double() * _pooled(output, mask).double()).sum(-1)
    top1 = (a.argmax(-1) == b.argmax(-1)).float().mean().item() if causal else None
    return Comparison(tuple(cosines.tolist()), (a - b).abs().max().item(), a.abs().max().item(), top1)


def _generate(loaded: Loaded, inputs: Mapping[str, torch.Tensor], new_tokens: int) -> tuple[tuple[int, ...], ...] | None:
    """Greedy tokens behind the prompt, or None where the model does not generate from ids."""
    if not loaded.is_causal_lm or not new_tokens or "input_ids" not in inputs:
        return None
    model = loaded.model
    device = next(model.parameters()).device
    prompt = {name: _left_padded(value, inputs["attention_mask"]).to(device) for name, value in inputs.items()}
    tokens = cast(GenerationMixin, model).generate(
        **prompt, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, cache_implementation="static", pad_token_id=0
    )
    return tuple(tuple(row) for row in tokens[:, inputs["input_ids"].shape[1] :].to("cpu").tolist())


def _left_padded(value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`generate` wants the padding on the left; inputs are padded on the right."""
    shifts = (mask == 0).sum(-1).tolist()
    return torch.stack([torch.roll(row, int(shift)) for row, shift in zip(value, shifts, strict=True)])


def _vocabulary(model: torch.nn.Module) -> int:
    return int(model.config.get_text_config().vocab_size)  # type: ignore[union-attr,operator]
