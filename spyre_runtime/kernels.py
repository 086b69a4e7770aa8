"""Which device program runs an op, what it reads in which order, and whether it takes these number formats."""

from __future__ import annotations

from dataclasses import dataclass

from .coordinates import ZERO, raw_device_coordinates
from .ir import Access, DataFormat, LoweredGraph, Op, OpKind, Step
from .profile import Profile
from .refusal import Refusal, refuse

IDENTITY = "identity"
RESTICKIFY = "ReStickifyOpHBM"
MATMUL = "batchmatmul"
# Numbers that a program takes as parameters rather than as tensors, in the order of the function's arguments.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "clamp": ("clipMin", "clipMax"),
    "softplus": ("softplusBeta", "softplusThresh"),
    "layernormscale": ("eps",),
}
# Reductions that lower to loops but have no device program (torch-spyre e1abccf, spyre_kernel.py:425-432).
NO_PROGRAM = frozenset({"welford_reduce", "welford_combine", "any", "prod", "xor_sum"})


@dataclass(frozen=True)
class Kernel:
    """A device program applied: its name, tensor operands in order, and numbers by name."""

    name: str
    inputs: tuple[Access, ...]
    parameters: tuple[tuple[str, float], ...] = ()


def _blame(op: Op, kind: str, message: str, verdict: str = "error") -> Refusal:
    return refuse(kind, message, verdict=verdict, stage="plan", op=op.function, node=op.origin.node, source=op.origin.source)


def _accesses(op: Op) -> dict[tuple[str, object], Access]:
    return {(r.buffer, r.index): r for r in op.reads}


def _last(op: Op) -> Step | None:
    return next((s for s in reversed(op.body) if s.function not in ("load", "constant")), None)


def _index_reads(op: Op) -> tuple[Access, ...]:
    """Reads whose values are row numbers, by name of their buffer: they come before the tensors that are computed with."""
    touched = (*op.reads, op.write) if op.write else op.reads
    names = {name for access in touched for _, name in access.indirect}
    return tuple(sorted((r for r in op.reads if r.buffer in names), key=lambda r: r.buffer))


def _operands(op: Op) -> tuple[list[Access], list[float]]:
    """Tensor and number operands of the op's one compute step, in order; that of a copy is its one load."""
    known = _accesses(op)
    last = _last(op)
    if last is None or last.function == IDENTITY:
        copied = next((s for s in reversed(op.body) if s.function == "load"), None)
        if copied is None:
            raise _blame(op, "Unsupported@_inductor/spyre_kernel.py:store", f"{op.name} stores a number, not a tensor")
        return [known[copied.buffer, copied.index]], []
    tensors: list[Access] = []
    numbers: list[float] = []
    for position in last.operands:
        step = op.body[position]
        if step.function == "load":
            tensors.append(known[step.buffer, step.index])
        elif step.function == "constant" and step.value is not None:
            numbers.append(float(step.value))
        else:
            where = "store_reduction" if op.is_reduction else "store"
            raise _blame(
                op,
                f"Unsupported@_inductor/spyre_kernel.py:{where}",
                f"{op.function} is applied to the result of {step.function} inside one loop nest",
            )
    return tensors, numbers


def _copy_program(graph: LoweredGraph, op: Op) -> str:
    """A copy that moves the stick to another loop is a restickify; one that spreads a single element is not."""
    assert op.write is not None
    (read,) = _operands(op)[0]
    source = raw_device_coordinates(graph.layout(read.buffer), read)
    target = raw_device_coordinates(graph.layout(op.write.buffer), op.write)
    spreads = all(c == ZERO for c in source) and not all(c == ZERO for c in target)
    return IDENTITY if spreads or source[-1].free_symbols == target[-1].free_symbols else RESTICKIFY


def _program(graph: LoweredGraph, op: Op, profile: Profile) -> str:
    if op.kind is OpKind.MATMUL:
        return MATMUL
    if op.function in NO_PROGRAM and op.function not in profile.functions:
        raise _blame(op, f"unimplemented_op:{op.function}", f"the device has no program for {op.function}", "unimplemented")
    last = _last(op)
    if op.kind is OpKind.RESTICKIFY or (op.kind is OpKind.POINTWISE and (last is None or last.function == IDENTITY)):
        return _copy_program(graph, op)
    if op.function == "to_dtype":
        return _cast(graph, op, profile)
    known = profile.functions.get(op.function)
    if known is not None:
        return known.device
    if op.is_reduction:
        return op.function
    raise _blame(op, f"unimplemented_op:{op.function}", f"the device has no program for {op.function}", "unimplemented")


def _cast(graph: LoweredGraph, op: Op, profile: Profile) -> str:
    source = str(graph.buffer(op.reads[0].buffer).dtype).removeprefix("torch.")
    target = str(graph.buffer(op.output).dtype).removeprefix("torch.")
    program = profile.casts.get((source, target))
    if program is None:
        raise _blame(op, "type_conversion", f"the device has no program that turns {source} into {target}")
    return program


def _inner_casts(op: Op, profile: Profile) -> None:
    """Casts before the op's last step; whether the device could do them is asked first."""
    for step in op.body:
        facts = dict(step.attributes)
        if step.function != "to_dtype" or facts.get("src_dtype") is None:
            continue
        source, target = (str(d).removeprefix("torch.") for d in (facts["src_dtype"], facts.get("arg1", facts.get("dtype"))))
        if (source, target) not in profile.casts:
            raise _blame(op, "type_conversion", f"the device has no program that turns {source} into {target} before {op.function}")


def _takes(program: str, op: Op, found: DataFormat, profile: Profile) -> bool:
    if found is DataFormat.DL16 or program == IDENTITY or op.function == "to_dtype":
        return True
    if program == RESTICKIFY:
        return found in profile.restickify_formats
    known = profile.functions.get(op.function)
    return known is not None and found in known.formats


def select_kernel(graph: LoweredGraph, op: Op, profile: Profile) -> Kernel:
    """The program for a device op. Raises Refusal where there is none ("unimplemented"), or none for a format ("op_dtype:…")."""
    _inner_casts(op, profile)
    program = _program(graph, op, profile)
    tensors, numbers = _operands(op)
    names = PARAMETERS.get(op.function, ())
    if len(numbers) != len(names):
        raise _blame(op, "Unsupported@_inductor/spyre_kernel.py:store", f"{program} takes {len(names)} numbers, and {numbers} are given")
    for access in [*tensors, op.write]:
        assert access is not None
        found = graph.layout(access.buffer).format
        if not _takes(program, op, found, profile):
            raise _blame(op, f"op_dtype:{program}@{found}", f"{program} does not take {found} ({access.buffer})")
    return Kernel(program, (*_index_reads(op), *tensors), tuple(zip(names, numbers, strict=True)))
