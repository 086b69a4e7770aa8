"""A patched model against its stock self: on the CPU, on the simulator without rounding, and on the simulator in the device's format."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adapterc.attach import rules_of
from adapterc.codegen.patch_error import PatchError
from adapterc.codegen.runtime import PatchSet, Rule
from adapterc.dsl.loader import load_all
from adapterc.specs import find
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.settings import settings

DEVICE = "spyre"
FP32_TOLERANCE = 1e-5  # largest difference by the largest value of the stock output
# The device's nine bits of fraction err less than bfloat16's seven, so the same stock model in bfloat16 is the budget; the direction holds in any case.
DEVICE_COSINE, DEVICE_COSINE_AT_LEAST = 0.999, 0.99


@dataclass(frozen=True)
class Comparison:
    """`problem`: why the device did not run it (a refusal's sentence); then the numbers behind `bitwise` are not there.

    fp32_error: by the largest stock value. top1: the best token agrees everywhere. cosine, budget: the lowest over tokens, device and allowed.
    """

    bitwise: bool
    problem: str = ""
    fp32_error: float = float("nan")
    top1: bool = False
    cosine: float = float("nan")
    budget: float = float("nan")
    graphs: int = 0
    restickifies: int = 0
    fallbacks: int = 0

    @property
    def right(self) -> bool:
        near = self.fp32_error <= FP32_TOLERANCE and self.top1
        return self.bitwise and not self.problem and near and (self.cosine != self.cosine or self.cosine >= self.budget)


def shipped() -> PatchSet:
    """The shipped rules, not proved again: the checker is tested elsewhere."""
    return PatchSet(tuple(rule for adapter in load_all(find(())) for rule in _rules(adapter)))


def _rules(adapter: Any) -> Sequence[Rule]:
    return rules_of(adapter)


def outputs(model: Any, inputs: Mapping[str, Any], config: Any) -> dict[str, torch.Tensor]:
    """Every floating tensor that a forward returns, float32 on the CPU, without a cache."""
    options = {"use_cache": False} if hasattr(config, "use_cache") else {}
    found = model(**inputs, **options)
    return {
        name: value.to("cpu", torch.float32)
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }


def compare(model: Any, inputs: Mapping[str, torch.Tensor], patches: PatchSet, *, rounded: bool = True) -> Comparison:
    """Compare on positions that `attention_mask` does not hide. The model is left on the device. `rounded`: also in the device's format.

    Raises what the stock forward raises; a refusal of a rule or of the compiler is the comparison's `problem`.
    """
    config = model.config
    with torch.no_grad():
        stock = outputs(model, inputs, config)
        half = outputs(copy.deepcopy(model).to(torch.bfloat16), _cast(inputs, torch.bfloat16), config) if rounded else {}
        bitwise = False
        try:
            with patches.patched(model):
                bitwise = _equal(stock, outputs(model, inputs, config))
            found, last = _on_device(model, inputs, patches, rounded)
        except (PatchError, Refusal) as error:
            return Comparison(bitwise, str(error))
        except torch._dynamo.exc.BackendCompilerFailed as error:  # Dynamo wraps what a backend raises
            return Comparison(bitwise, str(error.inner_exception))
    exact = [_visible(expected, found[0][name], inputs) for name, expected in stock.items()]
    error = max(_relative(a, b) for a, b in exact)
    logits = [name == "logits" for name in stock]
    top1 = all(torch.equal(a.argmax(-1), b.argmax(-1)) for (a, b), is_logits in zip(exact, logits, strict=True) if is_logits)
    cosine = budget = float("nan")
    if rounded:
        cosine = min(_cosine(*_visible(expected, found[1][name], inputs)) for name, expected in stock.items())
        allowed = min(_cosine(*_visible(expected, half[name], inputs)) for name, expected in stock.items())
        budget = max(DEVICE_COSINE_AT_LEAST, min(DEVICE_COSINE, allowed))
    return Comparison(bitwise, "", error, top1, cosine, budget, *last)


def _on_device(
    model: Any, inputs: Mapping[str, torch.Tensor], patches: PatchSet, rounded: bool
) -> tuple[list[dict[str, torch.Tensor]], tuple[int, int, int]]:
    """The outputs without rounding and, where asked, with it; graphs, restickifies and fallbacks of the first."""
    first: Exception | None = None
    for dtype in (torch.float16, torch.bfloat16):  # some models branch on values in float16, which no graph can hold
        found: list[dict[str, torch.Tensor]] = []
        counts = (0, 0, 0)
        there = copy.deepcopy(model)
        try:
            for numerics in ("fp32", "device")[: 1 + rounded]:
                torch._dynamo.reset()
                clear_compile_log()
                with settings(numerics=numerics):
                    there = copy.deepcopy(model).to(DEVICE, dtype)
                    with patches.patched(there):
                        moved = {name: value.to(DEVICE) for name, value in _cast(inputs, dtype).items()}
                        found.append(outputs(torch.compile(there, backend=DEVICE, dynamic=False), moved, there.config))
                compiled = [record.compilation for record in compile_log() if record.compilation is not None]
                counts = (
                    counts
                    if counts[0]
                    else (
                        len(compile_log()),
                        sum(c.restickifies for c in compiled),
                        sum(len(c.fallbacks) for c in compiled),
                    )
                )
            return found, counts
        except (Refusal, torch._dynamo.exc.BackendCompilerFailed) as error:
            first = first or error
    assert first is not None, "there are dtypes to try"
    raise first


def _cast(inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


def _equal(stock: Mapping[str, torch.Tensor], patched: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(value.nan_to_num(), patched[name].nan_to_num()) for name, value in stock.items())


def _visible(stock: torch.Tensor, found: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    mask = inputs.get("attention_mask")
    if mask is not None and stock.dim() > 2 and stock.shape[:2] == mask.shape and found.shape == stock.shape:
        return stock[mask.bool()], found[mask.bool()]
    return stock, found


def _relative(stock: torch.Tensor, found: torch.Tensor) -> float:
    if stock.shape != found.shape or bool(found.isnan().any()):
        return float("inf")
    return ((stock - found).abs().max() / stock.abs().max().clamp_min(1e-30)).item()


def _cosine(stock: torch.Tensor, found: torch.Tensor) -> float:
    """The lowest over rows; of the whole where rows are scores of a few classes."""
    wide = stock.dim() > 1 and stock.shape[-1] >= 16
    a, b = (t.double().reshape(-1, t.shape[-1]) if wide else t.double().reshape(1, -1) for t in (stock, found))
    return torch.nn.functional.cosine_similarity(a, b, dim=-1).min().item()
