"""One row of a sweep: an instance of a group, patched, on the simulator, compared with stock on the CPU. Runs in a process of its own.

A row passes by comparison only. The stages stand in order, and a row has the last one that it reached.
"""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from adapterc.capturing import HALVES
from adapterc.codegen.patch_error import REQUIREMENT, PatchError
from adapterc.dimensions import Dimensions
from adapterc.errors import UserError
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.settings import settings
from adapterc.tiny import Recipe, Width, inputs_for, recipe

DEVICE = "spyre"
STAGES = ("start", "built", "stock", "attached", "lowered", "fp32", "passed")
"""built: the instance stands. stock: it runs on the CPU. attached: the patches went onto it and its graphs, and the CPU result is bitwise
stock. lowered: the compiler took every graph, and it ran. fp32: the unrounded result is stock's. passed: so is the device's, within the budget."""

FP32_TOLERANCE = 1e-5  # largest difference by the largest value of the stock output
# The device rounds to nine bits of fraction, bfloat16 to seven: the device's error may be what bfloat16 makes of the same stock model (a router
# that flips an expert does so there too), and the direction must hold in any case.
DEVICE_COSINE, DEVICE_COSINE_AT_LEAST = 0.999, 0.99


@dataclass(frozen=True)
class Task:
    """What a worker needs to know. `patches`: a package that was built once for the sweep. `memory`: bytes that the row may take."""

    key: str
    width: Width
    model_type: str
    architecture: str
    dimensions: Dimensions | None
    patches: str
    profile: str
    memory: int
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """`stage`: the last one reached. `kind`: a short class of the reason, empty when passed; `place`: file:line that it names."""

    key: str
    width: str
    stage: str
    kind: str = ""
    message: str = ""
    place: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    fired: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.stage == STAGES[-1]


class NotEqual(Exception):
    """A comparison failed; the message says by how much."""


@dataclass
class _Progress:
    """What is known so far: a row that ends with an error still reports it."""

    stage: str = STAGES[0]
    numbers: dict[str, float] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)


def run_row(task: Task, load_package: Callable[[Path], ModuleType]) -> Outcome:
    """Run one row; every failure becomes an Outcome with its reason."""
    start, progress = time.perf_counter(), _Progress()
    kind = message = place = ""
    try:
        _run(task, load_package(Path(task.patches)), progress)
    except Exception as error:  # a row is there to say what went wrong, whatever it was
        kind, message, place = reason(error, progress.stage)
    seconds = time.perf_counter() - start
    return Outcome(task.key, task.width, progress.stage, kind, message, place, progress.numbers, progress.fired, seconds)


def _run(task: Task, package: ModuleType, progress: _Progress) -> None:
    made = recipe(task.model_type, task.architecture, task.width, task.dimensions)
    _check_memory(made, task.memory)
    loaded = made.build(task.seed)
    model, inputs = loaded.model, inputs_for(loaded)
    progress.stage = "built"
    with torch.no_grad():
        stock = outputs(model, inputs)
        coarse: Any = copy.deepcopy(model)
        half = outputs(coarse.to(torch.bfloat16), _cast(inputs, torch.bfloat16))
        progress.stage = "stock"
        with package.patched(model):
            _check_bitwise(stock, outputs(model, inputs))
        dtype, unrounded = _first_accepted(model, inputs, package, task.profile, progress)
        _check_fp32(stock, unrounded, inputs, progress)
        progress.stage = "fp32"
        del unrounded
        rounded = _on_device(model, dtype, inputs, package, task.profile, "device", progress)
        _check_device(stock, rounded, half, inputs, progress)
        progress.stage = "passed"


def _first_accepted(
    model: Any, inputs: Mapping[str, torch.Tensor], package: ModuleType, profile: str, progress: _Progress
) -> tuple[torch.dtype, dict[str, torch.Tensor]]:
    """The unrounded outputs in the first half-precision dtype that the device takes: some models clamp in float16 by a branch on values, which no
    graph can hold. A model that neither dtype gets through ends with float16's reason."""
    first: Exception | None = None
    for dtype in HALVES:
        try:
            found = _on_device(copy.deepcopy(model), dtype, inputs, package, profile, "fp32", progress)
        except Exception as error:  # what the compiler says comes wrapped in several ways
            first = first or error
            continue
        progress.numbers["bfloat16"] = float(dtype == torch.bfloat16)
        return dtype, found
    assert first is not None, "there are dtypes to try"
    raise first


def _check_memory(made: Recipe, memory: int) -> None:
    """Weights are held three times at most, in float32: stock, its copy on the device, and that copy's load-time results."""
    parameters = made.parameters
    if 3 * 4 * parameters > memory:
        raise UserError(
            "ADC613",
            f"{parameters / 1e9:.1f} billion parameters need {12 * parameters / 2**30:.0f} GiB, more than a worker may take",
            "raise --memory",
        )


def _on_device(
    model: Any,
    dtype: torch.dtype,
    inputs: Mapping[str, torch.Tensor],
    package: ModuleType,
    profile: str,
    numerics: str,
    progress: _Progress,
) -> dict[str, torch.Tensor]:
    """The patched model's outputs on the simulator. The model stays on the device."""
    torch._dynamo.reset()
    clear_compile_log()
    with settings(profile=profile, numerics=numerics):
        model.to(DEVICE, dtype)
        # Cast on the device, where `numerics` says what rounds: pixels that the host rounds would be other inputs than stock's.
        moved = {name: value.to(DEVICE, dtype if value.is_floating_point() else value.dtype) for name, value in inputs.items()}
        with package.patched(model) as handle:
            try:
                result = outputs(torch.compile(model, backend=DEVICE, dynamic=False), moved, model.config)
            except Refusal:
                progress.stage = max(progress.stage, "attached", key=STAGES.index)
                raise
            finally:
                progress.fired |= {name: sites for name, sites in handle.fired().items() if sites}
                _count(progress)
    progress.stage = max(progress.stage, "lowered", key=STAGES.index)
    return result


def _count(progress: _Progress) -> None:
    compiled = [record.compilation for record in compile_log() if record.compilation is not None]
    progress.numbers["graphs"] = len(compile_log())
    progress.numbers["restickifies"] = sum(c.restickifies for c in compiled)
    progress.numbers["fallbacks"] = sum(len(c.fallbacks) for c in compiled)


def outputs(model: Any, inputs: Mapping[str, torch.Tensor], config: Any = None) -> dict[str, torch.Tensor]:
    """Every floating-point tensor that the model returns, by name, as float32 on the CPU."""
    uses_cache = hasattr(config if config is not None else model.config, "use_cache")
    result = model(**inputs, **({"use_cache": False} if uses_cache else {}))
    named = {name: value for name, value in result.items() if isinstance(value, torch.Tensor) and value.is_floating_point()}
    return {name: value.to("cpu", torch.float32) for name, value in named.items()}


def _cast(inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


def _check_bitwise(stock: Mapping[str, torch.Tensor], patched: Mapping[str, torch.Tensor]) -> None:
    for name, value in stock.items():
        if not torch.equal(value, patched[name]) and not torch.equal(value.nan_to_num(), patched[name].nan_to_num()):
            raise NotEqual(f"`{name}` on the CPU while patched is not bitwise stock")


def _check_fp32(
    stock: Mapping[str, torch.Tensor], device: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor], progress: _Progress
) -> None:
    worst = 0.0
    for name, expected, found in _pairs(stock, device, inputs):
        difference = _relative(expected, found)
        worst = max(worst, difference)
        progress.numbers["fp32_error"] = worst
        if not difference <= FP32_TOLERANCE:  # a NaN is not within it either
            raise NotEqual(f"`{name}` in fp32 is off by {difference:.1e} of its largest value; {FP32_TOLERANCE:.0e} is allowed")
        if name == "logits" and not torch.equal(expected.argmax(-1), found.argmax(-1)):
            raise NotEqual("the best token in fp32 is another one")


def _check_device(
    stock: Mapping[str, torch.Tensor],
    device: Mapping[str, torch.Tensor],
    half: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    progress: _Progress,
) -> None:
    lowest = 1.0
    halves = {name: value for name, _, value in _pairs(stock, half, inputs)}
    for name, expected, found in _pairs(stock, device, inputs):
        cosine, allowed = _cosine(expected, found), _cosine(expected, halves[name])
        lowest = min(lowest, cosine)
        progress.numbers |= {"device_cosine": lowest, "bfloat16_cosine": min(allowed, progress.numbers.get("bfloat16_cosine", 1.0))}
        budget = max(DEVICE_COSINE_AT_LEAST, min(DEVICE_COSINE, allowed))
        if not cosine >= budget:
            raise NotEqual(f"`{name}` in the device's format has cosine {cosine:.4f} with stock; {budget:.4f} is the budget")


def _pairs(
    stock: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]
) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """Outputs of both at the positions that are no padding, `[positions, …]`. Raises NotEqual where one lacks an output or has it in another shape."""
    pairs = []
    mask = inputs.get("attention_mask")
    for name, expected in stock.items():
        found = other.get(name)
        if found is None or found.shape != expected.shape:
            raise NotEqual(f"`{name}` is {'missing' if found is None else f'of shape {list(found.shape)}, not {list(expected.shape)}'}")
        if mask is not None and expected.dim() > 2 and expected.shape[:2] == mask.shape:
            expected, found = expected[mask.bool()], found[mask.bool()]
        pairs.append((name, expected, found))
    return pairs


def _relative(expected: torch.Tensor, found: torch.Tensor) -> float:
    if expected.numel() == 0:
        return 0.0
    return ((expected - found).abs().max() / expected.abs().max().clamp_min(torch.finfo(torch.float32).tiny)).item()


def _cosine(expected: torch.Tensor, found: torch.Tensor) -> float:
    """The lowest over the rows of the last dimension; of the whole tensor where rows are scores of a few classes."""
    wide = expected.dim() > 1 and expected.shape[-1] >= 16
    a, b = (t.double().reshape(-1, t.shape[-1]) if wide else t.double().reshape(1, -1) for t in (expected, found))
    return torch.nn.functional.cosine_similarity(a, b, dim=-1).min().item()


def reason(error: BaseException, stage: str) -> tuple[str, str, str]:
    """Kind, sentence and place of what ended a row."""
    match error:
        case Refusal():
            return f"refused: {error.kind}", str(error.message), _short(error.source)
        case PatchError(code=code):
            return ("require" if code == REQUIREMENT else f"patch {code}"), error.message, _short(error.place)
        case NotEqual():
            return f"differs behind {stage}", str(error), ""
        case UserError():
            return f"not run: {error.code}", error.message, ""
    inner = getattr(error, "inner_exception", None)  # Dynamo wraps what a backend raises
    if isinstance(inner, Exception):
        return reason(inner, stage)
    lines = str(error).strip().splitlines() or [""]
    return f"error behind {stage}: {type(error).__name__}", lines[0][:300], _raised_at(error)


def _raised_at(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return _short(f"{frames[-1].filename}:{frames[-1].lineno}") if frames else ""


def _short(place: str) -> str:
    return "/".join(place.rsplit("/", 2)[-2:])
