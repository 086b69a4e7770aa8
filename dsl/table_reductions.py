"""Op table: reductions, scans, sorting, and products of matrices."""

from __future__ import annotations

from collections.abc import Mapping

from adapterc.dsl.ast import Call, Expr, Literal, Sequence
from adapterc.dsl.opspec import OpSpec, op


def _einsum(bound: Mapping[str, Expr]) -> Expr:
    """Every operand is brought to the order of all labels, then multiplied; labels that the output lacks are summed."""
    equation, operands = bound["equation"], bound["tensors"]
    if not (isinstance(equation, Literal) and isinstance(equation.value, str) and isinstance(operands, Sequence)):
        raise ValueError('`einsum` needs its equation and operands written out, as in `einsum("ij,jk->ik", [a, b])`')
    text = equation.value.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    labels = sorted(set(left) - {","})
    well_formed = arrow and all(c.isalpha() for c in labels + list(output)) and set(output) <= set(labels)
    if not well_formed or len(terms) != len(operands.items) or any(len(set(t)) != len(t) for t in (*terms, output)):
        raise ValueError(f"`einsum` reads letters, commas and `->`, one term an operand, no letter twice in a term: not {text!r}")
    order = [*output, *(c for c in labels if c not in output)]
    product: Expr | None = None
    for term, operand in zip(terms, operands.items, strict=True):
        present = [c for c in order if c in term]
        aligned: Expr = Call("permute", (operand, Sequence(tuple(Literal(term.index(c)) for c in present))))
        for position, label in enumerate(order):
            if label not in term:
                aligned = Call("unsqueeze", (aligned, Literal(position)))
        product = aligned if product is None else Call("mul", (product, aligned))
    assert product is not None
    summed = Sequence(tuple(Literal(i) for i in range(len(output), len(order))))
    return Call("sum", (product, summed)) if summed.items else product


REDUCTIONS: tuple[OpSpec, ...] = (
    op(
        "sum(x: tensor, dim: dims = None, keepdim: bool = False, dtype: dtype = None)",
        "reduction",
        "the sum along dim",
        shape="reduce_sum",
        torch="torch.sum(x, dim, keepdim, dtype=dtype)",
        aten=("aten.sum.dim_IntList(x, dim, keepdim, dtype=dtype)", "aten.sum.default(x, dtype=dtype)"),
    ),
    op(
        "mean(x: tensor, dim: dims = None, keepdim: bool = False, dtype: dtype = None)",
        "reduction",
        "the sum along dim over the number of elements",
        definition="sum(x, dim, keepdim, dtype) / extent(x, dim)",
        shape="reduce",
        torch="torch.mean(x, dim, keepdim, dtype=dtype)",
        aten=("aten.mean.dim(x, dim, keepdim, dtype=dtype)", "aten.mean.default(x, dtype=dtype)"),
    ),
    op(
        "prod(x: tensor, dim: dim = None, keepdim: bool = False)",
        "reduction",
        "the product along dim",
        shape="reduce_sum",
        aten=("aten.prod.dim_int(x, dim, keepdim)", "aten.prod.default(x)"),
    ),
    op(
        "amax(x: tensor, dim: dims = [], keepdim: bool = False)",
        "reduction",
        "the largest element along dim; [] means all",
        shape="reduce",
        torch="torch.amax(x, dim, keepdim)",
        aten=("aten.amax.default(x, dim, keepdim)", "aten.max.default(x)", "aten.max.dim(x, dim, keepdim)[0]"),
    ),
    op(
        "amin(x: tensor, dim: dims = [], keepdim: bool = False)",
        "reduction",
        "the smallest element along dim; [] means all",
        shape="reduce",
        torch="torch.amin(x, dim, keepdim)",
        aten=("aten.amin.default(x, dim, keepdim)", "aten.min.default(x)", "aten.min.dim(x, dim, keepdim)[0]"),
    ),
    op(
        "argmax(x: tensor, dim: dim = None, keepdim: bool = False)",
        "reduction",
        "the first position of the largest element",
        shape="reduce_index",
        torch="torch.argmax(x, dim, keepdim)",
        aten=("aten.argmax.default(x, dim, keepdim)", "aten.max.dim(x, dim, keepdim)[1]"),
    ),
    op(
        "argmin(x: tensor, dim: dim = None, keepdim: bool = False)",
        "reduction",
        "the first position of the smallest element",
        definition="argmax(-x, dim, keepdim)",
        torch="torch.argmin(x, dim, keepdim)",
        aten=("aten.argmin.default(x, dim, keepdim)", "aten.min.dim(x, dim, keepdim)[1]"),
    ),
    op(
        "any(x: tensor, dim: dim = None, keepdim: bool = False)",
        "reduction",
        "one element at least is true (not zero)",
        definition="amax(x != 0, [] if dim == None else dim, keepdim)",
        aten=("aten.any.dim(x, dim, keepdim)", "aten.any.default(x)"),
    ),
    op(
        "all(x: tensor, dim: dim = None, keepdim: bool = False)",
        "reduction",
        "every element is true (not zero)",
        definition="amin(x != 0, [] if dim == None else dim, keepdim)",
        aten=("aten.all.dim(x, dim, keepdim)", "aten.all.default(x)"),
    ),
    op(
        "var(x: tensor, dim: dims = None, correction: number = 1, keepdim: bool = False)",
        "reduction",
        "the mean square distance from the mean, over n - correction",
        definition="d = x - mean(x, dim, true); sum(d * d, dim, keepdim) / (extent(x, dim) - correction)",
        torch="torch.var(x, dim, correction=correction, keepdim=keepdim)",
        aten=("aten.var.correction(x, dim, correction=correction, keepdim=keepdim)", "aten.var.dim(x, dim, True, keepdim)"),
    ),
    op(
        "std(x: tensor, dim: dims = None, correction: number = 1, keepdim: bool = False)",
        "reduction",
        "the square root of var",
        definition="sqrt(var(x, dim, correction, keepdim))",
        torch="torch.std(x, dim, correction=correction, keepdim=keepdim)",
        aten=("aten.std.correction(x, dim, correction=correction, keepdim=keepdim)",),
    ),
    op(
        "vector_norm(x: tensor, ord: number = 2, dim: dims = None, keepdim: bool = False)",
        "reduction",
        "(Σ |x|^ord)^(1/ord); the largest |x| for inf",
        definition="sqrt(sum(x * x, dim, keepdim)) if ord == 2 else sum(abs(x), dim, keepdim) if ord == 1 "
        "else amax(abs(x), [] if dim == None else dim, keepdim) if ord == inf else pow(sum(pow(abs(x), ord), dim, keepdim), 1 / ord)",
        torch="torch.linalg.vector_norm(x, ord, dim, keepdim)",
        aliases=("norm",),
        aten=("aten.linalg_vector_norm.default(x, ord, dim, keepdim)", "aten.norm.ScalarOpt_dim(x, ord, dim, keepdim)"),
    ),
    op(
        "logsumexp(x: tensor, dim: dims, keepdim: bool = False)",
        "reduction",
        "log Σ eˣ",
        definition="log(sum(exp(x), dim, keepdim))",
        torch="torch.logsumexp(x, dim, keepdim)",
        aten=("aten.logsumexp.default(x, dim, keepdim)",),
    ),
    op(
        "cumsum(x: tensor, dim: dim)",
        "scan",
        "the running sum along dim",
        shape="scan",
        torch="torch.cumsum(x, dim)",
        aten=("aten.cumsum.default(x, dim)",),
    ),
    op(
        "cumprod(x: tensor, dim: dim)",
        "scan",
        "the running product along dim",
        shape="scan",
        torch="torch.cumprod(x, dim)",
        aten=("aten.cumprod.default(x, dim)",),
    ),
    op(
        "sort_values(x: tensor, dim: dim = -1, descending: bool = False)",
        "scan",
        "the elements along dim in order",
        shape="scan_same",
        torch="torch.sort(x, dim, descending)[0]",
        aten=("aten.sort.default(x, dim, descending)[0]",),
    ),
    op(
        "sort_indices(x: tensor, dim: dim = -1, descending: bool = False)",
        "scan",
        "the positions that put the elements in order, equal ones in any order",
        shape="scan_index",
        torch="torch.sort(x, dim, descending)[1]",
        aten=("aten.sort.default(x, dim, descending)[1]",),
        aliases=("argsort",),
    ),
    op(
        "topk_values(x: tensor, k: size, dim: dim = -1)",
        "scan",
        "the k largest elements along dim, largest first",
        definition="narrow(sort_values(x, dim, true), dim, 0, k)",
        torch="torch.topk(x, k, dim)[0]",
        aten=("aten.topk.default(x, k, dim)[0]",),
    ),
    op(
        "topk_indices(x: tensor, k: size, dim: dim = -1)",
        "scan",
        "the positions of the k largest elements along dim",
        definition="narrow(sort_indices(x, dim, true), dim, 0, k)",
        torch="torch.topk(x, k, dim)[1]",
        aten=("aten.topk.default(x, k, dim)[1]",),
    ),
)


CONTRACTIONS: tuple[OpSpec, ...] = (
    op(
        "matmul(a: tensor, b: tensor)",
        "contraction",
        "Σₖ a[…, i, k] · b[…, k, j], batches broadcast",
        shape="matmul",
        torch="torch.matmul(a, b)",
        aten=("aten.matmul.default(a, b)", "aten.mm.default(a, b)", "aten.bmm.default(a, b)"),
        aliases=("mv", "mm", "bmm"),
    ),
    op(
        "outer(a: tensor, b: tensor)",
        "contraction",
        "a[i] · b[j]",
        definition="unsqueeze(a, 1) * unsqueeze(b, 0)",
        torch="torch.outer(a, b)",
        aten=("aten.outer.default(a, b)",),
    ),
    op(
        "dot(a: tensor, b: tensor)",
        "contraction",
        "Σ a · b of two vectors",
        definition="sum(a * b, -1)",
        torch="torch.dot(a, b)",
        aten=("aten.dot.default(a, b)",),
        aliases=("vdot",),
    ),
    op(
        "einsum(equation: string, tensors: tensors)",
        "contraction",
        "the sum of products that the letters spell",
        definition=_einsum,
        torch="torch.einsum(equation, tensors)",
        aten=("aten.einsum.default(equation, tensors)",),
    ),
)

REDUCTION_OPS = (*REDUCTIONS, *CONTRACTIONS)
