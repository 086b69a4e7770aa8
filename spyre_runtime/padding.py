"""Zero rows under a matmul's right operand when K does not fill its last stick, and one buffer a constant.

The device masks the left operand's unused lanes; the right operand's missing rows must be there and zero (torch-spyre docs,
"Padding"). The padded copy is four ops: allocate, upload the zero, fill the rows from the last stick boundary on, copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
from torch._inductor.utils import sympy_index_symbol

from .coordinates import host_coordinates
from .ir import Access, Buffer, BufferRole, DeviceLayout, GraphName, LoweredGraph, MatmulRoles, Op, OpKind, Ranges, Step, elements_per_stick
from .layouts import contiguous_strides, generic_layout, tiled
from .profile import Profile
from .refusal import Found, Refusal, meet, refuse
from .restickify import renamed

_STAGE = "pad"


@dataclass(frozen=True)
class _Loops:
    """One symbol a dimension; 0 where the extent is 1."""

    symbols: tuple[sympy.Expr, ...]
    ranges: Ranges

    @staticmethod
    def over(extents: Sequence[int]) -> _Loops:
        symbols: list[sympy.Expr] = []
        ranges: list[tuple[sympy.Symbol, int]] = []
        for n in extents:
            if n == 1:
                symbols.append(sympy.S.Zero)
                continue
            symbols.append(sympy_index_symbol(f"d{len(ranges)}"))
            ranges.append((symbols[-1], n))
        return _Loops(tuple(symbols), tuple(ranges))

    def access(self, buffer: str, stride: Sequence[int], offset: int = 0) -> Access:
        index = sympy.sympify(sum((s * n for s, n in zip(self.symbols, stride, strict=True)), offset))
        kept = list(self.ranges)
        while kept and kept[-1][0] not in index.free_symbols:
            kept.pop()
        return Access(buffer, index, tuple(kept))


def _refuse_at(op: Op, kind: str, message: str, **facts: object) -> Refusal:
    return refuse(kind, message, stage=_STAGE, op=op.function, node=op.origin.node, source=op.origin.source, **facts)


def matmul_roles(op: Op) -> MatmulRoles | None:
    """Operands by their loops: y has a symbol that the output has and x lacks. None when they cannot be told apart."""
    if op.write is None or len(op.reads) != 2:
        return None
    out = op.write.symbols
    for x, y in (op.reads, op.reads[::-1]):
        generated = sorted((y.symbols & out) - x.symbols, key=str)
        if generated:
            reduced = sorted(x.symbols - out, key=str)
            return MatmulRoles(x.buffer, y.buffer, reduced[0], generated[0]) if len(reduced) == 1 else None
    return None


def _padded_layout(op: Op, y: Buffer, size: tuple[int, ...], name: GraphName) -> DeviceLayout:
    """The right operand's layout with K grown; the same host dimension stays on the stick."""
    assert y.layout is not None and name.stride is not None
    extra = len(size) - (len(y.layout.stride_map) - 1)
    core = size[extra:]
    on_stick = next((i for i, s in enumerate(name.stride) if s == y.layout.stride_map[-1]), None)
    if on_stick is None:
        raise _refuse_at(
            op,
            "RuntimeError@_inductor/pass_utils.py:lower_pad_sequence",
            f"the stick of {y.name} (device size {list(y.layout.device_size)}) walks no dimension of its strides {list(name.stride)}",
            sizes=size,
        )
    stick_dim = on_stick - extra
    order = (*(d for d in range(len(core)) if d != stick_dim), stick_dim)
    return tiled(core, contiguous_strides(core), y.dtype, order)


def _graph_name(graph: LoweredGraph, y: Buffer, op: Op, k: int, profile: Profile) -> GraphName:
    name = next((n for n in graph.names if n.buffer == y.name), None)
    own = GraphName(y.name, "", y.size, y.stride)  # what a release without the faults would go by
    if name is None:
        if not profile.has_fault("pad-of-nameless-buffer"):
            return own
        raise _refuse_at(
            op,
            "RuntimeError@_inductor/padding.py:_find_arg_fx_node",
            f"K={k} needs padding, but the right operand {y.name} comes from inside a lowering and has no graph node",
            sizes=(k,),
            fault="pad-of-nameless-buffer",
        )
    if name.size is None or name.stride is None:
        if not profile.has_fault("pad-after-restickify"):
            return own
        raise _refuse_at(
            op,
            "pad_K_after_restickify(KeyError val)",
            f"K={k} is no multiple of {elements_per_stick(y.dtype)} and the right operand {list(y.size)} was just restickified: this release "
            "loses the shape of a restickified tensor when it pads it",
            sizes=(k, *y.size),
            fault="pad-after-restickify",
        )
    return name


def _as_matrix(y: Buffer, k: int, n: int) -> tuple[Buffer, int]:
    """`y` seen as [batch…, K, N], and the place of K."""
    order = (*(d for d in range(len(y.size)) if d not in (k, n)), k, n)
    return replace(y, size=tuple(y.size[d] for d in order), stride=tuple(y.stride[d] for d in order)), len(order) - 2


def _pad_ops(op: Op, y: Buffer, dim: int, size: tuple[int, ...], layout: DeviceLayout, tag: str) -> tuple[list[Op], list[Buffer]]:
    stick, stride = elements_per_stick(y.dtype), contiguous_strides(size)
    start = y.size[dim] // stick * stride[dim] * stick
    count = size[dim] - y.size[dim] // stick * stick
    empty = Buffer(f"{tag}", BufferRole.EMPTY, y.dtype, size, stride, layout=layout)
    zero = Buffer(
        f"{tag}_zero", BufferRole.CONSTANT, y.dtype, (), (), layout=generic_layout(Buffer("", BufferRole.CONSTANT, y.dtype, (), ()))
    )
    fill, copy = (Buffer(f"{tag}_{what}", BufferRole.COMPUTED, y.dtype, size, stride, alias=tag) for what in ("fill", "copy"))
    rows, whole = _Loops.over([*size[:dim], count, *size[dim + 1 :]]), _Loops.over(y.size)
    zero_read = Access(zero.name, sympy.S.Zero, ())
    y_read = whole.access(y.name, y.stride, y.offset)

    def step(kind: OpKind, function: str, target: Buffer, **facts: Any) -> Op:
        return Op(
            f"op_{target.name}", kind, function, target.name, origin=replace(op.origin, target="aten.constant_pad_nd.default"), **facts
        )

    def move(target: Buffer, read: Access, loops: _Loops, extents: tuple[int, ...], offset: int) -> Op:
        write = loops.access(target.name, stride, offset)
        body = (Step("load", buffer=read.buffer, index=read.index),)
        return step(OpKind.POINTWISE, "identity", target, write=write, reads=(read,), output_ranges=extents, body=body)

    ops = [
        step(OpKind.EMPTY, "empty", empty),
        step(OpKind.CONSTANT, "constant", zero, attributes=(("value", 0.0),)),
        move(fill, zero_read, rows, (*size[:dim], count, *size[dim + 1 :]), start),
        move(copy, y_read, whole, y.size, 0),
    ]
    return ops, [empty, zero, fill, copy]


def _padded_matmul(op: Op, roles: MatmulRoles, padded: Buffer) -> Op:
    """Reads the padded operand as [batch…, K, N]; the old operand is still loaded, its value unused, as in the public release."""
    assert op.write is not None
    loops = _Loops.over([*op.output_ranges, *op.reduction_ranges])
    rank = len(op.output_ranges)
    out, k = loops.symbols[:rank], loops.symbols[rank]
    walked = _Loops((*out[: len(padded.size) - 2], k, out[-1]), loops.ranges)
    read = walked.access(padded.name, padded.stride)
    x = next(r for r in op.reads if r.buffer == roles.x)
    reads = (*op.reads, read)
    body = (
        *(Step("load", buffer=r.buffer, index=r.index) for r in reads),
        Step("reduction", (reads.index(x), len(reads) - 1), attributes=(("type", op.function),)),
    )
    return replace(op, reads=reads, body=body, roles=replace(roles, y=padded.name))


@dataclass(frozen=True)
class _Padding:
    """A matmul whose right operand needs rows: which dimension of it is K, its size afterwards, and the graph node that it is known by."""

    op: Op
    y: Buffer
    dim: int
    size: tuple[int, ...]
    name: GraphName


def _padding(op: Op, graph: LoweredGraph, profile: Profile) -> _Padding | None:
    """What to pad for this matmul, or None. Raises Refusal for the release's own faults in padding."""
    k = op.reduction_ranges[0]
    missing = -k % elements_per_stick(graph.buffer(op.reads[0].buffer).dtype)
    if not missing or op.roles is None:
        return None
    y = graph.buffer(op.roles.y)
    walked = host_coordinates(y, next(r for r in op.reads if r.buffer == y.name))
    dim = next((i for i, c in enumerate(walked) if op.roles.reduction in c.free_symbols), len(y.size) - 2)
    name = _graph_name(graph, y, op, k, profile)
    if not name.node:  # no graph node says in which order the operand is seen
        y, dim = _as_matrix(y, dim, next((i for i, c in enumerate(walked) if op.roles.generated in c.free_symbols), len(y.size) - 1))
        name = replace(name, size=y.size, stride=y.stride)
    size = tuple(k + missing if i == dim else n for i, n in enumerate(y.size))
    assert name.size is not None
    if len(size) != len(name.size) or [i for i, (a, b) in enumerate(zip(size, name.size, strict=True)) if a != b] != [dim]:
        raise _refuse_at(
            op,
            "AssertionError@_inductor/pass_utils.py:lower_pad_sequence",
            f"K={k} of {list(y.size)} is to be padded to {list(size)}, but its graph node has shape {list(name.size)}",
            sizes=size,
        )
    return _Padding(op, y, dim, size, name)


def _padded(padding: _Padding) -> tuple[list[Op], list[Buffer]]:
    op, y, size = padding.op, padding.y, padding.size
    assert op.roles is not None
    layout = _padded_layout(op, y, size, padding.name)
    ops, buffers = _pad_ops(op, y, padding.dim, size, layout, f"{op.output}_padded")
    return [*ops, _padded_matmul(op, op.roles, buffers[0])], buffers


def pad_matmuls(graph: LoweredGraph, profile: Profile, found: Found = None) -> LoweredGraph:
    """Pad K of every right operand that does not fill its sticks. Raises Refusal for the release's own faults, or leaves the
    matmul as it is when `found` collects."""
    ops: list[Op] = []
    buffers, names = list(graph.buffers), list(graph.names)
    for op in graph.ops:
        if op.kind is not OpKind.MATMUL or len(op.reads) != 2:
            ops.append(op)
            continue
        op = replace(op, roles=matmul_roles(op))
        try:
            padding = _padding(op, graph, profile)
            new_ops, new_buffers = ([op], []) if padding is None else _padded(padding)
        except Refusal as refusal:
            meet(refusal, found)
            new_ops, new_buffers = [op], []
        ops += new_ops
        buffers += new_buffers
        names += [GraphName(b.name, "constant_pad_nd", b.size, b.stride) for b in new_buffers[:1]]
    return replace(graph, ops=tuple(ops), buffers=tuple(buffers), names=tuple(names))


def share_constants(graph: LoweredGraph) -> LoweredGraph:
    """Upload each literal once, before everything else."""
    first: dict[tuple[object, ...], str] = {}
    renames: dict[str, str] = {}
    for op in graph.ops:
        if op.kind is not OpKind.CONSTANT:
            continue
        key = (op.info["value"], graph.buffer(op.output).dtype)
        kept = first.setdefault(key, op.output)
        if kept != op.output and op.output not in graph.outputs:
            renames[op.output] = kept
    ops = [op for op in graph.ops if op.output not in renames]
    ops = [op if op.kind is OpKind.CONSTANT else renamed(op, renames) for op in ops]
    ordered = [op for op in ops if op.kind is OpKind.CONSTANT] + [op for op in ops if op.kind is not OpKind.CONSTANT]
    return replace(graph, ops=tuple(ordered), buffers=tuple(b for b in graph.buffers if b.name not in renames))
