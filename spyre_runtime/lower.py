"""From the functional graph to our IR: Inductor makes the loop nests, we read them and keep nothing of Inductor's."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Sequence
from typing import Any, cast

import sympy
import torch
import torch.fx
from torch._inductor import ir as inductor_ir
from torch._inductor.exc import LoweringException
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import fallback_handler
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from .custom_ops import public_name
from .decompose import fake_inputs, fake_mode_of
from .ir import Access, Buffer, BufferRole, GraphName, LoweredGraph, Op, OpKind, Origin, data_format
from .lowerings import COPY_BACK, MATMUL, ConstantUpload, DeviceReduction, device_lowerings
from .profile import Profile
from .refusal import Found, Refusal, meet, refuse
from .session import lowering_session
from .source_lines import source_line
from .split import MEANT, known_names, split_bodies
from .tracing import Body, record

_STAGE = "lower"


def _ints(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _writes_in_place(op: Any) -> bool:
    return isinstance(op, inductor_ir.ComputedBuffer) and isinstance(op.layout, inductor_ir.MutationLayoutSHOULDREMOVE)


def _drop_dead(session: GraphLowering) -> None:
    """Keep what reaches an output or has a side effect."""
    live = set(session.get_output_names())
    kept = []
    for op in reversed(session.operations):
        effect = _writes_in_place(op) or (isinstance(op, inductor_ir.FallbackKernel) and op.has_side_effects())
        reads_writes = op.get_read_writes()
        if effect or live & {w.name for w in reads_writes.writes}:
            live |= {r.name for r in reads_writes.reads}
            kept.append(op)
    session.operations[:] = kept[::-1]


def _origin(op: Any) -> Origin:
    found = getattr(getattr(op, "data", None), "origins", None) or getattr(op, "origins", None) or ()
    node = next((n for n in found if isinstance(n, torch.fx.Node)), None)
    if node is None:
        return Origin()
    source = next((line for n in found if isinstance(n, torch.fx.Node) and (line := source_line(n))), "")
    return Origin(node.name, public_name(node.target), source)


def _result_of(op: inductor_ir.ComputedBuffer) -> str:
    node = op.origin_node
    return public_name(node.target) if node is not None else ""


def _buffer(name: str, role: BufferRole, layout: Any, alias: str | None = None) -> Buffer:
    dtype = layout.dtype
    if data_format(dtype) is None:
        raise refuse(
            "unsupported_dtype",
            f"{name} of shape {list(layout.size)} is {dtype}, which the device has no format for",
            stage=_STAGE,
            sizes=_ints(layout.size),
        )
    offset = getattr(layout, "offset", 0)
    return Buffer(name, role, dtype, _ints(layout.size), _ints(layout.stride), int(offset), alias=alias)


def _inputs(session: GraphLowering) -> list[Buffer]:
    boxes = [session.graph_inputs_original[name] for name in session.graph_input_names if name in session.graph_inputs_original]
    return [_buffer(box.get_name(), BufferRole.INPUT, box.layout) for box in boxes]


def _function(body: Body, data: Any) -> str:
    if isinstance(data, inductor_ir.Reduction):
        return str(data.reduction_type)
    last = body.steps[-1]
    return "identity" if last.function == "load" else last.function


def _constants(data: Any, body: Body) -> tuple[tuple[str, Any], ...]:
    info = data.info if isinstance(data, DeviceReduction) else {}
    return tuple((key, value if isinstance(value, dict | bool) else float(value)) for key, value in info.items())


def _meant(body: Body, right: inductor_ir.ComputedBuffer | None) -> tuple[tuple[Access, Access], ...]:
    """Reads of a body that should be others, with these (split.py)."""
    if right is None:
        return ()
    other = record(right)
    pairs = [
        (body.reads[mine.buffer, cast(sympy.Expr, mine.index)], other.reads[theirs.buffer, cast(sympy.Expr, theirs.index)])
        for mine, theirs in zip(body.steps, other.steps, strict=True)
        if mine.function == "load"
    ]
    return tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))


def _device_op(op: inductor_ir.ComputedBuffer) -> tuple[Op, Buffer]:
    name, data = op.get_name(), op.data
    written = op.layout if isinstance(op.layout, inductor_ir.MutationLayoutSHOULDREMOVE) else None
    alias = written.get_buffer().get_name() if written else None
    layout = written.real_layout() if written else op.layout
    if not isinstance(data, inductor_ir.Pointwise | inductor_ir.Reduction):
        raise refuse(
            "unhandled_loops", f"{type(data).__name__} over {list(map(int, op.get_size()))} is no loop nest of the device", stage=_STAGE
        )
    origin = _origin(op)
    if op.is_no_op():
        return Op(op.get_operation_name(), OpKind.EMPTY, "empty", name, origin=origin), _buffer(name, BufferRole.EMPTY, layout)
    try:
        body = record(op)
    except Refusal as refusal:
        unread = Op(op.get_operation_name(), OpKind.POINTWISE, "unread", name, origin=origin, obstacle=refusal.obstacle)
        return unread, _buffer(name, BufferRole.COMPUTED, layout, alias)
    is_reduction = isinstance(data, inductor_ir.Reduction)
    function = _function(body, data)
    kind = OpKind.MATMUL if function == MATMUL else OpKind.REDUCTION if is_reduction else OpKind.POINTWISE
    attributes = _constants(data, body)
    if getattr(op, COPY_BACK, False):
        attributes = (*attributes, ("copies_back", True))
    if isinstance(data, inductor_ir.Scatter):
        attributes = (*attributes, ("scatter", True))
    return Op(
        name=op.get_operation_name(),
        kind=kind,
        function=function,
        output=name,
        write=body.write,
        reads=tuple(body.reads.values()),
        output_ranges=_ints(data.ranges),
        reduction_ranges=_ints(data.reduction_ranges) if isinstance(data, inductor_ir.Reduction) else (),
        body=tuple(body.steps),
        origin=origin,
        result_of=_result_of(op),
        attributes=attributes,
        meant=_meant(body, getattr(op, MEANT, None)),
    ), _buffer(name, BufferRole.COMPUTED, layout, alias)


def _read_names(op: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(r.name for r in op.get_read_writes().reads))


def _fallback_name(op: Any) -> str:
    overload = getattr(op, "op_overload", None)
    return public_name(overload) if overload is not None else type(op).__name__


def _convert(session: GraphLowering) -> LoweredGraph:
    buffers: dict[str, Buffer] = {b.name: b for b in _inputs(session)}
    ops: list[Op] = []
    for op in session.operations:
        name = op.get_name() if hasattr(op, "get_name") else ""
        if isinstance(op, ConstantUpload):
            value = op.constant_args[0]
            ops.append(Op(op.get_operation_name(), OpKind.CONSTANT, "constant", name, attributes=(("value", float(value)),)))
            buffers[name] = _buffer(name, BufferRole.CONSTANT, op.layout)
        elif isinstance(op, inductor_ir.ComputedBuffer):
            converted, buffer = _device_op(op)
            ops.append(converted)
            buffers[name] = buffer
        elif not isinstance(op, inductor_ir.FallbackKernel):  # a fallback's result, a transfer, or a library call
            function = "output" if isinstance(op, inductor_ir.MultiOutput) else _fallback_name(op)
            ops.append(Op(op.get_operation_name(), OpKind.OUTPUT, function, name, origin=_origin(op), host_reads=_read_names(op)))
            buffers[name] = _buffer(name, BufferRole.FALLBACK, cast(Any, op).layout)
        else:
            ops.append(
                Op(op.get_operation_name(), OpKind.FALLBACK, _fallback_name(op), name, origin=_origin(op), host_reads=_read_names(op))
            )
            buffers[name] = Buffer(name, BufferRole.HANDLE, torch.uint8, (), ())
    return LoweredGraph(
        inputs=tuple(n for n in session.graph_input_names if n in buffers),
        outputs=tuple(n for n in session.get_output_names() if n in buffers),  # None and numbers have no buffer
        buffers=tuple(buffers.values()),
        ops=tuple(ops),
        names=_graph_names(session),
    )


def _graph_names(session: GraphLowering) -> tuple[GraphName, ...]:
    """Graph nodes by the buffer that they stand for, in look-up order; the first one wins."""
    names: dict[str, GraphName] = {}
    for node, value in known_names(session).items():
        if not isinstance(value, inductor_ir.TensorBox):
            continue
        with contextlib.suppress(NotImplementedError):
            buffer, sample = str(value.get_name()), node.meta.get("val")
            if isinstance(sample, torch.Tensor):
                names.setdefault(buffer, GraphName(buffer, node.name, _ints(sample.shape), _ints(sample.stride())))
            else:
                names.setdefault(buffer, GraphName(buffer, node.name))
    return tuple(names.values())


def _cause(error: LoweringException, node: torch.fx.Node) -> Refusal:
    """The refusal that a lowering raised; any other failure of Inductor's own lowering is a refusal, too."""
    cause = error.__context__
    if isinstance(cause, Refusal):
        return cause
    frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
    place = next((f.name for f in reversed(frames) if f.filename.endswith("_inductor/lowering.py")), "call_function")
    shapes = [list(a.meta["val"].shape) for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
    return refuse(
        f"LoweringException@torch/_inductor/lowering.py:{place}",
        f"{public_name(node.target)} of {', '.join(map(str, shapes))} has no lowering: {cause or error}",
        stage=_STAGE,
        sizes=tuple(n for shape in shapes for n in shape),
    )


class _Session(GraphLowering):
    """Inductor's interpreter, with failures told as refusals at their node; when they are collected, the op goes to the host."""

    found: Found = None

    def run_node(self, n: torch.fx.Node) -> object:
        try:
            return super().run_node(n)
        except (Refusal, LoweringException) as error:
            refusal = error if isinstance(error, Refusal) else _cause(error, n)
            meet(refusal, self.found, node=n.name, source=source_line(n), op=public_name(n.target))
            return self._on_host(n)

    def _on_host(self, n: torch.fx.Node) -> object:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        with self.set_current_node(n), V.set_current_node(n), inductor_ir.IRNode.current_origins(OrderedSet([n])):
            result = fallback_handler(n.target, add_to_fallback_set=False)(*args, **kwargs)
        self.register_users_of(result)
        return result


def lower(graph: torch.fx.GraphModule, profile: Profile, found: Found = None) -> LoweredGraph:
    """One op a compute step, no layouts yet. Raises Refusal (or notes it in `found`) where the device or the release has no lowering."""
    inputs = fake_inputs(graph)
    with lowering_session(profile, device_lowerings(profile)):
        session = _Session(graph, example_inputs=inputs, is_inference=True, get_decomp_fn=dict)
        session.found = found
        mode = fake_mode_of(graph)
        with V.set_graph_handler(session), V.set_fake_mode(mode), V.set_extern_kernel_nodes([]), torch.no_grad():
            session.run(*inputs)
            _drop_dead(session)
            split_bodies(session, found)
            return _convert(session)
