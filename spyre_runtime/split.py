"""One compute step a loop nest: bodies with several steps are taken apart into one device op each.

Each intermediate step is lowered again as a graph node of its own over the whole buffers that it reads, so it has the shape of
those buffers, not of the body's loops. What the public release cannot take apart is refused with its names for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import sympy
import torch
import torch.fx
from torch._inductor import ir
from torch._inductor.graph import GraphLowering
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import V, ops
from torch.utils._ordered_set import OrderedSet

from .custom_ops import public_name
from .refusal import Found, Refusal, meet, refuse
from .source_lines import source_line

_STAGE = "split"
_NO_COMPUTE = frozenset({"load", "store", "get_index"})
_SCALAR_ARGUMENTS = frozenset({"clamp", "layernormscale", "softplus"})
MEANT = "meant_body"  # attribute of a rebuilt op: the same op with the reads that it should have
_CASTS = {"to_dtype": torch.ops.prims.convert_element_type.default, "convert_element_type": torch.ops.prims.convert_element_type.default}


@dataclasses.dataclass(frozen=True)
class _Value:
    id: int


@dataclasses.dataclass(frozen=True)
class _Call:
    """A recorded call. `extra` are the arguments that are neither values nor numbers, in order."""

    function: str
    id: int
    operands: tuple[int, ...] = ()
    extra: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    buffer: str = ""
    index: Any = None
    value: Any = None
    dtype: torch.dtype | None = None


class _Calls(DefaultHandler):
    def __init__(self) -> None:
        self.calls: list[_Call] = []

    def _add(self, function: str, **facts: Any) -> _Value:
        self.calls.append(_Call(function, len(self.calls), **facts))
        return _Value(len(self.calls) - 1)

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operands, extra = [], []
        for arg in args:
            if isinstance(arg, _Value):
                operands.append(arg.id)
            elif isinstance(arg, bool | int | float):
                dtype = torch.bool if isinstance(arg, bool) else torch.int64 if isinstance(arg, int) else torch.float32
                operands.append(self.constant(arg, dtype).id)
            else:
                extra.append(arg)
        return self._add(name, operands=tuple(operands), extra=tuple(extra), named=tuple(kwargs.items()))

    def load(self, name: str, index: Any) -> _Value:
        return self._add("load", buffer=name, index=index)

    def constant(self, value: Any, dtype: torch.dtype) -> _Value:
        return self._add("constant", value=value, dtype=dtype)


def _loop_symbols(count: int) -> tuple[sympy.Symbol, ...]:
    return tuple(sympy.Symbol(f"_i{k}") for k in range(count))


def _calls_of(op: ir.ComputedBuffer) -> list[_Call]:
    """Calls of the body over plain loop symbols; none when it indexes by data, which this pass leaves alone."""
    recorder = _Calls()
    try:
        with V.set_ops_handler(recorder):
            op.data.inner_fn(_loop_symbols(len(op.data.ranges)))
    except (TypeError, AttributeError):  # a recorded value used as an index
        return []
    return recorder.calls


def known_names(session: GraphLowering) -> dict[torch.fx.Node, Any]:
    """FX node → Inductor value, in the order in which a buffer's name is looked up: what is alive, then users of buffers."""
    names = dict(session.env)
    for users in session.name_to_users.values():
        for user in users:
            origins = cast(Any, user).data.origins
            if origins:
                names[next(iter(origins))] = user
    return names


def _name_of(value: Any, node: torch.fx.Node) -> str:
    where = "_inductor/split_multi_ops.py:_find_fx_node"
    try:
        return str(value.get_name())
    except NotImplementedError:
        kind, why = f"NotImplementedError@{where}", "was never stored"
    except AttributeError:
        kind, why = f"AttributeError@{where}", "is not one tensor"
    raise refuse(kind, f"a step's operand cannot be traced to its graph node, because {node.name} {why}", stage=_STAGE)


def _node_of(name: str, session: GraphLowering) -> torch.fx.Node:
    for node, value in session.env.items():
        if isinstance(node, torch.fx.Node) and value is not None and _name_of(value, node) == name:
            return node
    for node in session.graph.nodes:
        if node.op == "placeholder" and node.name == name:
            return cast(torch.fx.Node, node)
    raise refuse(
        "split_multi_ops_no_fx_node", f"{name} comes from inside a lowering and has no graph node of its own to split", stage=_STAGE
    )


def _target(function: str) -> Any:
    if function in _CASTS:
        return _CASTS[function]
    for space in (torch.ops.aten, torch.ops.prims, torch.ops.spyre_sim):
        packet = getattr(space, function, None)
        if packet is not None:
            return getattr(packet, "default", None) or packet
    return None


def _constant_buffer(call: _Call, session: GraphLowering, device: torch.device) -> ir.Buffer:
    from .lowerings import ConstantUpload

    assert call.dtype is not None
    return ConstantUpload(call.value, call.dtype, device)


def _result_dtype(call: _Call, dtypes: dict[int, torch.dtype], fallback: torch.dtype) -> torch.dtype:
    named = dict(call.named)
    if call.dtype is not None or "dtype" in named:
        return call.dtype or named["dtype"]
    known = [dtypes[i] for i in call.operands if i in dtypes]
    if not known:
        return fallback
    result = known[0]
    for dtype in known[1:]:
        result = torch.result_type(torch.empty(0, dtype=result), torch.empty(0, dtype=dtype))
    return result


def _as_node(
    call: _Call, op: ir.ComputedBuffer, buffers: dict[int, str], dtype: torch.dtype, session: GraphLowering, before: torch.fx.Node
) -> torch.fx.Node:
    inputs = [_node_of(buffers[i], session) for i in call.operands]
    target = _target(call.function)
    if target is None:
        raise refuse(
            "split_multi_ops_no_target",
            f"the step {call.function!r} of {op.get_name()} over {list(op.data.ranges)} is no op that can stand alone",
            stage=_STAGE,
            op=call.function,
            sizes=tuple(int(n) for n in op.data.ranges),
        )
    named = {k: v for k, v in call.named if k not in ("dtype", "src_dtype")}
    if call.function in _CASTS:
        dtype = call.extra[0] if call.extra else dtype
        args: tuple[Any, ...] = (*inputs[:1], dtype, *call.extra[1:])
        named = {}
    else:
        args = (*inputs, *call.extra)
        if "dtype" in dict(call.named):
            named["dtype"] = dtype
    with session.graph.inserting_before(before):
        node = session.graph.create_node("call_function", target, args, named)
    sample = inputs[0] if inputs and "val" in inputs[0].meta else before
    if "val" in sample.meta:
        if not isinstance(sample.meta["val"], torch.Tensor):
            raise refuse(
                "AttributeError@_inductor/split_multi_ops.py:_make_intermediate_bufs",
                f"{sample.name} has several results",
                stage=_STAGE,
                node=sample.name,
            )
        node.meta["val"] = torch.empty_strided(sample.meta["val"].shape, sample.meta["val"].stride(), dtype=dtype, device="meta")
    node.meta["stack_trace"] = before.meta.get("stack_trace")
    return node


@dataclasses.dataclass(frozen=True)
class _Walk:
    """How the loops walk a buffer: the traced index of a load, with the sizes and strides of the buffer loaded."""

    index: Any
    size: tuple[Any, ...]
    stride: tuple[Any, ...]


def _walks(calls: list[_Call], session: GraphLowering) -> dict[int, _Walk]:
    """The walk that each step's value is meant at: a load's own, and that of its operands where a step's operands all agree.

    An intermediate step runs over the whole buffers that it reads and leaves a buffer like them, so that it is read by the same walk.
    """
    found: dict[int, _Walk] = {}
    constants = {c.id for c in calls if c.function == "constant"}
    for call in calls:
        if call.function == "load":
            layout = session.get_buffer(call.buffer).get_layout()
            found[call.id] = _Walk(call.index, tuple(layout.size), tuple(layout.stride))
        operands = [o for o in call.operands if o not in constants]
        if operands and all(o in found for o in operands) and len({found[o] for o in operands}) == 1:
            found[call.id] = found[operands[0]]
    return found


def _meant_walks(calls: list[_Call], buffers: dict[int, str], session: GraphLowering) -> dict[int, Any]:
    """Indices at which the last step should read intermediates, where they have the sizes and strides of what they were made from."""
    meant = {}
    for step, walk in _walks(calls, session).items():
        if step in buffers and calls[step].function != "load":
            layout = session.get_buffer(buffers[step]).get_layout()
            if (tuple(layout.size), tuple(layout.stride)) == (walk.size, walk.stride):
                meant[step] = walk.index
    return meant


def _final_body(call: _Call, loads: dict[int, Any], constants: dict[int, Any], buffers: dict[int, str], rank: int) -> Callable[..., Any]:
    symbols = _loop_symbols(rank)
    named = dict(call.named)

    def value_of(operand: int, index: Any) -> Any:
        if operand in constants:
            return constants[operand] if call.function in _SCALAR_ARGUMENTS else ops.load(buffers[operand], sympy.Integer(0))
        if operand in loads and rank:
            return ops.load(buffers[operand], sympy.sympify(loads[operand]).subs(dict(zip(symbols, index, strict=True))))
        stride = V.graph.get_buffer(buffers[operand]).get_layout().stride
        if len(stride) != len(index):
            raise refuse(
                "ValueError@_inductor/split_multi_ops.py:inner_fn",
                f"a step over {len(index)} dimensions reads an intermediate of {len(stride)} dimensions, because the first operand is a view",
                stage=_STAGE,
                op=call.function,
                sizes=(len(index), len(stride)),
            )
        return ops.load(buffers[operand], sum(i * s for i, s in zip(index, stride, strict=True)))

    def inner(index: Any) -> Any:
        return getattr(ops, call.function)(*(value_of(o, index) for o in call.operands), *call.extra, **named)

    return inner


def _rebuilt(op: ir.ComputedBuffer, inner: Callable[..., Any]) -> ir.ComputedBuffer:
    data = dataclasses.replace(op.data, inner_fn=inner)
    for name in ("origins", "traceback", "origin_node", "annotations", "stream_idx"):
        if hasattr(op.data, name):
            object.__setattr__(data, name, getattr(op.data, name))
    new = ir.ComputedBuffer(name=op.get_name(), layout=op.layout, data=data)
    new.operation_name = op.operation_name
    new.origins = op.origins
    new.origin_node = op.origin_node
    return new


def _placed(node: torch.fx.Node, session: GraphLowering, position: int) -> ir.Buffer:
    """The buffer that `node` lowers to, moved to `position`; what else its lowering made stays at the end, as in the public release."""
    buffer = cast(Any, session.run_node(node)).data.data
    session.operations.remove(buffer)
    session.operations.insert(position, buffer)
    buffer.origins = OrderedSet([node])
    return buffer  # type: ignore[no-any-return]


def split_bodies(session: GraphLowering, found: Found = None) -> None:
    """Take every body apart in the open lowering session (operations are added in place, in order).

    A body that cannot be taken apart is refused, or stays whole when `found` collects.
    """
    session.env.update(known_names(session))
    for op in list(session.operations):
        if not (isinstance(op, ir.ComputedBuffer) and isinstance(op.data, ir.Pointwise) and isinstance(op.layout, ir.FixedLayout)):
            continue
        calls = _calls_of(op)
        compute = [c for c in calls if c.function not in _NO_COMPUTE]
        node = next(iter(op.origins), None)
        if len(compute) <= 1 or not isinstance(node, torch.fx.Node):
            continue
        try:
            _split(op, calls, compute, node, session)
        except Refusal as refusal:
            meet(refusal, found, node=node.name, source=source_line(node), op=public_name(node.target))


def _split(op: ir.ComputedBuffer, calls: list[_Call], compute: list[_Call], node: torch.fx.Node, session: GraphLowering) -> None:
    loads = {c.id: c.index for c in calls if c.function == "load"}
    buffers = {c.id: c.buffer for c in calls if c.function == "load"}
    constants = {c.id: c.value for c in calls if c.function == "constant"}
    dtypes: dict[int, torch.dtype] = {}
    for call in calls:
        dtypes[call.id] = (
            session.get_buffer(call.buffer).get_layout().dtype if call.function == "load" else _result_dtype(call, dtypes, op.get_dtype())
        )
    position = session.operations.index(op)
    for offset, call in enumerate(compute[:-1]):
        if call.function == "constant":
            buffer: Any = _constant_buffer(call, session, op.get_layout().device)
            session.operations.remove(buffer)
            session.operations.insert(position + offset, buffer)
        else:
            buffer = _placed(_as_node(call, op, buffers, dtypes[call.id], session, node), session, position + offset)
        buffers[call.id] = buffer.get_name()
    rank = len(op.data.ranges)
    final = _rebuilt(op, _final_body(compute[-1], loads, constants, buffers, rank))
    meant = _meant_walks(calls, buffers, session)
    if meant:  # the release reads intermediates from their beginning, whatever slice or view they were made of
        setattr(final, MEANT, _rebuilt(op, _final_body(compute[-1], {**loads, **meant}, constants, buffers, rank)))
    session.operations[session.operations.index(op)] = final
    session.name_to_buffer[final.get_name()] = final
