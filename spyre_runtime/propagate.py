"""Which device layouts each buffer could have, and what each op asks of its operands' layouts.

Graph inputs come with one layout. Each op then offers candidates for its output: it keeps an operand's stick where it can, and tries
the other dimensions whose size is a whole number of sticks where it cannot. The choice among candidates is `restickify.py`'s.
Rules: torch-spyre docs, "Layout propagation".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import sympy
import torch

from .coordinates import Coordinates, device_coordinates, host_coordinates, is_whole_stick, matching_dim
from .ir import Access, Arrangement, Buffer, BufferRole, DeviceLayout, LoweredGraph, Op, OpKind, elements_per_stick
from .layouts import SPARSE, default_layout, generic_layout, moved_stick, tiled
from .refusal import Found, Refusal, meet, refuse

_STAGE = "propagate"
Layouts = tuple[DeviceLayout, ...]


@dataclass(frozen=True)
class Edge:
    """One operand of an op: how it is read, and through which access the layout that it must agree with is read.

    `free` operands (index data of a gather) may have any layout.
    """

    access: Access
    wanted_access: Access
    free: bool = False


@dataclass(frozen=True)
class Choice:
    """Candidate output layouts of one op and its demands.

    edges: constrained operands. wanted: the layout that each edge must agree with; None where all follow the output's layout.
    reads: buffers in reading order, whose chosen layouts are held against `edges` position by position.
    """

    op: str
    buffer: str
    layouts: Layouts
    edges: tuple[Edge, ...] = ()
    wanted: Layouts | None = None
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Propagation:
    """Layouts of the inputs and the open choices, in execution order."""

    graph: LoweredGraph
    inputs: Mapping[str, DeviceLayout]
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class _Argument:
    access: Access
    buffer: Buffer
    layouts: Layouts


@dataclass(frozen=True)
class _Site:
    """One op with what its rule needs to know."""

    op: Op
    output: Buffer
    write: Access
    args: tuple[_Argument, ...]

    @property
    def stick(self) -> int:
        return elements_per_stick(self.output.dtype)

    @property
    def coords(self) -> Coordinates:
        return host_coordinates(self.output, self.write)

    def choice(self, layouts: Iterable[DeviceLayout], edges: Iterable[Edge] = (), wanted: Layouts | None = None) -> Choice:
        return Choice(self.op.name, self.op.output, tuple(layouts), tuple(edges), wanted, tuple(r.buffer for r in self.op.reads))

    def following(self, layouts: Iterable[DeviceLayout]) -> Choice:
        """All operands must agree with the output."""
        layouts = tuple(layouts)
        if not layouts:
            raise refuse(
                "AssertionError@_inductor/optimize_restickify.py:from_args",
                f"{self.op.function} to {list(self.output.size)} leaves no output dimension that could carry the stick",
                stage=_STAGE,
                sizes=self.output.size,
            )
        indices = _index_buffers(self.op)
        return self.choice(layouts, [Edge(a.access, self.write, a.access.buffer in indices) for a in self.args])

    def fixed(self, layout: DeviceLayout, args: Iterable[_Argument], wanted: Iterable[DeviceLayout]) -> Choice:
        """Each operand must agree with a layout of its own."""
        return self.choice([layout], [Edge(a.access, a.access) for a in args], tuple(wanted))


def _index_buffers(op: Op) -> frozenset[str]:
    """Buffers whose values are used as indices. Of several that index one load, this release recognises only the last."""
    last = {access.indirect[-1][1] for access in op.reads if access.indirect}
    written = {buffer for _, buffer in op.write.indirect} if op.write else set()
    return frozenset(last | written)


def _order(stick_dim: int, size: tuple[int, ...], coords: Coordinates) -> tuple[int, ...]:
    """Dimension order with `stick_dim` last and the dimensions that no loop walks before it."""
    others = [d for d in range(len(size)) if d != stick_dim]
    return (*(d for d in others if coords[d] != 0), *(d for d in others if coords[d] == 0), stick_dim)


def _with_stick(site: _Site, stick_dim: int) -> DeviceLayout | None:
    """Output layout with that dimension on the stick, unless its stick would start off a boundary."""
    layout = tiled(site.output.size, site.output.stride, site.output.dtype, _order(stick_dim, site.output.size, site.coords))
    return layout if is_whole_stick(device_coordinates(layout, site.write)[-1], site.stick) else None


def _keeping(site: _Site, stick: sympy.Expr) -> DeviceLayout | None:
    """Output layout that keeps an operand's stick; None when that stick starts off a boundary."""
    if not is_whole_stick(stick, site.stick):
        return None
    dim = matching_dim(site.coords, stick)
    return _with_stick(site, SPARSE if dim is None else dim)


def _aligned_dims(size: tuple[int, ...], stick: int) -> Iterator[int]:
    return (dim for dim, n in enumerate(size) if n % stick == 0)


def _other_sticks(site: _Site) -> Layouts:
    """Output layouts with another dimension than the last on the stick."""
    candidates = (_with_stick(site, dim) for dim in _aligned_dims(site.output.size[:-1], site.stick))
    return tuple(layout for layout in candidates if layout is not None)


def _no_shifted_sticks(site: _Site) -> None:
    for arg in site.args:
        for layout in arg.layouts:
            stick = device_coordinates(layout, arg.access)[-1]
            if not is_whole_stick(stick, layout.stick):
                raise refuse(
                    "Unsupported@_inductor/propagate_layouts.py:_check_supported_input_sticks",
                    f"{site.op.function} needs its operand of shape {list(arg.buffer.size)} on whole sticks, but it starts inside one ({stick})",
                    stage=_STAGE,
                    sizes=arg.buffer.size,
                )


def _reduction(site: _Site, arg: _Argument, layout: DeviceLayout) -> Layouts:
    kept = _keeping(site, device_coordinates(layout, arg.access)[-1])
    if kept is not None:
        return (kept,)
    host = host_coordinates(arg.buffer, arg.access)
    reduced = sorted(arg.access.symbols - site.write.symbols, key=str)[:1]
    found = []
    for dim in _aligned_dims(arg.buffer.size, site.stick):
        out_dim = None if host[dim].free_symbols & set(reduced) else matching_dim(site.coords, host[dim])
        if out_dim is None and not host[dim].free_symbols & set(reduced):
            continue
        candidate = _with_stick(site, SPARSE if out_dim is None else out_dim)
        if candidate is not None:
            found.append(candidate)
    return tuple(found)


def _resized_cast(site: _Site, arg: _Argument, layout: DeviceLayout) -> Layouts:
    """A cast between formats of different width keeps the last dimension on the stick, padding included."""
    if not is_whole_stick(device_coordinates(layout, arg.access)[-1], layout.stick):
        return ()
    source_stick = elements_per_stick(arg.buffer.dtype)
    staggered = arg.buffer.dtype == torch.float16 and site.output.dtype == torch.float32
    size, stride = site.output.size, site.output.stride
    if not arg.buffer.size:
        raise IndexError("a cast of a 0-d tensor has no last dimension")
    if arg.buffer.size[-1] % source_stick:
        size, stride = (*size[:-1], source_stick), (*stride[:-1], 1)
    arrangement = Arrangement.DL16_TO_FP32 if staggered else Arrangement.STANDARD
    return (tiled(size, stride, site.output.dtype, tuple(range(len(size))), arrangement),)


def _channelwise_fp8(site: _Site, arg: _Argument, layout: DeviceLayout) -> Layouts:
    source, target = elements_per_stick(arg.buffer.dtype), site.stick
    device_size, stride_map = list(layout.device_size), list(layout.stride_map)
    device_size[-1] = target
    if source in stride_map:
        tile = stride_map.index(source)
        device_size[tile] = layout.device_size[tile] * source // target
        stride_map[tile] = target
    fmt = tiled((), (), site.output.dtype, ()).format
    return (DeviceLayout(tuple(device_size), tuple(stride_map), fmt, Arrangement.QFP8CH),)


def _same_access(site: _Site, arg: _Argument) -> bool:
    same_place = arg.access.index == site.write.index and arg.buffer.size == site.output.size
    return same_place and host_coordinates(arg.buffer, arg.access) == site.coords and elements_per_stick(arg.buffer.dtype) == site.stick


def _retyped(layout: DeviceLayout, dtype: torch.dtype) -> DeviceLayout:
    return replace(layout, format=tiled((), (), dtype, ()).format, arrangement=Arrangement.STANDARD)


def _unary(site: _Site, arg: _Argument, layout: DeviceLayout) -> Layouts:
    target = site.op.origin.target
    if target == "prims.convert_element_type.default" and elements_per_stick(arg.buffer.dtype) != site.stick:
        return _resized_cast(site, arg, layout)
    if target == "spyre.qfp8ch.default":
        return _channelwise_fp8(site, arg, layout)
    if _same_access(site, arg):
        return (_retyped(layout, site.output.dtype),)
    kept = _keeping(site, device_coordinates(layout, arg.access)[-1])
    return (kept,) if kept is not None else _other_sticks(site)


def _single(site: _Site) -> Choice:
    arg = site.args[0]
    rule = _reduction if site.op.is_reduction else _unary
    layouts = [found for layout in arg.layouts for found in rule(site, arg, layout)]
    if not layouts:
        raise refuse(
            "no_layout_single_arg",
            f"{site.op.function} reads {list(arg.buffer.size)} from inside a stick, and no other dimension of its output "
            f"{list(site.output.size)} is a multiple of {site.stick} that could carry the stick instead",
            stage=_STAGE,
            sizes=site.output.size,
        )
    return site.following(layouts)


def _copy(site: _Site) -> Choice:
    """An explicit contiguous() copies into the default tiling; it does the move of the stick itself."""
    arg = site.args[0]
    layout = arg.layouts[0]
    device = device_coordinates(layout, arg.access)
    target = default_layout(site.output.size, site.output.stride, site.output.dtype)
    if is_whole_stick(device[-1], site.stick):
        return site.choice([target])
    host = host_coordinates(arg.buffer, arg.access)
    for candidate in _other_sticks(site):
        moved = moved_stick(layout, arg.buffer, device_coordinates(candidate, site.write)[-1], host, device)
        if moved is not None:
            return site.fixed(target, site.args, [moved])
    raise refuse(
        "Unsupported@_inductor/propagate_layouts.py:_clone_layout",
        f"a copy to {list(site.output.size)} starts inside a stick ({device[-1]}), and no other dimension can carry it",
        stage=_STAGE,
        sizes=site.output.size,
    )


def _carrying(arg: _Argument, symbol: sympy.Symbol, op: Op, label: str) -> DeviceLayout:
    """The layout of an operand with `symbol` on the stick: as it is, or after a restickify."""
    device = [device_coordinates(layout, arg.access) for layout in arg.layouts]
    for layout, coords in zip(arg.layouts, device, strict=True):
        if symbol in coords[-1].free_symbols:
            return layout
    host = host_coordinates(arg.buffer, arg.access)
    for layout, coords in zip(arg.layouts, device, strict=True):
        goal = next((c for c in coords if symbol in c.free_symbols and matching_dim(host, c) is not None), None)
        moved = None if goal is None else moved_stick(layout, arg.buffer, goal, host, coords)
        if moved is not None:
            return moved
    raise refuse(
        "matmul_restickify_infeasible"
        if op.kind is OpKind.MATMUL
        else "Unsupported@_inductor/propagate_layouts.py:find_stick_compatible_input_layout",
        f"{op.function}: operand {label} of shape {list(arg.buffer.size)} (device size {list(arg.layouts[0].device_size)}) cannot be laid "
        f"with the stick along {symbol}",
        stage=_STAGE,
        sizes=arg.buffer.size,
    )


def _one_symbol(symbols: frozenset[sympy.Symbol], what: str, where: str, site: _Site) -> sympy.Symbol:
    if len(symbols) != 1:
        raise refuse(
            f"Unsupported@_inductor/pass_utils.py:{where}",
            f"{site.op.function} to {list(site.output.size)} must have exactly one {what} loop, and has {len(symbols)}",
            stage=_STAGE,
            sizes=site.output.size,
        )
    return next(iter(symbols))


def _matmul(site: _Site) -> Choice:
    _no_shifted_sticks(site)
    if len(site.args) != 2:
        raise refuse(
            "AssertionError@_inductor/pass_utils.py:identify_matmul_inputs",
            f"a matmul to {list(site.output.size)} reads the same elements for both operands",
            stage=_STAGE,
            sizes=site.output.size,
        )
    out = site.write.symbols
    first, second = site.args
    if (second.access.symbols & out) - first.access.symbols:
        x, y = first, second
    elif (first.access.symbols & out) - second.access.symbols:
        x, y = second, first
    else:
        raise refuse(
            "matmul_inputs",
            f"a matmul of {list(first.buffer.size)} with {list(second.buffer.size)} to {list(site.output.size)} has no loop that only one "
            "operand and the output share, so that its sides cannot be told apart",
            stage=_STAGE,
            sizes=(*first.buffer.size, *second.buffer.size),
        )
    reduced = _one_symbol(x.access.symbols - out, "reduction", "find_reduction_var", site)
    generated = _one_symbol((y.access.symbols & out) - x.access.symbols, "generated", "find_matmul_generated_var", site)
    wanted = (_carrying(x, reduced, site.op, "x"), _carrying(y, generated, site.op, "y"))
    stick_dim = next((dim for dim, coord in enumerate(site.coords) if generated in coord.free_symbols), None)
    if stick_dim is None:
        raise refuse(
            "Unsupported@_inductor/propagate_layouts.py:_matmul_layouts",
            f"the output {list(site.output.size)} lacks the generated loop",
            stage=_STAGE,
        )
    rank = len(site.output.size)
    last = (rank - 2, rank - 1) if stick_dim == rank - 1 else (rank - 1, rank - 2)
    layout = tiled(site.output.size, site.output.stride, site.output.dtype, (*range(rank - 2), *last))
    return site.fixed(layout, (x, y), wanted)


def _moments(site: _Site) -> Choice:
    """exx2 reduces along the stick and keeps two values a stick."""
    _no_shifted_sticks(site)
    arg = site.args[0]
    rank = len(site.output.size)
    layout = tiled(site.output.size, site.output.stride, site.output.dtype, (*range(rank), SPARSE), Arrangement.EXX2)
    reduced = _one_symbol(arg.access.symbols - site.write.symbols, "reduction", "find_reduction_var", site)
    return site.fixed(layout, site.args, [_carrying(arg, reduced, site.op, "x")])


def _topk(site: _Site) -> Choice:
    _no_shifted_sticks(site)
    arg = site.args[0]
    reduced = _one_symbol(arg.access.symbols - site.write.symbols, "reduction", "find_reduction_var", site)
    host = host_coordinates(arg.buffer, arg.access)
    surviving = [dim for c in host if c.free_symbols and (dim := matching_dim(site.coords, c)) is not None]
    dims: dict[int | None, None] = {}
    for layout in arg.layouts:
        stick = device_coordinates(layout, arg.access)[-1]
        dims.update(dict.fromkeys(surviving if reduced in stick.free_symbols else [matching_dim(site.coords, stick)]))
    rank, layouts = len(site.output.size), []
    for dim in dims:
        order = (*range(rank), SPARSE) if dim is None else (*(d for d in range(rank) if d != dim), dim)
        layouts.append(tiled(site.output.size, site.output.stride, site.output.dtype, order))
    return site.following(layouts)


def _symbol_number(stick: sympy.Expr) -> int:
    name = str(next(iter(stick.free_symbols), ""))
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else -1


def _readable(site: _Site, order: tuple[int, ...]) -> bool:
    """Whether every operand, tiled in the same order as the output, would be read in whole sticks."""
    rank = len(site.output.size)
    for arg in site.args:
        missing = rank - len(arg.buffer.size)
        projected = tuple(d - missing for d in order if d >= missing)
        layout = tiled(arg.buffer.size, arg.buffer.stride, site.output.dtype, projected)
        if not is_whole_stick(device_coordinates(layout, arg.access)[-1], site.stick):
            return False
    return True


def _several(site: _Site) -> Choice:
    """Operands meet: each operand's stick is a candidate for the common one."""
    indices = _index_buffers(site.op)
    sticks = {
        stick
        for arg in site.args
        if arg.access.buffer not in indices
        for layout in arg.layouts
        if (stick := device_coordinates(layout, arg.access)[-1]) != 0
    }
    size, stride, dtype = site.output.size, site.output.stride, site.output.dtype
    if len(sticks) <= 1 and all(len(a.layouts) == 1 for a in site.args) and all(_same_access(site, a) for a in site.args):
        return site.following([_retyped(site.args[0].layouts[0], dtype)])
    if sticks:
        whole = sorted((s for s in sticks if is_whole_stick(s, site.stick)), key=_symbol_number)
        dims = [SPARSE if (dim := matching_dim(site.coords, s)) is None else dim for s in whole]
    else:
        dims = [SPARSE]
    orders = [_order(dim, size, site.coords) for dim in dims]
    orders = [order for order in orders if _readable(site, order)]
    if not orders:
        orders = [_order(dim, size, site.coords) for dim in _aligned_dims(size[:-1], site.stick)]
        orders = [order for order in orders if _readable(site, order)]
    if not orders:
        shapes = ", ".join(str(list(a.buffer.size)) for a in site.args)
        raise refuse(
            "no_layout_multi_arg",
            f"{site.op.function} reads {shapes} from inside a stick, and no other dimension of its output {list(size)} is a multiple of "
            f"{site.stick} that could carry the stick instead",
            stage=_STAGE,
            sizes=size,
        )
    return site.following([tiled(size, stride, dtype, order) for order in orders])


def _any_stick(output: Buffer) -> Layouts:
    """A constant fill reads right in every layout."""
    dims = range(len(output.size))
    return tuple(tiled(output.size, output.stride, output.dtype, (*(d for d in dims if d != s), s)) for s in dims) or (
        generic_layout(output),
    )


def _arguments(op: Op, graph: LoweredGraph, known: Mapping[str, Layouts]) -> tuple[_Argument, ...]:
    args = []
    for access in op.reads:
        buffer = graph.buffer(access.buffer)
        if buffer.role is BufferRole.CONSTANT and not buffer.size:
            continue
        if access.buffer not in known:
            raise refuse(
                "no_fixed_tiled_layout",
                f"{op.function} reads {access.buffer} of shape {list(buffer.size)}, which a host fallback makes only later",
                stage=_STAGE,
                sizes=buffer.size,
            )
        args.append(_Argument(access, buffer, known[access.buffer]))
    return tuple(args)


def _device_choice(op: Op, graph: LoweredGraph, known: Mapping[str, Layouts]) -> Choice | None:
    assert op.write is not None
    output = graph.buffer(op.output)
    if output.alias is not None:
        target = graph.storage(op.output)
        if target.role is not BufferRole.INPUT or target.name not in known:
            return None  # copies into a buffer of the graph adapt to its layout when they run
        site = _Site(op, target, op.write, _arguments(op, graph, known))
        return site.following(known[target.name][:1])
    site = _Site(op, output, op.write, _arguments(op, graph, known))
    if not site.args:
        fill = bool(op.reads) and all(graph.buffer(r.buffer).role is BufferRole.CONSTANT for r in op.reads)
        return site.choice(_any_stick(output) if fill else [generic_layout(output)])
    if len(site.args) > 1 and not op.is_reduction:
        return _several(site)
    if op.kind is OpKind.MATMUL:
        return _matmul(site)
    if op.is_reduction and op.function == "exx2":
        return _moments(site)
    if op.is_reduction and op.function in ("topkvalue", "topkindex"):
        return _topk(site)
    if op.origin.target == "aten.clone.default" and not op.is_reduction:
        return _copy(site)
    return _single(site)


def _host_choice(op: Op, previous: Op | None, graph: LoweredGraph) -> Choice | None:
    """Results of the host get the default tiling; of a fallback's several results only the first has a layout."""
    if op.kind is OpKind.OUTPUT and (previous is None or previous.kind is not OpKind.FALLBACK):
        return None
    if op.kind is OpKind.FALLBACK:
        return None
    return Choice(op.name, op.output, (generic_layout(graph.buffer(op.output)),))


def _as_moved(buffer: Buffer) -> DeviceLayout:
    return default_layout(buffer.size, buffer.stride, buffer.dtype)


def propagate(graph: LoweredGraph, inputs: Mapping[str, DeviceLayout], found: Found = None) -> Propagation:
    """Candidate layouts of every buffer. `inputs` gives graph inputs that do not have the default tiling.

    Raises Refusal at the first op that has no candidate; when `found` collects, such an op gets the default tiling and no demands.
    """
    layouts = {name: inputs.get(name) or _as_moved(graph.buffer(name)) for name in graph.inputs}
    known: dict[str, Layouts] = {name: (layout,) for name, layout in layouts.items()}
    choices, previous = [], None
    for op in graph.ops:
        try:
            if op.obstacle is not None:
                raise Refusal(op.obstacle)
            choice = _device_choice(op, graph, known) if op.on_device else _host_choice(op, previous, graph)
        except Refusal as refusal:
            meet(refusal, found, **place_of(op))
            choice = Choice(op.name, op.output, (generic_layout(graph.buffer(op.output)),))
        previous = op
        if choice is not None:
            choices.append(choice)
            known[op.output] = choice.layouts
    return Propagation(graph, layouts, tuple(choices))


def place_of(op: Op) -> dict[str, str]:
    return {"op": op.function, "node": op.origin.node, "source": op.origin.source}
