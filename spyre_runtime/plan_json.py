"""A plan as JSON and back. What is read is data only: no expression is evaluated as code, and no op is named that a plan may not run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, cast

import sympy
import torch

from .align import Loop
from .divide import SpanFinding
from .fuse import Bundle
from .host_steps import HostCall, HostStep, Slot, allowed, functions_of
from .index_json import read_index, write_index
from .ir import Access, Arrangement, BufferRole, DataFormat, DeviceLayout, OpKind
from .plan import Operand, Plan, PlannedBuffer, PlannedOp, Result
from .profile import load_profile
from .terms import Coordinate, Term

FORMAT = "adapterc-plan"
VERSION = 2
MOST_BYTES = 256 * 2**20
MOST_ELEMENTS = 2**40  # of one buffer; keeps a foreign file from asking for all memory there is
_DTYPES = {str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, torch.dtype)}


class PlanError(ValueError):
    """Text that is no plan, or none that may run here: one sentence. `code` opens the long explanation with `adapterc explain`."""

    code = "ADC510"


def to_json(plan: Plan) -> dict[str, Any]:
    """Plain JSON data; `json.dumps` of it is what `from_json` reads."""
    return {"format": FORMAT, "version": VERSION, **cast(dict[str, Any], _written(plan))}


def dumps(plan: Plan) -> str:
    return json.dumps(to_json(plan))


def from_json(text: str | Mapping[str, Any]) -> Plan:
    """A plan from the text (or the parsed object) that `to_json` gave. Raises PlanError with one sentence for anything else."""
    data = parsed(text) if isinstance(text, str) else text
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise PlanError(f"this is no plan: an object with format {FORMAT!r} is expected")
    if data.get("version") != VERSION:
        raise PlanError(f"the plan has format version {str(data.get('version'))[:20]!r}, and this release reads version {VERSION}")
    try:
        plan = _plan(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise PlanError(f"the plan cannot be read: {type(error).__name__} ({str(error)[:80]})") from None
    _check(plan)
    return plan


def parsed(text: str) -> Any:
    """JSON of a bounded size and depth. Raises PlanError."""
    if len(text) > MOST_BYTES:
        raise PlanError(f"a plan of {len(text) / 2**20:.0f} MiB is more than the {MOST_BYTES // 2**20} MiB that are read")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"this is no JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise PlanError("this JSON is nested too deeply to be a plan") from None


def _written(value: Any) -> Any:
    """Plain JSON data; every dataclass becomes an object of its fields."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, HostCall):
        return {"call": value.function, "args": _written(value.args), "kwargs": {n: _written(v) for n, v in value.kwargs}}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _written(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [_written(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _written(v) for k, v in value.items()}
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    if isinstance(value, sympy.Basic):
        return write_index(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout | torch.device):
        return {"torch": str(value).removeprefix("torch.")}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a plan holds {type(value).__name__}, which JSON has no form for")


# --- reading ----------------------------------------------------------------------------------------------------------------------


def _dtype(data: Any) -> torch.dtype:
    return _DTYPES[data["torch"]]


def _ints(data: Any) -> tuple[int, ...]:
    return tuple(_int(v) for v in data)


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:20]!r} is no whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:20]!r} is no text")
    return value


def _layout(data: Any) -> DeviceLayout | None:
    if data is None:
        return None
    return DeviceLayout(_ints(data["device_size"]), _ints(data["stride_map"]), DataFormat(data["format"]), Arrangement(data["arrangement"]))


def _symbol(data: Any) -> sympy.Symbol:
    return cast(sympy.Symbol, read_index(data))


def _coordinate(data: Any) -> Coordinate:
    terms = tuple(Term(_symbol(t["symbol"]), Fraction(*t["scale"]), t["modulus"], t["factor"], t["divisor"]) for t in data["terms"])
    return Coordinate(terms, _int(data["offset"]))


def _operand(data: Any) -> Operand:
    return Operand(_text(data["buffer"]), _ints(data["size"]), tuple(map(_coordinate, data["coordinates"])))


def _access(data: Any) -> Access:
    ranges = tuple((_symbol(s), _int(n)) for s, n in data["ranges"])
    return Access(_text(data["buffer"]), read_index(data["index"]), ranges, tuple((_symbol(s), _text(b)) for s, b in data["indirect"]))


def _loops(data: Any) -> tuple[Loop, ...]:
    return tuple(Loop(_text(e["name"]), _int(e["size"]), _int(e["cores"])) for e in data)


def _buffer(data: Mapping[str, Any]) -> PlannedBuffer:
    fixed = {
        "role": BufferRole(data["role"]),
        "dtype": _dtype(data["dtype"]),
        "size": _ints(data["size"]),
        "stride": _ints(data["stride"]),
        "layout": _layout(data["layout"]),
    }
    return PlannedBuffer(**{**data, **fixed})


def _op(data: Mapping[str, Any]) -> PlannedOp:
    fixed = {
        "kind": OpKind(data["kind"]),
        "loops": _loops(data["loops"]),
        "planned": _loops(data["planned"]),
        "inputs": tuple(map(_operand, data["inputs"])),
        "result": _operand(data["result"]),
        "reads": tuple(map(_access, data["reads"])),
        "write": _access(data["write"]),
        "misread": tuple((_int(i), _access(a)) for i, a in data["misread"]),
        "parameters": tuple((_text(name), value) for name, value in data["parameters"]),
    }
    return PlannedOp(**{**data, **fixed})


def _argument(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(map(_argument, data))
    if not isinstance(data, Mapping):
        return data
    if "call" in data:
        return _call(data)
    if "buffer" in data:
        return Slot(_text(data["buffer"]), _ints(data["size"]), _dtype(data["dtype"]))
    name = _text(data["torch"])
    known = getattr(torch, name, None) if name.isidentifier() else None
    return known if isinstance(known, torch.dtype | torch.memory_format | torch.layout) else torch.device("cpu")


def _call(data: Any) -> HostCall:
    kwargs = tuple((_text(n), _argument(v)) for n, v in data["kwargs"].items())
    return HostCall(_text(data["call"]), tuple(map(_argument, data["args"])), kwargs)


def _host_step(data: Mapping[str, Any]) -> HostStep:
    call = None if data["call"] is None else _call(data["call"])
    return HostStep(**{**data, "kind": OpKind(data["kind"]), "reads": tuple(map(_text, data["reads"])), "call": call})


def _result(data: Mapping[str, Any]) -> Result:
    return Result(data["buffer"], _ints(data["size"]), _ints(data["stride"]), _int(data["offset"]))


def _plan(data: Mapping[str, Any]) -> Plan:
    fixed = {
        "inputs": tuple(map(_text, data["inputs"])),
        "outputs": tuple(map(_text, data["outputs"])),
        "buffers": tuple(map(_buffer, data["buffers"])),
        "ops": tuple(map(_op, data["ops"])),
        "host_steps": tuple(map(_host_step, data["host_steps"])),
        "order": tuple(map(_text, data["order"])),
        "bundles": tuple(Bundle(tuple(b["ops"]), tuple(b["tensors"])) for b in data["bundles"]),
        "results": tuple(map(_result, data["results"])),
        "spans": tuple(SpanFinding(**s) for s in data["spans"]),
    }
    return Plan(**{**{k: v for k, v in data.items() if k not in ("format", "version")}, **fixed})


def _check(plan: Plan) -> None:
    """What a foreign file could get wrong that would not show until it runs: names, sizes, programs, ops of the host."""
    try:
        profile = load_profile(plan.profile)
    except FileNotFoundError as error:
        raise PlanError(f"the plan is for a release that is not known here: {error}") from None
    known = plan.by_name
    steps = {op.output for op in plan.ops} | {step.output for step in plan.host_steps}
    if set(plan.order) != steps or len(plan.order) != len(steps):
        raise PlanError("the plan's order does not name each of its steps once")
    named = [*plan.inputs, *plan.outputs, *(b.alias for b in plan.buffers if b.alias), *(r.buffer for r in plan.results if r.buffer)]
    named += [a.buffer for op in plan.ops for a in (*op.reads, op.write)] + [op.output for op in plan.ops]
    named += [buffer for op in plan.ops for a in (*op.reads, op.write) for _, buffer in a.indirect]
    missing = next((name for name in named if name not in known), None)
    if missing is not None:
        raise PlanError(f"the plan names a buffer {missing[:60]!r} that it does not have")
    for buffer in plan.buffers:
        _check_buffer(buffer, known)
    for step in plan.host_steps:
        for position, function in enumerate(reversed(functions_of(step.call)) if step.call else ()):
            if not allowed(function, position == 0, profile):
                raise PlanError(f"the plan runs {function[:60]!r} on the host, which {profile.name} does not")


def _check_buffer(buffer: PlannedBuffer, known: Mapping[str, PlannedBuffer]) -> None:
    sizes = buffer.layout.device_size if buffer.layout is not None else buffer.size
    if any(n < 0 for n in (*sizes, *buffer.size)) or math.prod(sizes) > MOST_ELEMENTS:
        raise PlanError(f"the buffer {buffer.name[:60]!r} has no size that fits a device: {str(list(sizes))[:60]}")
    seen = {buffer.name}
    while buffer.alias is not None:
        buffer = known[buffer.alias]
        if buffer.name in seen:
            raise PlanError(f"the buffer {buffer.name[:60]!r} is its own alias")
        seen.add(buffer.name)
