"""The op table against itself and against torch: what an entry says about an op is one thing, and it is true.

For each op one sample call is evaluated three ways: by its torch form, by its definition over primitives, and by each ATen overload.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import pytest
import torch

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript, names
from adapterc.dsl.infer import Inference
from adapterc.dsl.ops import ALIASES, CONSTANT_NAMES, DTYPE_NAMES, OPS, bind, expand, expand_once
from adapterc.dsl.opspec import FAMILIES, Anything, CallForm, OpSpec, Use
from adapterc.dsl.parser import parse_definition, parse_expression
from adapterc.dsl.poly import number
from adapterc.dsl.shapeargs import NONE
from adapterc.dsl.shapes import rule_of
from adapterc.dsl.values import NumberValue, TensorValue, category
from adapterc.dsl.values import Rest as RestAxis

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}


def _inputs() -> dict[str, torch.Tensor]:
    """Tensors with which the samples are written: letters say the shape, all float64 in (0.1, 0.9) or of either sign."""
    torch.manual_seed(7)
    real = {
        "x": (2, 3, 4), "y": (2, 3, 4), "row": (4,), "m": (3, 4), "n": (4, 5), "s": (4, 4), "v3": (3,), "img": (2, 4, 6, 6), "seq": (2, 4, 7),
        "k2": (6, 2, 3, 3), "k1": (6, 2, 3), "o6": (6,), "c4": (4,), "q": (2, 4, 5, 8), "k": (2, 2, 6, 8), "v": (2, 2, 6, 8), "kk": (2, 4, 6, 8),
        "vv": (2, 4, 6, 8), "bias": (5, 6), "one": (3, 1, 4), "pairs": (2, 3, 8), "ba": (2, 3, 4), "bb": (2, 4, 5), "bc": (2, 3, 5), "m5": (3, 5), "o5": (5,),
        "src": (2, 2, 4), "slab": (2, 4),
    }  # fmt: skip
    tensors = {name: torch.randn(shape, dtype=torch.float64) for name, shape in real.items()}
    tensors["p"] = torch.rand(2, 3, 4, dtype=torch.float64) * 0.8 + 0.1
    tensors["r"] = torch.rand(2, 3, 4, dtype=torch.float64) * 0.8 + 0.1
    tensors["i"] = torch.tensor([[3, -5, 12, 7], [0, 9, -2, 1], [6, 4, 8, -7]])
    tensors["j"] = torch.tensor([1, 2, 3, 2])
    tensors["b"] = torch.tensor([[True, False, True, True], [False, False, True, False], [True, True, True, True]])
    tensors["c"] = torch.tensor([True, False, True, False])
    tensors["ids"] = torch.tensor([[2, 0], [1, 2]])
    tensors["rows"] = torch.tensor([2, 0])
    tensors["g0"], tensors["g1"] = torch.tensor([1, 0]), torch.tensor([2, -1])
    tensors["g"] = torch.tensor([[[0, 2, 1, 1], [2, 1, 0, 0]]]).expand(2, 2, 4).contiguous()
    tensors["keep"] = torch.tensor([[True, True, False, True, True, False]] * 5)
    return tensors


TENSORS = _inputs()

# One call an op whose arguments cannot be told from its signature; ops that are missing here are called on `x`, or on `p` and `r`.
SAMPLES: Mapping[str, str] = {
    "floor_div": "floor_div(x, y)", "trunc_div": "trunc_div(x, y)", "remainder": "remainder(x, y)", "fmod": "fmod(x, y)", "pow": "pow(p, r)",
    "lshift": "lshift(i, j)", "rshift": "rshift(i, j)", "bitwise_and": "bitwise_and(i, j)", "bitwise_or": "bitwise_or(b, c)",
    "bitwise_xor": "bitwise_xor(i, j)", "bitwise_not": "bitwise_not(i)", "logical_and": "logical_and(b, c)", "logical_or": "logical_or(b, c)",
    "logical_xor": "logical_xor(b, c)", "logical_not": "logical_not(b)", "clamp": "clamp(x, -0.5, 0.5)", "lerp": "lerp(x, y, 0.25)",
    "prelu": "prelu(x, row)", "where": "where(b, m, row)", "masked_fill": "masked_fill(m, b, 2.5)", "softcap": "softcap(x, 3.0)",
    "to": "to(x, float32)", "type_as": "type_as(i, x)", "dropout": "dropout(x, 0.5)", "acosh": "acosh(x * x + 1)", "logit": "logit(p)",
    "sum": "sum(x, [0, -1])", "mean": "mean(x, -1, true)", "prod": "prod(x, 1)", "amax": "amax(x, -1)", "amin": "amin(x, [0, 1], true)",
    "any": "any(b, -1)", "all": "all(b, 0, true)", "logsumexp": "logsumexp(x, -1)", "cumsum": "cumsum(x, 1)", "cumprod": "cumprod(x, -1)",
    "argmax": "argmax(x, -1)", "argmin": "argmin(x, 1, true)", "topk_values": "topk_values(x, 2)", "topk_indices": "topk_indices(x, 2)",
    "einsum": "einsum(\"bhqd,bhkd->bhqk\", [q, kk])", "reshape": "reshape(x, [6, -1])", "flatten": "flatten(x, 1)",
    "unflatten": "unflatten(pairs, -1, [2, -1])", "permute": "permute(x, [2, 0, 1])", "transpose": "transpose(x, 0, -1)", "t": "t(m)",
    "movedim": "movedim(x, 0, 2)", "expand": "expand(one, [3, 5, -1])", "expand_as": "expand_as(row, x)", "repeat": "repeat(m, [2, 1, 3])",
    "repeat_interleave": "repeat_interleave(x, 2, 1)", "squeeze": "squeeze(one, 1)", "unsqueeze": "unsqueeze(x, -1)", "select": "select(x, 1, 2)",
    "narrow": "narrow(x, -1, 1, 2)", "slice": "slice(x, -1, 1, 4, 2)", "flip": "flip(x, [0, 2])", "roll": "roll(x, [1, 2], [0, 2])",
    "unfold": "unfold(x, -1, 2, 1)", "diagonal": "diagonal(s)", "cat": "cat([x, y], 1)", "stack": "stack([x, y], -1)",
    "split_piece": "split_piece(x, 3, 1, -1)", "split_sizes_piece": "split_sizes_piece(x, [1, 3], 1, -1)", "chunk_piece": "chunk_piece(x, 2, 1, -1)",
    "unbind_piece": "unbind_piece(x, 1, 0)", "pad": "pad(x, -1, 1, 2, 3.5)", "constant_pad": "constant_pad(x, [1, 2, 0, 1], 0.5)",
    "take": "take(m, ids)", "take_pair": "take_pair(x, g0, g1)", "embedding": "embedding(m, ids)", "index_select": "index_select(x, 1, rows)", "gather": "gather(x, 1, g)",
    "index_copy": "index_copy(x, 1, rows, src)", "scatter": "scatter(x, 1, narrow(g, 1, 0, 1), src)",
    "scatter_value": "scatter_value(x, 1, g, 5.0)", "select_scatter": "select_scatter(x, slab, 1, 2)",
    "slice_scatter": "slice_scatter(x, src, 1, 1, 3)", "one_hot": "one_hot(ids, 4)", "tril": "tril(s, 1)", "triu": "triu(s)",
    "matmul": "matmul(x, n)", "outer": "outer(v3, row)", "dot": "dot(row, c4)", "arange": "arange(7, 1, 2)", "full": "full([2, 3], 1.5)",
    "zeros": "zeros([2, 3])", "ones": "ones([4])", "eye": "eye(4)", "full_like": "full_like(x, 2)", "zeros_like": "zeros_like(x)",
    "ones_like": "ones_like(i)", "permutation_matrix": "permutation_matrix([2, 0, 1])", "tensor": "tensor([2, 0, 1])",
    "linear": "linear(x, transpose(n, 0, 1), o5)", "addmm": "addmm(m5, m, n, 0.5, 2)", "baddbmm": "baddbmm(bc, ba, bb, 1, 2)",
    "conv1d": "conv1d(seq, k1, o6, 2, 1, 1, 2)", "conv2d": "conv2d(img, k2, o6, [1, 2], [1, 0], [2, 1], 2)",
    "max_pool2d": "max_pool2d(img, [3, 2], [2, 1], 1)", "avg_pool2d": "avg_pool2d(img, 2, [], 1)", "softmax": "softmax(x, -1)",
    "log_softmax": "log_softmax(x, 1)", "layer_norm": "layer_norm(x, [3, 4], m, m)", "rms_norm": "rms_norm(x, [4], row, 1e-6)",
    "batch_norm": "batch_norm(img, c4, row, row, c4 * c4)", "group_norm": "group_norm(img, 2, c4, row)", "channel": "channel(c4, img)",
    "reshape_as": "reshape_as(x, flatten(y, 1))", "normalize": "normalize(x, -1)", "repeat_kv": "repeat_kv(k, 2)",
    "sdpa": "sdpa(q, k, v, bias, 0.3, enable_gqa=true)", "rotate_half": "rotate_half(x)", "rotate_pairs": "rotate_pairs(x)",
    "rope": "rope(x, y, p)", "rope_interleaved": "rope_interleaved(x, y, p)", "rotate_half_matrix": "rotate_half_matrix(6, float64)",
    "rotate_pairs_matrix": "rotate_pairs_matrix(6, float64)", "glu": "glu(x)", "vector_norm": "vector_norm(x, 3, -1)", "xlogy": "xlogy(p, r)",
    "size": "size(x, -1)", "numel": "numel(x)", "rank": "rank(x)", "extent": "extent(x, [0, 2])", "last_dims": "last_dims([3, 4])",
    "length": "length([1, 2])", "dtype_of": "dtype_of(x)", "is_bool": "is_bool(b)", "finfo_min": "finfo_min(float16)",
    "finfo_max": "finfo_max(float32)", "finfo_eps": "finfo_eps(float64)", "finfo_tiny": "finfo_tiny(bfloat16)",
    "choose": "choose(size(x, 0) == 2, 3, 4)", "stick": "stick(float16)", "ceil_div": "ceil_div(7, 2)", "ceil_to": "ceil_to(80, 64)",
    "gcd": "gcd(12, 18)", "lcm": "lcm(4, 6)", "lpf": "lpf(84)", "smooth": "smooth(101, 7)", "is_power_of_two": "is_power_of_two(8)",
    "is_integer": "is_integer(3 / 2)", "contains": "contains(2, [1, 2])", "gap": "gap(\"a\")", "has": "has(config, \"a\")",
    "glob": "glob(\"BertModel\", \"Bert*\")", "nan_to_num": "nan_to_num(x)",
    "threshold": "threshold(x, 0.1, 2.0)", "softmin": "softmin(x, -1)", "logcumsumexp": "logcumsumexp(x, 1)", "trace": "trace(s)",
    "max_pool1d": "max_pool1d(seq, 3, 2, 1)", "avg_pool1d": "avg_pool1d(seq, 3, 2, 1)", "pixel_shuffle": "pixel_shuffle(img, 2)",
    "pixel_unshuffle": "pixel_unshuffle(narrow(img, -1, 0, 4), 2)", "upsample_nearest": "upsample_nearest(img, 2)",
    "take_along_dim": "take_along_dim(x, g, 1)", "addmv": "addmv(narrow(o5, 0, 0, 3), m, row)", "global_avg_pool2d": "global_avg_pool2d(img)",
    "clamp_min": "clamp_min(x, 0.1)", "clamp_max": "clamp_max(x, 0.1)", "instance_norm": "instance_norm(img, c4, row)",
}  # fmt: skip

# More samples for arguments that take another path through the definition.
MORE_SAMPLES = (
    "gelu(x, \"tanh\")", "clamp(x, max=0.1)", "clamp(x, min=0.1)", "sum(x)", "mean(x)", "amax(x)", "argmax(x)", "any(b)", "all(b)", "var(x)", "var(x, [0, 1], 0, true)",
    "vector_norm(x)", "vector_norm(x, 1)", "vector_norm(x, inf, 1)", "linear(x, transpose(n, 0, 1))", "addmm(m5, m, n)", "addmm(m5, m, n, 0)",
    "conv2d(img, conv_w)", "conv1d(seq, conv_w1, None, 1, 2, 2)", "layer_norm(x, [4])", "rms_norm(x, [4])", "sdpa(q, kk, vv)", "sdpa(q, kk, vv, keep)",
    "sdpa(q, kk, vv, causal=true)", "max_pool2d(img, 2)", "softmax(x, -1, float32)", "take(m, rows)", "eye(3, float64)", "roll(x, 1, 0)", "squeeze(one, [1])",
    "sort_values(x, 0, true)", "split_piece(x, 3, 0, -1)", "tril(s, -1)", "embedding(m, rows)", "einsum(\"ij,jk->ik\", [m, n])", "einsum(\"ij->j\", [m])",
    "matmul(ba, bb)", "matmul(m, row)", "matmul(row, n)", "unsqueeze(x, 0)", "permute(m, [1, 0])", "constant_pad(x, [-1, 2])", "softplus(x * 30)", "avg_pool2d(img, 2, [], 1, false)", "addcmul(x, y, p, 2)", "addcdiv(x, y, p, 3)",
    "logical_not(x)", "relu(i)", "maximum(x, 0)", "pow(x, 3)", "pow(2, x)", "div(i, 2)", "add(i, 0.5)", "sub(1, x)", "where(b, 1, 0)", "to(b, float64)",
)  # fmt: skip
TENSORS["conv_w"] = torch.randn(3, 4, 3, 3, dtype=torch.float64)
TENSORS["conv_w1"] = torch.randn(3, 4, 3, dtype=torch.float64)


def sample(spec: OpSpec) -> Call:
    text = SAMPLES.get(spec.name)
    if text is None:
        required = [p for p in spec.params if p.default is None]
        text = f"{spec.name}({', '.join(['x', 'y', 'p'][: len(required)] if len(required) != 2 else ['x', 'y'])})"
    call = parse_expression(text)
    assert isinstance(call, Call)
    return call


def target(path: str) -> Any:
    if path.startswith(("aten.", "prims.")):
        return reduce(getattr, path.split("."), torch.ops)
    return reduce(getattr, path.split(".")[1:], torch)


def formed(form: CallForm, values: Mapping[str, Any]) -> Any:
    """Call a form with argument values; what may be anything takes the schema's default, or a value of its type."""
    function = target(form.target)
    schema = function._schema.arguments if hasattr(function, "_schema") else ()

    def value(item: Any, declared: Any) -> Any:
        match item:
            case Use(param=param):
                return values[param]
            case Anything():
                return _any_value(declared)
            case Literal(value=literal):
                return float(literal) if isinstance(literal, Fraction) else literal
        return [value(inner, None) for inner in item]

    positional = [value(item, schema[i] if i < len(schema) else None) for i, item in enumerate(form.positional)]
    keyword = {name: value(item, next((a for a in schema if a.name == name), None)) for name, item in form.keyword}
    result = function(*positional, **keyword)
    if form.output is None:
        return result
    return result[values[form.output.param] if isinstance(form.output, Use) else form.output]


def _any_value(argument: Any) -> Any:
    if argument.has_default_value():
        return argument.default_value
    kind = str(argument.type)
    return {"Device": torch.device("cpu"), "bool": False, "float": 0.1, "int": 0}[kind]


def evaluate(node: Expr, env: Mapping[str, Any]) -> Any:
    """The value of an expression over primitives, by their torch forms; shared subtrees once."""
    done: dict[int, tuple[Expr, Any]] = {}

    def visit(expression: Expr) -> Any:
        if id(expression) not in done:
            done[id(expression)] = (expression, _value(expression, env, visit))
        return done[id(expression)][1]

    return visit(node)


def _value(node: Expr, env: Mapping[str, Any], visit: Any) -> Any:
    match node:
        case Literal(value=value):
            return float(value) if isinstance(value, Fraction) else value
        case Name(id=name):
            known = {"inf": math.inf, "nan": math.nan, "pi": math.pi, **DTYPES}
            return env[name] if name in env else known[name]
        case Sequence(items=items):
            return [visit(item) for item in items]
        case Subscript(base=base, index=index):
            return visit(base)[tuple(visit(i) for i in index)]
        case Slice(start=start, stop=stop, step=step):
            return slice(*(None if part is None else int(visit(part)) for part in (start, stop, step)))
        case Rest():
            return ...
        case Attribute():
            raise AssertionError("samples read no config")
        case Call():
            spec = OPS[node.op]
            if spec.name == "choose":
                condition, chosen, otherwise = bind(node).values()
                return visit(chosen if visit(condition) else otherwise)
            values = {name: visit(argument) for name, argument in bind(node).items()}
            if spec.name in NUMERIC and not any(isinstance(v, torch.Tensor) for v in values.values()):
                return NUMERIC[spec.name](*values.values())
            if spec.name in UNFORMED:
                return UNFORMED[spec.name](values)
            assert spec.torch is not None, f"{spec.name} cannot be evaluated"
            return formed(spec.torch, _adapted(spec, values))


def _adapted(spec: OpSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """torch wants tensors where the language also takes numbers, and whole sizes where it has exact quotients."""
    tensor = next((v for v in values.values() if isinstance(v, torch.Tensor)), None)
    adapted: dict[str, Any] = {}
    for param in spec.params:
        value = values[param.name]
        if param.kind == "operand" and tensor is not None and isinstance(value, int | float) and spec.name not in SCALAR_OPERANDS:
            value = torch.tensor(value, dtype=tensor.dtype if isinstance(value, int) else torch.float64)
        if param.kind == "size" and isinstance(value, float):
            value = int(value)
        if param.kind == "sizes" and isinstance(value, list):
            value = [int(v) for v in value]
        if (spec.name, param.name) == ("take", "index") and value.is_floating_point():
            value = value.long()  # an index that was worked out by whole quotients
        adapted[param.name] = value
    return adapted


SCALAR_OPERANDS = ("clamp", "where", "masked_fill", "lerp", "pow", "add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
NUMERIC: Mapping[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow, "neg": operator.neg, "sqrt": math.sqrt,
    "floor": math.floor, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "log": math.log,
    "minimum": min, "maximum": max, "logical_not": operator.not_,
}  # fmt: skip
UNFORMED: Mapping[str, Any] = {
    "pad": lambda v: _padded(**v),
    "prod": lambda v: torch.prod(v["x"]) if v["dim"] is None else torch.prod(v["x"], v["dim"], v["keepdim"]),
    "channel": lambda v: v["v"].reshape(1, -1, *[1] * (v["like"].dim() - 2)),
    "length": lambda v: len(v["values"]),
    "dtype_of": lambda v: v["x"].dtype,
    "is_bool": lambda v: v["x"].dtype == torch.bool,
    "finfo_min": lambda v: torch.finfo(v["dtype"]).min,
    "finfo_max": lambda v: torch.finfo(v["dtype"]).max,
    "finfo_eps": lambda v: torch.finfo(v["dtype"]).eps,
    "finfo_tiny": lambda v: torch.finfo(v["dtype"]).tiny,
}


def _padded(x: torch.Tensor, dim: int, before: int, after: int, value: float) -> torch.Tensor:
    place = dim % x.dim()
    return torch.nn.functional.pad(x, [0, 0] * (x.dim() - 1 - place) + [before, after], value=value)


def agree(actual: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor)
        assert actual.shape == expected.shape
        same = actual if actual.dtype == expected.dtype else actual.to(expected.dtype)
        wide = torch.float64 if expected.dtype in (torch.float64, torch.int64, torch.bool) else torch.float32
        torch.testing.assert_close(
            same.to(wide),
            expected.to(wide),
            equal_nan=True,
            rtol=1e-9 if wide == torch.float64 else 1e-5,
            atol=1e-11 if wide == torch.float64 else 1e-6,
        )
    else:
        assert actual == pytest.approx(expected)


def test_the_names_of_the_table_are_unique() -> None:
    from adapterc.dsl import ops

    assert len({spec.name for spec in ops._TABLE}) == len(ops._TABLE)
    aliases = [alias for spec in OPS.values() for alias in spec.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(OPS)
    assert all(OPS[name].name == name for name in ALIASES.values())


@pytest.mark.parametrize("spec", OPS.values(), ids=lambda s: s.name)
def test_an_entry_is_whole(spec: OpSpec) -> None:
    assert spec.family in FAMILIES
    assert spec.meaning
    assert spec.commutes in (None, "EXACT", "EXACT-Z")
    assert spec.shape or spec.definition is not None
    if spec.shape:
        rule_of(spec.shape)
    if isinstance(spec.definition, str):
        known = {p.name for p in spec.params} | {*CONSTANT_NAMES, *DTYPE_NAMES}
        bindings, result = parse_definition(spec.definition)
        for name, value in (*bindings, ("", result)):
            assert names(value) <= known, f"{spec.name} reads {names(value) - known}"
            known.add(name)


@pytest.mark.parametrize("spec", [s for s in OPS.values() if s.torch is not None and s.family != "static"], ids=lambda s: s.name)
def test_the_type_that_is_inferred_is_the_type_that_torch_gives(spec: OpSpec) -> None:
    _check_type(sample(spec))


@pytest.mark.parametrize("text", MORE_SAMPLES)
def test_more_inferred_types(text: str) -> None:
    call = parse_expression(text)
    assert isinstance(call, Call)
    _check_type(call)


def _check_type(call: Call) -> None:
    result = evaluate(call if OPS[call.op].torch is not None else expand(call), TENSORS)
    env = {name: TensorValue(str(t.dtype).removeprefix("torch."), tuple(number(d) for d in t.shape)) for name, t in TENSORS.items()}
    found = Inference(env).type_of(call)
    assert isinstance(found, TensorValue)
    assert found.shape is not None or call.op in ("diagonal", "scatter")
    if found.shape is not None:
        assert [None if isinstance(axis, RestAxis) else axis.constant for axis in found.shape] == list(result.shape)
    if found.element != "any":
        actual = str(result.dtype).removeprefix("torch.")
        assert found.element == actual or (found.element in ("float", "int", "bool") and category(actual) == found.element)


@pytest.mark.parametrize("spec", [s for s in OPS.values() if s.definition is not None], ids=lambda s: s.name)
def test_a_definition_agrees_with_torch(spec: OpSpec) -> None:
    call = sample(spec)
    inner = expand_once(call)
    assert inner is not None
    value = evaluate(expand(call), TENSORS)
    if spec.torch is not None:
        agree(value, evaluate(call, TENSORS))
    elif spec.aten:
        agree(value, formed(spec.aten[0], _adapted(spec, {n: evaluate(expand(a), TENSORS) for n, a in bind(call).items()})))
    else:
        assert value is not None


@pytest.mark.parametrize("text", MORE_SAMPLES)
def test_more_definitions_agree_with_torch(text: str) -> None:
    call = parse_expression(text)
    assert isinstance(call, Call)
    direct = (
        evaluate(call, TENSORS)
        if OPS[call.op].torch is not None
        else formed(OPS[call.op].aten[-1], {n: evaluate(a, TENSORS) for n, a in bind(call).items()})
    )
    agree(evaluate(expand(call), TENSORS), direct)


FORMS = [(spec, form) for spec in OPS.values() for form in spec.aten]


@pytest.mark.parametrize(("spec", "form"), FORMS, ids=lambda v: v.name if isinstance(v, OpSpec) else v.target)
def test_an_aten_form_fits_its_schema(spec: OpSpec, form: CallForm) -> None:
    schema = target(form.target)._schema
    positional = [a for a in schema.arguments if not a.kwarg_only]
    assert len(form.positional) <= len(positional)
    given = {a.name for a in positional[: len(form.positional)]}
    for name, _ in form.keyword:
        assert name in {a.name for a in schema.arguments}, f"{form.target} has no argument {name}"
        assert name not in given
        given.add(name)
    missing = [a.name for a in schema.arguments if a.name not in given and not a.has_default_value()]
    assert not missing, f"{form.target} also needs {missing}"
    several = len(schema.returns) > 1 or str(schema.returns[0].type).startswith("List")
    assert (form.output is not None) == several


# Overloads that take a number where the sample has a tensor, or the reverse, are called with these.
OVERLOAD_SAMPLES: Mapping[str, str] = {
    "aten.sum.default": "sum(x)", "aten.mean.default": "mean(x)", "aten.prod.default": "prod(x)", "aten.any.default": "any(b)", "aten.all.default": "all(b)",
    "aten.max.default": "amax(x)", "aten.min.default": "amin(x)", "aten.max.dim": "amax(x, -1)", "aten.min.dim": "amin(x, 1, true)",
    "aten.clamp_min.default": "maximum(x, 0.1)", "aten.clamp_max.default": "minimum(x, 0.1)", "aten.clamp.default": "clamp(x, -0.5, 0.5)",
    "aten.clamp.Tensor": "clamp(x, y, p)", "aten.hardtanh.default": "clamp(x, -0.5, 0.5)", "aten.rsub.Scalar": "sub(0.5, x)",
    "aten.pow.Scalar": "pow(2.0, x)", "aten.lerp.Tensor": "lerp(x, y, p)", "aten.masked_fill.Tensor": "masked_fill(m, b, reduced)",
    "aten.where.ScalarSelf": "where(b, 0.5, row)", "aten.where.ScalarOther": "where(b, m, 0.5)", "aten.where.Scalar": "where(b, 0.5, 0.25)",
    "aten.arange.default": "arange(5)", "aten.arange.start": "arange(5, 2)", "aten.arange.start_step": "arange(7, 1, 2)",
    "aten.mm.default": "matmul(m, n)", "aten.bmm.default": "matmul(ba, bb)", "aten.squeeze.dims": "squeeze(one, [1])",
    "aten.logical_not.default": "logical_not(x)", "aten.convolution.default": "conv2d(img, k2, o6, [1, 2], [1, 0], [2, 1], 2)",
    "aten.tile.default": "repeat(m, [2, 1, 3])", "aten._softmax.default": "softmax(x, -1)", "aten.norm.ScalarOpt_dim": "vector_norm(x, 3, [-1])",
    "aten.linalg_vector_norm.default": "vector_norm(x, 3, [-1])", "aten.mT.default": "t(m)", "aten.conv1d.default": "conv1d(seq, k1, o6, [2], [1], [1], 2)",
    "aten.avg_pool2d.default": "avg_pool2d(img, [2, 2], [], [1, 1])", "aten.max_pool2d.default": "max_pool2d(img, [3, 2], [2, 1], [1, 1])",
    "aten.permute.default": "permute(x, [2, 0, 1])", "aten.roll.default": "roll(x, [1, 2], [0, 2])", "aten.sum.dim_IntList": "sum(x, [0, -1])",
    "aten.mean.dim": "mean(x, [-1], true)", "aten.var.correction": "var(x, [-1], 0, true)", "aten.std.correction": "std(x, [1])",
    "aten.var.dim": "var(x, [-1])", "aten.logsumexp.default": "logsumexp(x, [-1])", "aten.amax.default": "amax(x, [-1])",
    "aten._native_batch_norm_legit_no_training.default": "batch_norm(img, c4, row, row, c4 * c4)", "aten.sort.default": "sort_values(x, 0, true)",
    "aten.relu6.default": "relu6(x * 9)", "aten.addmm.default": "addmm(m5, m, n, 0.5, 2)", "aten.embedding.default": "embedding(m, ids)",
}  # fmt: skip
BY_OP: Mapping[tuple[str, str], str] = {
    ("maximum", "aten.clamp.default"): "maximum(x, 0.1)", ("minimum", "aten.clamp.default"): "minimum(x, 0.1)", ("relu6", "aten.hardtanh.default"): "relu6(x * 9)",
    ("argmax", "aten.max.dim"): "argmax(x, -1)", ("argmin", "aten.min.dim"): "argmin(x, 1, true)", ("sort_indices", "aten.sort.default"): "sort_indices(x)",
    ("bitwise_or", "aten.bitwise_or.Scalar"): "bitwise_or(i, 2)", ("bitwise_or", "aten.__or__.Scalar"): "bitwise_or(i, 2)",
    ("trunc_div", "aten.div.Scalar_mode"): "trunc_div(x, 0.3)", ("floor_div", "aten.div.Scalar_mode"): "floor_div(x, 0.3)",
}  # fmt: skip
TENSORS["reduced"] = torch.tensor(2.5, dtype=torch.float64)
NUMBER_OVERLOADS = ("Scalar", "Tensor_Scalar")


@pytest.mark.parametrize(("spec", "form"), FORMS, ids=lambda v: v.name if isinstance(v, OpSpec) else v.target)
def test_an_aten_form_computes_the_op(spec: OpSpec, form: CallForm) -> None:
    text = BY_OP.get((spec.name, form.target)) or OVERLOAD_SAMPLES.get(form.target)
    call = parse_expression(text) if text is not None else sample(spec)
    assert isinstance(call, Call)
    bound = bind(call)
    if text is None and form.target.rpartition(".")[2] in NUMBER_OVERLOADS:
        last = [p.name for p in spec.params if p.kind == "operand"][-1]
        bound[last] = Literal(2 if call.args and "i" in names(call.args[0]) else Fraction(3, 10))
    uses = {item.param for item in (*form.positional, *(v for _, v in form.keyword)) if isinstance(item, Use)}
    uses |= {inner.param for item in form.positional if isinstance(item, tuple) for inner in item if isinstance(inner, Use)}
    if isinstance(form.output, Use):
        uses.add(form.output.param)
    for param in spec.params:
        if param.name not in uses:
            assert param.default is not None, f"{form.target} leaves out {param.name}, which has no default"
            bound[param.name] = param.default  # what a form leaves out has its default
    values = {name: evaluate(expand(argument), TENSORS) for name, argument in bound.items()}
    actual = formed(form, values)
    whole = Call(spec.name, tuple(bound.values()))
    agree(actual, evaluate(whole if spec.torch is not None else expand(whole), TENSORS))


def test_none_is_one_value() -> None:
    assert rule_of("reduce")(
        {"x": TensorValue("float", (number(2),)), "dim": NONE, "keepdim": NumberValue("bool", number(0))}
    ) == TensorValue("float", ())
