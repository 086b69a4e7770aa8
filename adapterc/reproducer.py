"""A part of a graph as a program of at most ten lines that anyone can run, and the proof that it fails alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from typing import Any

import torch
from torch import fx

from adapterc.known_faults import FAULT
from adapterc.obstacles import FALLBACK, SPAN, Place, asked_for
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log
from adapterc.spyre_runtime.ir import DeviceLayout
from adapterc.spyre_runtime.profile import load_profile
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.settings import settings

MOST_LINES = 10
_BODY_LINES = 4  # what the frame below leaves for the ops


@dataclass(frozen=True)
class Reproducer:
    """`text`: the program. `confirmed`: it was run, and the compiler gave the answer that it stands for."""

    text: str
    confirmed: bool

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def reproduce(place: Place, profile: str) -> Reproducer:
    """The program for an obstacle, run once under `profile` to see that it fails by itself for the same reason."""
    text = program_text(place.module, place.layouts)
    return Reproducer(text, confirms(text, place.obstacle.kind, profile))


def program_text(module: fx.GraphModule, layouts: Mapping[str, DeviceLayout]) -> str:
    """Ten lines at most; ops share lines where there are more of them."""
    names: dict[fx.Node, str] = {}
    inputs: list[str] = []
    steps: list[str] = []
    result = "()"
    for node in module.graph.nodes:
        if node.op == "placeholder":
            names[node] = f"x{len(inputs)}"
            inputs.append(_input(node.meta.get("val"), node.name in layouts))
        elif node.op == "get_attr":
            names[node] = _constant(getattr(module, str(node.target)))
        elif node.op == "call_function":
            names[node] = f"v{len(steps)}"
            steps.append(f"{names[node]} = {_call(node, names)}")
        else:
            # Dynamo keeps no graph without a device input, so the spare input of a part that reads nothing is added to the result.
            spare = next((n for n in names if n.op == "placeholder" and not n.users), None)
            returned = [f"{names[n]} + {names[spare]}" if spare is not None else names[n] for n in node.args[0]]
            result = ", ".join(returned) or "()"
    body = _packed(steps, _BODY_LINES)
    arguments = ", ".join(f"x{i}" for i in range(len(inputs)))
    return "\n".join(
        (
            "import operator, torch, adapterc.spyre_runtime" if "operator." in "".join(steps) else "import torch, adapterc.spyre_runtime",
            f"def f({arguments}):",
            *(f"    {line}" for line in body),
            f"    return {result}",
            *_packed([f"{name} = {text}" for name, text in _named(inputs)], 2),
            f'torch.compile(f, backend="spyre", dynamic=False)({arguments})',
        )
    )


def _named(inputs: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"x{i}", text) for i, text in enumerate(inputs)]


def _packed(steps: Sequence[str], most: int) -> list[str]:
    """The statements on at most `most` lines."""
    share = -(-len(steps) // most) if steps else 1
    return ["; ".join(steps[i : i + share]) for i in range(0, len(steps), share)]


def _input(value: Any, linear: bool) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    sizes, dtype = [int(s) for s in value.shape], str(value.dtype)
    if linear:
        return f'torch.nn.Linear({sizes[1]}, {sizes[0]}).to("spyre", {dtype}).weight.detach()'
    if value.is_contiguous():
        return f'torch.zeros({sizes}, dtype={dtype}, device="spyre")'
    strides = [int(s) for s in value.stride()]
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return f'torch.zeros({span}, dtype={dtype}, device="spyre").as_strided({sizes}, {strides})'


def _constant(value: torch.Tensor) -> str:
    return f"torch.tensor({value.tolist()}, dtype={value.dtype})"


def _call(node: fx.Node, names: Mapping[fx.Node, str]) -> str:
    arguments = [_literal(a, names) for a in node.args] + [f"{k}={_literal(v, names)}" for k, v in node.kwargs.items() if k != "pin_memory"]
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}({', '.join(arguments)})"
    return f"{getattr(target, '__module__', 'operator').strip('_')}.{getattr(target, '__name__', target)}({', '.join(arguments)})"


def _literal(value: Any, names: Mapping[fx.Node, str]) -> str:
    match value:
        case fx.Node():
            return names[value]
        case list():
            return f"[{', '.join(_literal(v, names) for v in value)}]"
        case tuple():
            return f"({', '.join(_literal(v, names) for v in value)}{',' if len(value) == 1 else ''})"
        case torch.device():
            return f'"{value.type}"'
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f'float("{value}")'
    return repr(value) if not isinstance(value, (torch.dtype, torch.layout, torch.memory_format)) else str(value)


@cache
def confirms(text: str, kind: str, profile: str) -> bool:
    """Run the program on the simulator; whether the compiler's answer is `kind`: a refusal, a host step, a span or a known fault."""
    torch._dynamo.reset()
    clear_compile_log()
    names: dict[str, Any] = {}
    try:
        return _answers(text, names, kind, profile)
    finally:
        # Dynamo's guards keep the program's globals for as long as the process lives; its weights must go.
        for name in [name for name, value in names.items() if isinstance(value, torch.Tensor)]:
            del names[name]
        torch._dynamo.reset()
        clear_compile_log()


def _answers(text: str, names: dict[str, Any], kind: str, profile: str) -> bool:
    with settings(profile=profile), torch.no_grad(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            exec(compile(text, "<reproducer>", "exec"), names)
        except Refusal as refusal:
            return refusal.obstacle.kind == kind
        if kind.startswith((FALLBACK, FAULT)) or kind == SPAN:
            backend = load_profile(profile)
            compiled = [record.compilation for record in compile_log() if record.compilation is not None]
            return any(obstacle.kind == kind for compilation in compiled for obstacle in asked_for(compilation, kind, backend))
    return False
