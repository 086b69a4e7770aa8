"""Op table: names that torch has for what the rest of the table can say. Each is a definition, so no other part has to know it."""

from __future__ import annotations

from adapterc.dsl.opspec import OpSpec, op
from adapterc.dsl.table_model import pool

ELEMENTWISE: tuple[OpSpec, ...] = (
    op(
        "addcmul(x, a, b, value: number = 1)",
        "elementwise",
        "x + value·a·b",
        definition="x + a * b if value == 1 else x + value * (a * b)",
        torch="torch.addcmul(x, a, b, value=value)",
        aten=("aten.addcmul.default(x, a, b, value=value)",),
    ),
    op(
        "addcdiv(x, a, b, value: number = 1)",
        "elementwise",
        "x + value·a/b",
        definition="x + a / b if value == 1 else x + value * (a / b)",
        torch="torch.addcdiv(x, a, b, value=value)",
        aten=("aten.addcdiv.default(x, a, b, value=value)",),
    ),
    op("rsub(a, b, alpha: number = 1)", "elementwise", "b - alpha·a", definition="b - a if alpha == 1 else b - alpha * a"),
    op(
        "logaddexp(a, b)",
        "elementwise",
        "log(eᵃ + eᵇ)",
        definition="log(exp(a) + exp(b))",
        torch="torch.logaddexp(a, b)",
        aten=("aten.logaddexp.default(a, b)",),
    ),
    op(
        "hypot(a, b)",
        "elementwise",
        "√(a² + b²)",
        definition="sqrt(a * a + b * b)",
        torch="torch.hypot(a, b)",
        aten=("aten.hypot.default(a, b)",),
    ),
    op("clamp_min(x, min)", "elementwise", "max(x, min)", definition="maximum(x, min)"),
    op("clamp_max(x, max)", "elementwise", "min(x, max)", definition="minimum(x, max)"),
    op("hardtanh(x, min: number = -1, max: number = 1)", "elementwise", "x between two bounds", definition="clamp(x, min, max)"),
    op("tanhshrink(x)", "elementwise", "x - tanh(x)", definition="x - tanh(x)", torch="torch.nn.functional.tanhshrink(x)"),
    op(
        "hardshrink(x, threshold: number = 0.5)",
        "elementwise",
        "x where |x| is above the threshold, 0 elsewhere",
        definition="where(abs(x) > threshold, x, 0.0)",
        torch="torch.nn.functional.hardshrink(x, threshold)",
        aten=("aten.hardshrink.default(x, threshold)",),
    ),
    op(
        "threshold(x, threshold: number, value: number)",
        "elementwise",
        "x above the threshold, value elsewhere",
        definition="where(x > threshold, x, value)",
        torch="torch.nn.functional.threshold(x, threshold, value)",
        aten=("aten.threshold.default(x, threshold, value)",),
    ),
    op(
        "quantize(x, scale, zero_point = 0, low: number = -128, high: number = 127)",
        "elementwise",
        "the nearest step of a grid, between two bounds; the number format is kept",
        definition="clamp(round(x / scale) + zero_point, low, high)",
    ),
    op("dequantize(q, scale, zero_point = 0)", "elementwise", "(q - zero_point) · scale", definition="(q - zero_point) * scale"),
    op(
        "fake_quantize(x, scale, zero_point = 0, low: number = -128, high: number = 127)",
        "elementwise",
        "quantize, then dequantize",
        definition="dequantize(quantize(x, scale, zero_point, low, high), scale, zero_point)",
    ),
    op("float(x)", "elementwise", "x in float32", definition="to(x, float32)"),
    op("half(x)", "elementwise", "x in float16", definition="to(x, float16)"),
    op("double(x)", "elementwise", "x in float64", definition="to(x, float64)"),
    op("long(x)", "elementwise", "x in int64", definition="to(x, int64)"),
)

REDUCTIONS: tuple[OpSpec, ...] = (
    op(
        "softmin(x: tensor, dim: dim)",
        "reduction",
        "softmax of -x",
        definition="softmax(-x, dim)",
        torch="torch.nn.functional.softmin(x, dim)",
    ),
    op("logcumsumexp(x: tensor, dim: dim)", "scan", "log of the running sums of eˣ", definition="log(cumsum(exp(x), dim))"),
    op("trace(x: tensor)", "reduction", "the sum of the diagonal", definition="sum(diagonal(x), -1)"),
    op(
        "count_nonzero(x: tensor, dim: dims = None)",
        "reduction",
        "how many elements are not 0",
        definition="sum(to(x != 0, int64), dim)",
        torch="torch.count_nonzero(x, dim)",
    ),
    op(
        "instance_norm(x: tensor, w: tensor = None, b: tensor = None, eps: number = 1e-5)",
        "reduction",
        "group_norm with one channel a group",
        definition="group_norm(x, size(x, 1), w, b, eps)",
    ),
    op(
        "max_pool1d(x: tensor, kernel: size, stride: size = None, padding: size = 0)",
        "reduction",
        "the largest element of each window; padding never wins",
        definition=lambda bound: pool(bound, "amax", 1),
        torch="torch.nn.functional.max_pool1d(x, kernel, stride, padding)",
    ),
    op(
        "avg_pool1d(x: tensor, kernel: size, stride: size = None, padding: size = 0, count_include_pad: bool = True)",
        "reduction",
        "the mean of each window",
        definition=lambda bound: pool(bound, "mean", 1),
    ),
    op("global_avg_pool2d(x: tensor)", "reduction", "the mean of each channel, as one place", definition="mean(x, [-2, -1], true)"),
)

LAYOUT: tuple[OpSpec, ...] = (
    op(
        "pixel_shuffle(x: tensor, r: size)",
        "layout",
        "channels laid out as r × r blocks of pixels",
        definition="c = size(x, 1) / (r * r); b = reshape(x, [size(x, 0), c, r, r, size(x, 2), size(x, 3)]); "
        "reshape(permute(b, [0, 1, 4, 2, 5, 3]), [size(x, 0), c, size(x, 2) * r, size(x, 3) * r])",
        torch="torch.pixel_shuffle(x, r)",
        aten=("aten.pixel_shuffle.default(x, r)",),
    ),
    op(
        "pixel_unshuffle(x: tensor, r: size)",
        "layout",
        "r × r blocks of pixels as channels",
        definition="h = size(x, 2) / r; v = size(x, 3) / r; b = reshape(x, [size(x, 0), size(x, 1), h, r, v, r]); "
        "reshape(permute(b, [0, 1, 3, 5, 2, 4]), [size(x, 0), size(x, 1) * r * r, h, v])",
        torch="torch.pixel_unshuffle(x, r)",
        aten=("aten.pixel_unshuffle.default(x, r)",),
    ),
    op(
        "upsample_nearest(x: tensor, scale: size)",
        "layout",
        "each pixel of the last two dimensions repeated as a block",
        definition="repeat_interleave(repeat_interleave(x, scale, -1), scale, -2)",
    ),
    op(
        "diff(x: tensor, dim: dim = -1)",
        "elementwise",
        "each element less the one before it",
        definition="n = size(x, dim) - 1; narrow(x, dim, 1, n) - narrow(x, dim, 0, n)",
        torch="torch.diff(x, 1, dim)",
    ),
    op("take_along_dim(x: tensor, index: tensor, dim: dim)", "index", "gather", definition="gather(x, dim, index)"),
    op("addmv(b: tensor, x: tensor, v: tensor)", "contraction", "b + x · v", definition="b + x @ v", torch="torch.addmv(b, x, v)"),
)

TORCH_OPS = (*ELEMENTWISE, *REDUCTIONS, *LAYOUT)
