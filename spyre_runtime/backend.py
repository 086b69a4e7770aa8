"""The Dynamo backend ``spyre``: capture, patch, split by stage, compile for the device, execute; on real hardware hand on instead."""

import contextlib
import gc
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch import fx

from .capture import capture
from .decompose import decompose
from .device import real_device_installed
from .execute_fast import Program, RoundingPoint, compile_program
from .execute_tiled import tiled_program
from .formats import HALF_DTYPES, carrier_dtype, host_to_device
from .frontend import Compilation, compile_graph
from .handover import hand_on, keep_graphs_whole
from .patches import GraphPatch, active_handles, apply_patches, epoch
from .profile import Profile
from .provenance import Provenance, provenance
from .refusal import Refusal
from .rounding_points import as_device_computes
from .settings import Settings, current_settings
from .stages import Part, StagedGraph, partition
from .tensor import DEVICE_TYPE, SpyreTensor
from .twins import LoadStage, Twins, recipes
from .weight_layouts import linear_layouts


@dataclass(frozen=True)
class CompileRecord:
    """One compilation: which of Dynamo's graphs ("frame/recompile"), input sizes, ops in each stage, seconds, sites changed by
    patches, and the refusals (empty for a graph that the device takes; under legality "report" it ran all the same).
    ``provenance``: the graph before and after the patches, and where each input of the device program comes from.
    ``weight``: the carrier of the graph's first parameter, which tells whose graph it is.
    """

    graph: str
    shapes: tuple[tuple[int, ...], ...]
    ops: dict[str, int]
    seconds: float
    fired: dict[str, int]
    refusals: tuple[Refusal, ...]
    settings: Settings
    compilation: Compilation | None = field(repr=False, default=None)
    provenance: Provenance | None = field(repr=False, default=None)
    weight: weakref.ref[torch.Tensor] | None = field(repr=False, default=None)

    @property
    def length(self) -> int | None:
        """The padded length that the graph was compiled for: the second size of its first input, [batch, length, …]."""
        return self.shapes[0][1] if self.shapes and len(self.shapes[0]) > 1 else None


_log: list[CompileRecord] = []


def compile_log() -> tuple[CompileRecord, ...]:
    """Every compilation of this process in order; one more for each new input shape."""
    return tuple(_log)


def compilations(model: torch.nn.Module) -> tuple[CompileRecord, ...]:
    """The compilations of a model's graphs so far, in order: sizes are static on this device, so each padded length has one of its own
    (`CompileRecord.length`), as has each change of settings or patches. Graphs without a parameter belong to no model.
    """
    weights = {id(p.raw) if isinstance(p, SpyreTensor) else id(p) for p in model.parameters()}
    return tuple(record for record in _log if record.weight is not None and id(record.weight()) in weights)


def clear_compile_log() -> None:
    _log.clear()


@dataclass(frozen=True)
class Executable:
    """A compiled graph. ``order`` picks the device program's inputs out of [graph inputs, load twins, host results]."""

    load: LoadStage
    host: Program
    device: Program
    host_inputs: tuple[int, ...]
    order: tuple[int, ...]
    settings: Settings


def spyre(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile one of Dynamo's graphs. A graph without a tensor on ``spyre`` runs as it is.

    A graph that the device refuses raises ``Refusal`` when it is called, not here: so the user sees the refusal itself and no
    report of a failed compiler around it.
    """
    if not _touches_device(gm, example_inputs):
        return gm.forward
    if real_device_installed():
        return hand_on(gm, example_inputs)
    return CompiledGraph(gm, example_inputs)


class CompiledGraph:
    """What Dynamo calls: device tensors in, device tensors out. Compiles again when settings or installed patches change."""

    def __init__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        compile_id = torch._guards.CompileContext.current_compile_id()
        self.name = str(compile_id) if compile_id is not None else "-"
        start = time.perf_counter()
        with _collector_paused():
            self.captured = capture(gm, example_inputs)
        self.capture_seconds = time.perf_counter() - start
        parameters = [i for i, value in enumerate(example_inputs) if isinstance(value, torch.nn.Parameter)]
        self.first_parameter = parameters[0] if parameters else None
        self.owner: weakref.ref[torch.Tensor] | None = None
        # By settings and the patches' identities; the patches are kept, so that no identity is given to another one.
        self.ready: dict[tuple[Settings, tuple[int, ...]], tuple[Executable | Refusal, tuple[GraphPatch, ...]]] = {}
        self.current: Executable | None = None
        self.current_key: tuple[Settings, int] | None = None
        self.twins = Twins()
        self._prepare(example_inputs)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        # Dynamo shares one graph among the instances of a class, whose parameters are inputs, but patches belong to one instance.
        if self.current_key != (current_settings(), epoch()) or (self.owner is not None and self.owner() is not self._owner(args)):
            self._prepare(args)
        if self.current is None:
            raise self._refusal
        return self._execute(self.current, args)

    def _owner(self, args: Sequence[Any]) -> torch.Tensor | None:
        """The carrier of the first parameter: it tells whose graph this is (a graph's parameters come from one model)."""
        if self.first_parameter is None:
            return None
        parameter = args[self.first_parameter]
        return parameter.raw if type(parameter) is SpyreTensor else parameter

    def _prepare(self, args: Sequence[Any]) -> None:
        now = current_settings()
        owner = self._owner(args)
        weight = weakref.ref(owner) if owner is not None else None
        handles = active_handles(args)
        patches = tuple(patch for handle in handles for patch in handle.patches)
        key = (now, tuple(id(patch) for patch in patches))
        if key not in self.ready:
            start = time.perf_counter()
            with _collector_paused():
                captured, fired = apply_patches(self.captured, handles)
                staged = partition(captured)
                executable, compilation, refusals = _build(staged, now)
            self.ready[key] = (executable if executable is not None else refusals[0], patches)
            seconds = self.capture_seconds + time.perf_counter() - start
            shapes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor) and not isinstance(a, torch.nn.Parameter))
            source = provenance(self.captured, staged)
            _log.append(CompileRecord(self.name, shapes, _count_ops(staged), seconds, fired, refusals, now, compilation, source, weight))
        found, _ = self.ready[key]
        self.current_key, self.owner = (now, epoch()), weight
        self.twins = Twins()
        if isinstance(found, Refusal):
            self.current, self._refusal = None, found
        else:
            self.current = found

    def _execute(self, ready: Executable, args: Sequence[Any]) -> tuple[Any, ...]:
        carriers = [a.raw if type(a) is SpyreTensor else _cpu_carrier(a) for a in args]
        with torch._C._AutoDispatchBelowAutograd():
            if ready.load.recipes:
                carriers += self.twins.get(ready.load, args, carriers)
            if ready.host.outputs:
                carriers += _to_device(ready.host, ready.host.run(*[carriers[i] for i in ready.host_inputs]), ready.settings)
            outputs = ready.device.run(*[carriers[i] for i in ready.order])
        for position in ready.device.mutated:
            source = ready.order[position]
            if source < len(args):
                torch.autograd.graph.increment_version(args[source])
        owners = {id(a.raw): a for a in args if type(a) is SpyreTensor}
        return tuple(_from_carrier(value, like, owners) for value, like in zip(outputs, ready.device.outputs, strict=True))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Compilation makes many objects that live on; each collection meanwhile would walk the whole heap of the process for little."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _build(staged: StagedGraph, now: Settings) -> tuple[Executable | None, Compilation | None, tuple[Refusal, ...]]:
    compilation: Compilation | None = None
    refusals: tuple[Refusal, ...] = ()
    profile = now.backend
    try:
        compilation = compile_graph(staged.device.module, profile, linear_layouts(staged))
        device = compilation.functional
    except Refusal as refusal:
        refusals = (refusal,)
        if now.legality == "refuse":
            return None, None, refusals
        device = _as_far_as_decomposed(staged.device.module, profile)
    on_host: RoundingPoint = "host" if now.numerics == "device" else None
    inputs = [node.name for node in staged.captured.module.graph.find_nodes(op="placeholder")]
    positions = {name: i for i, name in enumerate((*inputs, *staged.load.outputs, *staged.host.outputs))}
    return (
        Executable(
            load=LoadStage(
                compile_program(staged.load.module, on_host),
                tuple(positions[name] for name in staged.load.inputs),
                recipes(staged.load),
                now,
            ),
            host=compile_program(staged.host.module, on_host),
            device=_device_program(device, compilation, profile, now),
            host_inputs=tuple(positions[name] for name in staged.host.inputs),
            order=tuple(positions[name] for name in staged.device.inputs),
            settings=now,
        ),
        compilation,
        refusals,
    )


def _device_program(device: fx.GraphModule, compilation: Compilation | None, profile: Profile, now: Settings) -> Program:
    """The executor that the settings ask for; a refused graph has no plan, and runs fast."""
    rules = now.rules if now.numerics == "device" else None
    if now.executor == "tiled" and compilation is not None:
        return tiled_program(compilation, profile, now.tiled, rules)
    return compile_program(as_device_computes(device, rules), rules.op_rounding if rules else None)


def _as_far_as_decomposed(module: fx.GraphModule, profile: Profile) -> fx.GraphModule:
    """What runs under legality "report": the device's own rounding points where the graph decomposes, else the composites."""
    try:
        return decompose(module, profile)
    except Refusal:
        return module


def _to_device(program: Program, values: Sequence[torch.Tensor], now: Settings) -> list[torch.Tensor]:
    """Carriers of host results as they arrive on the device."""
    if now.numerics == "fp32":
        return list(values)
    return [
        host_to_device(value, like.dtype, now.rules) if like.dtype in HALF_DTYPES else value
        for value, like in zip(values, program.outputs, strict=True)
    ]


def _cpu_carrier(value: Any) -> Any:
    return value.to(carrier_dtype(value.dtype)) if isinstance(value, torch.Tensor) else value


def _from_carrier(value: Any, like: Any, owners: dict[int, SpyreTensor]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) in owners:
        return owners[id(value)]
    return SpyreTensor(value, like.dtype) if like.device.type == DEVICE_TYPE else value.to(like.dtype)


def _count_ops(staged: StagedGraph) -> dict[str, int]:
    return {"load": _calls(staged.load), "host": _calls(staged.host), "device": _calls(staged.device)}


def _calls(part: Part) -> int:
    return sum(node.op == "call_function" for node in part.module.graph.nodes)


def _touches_device(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    if any(isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE for value in example_inputs):
        return True
    arguments = (value for node in gm.graph.nodes for value in (*node.args, *node.kwargs.values()))
    return any(isinstance(value, torch.device) and value.type == DEVICE_TYPE for value in arguments)


# Sizes are static on this device, so each length is a compilation of its own; after torch's default of 8, Dynamo would fall back
# to eager without an error. This limit is the one process-wide switch that loading this backend moves.
torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
if real_device_installed():
    keep_graphs_whole()
