"""Rungs that run torch: a `replace` rule against the stock module, and the whole model.

The stock module is captured by running it, never restated. Whole models are the workflows' business (building and patching are not known
here): `check_model` takes callables that run the stock and the patched model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from adapterc.dsl.adapter import Adapter, Replace
from adapterc.dsl.ast import NOWHERE, Name
from adapterc.verify import reals
from adapterc.verify.claim import inlined
from adapterc.verify.formats import Wide
from adapterc.verify.interpret import Interpreter, Value
from adapterc.verify.tensors import ShapeError, Tensor
from adapterc.verify.terms import Arena
from adapterc.verify.verdict import REFUTED, TESTED, UNDECIDED, Counterexample, Evidence, Verdict

SAMPLES = 24
TOLERANCE = 1e-9  # of float64 runs: a stock module in float64 keeps some literals and tables in float32 precision at worst


@dataclass(frozen=True, slots=True)
class ModelRun:
    """Outputs that a run produced, in order."""

    outputs: tuple[torch.Tensor, ...]


def check_replace(rule: Replace, adapter: Adapter, stock: torch.nn.Module, shapes: Sequence[Sequence[int]], seed: int = 0) -> Verdict:
    """Whether `forward` equals the stock module's, run in float64 on inputs of `shapes` (one shape per input of the rule).

    Values are drawn at several magnitudes, with zeros. The verdict is TESTED (REAL), REFUTED, or UNDECIDED where the forward cannot be evaluated.
    """
    name = rule.header.name
    module = stock.double().eval()
    arena = Arena()
    try:
        inputs, cells = _inputs(arena, rule, module, shapes)
        run = Interpreter(inputs, arena)
        result = run.tensor(run.evaluate(inlined(rule.forward, rule.lets)))
    except (ShapeError, AttributeError) as fault:
        return Verdict(name, adapter.name, "WRONG", UNDECIDED, f"the forward has no value for {type(stock).__name__}: {fault}")
    rng = np.random.default_rng(seed)
    draws = [rng.standard_normal((SAMPLES, *shape)) * _magnitudes(len(shape)) for shape in shapes]
    expected = np.stack([_run_stock(module, [d[i] for d in draws]) for i in range(SAMPLES)])
    if expected.shape[1:] != result.shape:
        how = f"the stock module returns the shape {list(expected.shape[1:])}, the forward {list(result.shape)}"
        return Verdict(name, adapter.name, "WRONG", REFUTED, how)
    samples = _samples(cells, [name for name, _ in rule.inputs], draws)
    found = reals.run(result.cells.reshape(-1), samples, SAMPLES, "float64", lambda dtype: True)
    ours = np.stack([found[t.serial].value for t in result.cells.reshape(-1)], axis=1).reshape(expected.shape).astype(np.float64)
    return _judged(rule, adapter, expected, ours)


def _magnitudes(rank: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.resize([1.0, 0.1, 5.0, 30.0, 0.0, 1e-3], SAMPLES).reshape((SAMPLES, *(1,) * rank))


def _run_stock(
    module: torch.nn.Module, inputs: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    with torch.no_grad():
        output = module(*(torch.from_numpy(np.array(x)) for x in inputs))
    first = output[0] if isinstance(output, tuple) else output
    result: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = first.double().numpy()
    return result


def _inputs(
    arena: Arena, rule: Replace, module: torch.nn.Module, shapes: Sequence[Sequence[int]]
) -> tuple[dict[str, Value], dict[str, Tensor | Wide]]:
    env: dict[str, Value] = {"stick": 64, "cores": 32, "dtype": "float64"}
    cells: dict[str, Tensor | Wide] = {}
    for (name, kind), shape in zip(rule.inputs, shapes, strict=True):
        env[name] = cells[name] = _variable(arena, name, tuple(shape))
        dims = getattr(kind, "dims", ())
        for dim, size in zip(reversed(dims), reversed(list(shape)), strict=False):
            if isinstance(dim, Name):
                env[dim.id] = int(size)
    for name, path, _ in rule.attributes:
        value: object = module
        for part in path.split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            env[name] = variable = _variable(arena, name, tuple(value.shape))
            cells[name] = variable
            cells[f"={name}"] = value.detach().double().numpy().astype(np.longdouble)
        elif isinstance(value, float):
            env[name] = Interpreter({}, arena).tensor(_fraction(value))
        elif isinstance(value, bool | int | str) or value is None:
            env[name] = value
        else:
            raise ShapeError(f"the attribute {path} is a {type(value).__name__} at {NOWHERE.file}")
    return env, cells


def _fraction(value: float) -> Value:
    from fractions import Fraction

    return Fraction(value)


def _variable(arena: Arena, name: str, shape: tuple[int, ...]) -> Tensor:
    found = np.empty(shape, dtype=object)
    for place in np.ndindex(*shape):
        found[place] = arena.make("var", (), (name, *place), "float64")
    return Tensor(found, "float64")


def _samples(
    cells: dict[str, Tensor | Wide], names: Sequence[str], draws: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]
) -> dict[int, Wide]:
    values: dict[int, Wide] = {}
    for name, tensor in cells.items():
        if not isinstance(tensor, Tensor):
            continue
        if name in names:
            rows = draws[names.index(name)].reshape(SAMPLES, -1).astype(np.longdouble)
        else:
            fixed = cells[f"={name}"]
            assert not isinstance(fixed, Tensor)
            rows = np.broadcast_to(fixed.reshape(1, -1), (SAMPLES, fixed.size))
        for i, term in enumerate(tensor.cells.reshape(-1)):
            values[term.serial] = rows[:, i]
    return values


def _judged(
    rule: Replace,
    adapter: Adapter,
    expected: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    ours: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> Verdict:
    scale = np.maximum(np.abs(expected), 1.0)
    gap = np.abs(expected - ours) / scale
    worst = float(np.nanmax(gap, initial=0.0))
    evidence = (
        Evidence(
            "6 values",
            f"{expected.size} elements against the stock module in float64; largest difference {worst:.2g}",
            (("largest", worst),),
        ),
    )
    if worst <= TOLERANCE and (np.isnan(expected) == np.isnan(ours)).all():
        return Verdict(
            rule.header.name,
            adapter.name,
            "REAL",
            TESTED,
            f"equals the stock module within {worst:.1g} on {expected.size} elements",
            evidence,
        )
    place = np.unravel_index(int(np.nanargmax(gap)), gap.shape)
    example = Counterexample((), (), tuple(int(i) for i in place[1:]), f"{expected[place]:.6g}", f"{ours[place]:.6g}", "float64")
    how = f"the stock module gives {expected[place]:.6g}, the forward {ours[place]:.6g}"
    return Verdict(rule.header.name, adapter.name, "WRONG", REFUTED, how, evidence, example)


def check_model(stock: Callable[[], ModelRun], patched: Callable[[], ModelRun], name: str, adapter: str) -> Verdict:
    """Rung 8: the patched model on the CPU gives the stock model's bits."""
    before, after = stock().outputs, patched().outputs
    if len(before) != len(after):
        return Verdict(name, adapter, "WRONG", REFUTED, f"{len(before)} outputs became {len(after)}")
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype or not torch.equal(a, b):
            return Verdict(name, adapter, "WRONG", REFUTED, f"output {i} of the patched model differs from stock on the CPU")
    evidence = (Evidence("8 whole model", f"{len(before)} outputs bitwise equal on the CPU", (("outputs", len(before)),)),)
    return Verdict(name, adapter, "EXACT", TESTED, "the patched model gives the stock model's bits on the CPU", evidence)
