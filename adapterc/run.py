"""`adapterc run`: one stock model on the simulator, before and after its adapters, compared with itself on the CPU.

What is compared is always stock float32 on the CPU. The model is the user's own: it is patched, run, and left as it was.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from adapterc.build import built
from adapterc.capturing import graphs_of_loaded
from adapterc.check import CheckReport, RuleReport
from adapterc.errors import UserError
from adapterc.inputs import choose
from adapterc.models import Loaded, load
from adapterc.obstacles import FALLBACK, Compiler, Place, find
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log
from adapterc.spyre_runtime.dumps import STAGES, stage_text
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.settings import settings

DEVICE = "spyre"


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
            **({} if self.dumped is None else {"dump": self.dumped}),
        }

    def show(self, console: Console) -> None:
        if self.dumped is not None:
            console.print(self.dumped, markup=False, soft_wrap=True)
            return
        console.print(f"[bold]{self.model}[/] on profile {self.profile}, numbers: {self.numerics}")
        console.print(f"\n[bold]stock[/]: {_stock_sentence(self.refused)}")
        if self.refused:
            for line in obstacle_lines(self.refused):
                console.print(line, soft_wrap=True)
        console.print("\n[bold]adapters that attach[/]")
        for line in fired_lines(self.rules, self.fired, console.width):
            console.print(line, soft_wrap=True)
        console.print("\n[bold]patched[/]")
        for line in self.result_lines():
            console.print(line, soft_wrap=True)

    def result_lines(self) -> Iterator[str]:
        if self.refusal is not None:
            yield f"[bold red]does not run[/]: {self.refusal}"
        if self.comparison is not None:
            yield _comparison_line(self.comparison)
        if self.generation is not None:
            same = (
                "the same greedy tokens as the CPU"
                if self.generation.same
                else f"greedy tokens differ after {_agreement(self.generation)} of the CPU's"
            )
            yield f"stock generate() with the static cache: {same}; {'no token outside' if self.generation.inside else '[bold red]a token outside[/]'} the vocabulary of {self.generation.vocabulary}"
        yield f"CPU output while patched: {'bitwise stock' if self.cpu_bitwise else '[bold red]changed[/]'}; module after un-patching: {'as it was' if self.restored else '[bold red]changed[/]'}"
        yield f"[dim]{self.compilations} graphs compiled, {self.seconds:.1f} s in all[/]"


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
) -> RunReport:
    """Load the model that `text` names and run it. Raises UserError, SpecError or PatchError with the reason where it cannot start."""
    if numerics not in ("device", "fp32"):
        raise UserError("ADC507", f"--dtype {numerics} is no number format of a run", "choose device or fp32")
    try:
        load_profile(profile)
    except FileNotFoundError as error:
        raise UserError("ADC508", str(error), "choose one of those") from None
    if dump is not None and dump not in STAGES:
        raise UserError("ADC507", f"--dump {dump} is no stage", f"choose one of {', '.join(STAGES)}")
    loaded = load(text)
    with built(specs) as (checked, package):
        report = run_loaded(loaded, choose(loaded, texts, ids), checked, package, profile, numerics, new_tokens, look=dump is None)
        return report if dump is None else replace(report, dumped=_dumped(dump))


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
) -> RunReport:
    """Run a loaded model. It is moved to the device and stays there; on the CPU it is checked first, patched and un-patched.

    `look`: find what the stock model is refused for, which compiles many parts of its graph.
    """
    start = time.perf_counter()
    model, mask = loaded.model, inputs.get("attention_mask")
    accepted = {**inputs}
    with settings(profile=profile, numerics=numerics), torch.no_grad():
        stock, expected = _main_output(model, accepted), _generate(loaded, inputs, new_tokens)
        bitwise, restored = _check_cpu(model, package, accepted, stock)
        refused = _refused(loaded, inputs, profile) if look else ()
        clear_compile_log()
        torch._dynamo.reset()
        model.to(torch.device(DEVICE), torch.float16)  # type: ignore[arg-type] # transformers' wrapper hides the signature
        moved = {
            name: value.to(DEVICE, torch.float16) if value.is_floating_point() else value.to(DEVICE) for name, value in accepted.items()
        }
        comparison, generation, refusal, embeddings, fired = None, None, None, None, {}
        try:
            with package.patched(model) as handle:
                try:
                    output = _main_output(torch.compile(model, backend=DEVICE, dynamic=False), moved)
                    comparison, embeddings = _compare(stock, output, mask, loaded.is_causal_lm), _pooled(output, mask)
                    if expected is not None:
                        with _compiled(model):
                            generation = Generation(expected, _generate(loaded, inputs, new_tokens) or (), _vocabulary(model))
                finally:
                    fired = handle.fired()
        except Refusal as error:
            refusal = str(error)
    return RunReport(
        loaded.source.text, profile, numerics, refused, checked.rules, fired, comparison, generation, refusal, bitwise, restored,
        len(compile_log()), time.perf_counter() - start, embeddings,
    )  # fmt: skip


def _refused(loaded: Loaded, inputs: Mapping[str, torch.Tensor], profile: str) -> tuple[Place, ...]:
    compiler = Compiler(load_profile(profile))
    graphs = graphs_of_loaded(loaded, inputs)
    return tuple(place for graph in graphs for place in find(graph.captured.module, graph.layouts, compiler.profile, compiler))


@contextlib.contextmanager
def _compiled(model: torch.nn.Module) -> Iterator[None]:
    """`model(…)` runs compiled inside the block; `generate` calls the model itself, so that is where it has to be."""
    model.compile(backend=DEVICE, dynamic=False)
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
    tokens = model.generate(  # type: ignore[operator]
        **prompt, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, cache_implementation="static", pad_token_id=0
    )
    return tuple(tuple(row) for row in tokens[:, inputs["input_ids"].shape[1] :].to("cpu").tolist())


def _left_padded(value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`generate` wants the padding on the left; inputs are padded on the right."""
    shifts = (mask == 0).sum(-1).tolist()
    return torch.stack([torch.roll(row, int(shift)) for row, shift in zip(value, shifts, strict=True)])


def _vocabulary(model: torch.nn.Module) -> int:
    return int(model.config.get_text_config().vocab_size)  # type: ignore[union-attr,operator]


def _stock_sentence(places: Sequence[Place]) -> str:
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


def _comparison_line(comparison: Comparison) -> str:
    lowest = min(comparison.cosines)
    top1 = "" if comparison.top1 is None else f", same best token at {comparison.top1:.1%} of positions"
    return f"cosine with stock fp32 on CPU: lowest {lowest:.6f} of {len(comparison.cosines)} sequences; largest difference {comparison.largest:.2e} (values up to {comparison.scale:.3g}){top1}"


def _agreement(generation: Generation) -> str:
    same = min(
        next((i for i, (a, b) in enumerate(zip(e, p, strict=False)) if a != b), len(p))
        for e, p in zip(generation.expected, generation.produced, strict=True)
    )
    return f"{same} tokens"


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
