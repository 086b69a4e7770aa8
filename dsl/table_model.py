"""Op table: the composites that models are made of, and what is known at build time (sizes, number formats, conditions)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from adapterc.dsl.ast import Call, Expr, Literal, Name, Sequence
from adapterc.dsl.opspec import OpSpec, op


def _pair(value: Expr) -> tuple[Expr, Expr]:
    if isinstance(value, Sequence):
        if len(value.items) not in (1, 2):
            raise ValueError("one number or two are expected, one a spatial dimension")
        return value.items[0], value.items[-1]
    return value, value


def _single(value: Expr) -> Expr:
    if isinstance(value, Sequence):
        if len(value.items) != 1:
            raise ValueError("one number is expected for the one spatial dimension")
        return value.items[0]
    return value


def _windows(x: Expr, dim: int, size: Expr, stride: Expr, dilation: Expr) -> Expr:
    """Windows along dim as a new last dimension; a dilated window is a longer one, thinned."""
    span = Call("add", (Call("mul", (Call("sub", (size, Literal(1))), dilation)), Literal(1)))
    windows = Call("unfold", (x, Literal(dim), span, stride))
    return windows if dilation == Literal(1) else Call("slice", (windows, Literal(-1), Literal(0), Literal(None), dilation))


def _size(x: Expr, dim: int) -> Expr:
    return Call("size", (x, Literal(dim)))


def _conv(bound: Mapping[str, Expr], spatial: int) -> Expr:
    """Windows times weights, summed over channels and window: what a convolution is."""
    x, w, b, groups = bound["x"], bound["w"], bound["b"], bound["groups"]
    read = _pair if spatial == 2 else lambda value: (_single(value),)
    windows = x
    for i, (stride, padding, dilation) in enumerate(
        zip(read(bound["stride"]), read(bound["padding"]), read(bound["dilation"]), strict=True)
    ):
        windows = Call("pad", (windows, Literal(2 + i), padding, padding, Literal(0)))
        windows = _windows(windows, 2 + i, _size(w, 2 + i), stride, dilation)
    # [n, c, *out, *kernel] -> [n, g, 1, c/g, *out, *kernel]; weights -> [g, o/g, c/g, 1…, *kernel]
    grouped = Call("unsqueeze", (Call("unflatten", (windows, Literal(1), Sequence((groups, _size(w, 1))))), Literal(2)))
    weights: Expr = Call("unflatten", (w, Literal(0), Sequence((groups, Call("div", (_size(w, 0), groups))))))
    for _ in range(spatial):
        weights = Call("unsqueeze", (weights, Literal(3)))
    summed = (3, *(4 + spatial + i for i in range(spatial)))
    total = Call("sum", (Call("mul", (grouped, weights)), Sequence(tuple(Literal(d) for d in summed))))
    result: Expr = Call("flatten", (total, Literal(1), Literal(2)))
    if b != Literal(None):
        bias: Expr = b
        for _ in range(spatial):
            bias = Call("unsqueeze", (bias, Literal(-1)))
        result = Call("add", (result, bias))
    return result


def pool(bound: Mapping[str, Expr], reducer: str, spatial: int) -> Expr:
    """Windows over the last `spatial` dimensions, reduced. Padding never wins a maximum; in a mean it counts as zeros, or not at all."""
    if reducer == "mean" and bound["count_include_pad"] == Literal(False):
        ones = Call("full_like", (bound["x"], Literal(1)))
        return Call("div", (_pooled(bound, bound["x"], Literal(0), "sum", spatial), _pooled(bound, ones, Literal(0), "sum", spatial)))
    return _pooled(bound, bound["x"], Call("neg", (Name("inf"),)) if reducer == "amax" else Literal(0), reducer, spatial)


def _pooled(bound: Mapping[str, Expr], x: Expr, fill: Expr, reducer: str, spatial: int) -> Expr:
    stride = bound["stride"] if bound["stride"] not in (Literal(None), Sequence(())) else bound["kernel"]
    read = _pair if spatial == 2 else lambda value: (_single(value),)
    for size, step, padding in zip(read(bound["kernel"]), read(stride), read(bound["padding"]), strict=True):
        # A window goes to the end, which brings the next spatial dimension to the same place.
        x = Call("pad", (x, Literal(-spatial), padding, padding, fill))
        x = Call("unfold", (x, Literal(-spatial), size, step))
    return Call(reducer, (x, Sequence(tuple(Literal(d - spatial) for d in range(spatial)))))


def _extent(bound: Mapping[str, Expr]) -> Expr:
    x, dim = bound["x"], bound["dim"]
    if dim == Literal(None):
        return Call("numel", (x,))
    dims = dim.items if isinstance(dim, Sequence) else (dim,)
    sizes: list[Expr] = [Call("size", (x, d)) for d in dims]
    return reduce(lambda a, b: Call("mul", (a, b)), sizes) if sizes else Literal(1)


def _last_dims(bound: Mapping[str, Expr]) -> Expr:
    sizes = bound["sizes"]
    count = len(sizes.items) if isinstance(sizes, Sequence) else 1
    return Sequence(tuple(Literal(i - count) for i in range(count)))


LINEAR: tuple[OpSpec, ...] = (
    op(
        "linear(x: tensor, w: tensor, b: tensor = None)",
        "contraction",
        "x · wᵀ + b",
        definition="x @ transpose(w, 0, 1) if b == None else x @ transpose(w, 0, 1) + b",
        torch="torch.nn.functional.linear(x, w, b)",
        aten=("aten.linear.default(x, w, b)",),
    ),
    op(
        "addmm(b: tensor, x: tensor, w: tensor, beta: number = 1, alpha: number = 1)",
        "contraction",
        "beta·b + alpha·(x · w); b is not read when beta is 0",
        definition="p = x @ w if alpha == 1 else alpha * (x @ w); p if beta == 0 else p + b if beta == 1 else p + beta * b",
        torch="torch.addmm(b, x, w, beta=beta, alpha=alpha)",
        aten=("aten.addmm.default(b, x, w, beta=beta, alpha=alpha)",),
    ),
    op(
        "baddbmm(b: tensor, x: tensor, w: tensor, beta: number = 1, alpha: number = 1)",
        "contraction",
        "addmm with a batch",
        definition="addmm(b, x, w, beta, alpha)",
        torch="torch.baddbmm(b, x, w, beta=beta, alpha=alpha)",
        aten=("aten.baddbmm.default(b, x, w, beta=beta, alpha=alpha)",),
    ),
    op(
        "conv1d(x: tensor, w: tensor, b: tensor = None, stride: sizes = 1, padding: sizes = 0, dilation: sizes = 1, groups: size = 1)",
        "contraction",
        "windows of x times the weights, summed",
        definition=lambda bound: _conv(bound, 1),
        torch="torch.nn.functional.conv1d(x, w, b, stride, padding, dilation, groups)",
        aten=("aten.conv1d.default(x, w, b, stride, padding, dilation, groups)",),
    ),
    op(
        "conv2d(x: tensor, w: tensor, b: tensor = None, stride: sizes = 1, padding: sizes = 0, dilation: sizes = 1, groups: size = 1)",
        "contraction",
        "windows of x times the weights, summed",
        definition=lambda bound: _conv(bound, 2),
        torch="torch.nn.functional.conv2d(x, w, b, stride, padding, dilation, groups)",
        aten=(
            "aten.conv2d.default(x, w, b, stride, padding, dilation, groups)",
            "aten.conv2d.padding(x, w, b, stride, 'valid', dilation, groups)",
            "aten.convolution.default(x, w, b, stride, padding, dilation, False, [0, 0], groups)",
        ),
    ),
    op(
        "max_pool2d(x: tensor, kernel: sizes, stride: sizes = [], padding: sizes = 0)",
        "reduction",
        "the largest element of each window; padding never wins",
        definition=lambda bound: pool(bound, "amax", 2),
        torch="torch.nn.functional.max_pool2d(x, kernel, stride, padding)",
        aten=("aten.max_pool2d.default(x, kernel, stride, padding)",),
    ),
    op(
        "avg_pool2d(x: tensor, kernel: sizes, stride: sizes = [], padding: sizes = 0, count_include_pad: bool = True)",
        "reduction",
        "the mean of each window; padding counts as zeros unless count_include_pad is false",
        definition=lambda bound: pool(bound, "mean", 2),
        torch="torch.nn.functional.avg_pool2d(x, kernel, stride, padding, False, count_include_pad)",
        aten=("aten.avg_pool2d.default(x, kernel, stride, padding, False, count_include_pad)",),
    ),
)

NORMS: tuple[OpSpec, ...] = (
    op(
        "softmax(x: tensor, dim: dim, dtype: dtype = None)",
        "reduction",
        "eˣ / Σ eˣ along dim",
        definition="e = exp(x if dtype == None else to(x, dtype)); e / sum(e, dim, true)",
        torch="torch.softmax(x, dim, dtype=dtype)",
        aten=("aten.softmax.int(x, dim, dtype)", "aten._softmax.default(x, dim, False)"),
    ),
    op(
        "log_softmax(x: tensor, dim: dim, dtype: dtype = None)",
        "reduction",
        "x - log Σ eˣ along dim",
        definition="y = x if dtype == None else to(x, dtype); y - log(sum(exp(y), dim, true))",
        torch="torch.log_softmax(x, dim, dtype=dtype)",
        aten=("aten.log_softmax.int(x, dim, dtype)", "aten._log_softmax.default(x, dim, False)"),
    ),
    op(
        "layer_norm(x: tensor, normalized: sizes, w: tensor = None, b: tensor = None, eps: number = 1e-5)",
        "reduction",
        "(x - mean) / √(var + eps) · w + b over the last dimensions",
        definition="dims = last_dims(normalized); c = x - mean(x, dims, true); n = c / sqrt(mean(c * c, dims, true) + eps); "
        "s = n if w == None else n * w; s if b == None else s + b",
        torch="torch.nn.functional.layer_norm(x, normalized, w, b, eps)",
        aten=("aten.layer_norm.default(x, normalized, w, b, eps, _)", "aten.native_layer_norm.default(x, normalized, w, b, eps)[0]"),
    ),
    op(
        "rms_norm(x: tensor, normalized: sizes, w: tensor = None, eps: number = None)",
        "reduction",
        "x / √(mean x² + eps) · w over the last dimensions; without eps, the format's own epsilon",
        definition="dims = last_dims(normalized); n = x / sqrt(mean(x * x, dims, true) + (finfo_eps(dtype_of(x)) if eps == None else eps)); "
        "n if w == None else n * w",
        torch="torch.nn.functional.rms_norm(x, normalized, w, eps)",
        aten=("aten.rms_norm.default(x, normalized, w, eps)",),
    ),
    op(
        "batch_norm(x: tensor, w: tensor, b: tensor, mean: tensor, var: tensor, eps: number = 1e-5)",
        "elementwise",
        "(x - mean) / √(var + eps) · w + b by channel (dimension 1), with stored statistics",
        definition="k = channel(w / sqrt(var + eps), x); x * k + channel(b - mean * w / sqrt(var + eps), x)",
        aten=(
            "aten.batch_norm.default(x, w, b, mean, var, False, _, eps, _)",
            "aten._native_batch_norm_legit_no_training.default(x, w, b, mean, var, _, eps)[0]",
        ),
    ),
    op(
        "group_norm(x: tensor, groups: size, w: tensor = None, b: tensor = None, eps: number = 1e-5)",
        "reduction",
        "layer_norm over each group of channels (dimension 1)",
        definition="g = reshape(x, [size(x, 0), groups, -1]); c = g - mean(g, -1, true); "
        "n = reshape_as(c / sqrt(mean(c * c, -1, true) + eps), x); "
        "s = n if w == None else n * channel(w, x); s if b == None else s + channel(b, x)",
        torch="torch.nn.functional.group_norm(x, groups, w, b, eps)",
        aten=("aten.group_norm.default(x, groups, w, b, eps, _)",),
    ),
    op("channel(v: tensor, like: tensor)", "layout", "a vector laid along dimension 1 of a tensor of the rank of `like`", shape="channel"),
    op(
        "reshape_as(x: tensor, like: tensor)",
        "layout",
        "x reshaped to the sizes of `like`",
        shape="expand_as",
        torch="torch.Tensor.reshape_as(x, like)",
        aten=("aten.reshape_as.default(x, like)", "aten.view_as.default(x, like)"),
    ),
    op(
        "normalize(x: tensor, dim: dim = 1, eps: number = 1e-12)",
        "reduction",
        "x / max(‖x‖₂, eps) along dim",
        definition="x / maximum(sqrt(sum(x * x, dim, true)), eps)",
    ),
)

ATTENTION: tuple[OpSpec, ...] = (
    op(
        "repeat_kv(x: tensor, groups: size)",
        "layout",
        "each head (dimension -3) repeated `groups` times in place",
        definition="repeat_interleave(x, groups, -3)",
    ),
    op(
        "sdpa(q: tensor, k: tensor, v: tensor, mask: tensor = None, scale: number = None, causal: bool = False, enable_gqa: bool = False)",
        "contraction",
        "softmax(q·kᵀ·scale + mask) · v; a bool mask keeps the true places; scale is 1/√d unless given",
        definition="kk = repeat_kv(k, size(q, -3) / size(k, -3)) if enable_gqa else k; "
        "vv = repeat_kv(v, size(q, -3) / size(v, -3)) if enable_gqa else v; "
        "raw = (q @ transpose(kk, -2, -1)) * (1 / sqrt(size(q, -1)) if scale == None else scale); "
        "seen = where(unsqueeze(arange(size(q, -2)), 1) >= arange(size(kk, -2)), raw, -inf) if causal else raw; "
        "scores = seen if mask == None else where(mask, seen, -inf) if is_bool(mask) else seen + mask; "
        "softmax(scores, -1) @ vv",
        shape="sdpa",
        torch="torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, is_causal=causal, enable_gqa=enable_gqa)",
        aten=("aten.scaled_dot_product_attention.default(q, k, v, mask, _, causal, scale=scale, enable_gqa=enable_gqa)",),
        aliases=("scaled_dot_product_attention",),
    ),
    op(
        "rotate_half(x: tensor)",
        "layout",
        "the last dimension's halves swapped, the new first half negated",
        definition="d = size(x, -1); cat([-x[..., d / 2:], x[..., :d / 2]], -1)",
    ),
    op(
        "rotate_pairs(x: tensor)",
        "layout",
        "each pair (a, b) of the last dimension becomes (-b, a)",
        definition="reshape_as(stack([-x[..., 1::2], x[..., ::2]], -1), x)",
    ),
    op(
        "rope(x: tensor, cos: tensor, sin: tensor)",
        "elementwise",
        "x·cos + rotate_half(x)·sin",
        definition="x * cos + rotate_half(x) * sin",
    ),
    op(
        "rope_interleaved(x: tensor, cos: tensor, sin: tensor)",
        "elementwise",
        "x·cos + rotate_pairs(x)·sin",
        definition="x * cos + rotate_pairs(x) * sin",
    ),
    op(
        "rotate_half_matrix(d: size, dtype: dtype = None)",
        "source",
        "R with x @ R = rotate_half(x)",
        definition="rotate_half(eye(d, dtype))",
    ),
    op(
        "rotate_pairs_matrix(d: size, dtype: dtype = None)",
        "source",
        "R with x @ R = rotate_pairs(x)",
        definition="rotate_pairs(eye(d, dtype))",
    ),
    op(
        "glu(x: tensor, dim: dim = -1)",
        "elementwise",
        "the first half times the sigmoid of the second",
        definition="chunk_piece(x, 2, 0, dim) * sigmoid(chunk_piece(x, 2, 1, dim))",
        torch="torch.nn.functional.glu(x, dim)",
        aten=("aten.glu.default(x, dim)",),
    ),
)

STATIC: tuple[OpSpec, ...] = (
    op(
        "size(x: tensor, dim: dim)",
        "static",
        "the size of a dimension",
        shape="size",
        torch="torch.Tensor.size(x, dim)",
        aten=("aten.sym_size.int(x, dim)",),
    ),
    op("numel(x: tensor)", "static", "the number of elements", shape="size", torch="torch.numel(x)"),
    op("rank(x: tensor)", "static", "the number of dimensions", shape="size", torch="torch.Tensor.dim(x)"),
    op("extent(x: tensor, dim: dims = None)", "static", "the number of elements along the dimensions", definition=_extent),
    op("last_dims(sizes: sizes)", "static", "[-1], [-2, -1], …: as many trailing dimensions as sizes are listed", definition=_last_dims),
    op("length(values: static)", "static", "the number of entries of a list", shape="size"),
    op("dtype_of(x: tensor)", "static", "the number format of a tensor", shape="dtype"),
    op("is_bool(x: tensor)", "static", "the tensor holds truth values", shape="predicate"),
    op("finfo_min(dtype: dtype)", "static", "the most negative finite number of a format", shape="number"),
    op("finfo_max(dtype: dtype)", "static", "the largest finite number of a format", shape="number"),
    op("finfo_eps(dtype: dtype)", "static", "the gap above 1 in a format", shape="number"),
    op("finfo_tiny(dtype: dtype)", "static", "the smallest normal number of a format", shape="number"),
    op(
        "choose(condition: static, value: static, otherwise: static)",
        "static",
        "`value if condition else otherwise`, decided when the rule is built",
        shape="choose",
    ),
    op("stick(dtype: dtype)", "static", "elements of a format in one 128-byte stick", shape="size"),
    op("ceil_div(n: size, m: size)", "static", "n / m rounded up", definition="-floor_div(-n, m)"),
    op("ceil_to(n: size, m: size)", "static", "the smallest multiple of m that is ≥ n", definition="ceil_div(n, m) * m"),
    op("gcd(a: size, b: size)", "static", "the greatest common divisor", shape="size"),
    op("lcm(a: size, b: size)", "static", "the least common multiple", shape="size"),
    op("lpf(n: size)", "static", "the largest prime factor of n; 1 for 1", shape="size"),
    op("smooth(n: size, limit: size)", "static", "the smallest m ≥ n that has no prime factor above limit", shape="size"),
    op("is_power_of_two(n: size)", "static", "n is 1, 2, 4, …", shape="predicate"),
    op("is_integer(n: static)", "static", "n is a whole number", shape="predicate"),
    op("contains(item: static, values: static)", "predicate", "`item in values`", shape="predicate"),
    op("gap(id: string)", "predicate", "the backend profile has this gap open", shape="predicate"),
    op("has(record: static, field: string)", "predicate", "the config (or a part of it) has this field", shape="predicate"),
    op("glob(text: static, pattern: string)", "predicate", "the text matches a pattern of `*` and `?`", shape="predicate"),
)

MODEL_OPS = (*LINEAR, *NORMS, *ATTENTION, *STATIC)
