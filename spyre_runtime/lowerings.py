"""From ATen and `spyre_sim` nodes to loop nests: the lowerings that the device has instead of, or besides, Inductor's own.

Each function takes and returns Inductor values (TensorBox). Conventions: matmul is one reduction over K with both operands as the
body's pair; cat and pad are an allocation and copies into slices of it; constants are 0-d buffers that the host uploads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.runtime.hints import ReductionHint
from torch._inductor.utils import ir_dataclass, sympy_product
from torch._inductor.virtualized import V, ops
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND

from . import custom_ops  # noqa: F401 (registers the ops used below)
from .fx_rewrites import UNIT_BATCH
from .profile import Profile
from .refusal import refuse

aten = torch.ops.aten
prims = torch.ops.prims
device_ops = torch.ops.spyre_sim
MATMUL = "batchmatmul"
_STAGE = "lower"


@ir_dataclass
class DeviceReduction(ir.Reduction):
    """A reduction with the constants that its kernel takes."""

    info: Any


class ConstantUpload(ir.ExternKernel):
    """A 0-d buffer that holds a literal."""

    def __init__(self, value: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(
            None,
            ir.FixedLayout(device, dtype, [], []),
            [],
            (value,),
            python_kernel_name="spyre.constant",
            op_overload=None,
        )
        self.name = V.graph.register_buffer(self)
        V.graph.register_operation(self)

    def should_allocate(self) -> bool:
        return False

    def get_mutation_names(self) -> Sequence[str]:
        return []


def constant(value: float, dtype: torch.dtype, device: torch.device) -> Any:
    return ir.TensorBox.create(ConstantUpload(value, dtype, device))


def _pointwise(x: Any, inner: Callable[..., Any], dtype: torch.dtype | None = None, size: Sequence[Any] | None = None) -> Any:
    result = ir.Pointwise.create(
        device=x.get_device(),
        dtype=dtype or x.get_dtype(),
        inner_fn=inner,
        ranges=list(x.get_size() if size is None else size),
        origin_node=x.get_origin_node(),
        traceback=x.get_traceback(),
    )
    result.realize()
    return result


def _reduction(x: Any, kind: str, inner: Callable[..., Any], ranges: Sequence[Any], over: Sequence[Any], info: Any = None) -> Any:
    facts: dict[str, Any] = {
        "device": x.get_device(),
        "dst_dtype": x.get_dtype(),
        "src_dtype": x.get_dtype(),
        "inner_fn": inner,
        "ranges": list(ranges),
        "reduction_ranges": list(over),
        "reduction_type": kind,
    }
    result = device_reduction(info, **facts) if info else ir.Reduction.create(input_node=x, **facts)
    result.realize()
    return result


def device_reduction(info: Any, *, dst_dtype: torch.dtype, **facts: Any) -> Any:
    facts.pop("input_node", None)
    facts.setdefault("reduction_hint", ReductionHint.DEFAULT)
    return ir.TensorBox.create(DeviceReduction(dtype=dst_dtype, info=info, **facts))


def native(name: str) -> Callable[..., Any]:
    """A pointwise op that the device has as it stands; scalars after the tensor stay scalars of the body."""

    def lower(x: Any, *constants: Any) -> Any:
        return _pointwise(x, lambda index: getattr(ops, name)(x.make_loader()(index), *constants))

    return lower


def gelu(x: Any, approximate: str = "none") -> Any:
    return native("gelu")(x)


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return native("softplus")(x, beta, threshold)


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    half = torch.finfo(torch.float16)
    return native("clamp")(x, half.min if low is None else low, half.max if high is None else high)


def qfp8ch(x: Any) -> Any:
    loader = x.make_loader()
    return _pointwise(x, lambda index: ops.qfp8ch(loader(index)), dtype=torch.float8_e4m3fn)  # type: ignore[attr-defined]


def layernormnorm(x: Any, moments: Any, scale: Any, weight: Any, bias: Any) -> Any:
    def inner(index: Any) -> Any:
        values = [operand.make_loader()(index) for operand in (x, moments, scale)]
        values += [operand.make_loader()(index[-1:]) for operand in (weight, bias) if operand is not None]
        return ops.layernormnorm(*values)  # type: ignore[attr-defined]

    return _pointwise(x, inner)


def exx2(x: Any, scale: float, zero_mean: bool) -> Any:
    parts = lowering._make_reduction_inner(x, axis=[-1], keepdims=True, dtype=x.dtype, override_return_dtype=None)
    info = {"exx2scale": scale, "useZeroMean": zero_mean}
    return _reduction(x, "exx2", parts["inner_fn"], [*x.get_size()[:-1], 1], parts["reduction_ranges"], info)


def mean(x: Any, axis: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    parts = lowering._make_reduction_inner(x, axis=axis, keepdims=keepdim, dtype=x.dtype, override_return_dtype=None)
    size = x.get_size()
    count = sympy_product(size[i] for i in axis)
    result = device_reduction({"scaling_factor": 1.0 / count}, reduction_type="mean", **parts)
    result.realize()
    return result


def mean_of_all(x: Any, *, dtype: Any = None) -> Any:
    return mean(x, axis=list(range(len(x.get_size()))), dtype=dtype)


def topk(kind: str) -> Callable[..., Any]:
    def lower(x: Any, k: int, dim: int) -> Any:
        rows, columns = x.get_size()
        loader = x.make_loader()
        if dim % 2 == 1:
            return _reduction(x, kind, lambda i, r: loader([i[0], r[0]]), [rows, k], [columns])
        return _reduction(x, kind, lambda i, r: loader([r[0], i[1]]), [k, columns], [rows])

    return lower


def _product(x: Any, y: Any, x_index: Callable[..., Any], y_index: Callable[..., Any], ranges: Sequence[Any], info: Any) -> Any:
    x_loader, y_loader = x.make_loader(), y.make_loader()
    depth = x.get_size()[-1]
    if depth == 1:  # nothing to sum
        result = lowering.mul(x, y)
        result.realize()
        return result

    def inner(index: Any, reduction: Any) -> Any:
        return x_loader(x_index(index, reduction[0])), y_loader(y_index(index, reduction[0]))

    return _reduction(x, MATMUL, inner, ranges, [depth], info)


def mm(x: Any, y: Any) -> Any:
    x.realize()
    y.realize()
    x_size, y_size = x.get_size(), y.get_size()
    if len(y_size) != 2 or len(x_size) not in (2, 3):
        raise refuse("mm_ranks", f"mm of {list(x_size)} with {list(y_size)}", stage=_STAGE, op="mm")
    return _product(x, y, lambda i, k: [*i[:-1], k], lambda i, k: [k, i[-1]], [*x_size[:-1], y_size[1]], None)


def bmm(x: Any, y: Any) -> Any:
    x.realize()
    y.realize()
    x_size, y_size = x.get_size(), y.get_size()
    ranks = (len(x_size), len(y_size))
    if ranks not in ((3, 3), (4, 4), (3, 2)):
        raise refuse(
            "LoweringException@_inductor/lowering.py:lower_bmm",
            f"batched matmul of {list(map(int, x_size))} with {list(map(int, y_size))}: the device takes batches of rank 3 or 4",
            sizes=(*map(int, x_size), *map(int, y_size)),
            stage=_STAGE,
            op="bmm",
        )
    batch = ranks[1] - 2
    custom = (V.current_node.meta.get("custom") or {}) if V.current_node is not None else {}
    info = {UNIT_BATCH: custom[UNIT_BATCH]} if UNIT_BATCH in custom else None
    return _product(x, y, lambda i, k: [*i[:-1], k], lambda i, k: [*i[:batch], k, i[-1]], [*x_size[:-1], y_size[-1]], info)


def clone(x: Any, *, memory_format: Any = None) -> Any:
    result = lowering.clone(x, memory_format=memory_format)
    if memory_format is not None and memory_format != torch.preserve_format:
        strides = ir.FlexibleLayout.stride_ordered_for_memory_format(result.get_size(), memory_format)
        result.realize()
        result.freeze_layout_with_stride_order(ir.get_stride_order(strides))
    return result


def full(size: Any, fill_value: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    dtype = dtype or torch.get_default_dtype()
    if dtype not in (torch.float16, torch.float32):
        return ir.TensorBox.create(
            ir.FallbackKernel.create(aten.full.default, size, fill_value, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)
        )
    loader = constant(float(fill_value), dtype, device).make_loader()
    return ir.Pointwise.create(device=device, dtype=dtype, inner_fn=lambda _: loader([]), ranges=list(size))


def _slice(x: Any, dim: int, start: Any, end: Any) -> Any:
    return ir.SliceView.create(x, dim, start, end)


def cat(inputs: Sequence[Any], dim: int = 0) -> Any:
    size = list(inputs[0].get_size())
    size[dim] = sum(x.get_size()[dim] for x in inputs)
    out = lowering.empty(size, dtype=inputs[0].get_dtype(), device=inputs[0].get_device())
    offset: Any = 0
    for x in inputs:
        end = offset + x.get_size()[dim]
        lowering.mutate_to(_slice(out, dim, offset, end), x)
        offset = end
    return out


def pad_constant(x: Any, pad: Sequence[int], value: float = 0) -> Any:
    """Negative amounts crop. The order of the copies (each edge with the fill value, then the middle) is the device's."""
    bounds = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    first = len(x.get_size()) - len(bounds)
    middle = x
    for dim, (left, right) in enumerate(bounds, start=first):
        if left < 0 or right < 0:
            middle = _slice(middle, dim, max(0, -left), middle.get_size()[dim] - max(0, -right))
    edges = {dim: (max(0, left), max(0, right)) for dim, (left, right) in enumerate(bounds, start=first) if left > 0 or right > 0}
    inner = middle.get_size()
    if not edges:
        return clone(middle)
    size = [n + sum(edges.get(dim, (0, 0))) for dim, n in enumerate(inner)]
    dtype, device = x.get_dtype(), x.get_device()
    out = lowering.empty(size, dtype=dtype, device=device)
    filler = constant(value, dtype, device)
    for dim, (left, right) in edges.items():
        for count, start in ((left, 0), (right, size[dim] - right)):
            if count > 0:
                shape = [*size[:dim], count, *size[dim + 1 :]]
                lowering.mutate_to(_slice(out, dim, start, start + count), lowering.expand(filler, shape))
    target = out
    for dim, (left, _) in edges.items():
        target = _slice(target, dim, left, left + inner[dim])
    lowering.mutate_to(target, middle)
    return out


def overwrite(source: Any, target: Any, dims: Sequence[int], offsets: Sequence[int]) -> Any:
    part = target
    for dim, offset in zip(dims, offsets, strict=True):
        part = _slice(part, dim, offset, offset + source.get_size()[dim])
    lowering.mutate_to(part, source)
    return target


def _buffer_behind(value: Any) -> Any:
    while isinstance(value, ir.MutableBox):
        value = value.data
    return value


COPY_BACK = "_copies_back"  # attribute of an op that copies a result into a graph input as a whole


def _may_copy_back(target: Any, source: Any) -> bool:
    """Whether the copy might be replaced by computing into the input directly; layouts decide that later."""
    to, computed = _buffer_behind(target), _buffer_behind(source)
    if not isinstance(to, ir.InputBuffer) or to.get_name() not in V.graph.graph_input_names:
        return False
    if not isinstance(computed, ir.ComputedBuffer) or not isinstance(computed.layout, ir.FlexibleLayout):
        return False
    same = target.get_device() == source.get_device() and target.get_dtype() == source.get_dtype()
    return (
        same
        and tuple(target.get_size()) == tuple(source.get_size())
        and tuple(to.get_layout().stride) == tuple(computed.get_layout().stride)
    )


def copy_into(target: Any, source: Any, non_blocking: bool = False) -> Any:
    if target is source:
        return target
    candidate = _may_copy_back(target, source)
    source = lowering.to_device(source, target.get_device())
    source = lowering.to_dtype(source, target.get_dtype())
    source = lowering.expand(source, target.get_size())
    known = len(V.graph.operations)
    result = lowering.mutate_to(target, source)
    if candidate:
        name = _buffer_behind(target).get_name()
        for op in V.graph.operations[known:]:
            layout = getattr(op, "layout", None)
            if isinstance(layout, ir.MutationLayoutSHOULDREMOVE) and layout.get_buffer().get_name() == name:
                setattr(op, COPY_BACK, True)
    return result


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def device_lowerings(profile: Profile) -> dict[Any, Callable[..., Any]]:
    """Every lowering of the device by op overload, ready to stand in Inductor's table."""
    table: dict[Any, Callable[..., Any]] = {}

    def cast(x: Any, dtype: torch.dtype) -> Any:
        if x.get_dtype() == dtype:
            return clone(x)
        if (_dtype_name(x.get_dtype()), _dtype_name(dtype)) not in profile.casts:
            return lowering.fallback_handler(device_ops.to_dtype_cpu.default, add_to_fallback_set=False)(x, dtype)
        return lowering.to_dtype(x, dtype, copy=True)

    def through_float(function: Callable[..., Any], *args: Any) -> Any:
        """int64 is computed as float32, with casts on the host on both sides."""

        def is_int64(x: Any) -> bool:
            return not isinstance(x, int | float) and hasattr(x, "get_dtype") and x.get_dtype() == torch.int64

        if not any(map(is_int64, args)):
            return function(*args)
        return cast(function(*(a if isinstance(a, int | float) else cast(a, torch.float32) for a in args)), torch.int64)

    def scaled(y: Any, alpha: float) -> Any:
        if alpha == 1:
            return y
        factor = full(y.get_size(), float(alpha), dtype=y.get_dtype(), device=y.get_device())
        factor.realize()
        y = through_float(lowering.mul, y, factor)
        y.realize()
        return y

    def add(x: Any, y: Any, *, alpha: float = 1) -> Any:
        return through_float(lowering.add, x, scaled(y, alpha))

    def sub(x: Any, y: Any, *, alpha: float = 1) -> Any:
        return through_float(lowering.sub, x, scaled(y, alpha))

    def put(op: Any, function: Callable[..., Any], promote: bool = True) -> None:
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT if promote else None
        lowering.register_lowering(op, type_promotion_kind=kind, lowering_dict=table)(function)

    put(aten.mm.default, mm)
    put(aten.bmm.default, bmm)
    put(device_ops.batched_matmul.default, bmm)
    put(device_ops.exx2.default, exx2)
    put(device_ops.layernormscale.default, native("layernormscale"))
    put(device_ops.layernormnorm.default, layernormnorm)
    put(device_ops.topkvalue.default, topk("topkvalue"))
    put(device_ops.topkindex.default, topk("topkindex"))
    put(device_ops.gelu.default, gelu)
    put(device_ops.silu.default, native("silu"))
    put(device_ops.softplus.default, softplus)
    put(device_ops.clamp.default, clamp)
    put(device_ops.qfp8ch.default, qfp8ch)
    put(device_ops.copy_from_d2d.default, lambda source, target: lowering.mutate_to(target, source))
    put(device_ops.overwrite.default, overwrite)
    put(aten.mean.dim, mean)
    put(aten.mean.default, mean_of_all)
    put(aten.clone.default, clone, promote=False)
    put(aten.full.default, full, promote=False)
    put(aten.copy_.default, copy_into, promote=False)
    put(aten.cat.default, cat, promote=False)
    put(aten.constant_pad_nd.default, pad_constant, promote=False)
    put(prims.convert_element_type.default, cast, promote=False)
    put(aten.add.Tensor, add, promote=False)
    put(aten.sub.Tensor, sub, promote=False)
    put(aten.mul.Tensor, lambda x, y: through_float(lowering.mul, x, y), promote=False)
    put(aten.minimum.default, lambda x, y: through_float(lowering.minimum, x, y), promote=False)
    put(aten.maximum.default, lambda x, y: through_float(lowering.maximum, x, y), promote=False)
    for overload in (aten.clamp.default, aten.clamp.Tensor):
        table[overload] = lambda x, min=None, max=None: clamp(x, min, max)
    table[aten.clamp_min.default] = lambda x, min: clamp(x, low=min)
    table[aten.clamp_max.default] = lambda x, max: clamp(x, high=max)
    return table
