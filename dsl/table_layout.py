"""Op table: ops that only move elements (and `pad`, which adds a constant one)."""

from __future__ import annotations

from collections.abc import Mapping

from adapterc.dsl.ast import Call, Expr, Literal, Sequence
from adapterc.dsl.opspec import OpSpec, op


def _stack(bound: Mapping[str, Expr]) -> Expr:
    tensors, dim = bound["tensors"], bound["dim"]
    if not isinstance(tensors, Sequence):
        raise ValueError("`stack` needs its tensors written out as a list, as in `stack([a, b])`")
    return Call("cat", (Sequence(tuple(Call("unsqueeze", (t, dim)) for t in tensors.items)), dim))


def _constant_pad(bound: Mapping[str, Expr]) -> Expr:
    """torch lists the pads from the last dimension backwards, before and after."""
    pads, value = bound["pads"], bound["value"]
    if not isinstance(pads, Sequence) or len(pads.items) % 2:
        raise ValueError("`constant_pad` needs its pads written out in pairs, as in `constant_pad(x, [0, 1])`")
    result = bound["x"]
    for i in range(len(pads.items) // 2):
        result = Call("pad", (result, Literal(-1 - i), pads.items[2 * i], pads.items[2 * i + 1], value))
    return result


LAYOUT: tuple[OpSpec, ...] = (
    op(
        "reshape(x: tensor, sizes: sizes)",
        "layout",
        "the same elements in row-major order under other sizes; one size may be -1",
        shape="reshape",
        torch="torch.reshape(x, sizes)",
        aliases=("view",),
        aten=("aten.reshape.default(x, sizes)", "aten.view.default(x, sizes)", "aten._unsafe_view.default(x, sizes)"),
    ),
    op(
        "flatten(x: tensor, start: dim = 0, end: dim = -1)",
        "layout",
        "the dimensions start…end as one",
        shape="flatten",
        torch="torch.flatten(x, start, end)",
        aten=("aten.flatten.using_ints(x, start, end)",),
    ),
    op(
        "unflatten(x: tensor, dim: dim, sizes: sizes)",
        "layout",
        "dimension dim as several",
        shape="unflatten",
        torch="torch.unflatten(x, dim, sizes)",
        aten=("aten.unflatten.int(x, dim, sizes)",),
    ),
    op(
        "permute(x: tensor, dims: dims)",
        "layout",
        "the dimensions in another order",
        shape="permute",
        torch="torch.permute(x, dims)",
        aten=("aten.permute.default(x, dims)",),
    ),
    op(
        "transpose(x: tensor, a: dim, b: dim)",
        "layout",
        "two dimensions swapped",
        shape="transpose",
        torch="torch.transpose(x, a, b)",
        aten=("aten.transpose.int(x, a, b)",),
        aliases=("swapaxes",),
    ),
    op(
        "t(x: tensor)",
        "layout",
        "the transpose of a matrix",
        definition="transpose(x, 0, 1)",
        torch="torch.t(x)",
        aten=("aten.t.default(x)", "aten.numpy_T.default(x)", "aten.mT.default(x)"),
    ),
    op(
        "movedim(x: tensor, source: dim, destination: dim)",
        "layout",
        "one dimension moved to another place",
        shape="movedim",
        torch="torch.movedim(x, source, destination)",
        aten=("aten.movedim.int(x, source, destination)",),
        aliases=("moveaxis",),
    ),
    op(
        "expand(x: tensor, sizes: sizes)",
        "layout",
        "dimensions of size 1 repeated; -1 keeps a size",
        shape="expand",
        torch="torch.Tensor.expand(x, sizes)",
        aten=("aten.expand.default(x, sizes)",),
        aliases=("broadcast_to",),
    ),
    op(
        "expand_as(x: tensor, like: tensor)",
        "layout",
        "x broadcast to the shape of `like`",
        shape="expand_as",
        torch="torch.Tensor.expand_as(x, like)",
        aten=("aten.expand_as.default(x, like)",),
    ),
    op(
        "repeat(x: tensor, repeats: sizes)",
        "layout",
        "the whole tensor tiled",
        shape="repeat",
        torch="torch.Tensor.repeat(x, repeats)",
        aten=("aten.repeat.default(x, repeats)", "aten.tile.default(x, repeats)"),
        aliases=("tile",),
    ),
    op(
        "repeat_interleave(x: tensor, repeats: size, dim: dim)",
        "layout",
        "each slice along dim repeated in place",
        shape="repeat_interleave",
        torch="torch.repeat_interleave(x, repeats, dim)",
        aten=("aten.repeat_interleave.self_int(x, repeats, dim)",),
    ),
    op(
        "squeeze(x: tensor, dim: dims)",
        "layout",
        "dimensions of size 1 dropped",
        shape="squeeze",
        torch="torch.squeeze(x, dim)",
        aten=("aten.squeeze.dim(x, dim)", "aten.squeeze.dims(x, dim)"),
    ),
    op(
        "unsqueeze(x: tensor, dim: dim)",
        "layout",
        "a dimension of size 1 inserted",
        shape="unsqueeze",
        torch="torch.unsqueeze(x, dim)",
        aten=("aten.unsqueeze.default(x, dim)",),
    ),
    op(
        "select(x: tensor, dim: dim, index: size)",
        "layout",
        "one slice along dim, without the dimension",
        shape="select",
        torch="torch.select(x, dim, index)",
        aten=("aten.select.int(x, dim, index)",),
    ),
    op(
        "narrow(x: tensor, dim: dim, start: size, length: size)",
        "layout",
        "`length` slices along dim from `start`",
        shape="narrow",
        torch="torch.narrow(x, dim, start, length)",
        aten=("aten.narrow.default(x, dim, start, length)",),
    ),
    op(
        "slice(x: tensor, dim: dim, start: size = None, stop: size = None, step: size = 1)",
        "layout",
        "the slices start:stop:step along dim",
        shape="slice",
        torch="torch.ops.aten.slice.Tensor(x, dim, start, stop, step)",
        aten=("aten.slice.Tensor(x, dim, start, stop, step)",),
    ),
    op(
        "flip(x: tensor, dims: dims)",
        "layout",
        "the order along dims reversed",
        shape="same",
        torch="torch.flip(x, dims)",
        aten=("aten.flip.default(x, dims)",),
    ),
    op(
        "roll(x: tensor, shifts: dims, dims: dims)",
        "layout",
        "elements moved along dims, round the end",
        shape="same",
        torch="torch.roll(x, shifts, dims)",
        aten=("aten.roll.default(x, shifts, dims)",),
    ),
    op(
        "unfold(x: tensor, dim: dim, size: size, step: size)",
        "layout",
        "windows along dim, each laid along a new last dimension",
        shape="unfold",
        torch="torch.Tensor.unfold(x, dim, size, step)",
        aten=("aten.unfold.default(x, dim, size, step)",),
    ),
    op(
        "diagonal(x: tensor, offset: size = 0, a: dim = 0, b: dim = 1)",
        "layout",
        "the diagonal of two dimensions, as the last",
        shape="diagonal",
        torch="torch.diagonal(x, offset, a, b)",
        aten=("aten.diagonal.default(x, offset, a, b)",),
    ),
    op(
        "cat(tensors: tensors, dim: dim = 0)",
        "layout",
        "tensors joined along dim",
        shape="cat",
        torch="torch.cat(tensors, dim)",
        aten=("aten.cat.default(tensors, dim)",),
        aliases=(
            "concatenate",
            "concat",
        ),
    ),
    op(
        "stack(tensors: tensors, dim: dim = 0)",
        "layout",
        "tensors joined along a new dimension",
        definition=_stack,
        torch="torch.stack(tensors, dim)",
        aten=("aten.stack.default(tensors, dim)",),
    ),
    op(
        "split_piece(x: tensor, size: size, index: size, dim: dim = 0)",
        "layout",
        "piece number `index` of pieces of one size",
        definition="slice(x, dim, index * size, minimum((index + 1) * size, size(x, dim)))",
        shape="split",
        torch="torch.split(x, size, dim)[index]",
        aten=("aten.split.Tensor(x, size, dim)[index]",),
    ),
    op(
        "split_sizes_piece(x: tensor, sizes: sizes, index: size, dim: dim = 0)",
        "layout",
        "piece number `index` of pieces of listed sizes",
        shape="split_sizes",
        torch="torch.split(x, sizes, dim)[index]",
        aten=("aten.split_with_sizes.default(x, sizes, dim)[index]", "aten.split.sizes(x, sizes, dim)[index]"),
    ),
    op(
        "chunk_piece(x: tensor, chunks: size, index: size, dim: dim = 0)",
        "layout",
        "piece number `index` of `chunks` pieces",
        definition="split_piece(x, ceil_div(size(x, dim), chunks), index, dim)",
        shape="chunk",
        torch="torch.chunk(x, chunks, dim)[index]",
        aten=("aten.chunk.default(x, chunks, dim)[index]",),
    ),
    op(
        "unbind_piece(x: tensor, index: size, dim: dim = 0)",
        "layout",
        "slice number `index`, without the dimension",
        definition="select(x, dim, index)",
        torch="torch.unbind(x, dim)[index]",
        aten=("aten.unbind.int(x, dim)[index]",),
    ),
    op(
        "pad(x: tensor, dim: dim, before: size, after: size, value: number = 0)",
        "layout",
        "dimension dim grown on both sides with `value`; negative amounts cut",
        shape="pad",
    ),
    op(
        "constant_pad(x: tensor, pads: sizes, value: number = 0)",
        "layout",
        "padded as torch lists it: last dimension first, before and after",
        definition=_constant_pad,
        torch="torch.nn.functional.pad(x, pads, value=value)",
        aten=(
            "aten.constant_pad_nd.default(x, pads, value)",
            "aten.pad.default(x, pads, 'constant', value)",
            "aten.pad.default(x, pads, 'constant', None)",
        ),
    ),
    op(
        "contiguous(x: tensor)",
        "layout",
        "x itself, laid out in row-major order",
        definition="x",
        torch="torch.Tensor.contiguous(x)",
        aten=("aten.contiguous.default(x)", "aten.clone.default(x, memory_format=_)"),
    ),
    op(
        "clone(x: tensor)",
        "layout",
        "a copy of x",
        definition="x",
        torch="torch.clone(x)",
        aten=(
            "aten.clone.default(x, memory_format=_)",
            "aten.alias.default(x)",
            "aten.detach.default(x)",
            "aten.lift_fresh_copy.default(x)",
        ),
        aliases=(
            "detach",
            "identity",
        ),
    ),
)

LAYOUT_OPS = LAYOUT
