"""The shape rules that the op table names: from the types of the arguments to the type of the result.

A rule is total: where a shape cannot be told it is unknown, and only what is certainly wrong raises `Mismatch`.
"""

from __future__ import annotations

from collections.abc import Mapping

from adapterc.dsl.poly import ONE, divide, number
from adapterc.dsl.shapeargs import (
    NONE,
    Arguments,
    ShapeRule,
    dtype_of,
    int_of,
    ints_of,
    is_none,
    is_true,
    poly_of,
    polys_of,
    replaced,
    tensor_of,
)
from adapterc.dsl.shapelayout import (
    cat_rule,
    channel_rule,
    diagonal_rule,
    expand_as_rule,
    expand_rule,
    flatten_rule,
    movedim_rule,
    narrow_rule,
    pad_rule,
    permute_rule,
    repeat_interleave_rule,
    repeat_rule,
    reshape_rule,
    select_rule,
    slice_rule,
    sliced,
    split_sizes_rule,
    squeeze_rule,
    transpose_rule,
    unflatten_rule,
    unfold_rule,
    unsqueeze_rule,
)
from adapterc.dsl.values import (
    UNKNOWN,
    ListValue,
    Mismatch,
    NumberValue,
    Rest,
    Shape,
    StaticValue,
    TensorValue,
    TypeOf,
    UnknownValue,
    axis_at,
    axis_index,
    broadcast,
    category,
    joined_element,
    rank,
    shape_text,
)

# Elementwise


def _numbers_only(arguments: Arguments) -> bool:
    return all(isinstance(v, NumberValue) for v in arguments.values())


def _elementwise(arguments: Arguments, element: str | None = None) -> TypeOf:
    values = tuple(v for v in arguments.values() if not isinstance(v, StaticValue))
    for name, value in arguments.items():
        if isinstance(value, ListValue) or (isinstance(value, StaticValue) and value.kind in ("text", "none")):
            raise Mismatch("ADC230", f"The argument `{name}` must be a tensor or a number.")
    found = element if element is not None else joined_element(values)
    if values and all(isinstance(v, NumberValue) for v in values):
        return NumberValue(found)
    if any(isinstance(v, StaticValue) for v in arguments.values()) or all(isinstance(v, UnknownValue) for v in values):
        return UNKNOWN
    return TensorValue(found, broadcast(values))


def _float_of(element: str) -> str:
    return element if category(element) in ("float", "any") else "float32"


def broadcast_rule(arguments: Arguments) -> TypeOf:
    return _elementwise(arguments)


def divide_rule(arguments: Arguments) -> TypeOf:
    result = _elementwise(arguments)
    return TensorValue(_float_of(result.element), result.shape) if isinstance(result, TensorValue) else result


def float_rule(arguments: Arguments) -> TypeOf:
    result = _elementwise(arguments)
    if isinstance(result, TensorValue):
        return TensorValue(_float_of(result.element), result.shape)
    return NumberValue("float") if isinstance(result, NumberValue) else result


def compare_rule(arguments: Arguments) -> TypeOf:
    if any(isinstance(v, StaticValue) for v in arguments.values()) and not any(isinstance(v, TensorValue) for v in arguments.values()):
        return NumberValue("bool")
    return _elementwise(arguments, "bool")


def where_rule(arguments: Arguments) -> TypeOf:
    condition, a, b = arguments["condition"], arguments["a"], arguments["b"]
    if isinstance(condition, TensorValue) and category(condition.element) not in ("bool", "any"):
        raise Mismatch("ADC230", f"The condition of `where` must be bool, not {condition.element}.", "Compare it, as in `m != 0`.")
    element = joined_element((a, b))
    if all(isinstance(v, NumberValue) for v in (a, b)):
        element = "float32" if element == "float" else "int64" if element == "int" else element
    return _elementwise(arguments, element)


def masked_fill_rule(arguments: Arguments) -> TypeOf:
    x, mask = tensor_of(arguments), tensor_of(arguments, "mask")
    if category(mask.element) not in ("bool", "any"):
        raise Mismatch("ADC230", f"The mask must be bool, not {mask.element}.", "Compare it, as in `m != 0`.")
    return TensorValue(x.element, broadcast((x, mask)))


def same_rule(arguments: Arguments) -> TypeOf:
    first = next(iter(arguments.values()))
    return first if isinstance(first, TensorValue | NumberValue | UnknownValue) else tensor_of(arguments)


def cast_rule(arguments: Arguments) -> TypeOf:
    x, dtype = arguments["x"], arguments["dtype"]
    element = dtype_of(dtype, "any")
    return TensorValue(element, x.shape) if isinstance(x, TensorValue) else (x if isinstance(x, NumberValue) else UNKNOWN)


# Reductions and scans


def _reduced(x: TensorValue, dim: TypeOf, keepdim: bool) -> Shape:
    everything = is_none(dim) or dim == ListValue(())
    if everything:
        known = rank(x.shape)
        return () if not keepdim else (ONE,) * known if known is not None else None
    dims = ints_of(dim)
    if dims is None or x.shape is None:
        return None
    places = [axis_index(x.shape, d) for d in dims]
    if None in places:
        return None
    if len(set(places)) != len(places):
        raise Mismatch("ADC232", f"A dimension is listed twice in {dims}.", "List each one once.")
    return tuple(ONE if i in places else axis for i, axis in enumerate(x.shape) if keepdim or i not in places)


def reduce_rule(arguments: Arguments) -> TypeOf:
    x = tensor_of(arguments)
    return TensorValue(dtype_of(arguments.get("dtype", NONE), x.element), _reduced(x, arguments["dim"], is_true(arguments["keepdim"])))


def reduce_sum_rule(arguments: Arguments) -> TypeOf:
    result = reduce_rule(arguments)
    assert isinstance(result, TensorValue)
    return TensorValue("int64" if category(result.element) in ("int", "bool") else result.element, result.shape)


def reduce_index_rule(arguments: Arguments) -> TypeOf:
    return TensorValue("int64", _reduced(tensor_of(arguments), arguments["dim"], is_true(arguments["keepdim"])))


def _scanned(arguments: Arguments, element: str | None) -> TypeOf:
    x = tensor_of(arguments)
    dim = int_of(arguments["dim"])
    if dim is not None:
        axis_index(x.shape, dim)
    return TensorValue(x.element if element is None else element, x.shape)


def scan_rule(arguments: Arguments) -> TypeOf:
    x = tensor_of(arguments)
    return _scanned(arguments, "int64" if category(x.element) in ("int", "bool") else None)


def scan_same_rule(arguments: Arguments) -> TypeOf:
    return _scanned(arguments, None)


def scan_index_rule(arguments: Arguments) -> TypeOf:
    return _scanned(arguments, "int64")


# Indexing, products, sources


def _indices(arguments: Arguments, name: str) -> TensorValue:
    index = tensor_of(arguments, name)
    if category(index.element) == "float":
        raise Mismatch("ADC230", f"`{name}` must hold whole numbers, not {index.element}.", "Declare it as `int[…]`.")
    return index


def take_rule(arguments: Arguments) -> TypeOf:
    x, index = tensor_of(arguments), _indices(arguments, "index")
    if category(index.element) == "bool" or index.shape is None or x.shape is None or not x.shape or isinstance(x.shape[0], Rest):
        return TensorValue(x.element, None)
    return TensorValue(x.element, (*index.shape, *x.shape[1:]))


def index_select_rule(arguments: Arguments) -> TypeOf:
    x, dim, index = tensor_of(arguments), int_of(arguments["dim"]), _indices(arguments, "index")
    count = axis_at(index.shape, 0)
    return TensorValue(x.element, replaced(x.shape, dim, (count,)) if dim is not None and count is not None else None)


def gather_rule(arguments: Arguments) -> TypeOf:
    return TensorValue(tensor_of(arguments).element, _indices(arguments, "index").shape)


def first_rule(arguments: Arguments) -> TypeOf:
    return tensor_of(arguments)


def matmul_rule(arguments: Arguments) -> TypeOf:
    a, b = tensor_of(arguments, "a"), tensor_of(arguments, "b")
    element = joined_element((a, b))
    if {category(a.element), category(b.element)} == {"float", "int"}:
        raise Mismatch("ADC230", f"A product of matrices needs one kind, not {a.element} and {b.element}.", "Cast one with `to`.")
    if a.shape is None or b.shape is None:
        return TensorValue(element, None)
    vector_a, vector_b = rank(a.shape) == 1, rank(b.shape) == 1
    inner = axis_at(a.shape, -1), axis_at(b.shape, -1 if vector_b else -2)
    if None not in inner and inner[0] != inner[1]:
        message = f"The inner sizes differ: {shape_text(a.shape)} @ {shape_text(b.shape)} contracts {inner[0]} with {inner[1]}."
        raise Mismatch("ADC231", message, "Transpose one side, or mend the types in `where`.")
    rows = () if vector_a else (axis_at(a.shape, -2) if len(a.shape) > 1 else None,)
    columns = () if vector_b else (axis_at(b.shape, -1) if len(b.shape) > 1 else None,)
    batch_a: Shape = () if vector_a else a.shape[:-2] if rows != (None,) else None
    batch_b: Shape = () if vector_b else b.shape[:-2] if columns != (None,) else None
    if rows == (None,) and vector_like(b.shape):
        # `[..., k] @ [k, n]`: the rows are whatever the rest is.
        return TensorValue(element, (*a.shape[:-1], *(c for c in columns if c is not None)))
    batch = broadcast((TensorValue("any", batch_a), TensorValue("any", batch_b)))
    if batch is None:
        return TensorValue(element, None)
    return TensorValue(element, (*batch, *(r for r in rows if r is not None), *(c for c in columns if c is not None)))


def vector_like(shape: Shape) -> bool:
    """A matrix or vector: it adds no batch dimensions to a product."""
    known = rank(shape)
    return known is not None and known <= 2


def arange_rule(arguments: Arguments) -> TypeOf:
    element = dtype_of(arguments["dtype"], "int64")
    start, stop, step = (poly_of(arguments[name]) for name in ("start", "stop", "step"))
    if start is None or stop is None or step is None:
        return TensorValue(element, None)
    return TensorValue(element, (sliced(stop - start, None, None, step) or ONE,) if step.constant != 0 else None)


def full_rule(arguments: Arguments) -> TypeOf:
    value = arguments["value"]
    kind = value.element if isinstance(value, NumberValue) else "any"
    sizes = polys_of(arguments["sizes"])
    element = dtype_of(arguments["dtype"], {"float": "float32", "int": "int64"}.get(kind, kind))
    return TensorValue(element, tuple(sizes) if sizes is not None else None)


def tensor_rule(arguments: Arguments) -> TypeOf:
    values = arguments["values"]
    count = len(values.items) if isinstance(values, ListValue) else None
    return TensorValue(dtype_of(arguments["dtype"], "any"), (number(count),) if count is not None else None)


# Known at build time


def dtype_rule(arguments: Arguments) -> TypeOf:
    element = tensor_of(arguments).element
    return StaticValue("dtype", None if element in ("float", "int", "any") else element)


def number_rule(arguments: Arguments) -> TypeOf:
    return NumberValue("float")


def size_rule(arguments: Arguments) -> TypeOf:
    """A whole number that the checker computes itself where it can (dsl/infer.py)."""
    return NumberValue("int")


def predicate_rule(arguments: Arguments) -> TypeOf:
    return NumberValue("bool")


def choose_rule(arguments: Arguments) -> TypeOf:
    """An open choice: the sides must agree where both are known, and the known one is the type."""
    a, b = arguments["value"], arguments["otherwise"]
    if a == b:
        return a
    if isinstance(a, TensorValue) and isinstance(b, TensorValue):
        return TensorValue(a.element if a.element == b.element else "any", a.shape if a.shape == b.shape else None)
    if isinstance(a, NumberValue) and isinstance(b, NumberValue):
        return NumberValue(a.element if a.element == b.element else "any")
    return UNKNOWN


def sdpa_rule(arguments: Arguments) -> TypeOf:
    """Heads of keys may be fewer than those of queries (`enable_gqa`), so that only the contracted sizes are compared."""
    q, k, v = (tensor_of(arguments, name) for name in "qkv")
    for left, right, dims in ((q, k, (-1, -1)), (k, v, (-2, -2))):
        sizes = [axis_at(t.shape, d) for t, d in zip((left, right), dims, strict=True)]
        if None not in sizes and sizes[0] != sizes[1]:
            message = f"{shape_text(left.shape)} and {shape_text(right.shape)} do not fit: {sizes[0]} is not {sizes[1]}."
            raise Mismatch("ADC231", message, "Queries and keys share the last size, keys and values the one before it.")
    width = axis_at(v.shape, -1)
    shape = replaced(q.shape, -1, (width,)) if width is not None else None
    return TensorValue(joined_element((q, k, v)), shape)


def chunk_rule(arguments: Arguments) -> TypeOf:
    """Chunks of a named size count as equal."""
    x, dim, chunks = tensor_of(arguments), int_of(arguments["dim"]), poly_of(arguments["chunks"])
    size = axis_at(x.shape, dim) if dim is not None else None
    if dim is None or size is None or chunks is None or chunks.constant == 0:
        return TensorValue(x.element, None)
    piece = divide(size, chunks)
    whole = piece.constant is None or piece.constant.denominator == 1
    return TensorValue(x.element, replaced(x.shape, dim, (piece,)) if whole else None)


def split_rule(arguments: Arguments) -> TypeOf:
    """Pieces of a named size count as full."""
    x, dim, size, index = tensor_of(arguments), int_of(arguments["dim"]), poly_of(arguments["size"]), int_of(arguments["index"])
    whole = axis_at(x.shape, dim) if dim is not None else None
    if dim is None or size is None:
        return TensorValue(x.element, None)
    if whole is not None and whole.constant is not None and size.constant is not None and index is not None:
        left = whole.constant - index * size.constant
        if not size.constant > 0 or not left > 0:
            raise Mismatch("ADC232", f"There is no piece {index} of {size} in a dimension of size {whole}.")
        size = number(min(size.constant, left))
    return TensorValue(x.element, replaced(x.shape, dim, (size,)))


def rule_of(name: str) -> ShapeRule:
    """The rule that the op table calls `name`. Raises KeyError for a name that is none."""
    return _RULES[name]


_RULES: Mapping[str, ShapeRule] = {
    "broadcast": broadcast_rule,
    "divide": divide_rule,
    "float": float_rule,
    "compare": compare_rule,
    "where": where_rule,
    "masked_fill": masked_fill_rule,
    "same": same_rule,
    "cast": cast_rule,
    "reduce": reduce_rule,
    "reduce_sum": reduce_sum_rule,
    "reduce_index": reduce_index_rule,
    "scan": scan_rule,
    "scan_same": scan_same_rule,
    "scan_index": scan_index_rule,
    "reshape": reshape_rule,
    "flatten": flatten_rule,
    "unflatten": unflatten_rule,
    "permute": permute_rule,
    "transpose": transpose_rule,
    "movedim": movedim_rule,
    "expand": expand_rule,
    "expand_as": expand_as_rule,
    "repeat": repeat_rule,
    "repeat_interleave": repeat_interleave_rule,
    "squeeze": squeeze_rule,
    "unsqueeze": unsqueeze_rule,
    "select": select_rule,
    "narrow": narrow_rule,
    "slice": slice_rule,
    "unfold": unfold_rule,
    "diagonal": diagonal_rule,
    "cat": cat_rule,
    "split_sizes": split_sizes_rule,
    "pad": pad_rule,
    "channel": channel_rule,
    "take": take_rule,
    "index_select": index_select_rule,
    "gather": gather_rule,
    "first": first_rule,
    "matmul": matmul_rule,
    "arange": arange_rule,
    "full": full_rule,
    "tensor": tensor_rule,
    "dtype": dtype_rule,
    "number": number_rule,
    "size": size_rule,
    "predicate": predicate_rule,
    "choose": choose_rule,
    "sdpa": sdpa_rule,
    "chunk": chunk_rule,
    "split": split_rule,
    "logical": compare_rule,
    "test": compare_rule,
}
