"""Shape rules of the ops that move elements."""

from __future__ import annotations

from fractions import Fraction

from adapterc.dsl.poly import ONE, Poly, divide, number, symbol
from adapterc.dsl.shapeargs import Arguments, int_of, ints_of, poly_of, polys_of, replaced, tensor_of
from adapterc.dsl.values import (
    UNKNOWN,
    Axis,
    ListValue,
    Mismatch,
    Rest,
    Shape,
    TensorValue,
    TypeOf,
    UnknownValue,
    axis_at,
    axis_index,
    joined_element,
    rank,
    shape_text,
)


def elements(shape: Shape) -> Poly | None:
    """The number of elements; a rest counts as one factor of its own name."""
    if shape is None:
        return None
    total = ONE
    for axis in shape:
        total = total * (axis if isinstance(axis, Poly) else symbol(f"numel({'&'.join(sorted(axis.names))})"))
    return total


def _refilled(count: Poly | None, sizes: TypeOf, of: str) -> Shape:
    """The sizes of a reshape with -1 filled in. Raises Mismatch ADC231 where the counts differ for sure."""
    if isinstance(sizes, UnknownValue):
        return None
    polys = polys_of(sizes)
    if polys is None:
        return None
    open_places = [i for i, p in enumerate(polys) if p == number(-1)]
    known = ONE
    for i, poly in enumerate(polys):
        if i not in open_places:
            known = known * poly
    if len(open_places) > 1:
        raise Mismatch("ADC232", "Only one size may be -1.")
    if count is None:
        return tuple(polys) if not open_places else None
    if open_places:
        if known.constant == 0:
            raise Mismatch("ADC231", "A size -1 next to a size 0 is not defined.")
        missing = divide(count, known)
        if missing.constant is not None and missing.constant.denominator != 1:
            raise Mismatch("ADC231", f"{of} cannot be laid out as {shape_text(tuple(polys))}: {count} is no multiple of {known}.")
        polys[open_places[0]] = missing
    elif known != count:
        raise Mismatch("ADC231", f"{of} has {count} elements, and {shape_text(tuple(polys))} has {known}.", "Check the sizes.")
    return tuple(polys)


def reshape_rule(arguments: Arguments) -> TypeOf:
    x = tensor_of(arguments)
    return TensorValue(x.element, _refilled(elements(x.shape), arguments["sizes"], shape_text(x.shape)))


def flatten_rule(arguments: Arguments) -> TypeOf:
    x, start, end = tensor_of(arguments), int_of(arguments["start"]), int_of(arguments["end"])
    if start is None or end is None or x.shape is None:
        return TensorValue(x.element, None)
    first, last = axis_index(x.shape, start), axis_index(x.shape, end)
    if first is None or last is None or rank(x.shape) is None:
        return TensorValue(x.element, None)
    count = elements(x.shape[first : last + 1])
    return TensorValue(x.element, (*x.shape[:first], count if count is not None else ONE, *x.shape[last + 1 :]))


def unflatten_rule(arguments: Arguments) -> TypeOf:
    x, dim = tensor_of(arguments), int_of(arguments["dim"])
    if dim is None:
        return TensorValue(x.element, None)
    size = axis_at(x.shape, dim)
    inner = _refilled(size, arguments["sizes"], f"A dimension of size {size}")
    return TensorValue(x.element, None if inner is None else replaced(x.shape, dim, inner))


def permute_rule(arguments: Arguments) -> TypeOf:
    x, dims = tensor_of(arguments), ints_of(arguments["dims"])
    known = rank(x.shape)
    if dims is None:
        return TensorValue(x.element, None)
    places = [d % len(dims) if -len(dims) <= d < len(dims) else -1 for d in dims]
    if sorted(places) != list(range(len(dims))):
        raise Mismatch("ADC232", f"{dims} is no order of {len(dims)} dimensions.", "Name each dimension once.")
    if known is not None and known != len(dims):
        raise Mismatch("ADC231", f"{dims} orders {len(dims)} dimensions, and {shape_text(x.shape)} has {known}.")
    return TensorValue(x.element, tuple(x.shape[i] for i in places) if x.shape is not None and known is not None else None)


def transpose_rule(arguments: Arguments) -> TypeOf:
    x, a, b = tensor_of(arguments), int_of(arguments["a"]), int_of(arguments["b"])
    if a is None or b is None or x.shape is None:
        return TensorValue(x.element, None)
    i, j = axis_index(x.shape, a), axis_index(x.shape, b)
    if i is None or j is None:
        return TensorValue(x.element, None)
    axes = list(x.shape)
    axes[i], axes[j] = axes[j], axes[i]
    return TensorValue(x.element, tuple(axes))


def movedim_rule(arguments: Arguments) -> TypeOf:
    x, source, destination = tensor_of(arguments), int_of(arguments["source"]), int_of(arguments["destination"])
    if source is None or destination is None or rank(x.shape) is None or x.shape is None:
        return TensorValue(x.element, None)
    i, j = axis_index(x.shape, source), axis_index(x.shape, destination)
    assert i is not None and j is not None
    axes = list(x.shape)
    axes.insert(j, axes.pop(i))
    return TensorValue(x.element, tuple(axes))


def expand_rule(arguments: Arguments) -> TypeOf:
    x, sizes = tensor_of(arguments), polys_of(arguments["sizes"])
    known = rank(x.shape)
    if sizes is None or x.shape is None or known is None:
        return TensorValue(x.element, None)
    if len(sizes) < known:
        raise Mismatch("ADC231", f"{shape_text(x.shape)} has more dimensions than {shape_text(tuple(sizes))}.")
    old: list[Axis] = [*[ONE] * (len(sizes) - known), *x.shape]
    new: list[Axis] = []
    for size, axis in zip(sizes, old, strict=True):
        if size == number(-1):
            new.append(axis)
        elif axis in (ONE, size):
            new.append(size)
        else:
            message = f"{shape_text(x.shape)} does not expand to {shape_text(tuple(sizes))}: {axis} is neither 1 nor {size}."
            raise Mismatch("ADC231", message)
    return TensorValue(x.element, tuple(new))


def expand_as_rule(arguments: Arguments) -> TypeOf:
    return TensorValue(tensor_of(arguments).element, tensor_of(arguments, "like").shape)


def repeat_rule(arguments: Arguments) -> TypeOf:
    x, repeats = tensor_of(arguments), polys_of(arguments["repeats"])
    known = rank(x.shape)
    if repeats is None or x.shape is None or known is None:
        return TensorValue(x.element, None)
    if len(repeats) < known:
        raise Mismatch("ADC231", f"{len(repeats)} counts do not cover the {known} dimensions of {shape_text(x.shape)}.")
    old: list[Axis] = [*[ONE] * (len(repeats) - known), *x.shape]
    return TensorValue(x.element, tuple(axis * r for axis, r in zip(old, repeats, strict=True) if isinstance(axis, Poly)))


def repeat_interleave_rule(arguments: Arguments) -> TypeOf:
    x, dim, repeats = tensor_of(arguments), int_of(arguments["dim"]), poly_of(arguments["repeats"])
    size = axis_at(x.shape, dim) if dim is not None else None
    if dim is None or size is None or repeats is None:
        return TensorValue(x.element, None)
    return TensorValue(x.element, replaced(x.shape, dim, (size * repeats,)))


def squeeze_rule(arguments: Arguments) -> TypeOf:
    x, dims = tensor_of(arguments), ints_of(arguments["dim"])
    if dims is None or x.shape is None:
        return TensorValue(x.element, None)
    places = [axis_index(x.shape, d) for d in dims]
    sizes = [x.shape[i] if i is not None else None for i in places]
    # A named size may turn out to be 1, so that only a known one says whether the dimension stays.
    if any(not isinstance(size, Poly) or size.constant is None for size in sizes):
        return TensorValue(x.element, None)
    return TensorValue(x.element, tuple(axis for i, axis in enumerate(x.shape) if i not in places or axis != ONE))


def unsqueeze_rule(arguments: Arguments) -> TypeOf:
    x, dim = tensor_of(arguments), int_of(arguments["dim"])
    if dim is None or x.shape is None:
        return TensorValue(x.element, None)
    at = next((i for i, axis in enumerate(x.shape) if isinstance(axis, Rest)), None)
    index = dim if dim >= 0 else len(x.shape) + 1 + dim
    if at is None and not 0 <= index <= len(x.shape):
        raise Mismatch("ADC232", f"There is no place {dim} for a new dimension in {shape_text(x.shape)}.")
    if at is not None and (index > at if dim >= 0 else index <= at):
        return TensorValue(x.element, None)
    return TensorValue(x.element, (*x.shape[:index], ONE, *x.shape[index:]))


def select_rule(arguments: Arguments) -> TypeOf:
    x, dim, index = tensor_of(arguments), int_of(arguments["dim"]), int_of(arguments["index"])
    if dim is None:
        return TensorValue(x.element, None)
    size = axis_at(x.shape, dim)
    if index is not None and size is not None and size.constant is not None and not -size.constant <= index < size.constant:
        raise Mismatch("ADC232", f"There is no index {index} in a dimension of size {size}.")
    return TensorValue(x.element, replaced(x.shape, dim, ()))


def narrow_rule(arguments: Arguments) -> TypeOf:
    x, dim, length = tensor_of(arguments), int_of(arguments["dim"]), poly_of(arguments["length"])
    return TensorValue(x.element, replaced(x.shape, dim, (length,)) if dim is not None and length is not None else None)


def sliced(size: Poly | None, start: Poly | None, stop: Poly | None, step: Poly | None) -> Poly | None:
    """The length of `start:stop:step` in a dimension. Named bounds count as inside it, and a stride as dividing it."""
    if size is None:
        return None

    def inside(bound: Poly | None, otherwise: Poly) -> Poly:
        if bound is None:
            return otherwise
        negative = bound.constant < 0 if bound.constant is not None else bool(bound.terms) and all(c < 0 for _, c in bound.terms)
        placed = size + bound if negative else bound
        if placed.constant is not None and size.constant is not None:
            return number(min(max(placed.constant, Fraction(0)), size.constant))
        return placed

    first, last = inside(start, number(0)), inside(stop, size)
    stride = step if step is not None else ONE
    if stride.constant is not None and stride.constant <= 0:
        raise Mismatch("ADC232", f"The step of a slice or window is above 0, not {stride}.", "Reverse a dimension with `flip`.")
    length = last - first
    if length.constant is not None and stride.constant is not None:
        return number(max(0, -(-int(length.constant) // int(stride.constant))))
    if stride == ONE:
        return length
    begins = first.constant is not None and stride.constant is not None and first.constant < stride.constant
    return divide(last if begins else length, stride)


def slice_rule(arguments: Arguments) -> TypeOf:
    x, dim = tensor_of(arguments), int_of(arguments["dim"])
    if dim is None:
        return TensorValue(x.element, None)
    length = sliced(axis_at(x.shape, dim), *(poly_of(arguments[part]) for part in ("start", "stop", "step")))
    return TensorValue(x.element, replaced(x.shape, dim, (length,)) if length is not None else None)


def _windows(whole: Poly, size: Poly, step: Poly) -> Poly:
    """How many windows fit; a step counts as dividing a named size."""
    room = whole - size
    if step.constant is not None and step.constant <= 0:
        raise Mismatch("ADC232", f"The step of a window is above 0, not {step}.")
    if room.constant is not None and step.constant is not None:
        if room.constant < 0:
            raise Mismatch("ADC232", f"A window of {size} does not fit into a dimension of size {whole}.")
        return number(room.constant // step.constant + 1)
    return divide(room, step) + ONE


def unfold_rule(arguments: Arguments) -> TypeOf:
    x, dim, size, step = tensor_of(arguments), int_of(arguments["dim"]), poly_of(arguments["size"]), poly_of(arguments["step"])
    old = axis_at(x.shape, dim) if dim is not None else None
    if dim is None or old is None or size is None or step is None:
        return TensorValue(x.element, None)
    shape = replaced(x.shape, dim, (_windows(old, size, step),))
    return TensorValue(x.element, (*shape, size) if shape is not None else None)


def diagonal_rule(arguments: Arguments) -> TypeOf:
    return TensorValue(tensor_of(arguments).element, None)


def _tensors(value: TypeOf) -> list[TensorValue] | None:
    if not isinstance(value, ListValue):
        return None
    found: list[TensorValue] = []
    for item in value.items:
        if isinstance(item, TensorValue):
            found.append(item)
        elif isinstance(item, UnknownValue):
            return None
        else:
            raise Mismatch("ADC230", "A list of tensors is expected.", "Numbers become tensors with `full`.")
    return found


def cat_rule(arguments: Arguments) -> TypeOf:
    tensors, dim = _tensors(arguments["tensors"]), int_of(arguments["dim"])
    if tensors is None or dim is None:
        return UNKNOWN if tensors is None else TensorValue("any", None)
    if not tensors:
        raise Mismatch("ADC232", "`cat` needs one tensor at least.")
    element = joined_element(tuple(tensors))
    total = number(0)
    for tensor in tensors:
        size = axis_at(tensor.shape, dim)
        if size is None:
            return TensorValue(element, None)
        total = total + size
    shapes = [replaced(tensor.shape, dim, (total,)) for tensor in tensors]
    first = shapes[0]
    for tensor, shape in zip(tensors[1:], shapes[1:], strict=True):
        if shape != first and first is not None and shape is not None and not any(isinstance(a, Rest) for a in (*first, *shape)):
            message = f"{shape_text(tensors[0].shape)} and {shape_text(tensor.shape)} do not join along dimension {dim}."
            raise Mismatch("ADC231", message, "All other sizes must be the same.")
    if any(shape != first for shape in shapes):
        # Joined tensors have the same other dimensions, whatever their rests are called.
        first = next((s for s in shapes if s is not None and not any(isinstance(a, Rest) for a in s)), first)
    return TensorValue(element, first)


def split_sizes_rule(arguments: Arguments) -> TypeOf:
    x, sizes, index, dim = tensor_of(arguments), polys_of(arguments["sizes"]), int_of(arguments["index"]), int_of(arguments["dim"])
    if sizes is None or index is None or dim is None:
        return TensorValue(x.element, None)
    if not 0 <= index < len(sizes):
        raise Mismatch("ADC232", f"There is no piece {index} of {len(sizes)}.")
    whole, total = axis_at(x.shape, dim), number(0)
    for size in sizes:
        total = total + size
    if whole is not None and whole != total:
        raise Mismatch("ADC231", f"The pieces have {total} slices, and the dimension has {whole}.")
    return TensorValue(x.element, replaced(x.shape, dim, (sizes[index],)))


def pad_rule(arguments: Arguments) -> TypeOf:
    x, dim = tensor_of(arguments), int_of(arguments["dim"])
    before, after = poly_of(arguments["before"]), poly_of(arguments["after"])
    size = axis_at(x.shape, dim) if dim is not None else None
    if dim is None or size is None or before is None or after is None:
        return TensorValue(x.element, None)
    return TensorValue(x.element, replaced(x.shape, dim, (size + before + after,)))


def channel_rule(arguments: Arguments) -> TypeOf:
    v, like = tensor_of(arguments, "v"), tensor_of(arguments, "like")
    known = rank(like.shape)
    size = axis_at(v.shape, 0)
    if known is None or size is None or known < 2:
        return TensorValue(v.element, None)
    return TensorValue(v.element, (ONE, size, *([ONE] * (known - 2))))
