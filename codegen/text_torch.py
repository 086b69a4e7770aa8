"""From an expression of the language to plain torch code: operators where Python has them, the op table's torch form otherwise.

An op without a torch form is written out by its definition, so that what runs is what was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from adapterc.dsl.ast import Attribute, Call, Expr, Literal, Name, Rest, Sequence, Slice, Subscript, walk
from adapterc.dsl.ops import DTYPE_NAMES, OPS, bind, expand_once, lookup
from adapterc.dsl.opspec import CallForm, FormValue, Use
from adapterc.dsl.printer import INFIX

from .errors import unsupported
from .layout import Doc, Paren, assign, call, chain, flat, give, listing, named, quote
from .text_pattern import number_text, slice_text

_INFIX = frozenset(INFIX) - {"logical_or", "logical_and", "contains"}
_UNARY = {"neg": "-", "bitwise_not": "~"}
_SIZES = ("size", "sizes", "dim", "dims")
_ATOM = 15


@dataclass
class Writer:
    """Collects the statements before the result; `names` are taken."""

    names: set[str]
    indent: int = 1
    lines: list[str] = field(default_factory=list)
    shared: dict[int, tuple[Expr, str]] = field(default_factory=dict)

    def fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self.names:
            count += 1
            name = f"{stem}_{count}"
        self.names.add(name)
        return name

    def let(self, name: str, doc: Doc) -> None:
        self.lines.append(assign(name, doc, self.indent))

    def result(self, doc: Doc) -> None:
        self.lines.append(give(doc, self.indent))


def statements(lets: Iterable[tuple[str, Expr]], result: Expr, taken: Iterable[str]) -> list[str]:
    """The body of a function: each let as an assignment, then the result."""
    writer = Writer(set(taken))
    for name, value in lets:
        writer.names.add(name)
        writer.let(name, torch_text(value, writer))
    writer.result(torch_text(result, writer))
    return writer.lines


def bindings(lets: Iterable[tuple[str, Expr]], taken: Iterable[str]) -> list[str]:
    """The body of a load function: each binding as an assignment, then a dict of them."""
    writer = Writer(set(taken))
    made = []
    for name, value in lets:
        doc = torch_text(value, writer)
        writer.names.add(name)
        writer.let(name, doc)
        made.append(name)
    items = ", ".join(f"{quote(name)}: {name}" for name in made)
    writer.lines.append(f"{'    ' * writer.indent}return {{{items}}}")
    return writer.lines


def torch_text(node: Expr, writer: Writer, *, precedence: int = 0, size: bool = False) -> Doc:
    """The Python of one expression; long or repeated parts go to `writer` first."""
    doc, own = _write(node, writer, size)
    if own < precedence:
        return Paren(doc)
    return doc


def _write(node: Expr, writer: Writer, size: bool) -> tuple[Doc, int]:
    if id(node) in writer.shared:
        return writer.shared[id(node)][1], _ATOM
    match node:
        case Literal(value=Fraction() as number):
            return (number_text(number), _ATOM) if number >= 0 else (number_text(number), 12)
        case Literal(value=str() as text):
            return quote(text), _ATOM
        case Literal(value=value):
            return repr(value), _ATOM
        case Name(id=name):
            return _name(name), _ATOM
        case Sequence(items=items):
            return listing(*(torch_text(i, writer, size=size) for i in items)), _ATOM
        case Subscript(base=base, index=index):
            return f"{flat(torch_text(base, writer, precedence=_ATOM))}[{', '.join(_index(i, writer) for i in index)}]", _ATOM
        case Attribute():
            raise unsupported("a config field in torch code; bind it with `let:` from a size", node.span)
        case Call():
            return _call(node, writer, size)
    raise unsupported("this in torch code", node.span)


def _name(name: str) -> str:
    if name in DTYPE_NAMES:
        return f"torch.{name}"
    return {"inf": "math.inf", "pi": "math.pi", "nan": "math.nan"}.get(name, name)


def _index(part: Expr, writer: Writer) -> str:
    match part:
        case Rest():
            return "..."
        case Slice(start=start, stop=stop, step=step):
            texts = [flat(torch_text(p, writer, size=True)) if p is not None else "" for p in (start, stop, step)]
            return slice_text(*texts)
    return flat(torch_text(part, writer, size=True))


def _call(node: Call, writer: Writer, size: bool) -> tuple[Doc, int]:
    spec = lookup(node)
    if node.op == "choose":
        condition, value, otherwise = (flat(torch_text(a, writer, precedence=2)) for a in node.args)
        return f"{value} if {condition} else {otherwise}", 1
    if node.op in _INFIX and len(node.args) == 2 and not node.kwargs:
        return _infix(node, writer, size)
    if node.op in _UNARY and len(node.args) == 1:
        return f"{_UNARY[node.op]}{flat(torch_text(node.args[0], writer, precedence=12, size=size))}", 12
    special = _SPECIAL.get(node.op)
    if special is not None:
        return special(node, writer), _ATOM
    if spec.torch is not None:
        return _form(node, spec.torch, writer), _ATOM
    inner = expand_once(node)
    if inner is None:
        raise unsupported(f"`{node.op}` in torch code", node.span)
    _share(node, inner, writer)
    return _write(inner, writer, size)


def _infix(node: Call, writer: Writer, size: bool) -> tuple[Doc, int]:
    symbol, own, first, second = INFIX[node.op]
    if size and node.op == "div":
        symbol = "//"
    left = torch_text(node.args[0], writer, precedence=first, size=size)
    right = torch_text(node.args[1], writer, precedence=second, size=size)
    return chain(left, symbol, right, own), own


def _share(node: Call, inner: Expr, writer: Writer) -> None:
    """Arguments that a definition reads more than once are computed once."""
    counts: dict[int, int] = {}
    for part in walk(inner):
        counts[id(part)] = counts.get(id(part), 0) + 1
    for argument in (*node.args, *(value for _, value in node.kwargs)):
        if isinstance(argument, Call | Subscript) and counts.get(id(argument), 0) > 1 and id(argument) not in writer.shared:
            name = writer.fresh("part")
            writer.let(name, torch_text(argument, writer))
            writer.shared[id(argument)] = (argument, name)


def _form(node: Call, form: CallForm, writer: Writer) -> Doc:
    spec = lookup(node)
    bound = bind(node)
    mentioned = {*(p.name for p, _ in zip(spec.params, node.args, strict=False)), *(key for key, _ in node.kwargs)}

    def argument(value: FormValue) -> Doc:
        match value:
            case Use(param=param):
                kind = spec.param(param)
                assert kind is not None
                return torch_text(bound[param], writer, size=kind.kind in _SIZES)
            case tuple():
                return listing(*(argument(v) for v in value))
            case Literal():
                return _write(value, writer, False)[0]
        raise unsupported(f"`{node.op}` in torch code", node.span)

    positional = list(form.positional)
    keyword = [(key, value) for key, value in form.keyword if not isinstance(value, Use) or value.param in mentioned]
    while (
        positional
        and isinstance(positional[-1], Use)
        and positional[-1].param not in mentioned
        and bound[positional[-1].param] == _default(spec.name, positional[-1].param)
    ):
        positional.pop()
    items: list[Doc] = [argument(v) for v in positional]
    keywords = [named(key, argument(value)) for key, value in keyword]
    if spec.family == "source":
        keywords = [k for k in keywords if not flat(k).startswith("dtype=")] + _source_keywords(node)
    target = form.target.replace("torch.nn.functional.", "F.")
    if target.startswith("torch.Tensor."):
        return call(
            f"{flat(torch_text(bound[spec.params[0].name], writer, precedence=_ATOM))}.{target.removeprefix('torch.Tensor.')}",
            *items[1:],
            *keywords,
        )
    doc: Doc = call(target, *items, *keywords)
    if form.output is not None:
        chosen = flat(argument(form.output)) if isinstance(form.output, Use) else str(form.output)
        return f"{flat(doc)}[{chosen}]"
    return doc


def _default(op: str, param: str) -> Expr | None:
    found = OPS[op].param(param)
    return found.default if found is not None else None


def _source_keywords(node: Call) -> list[Doc]:
    """Factories make what they make on the device and in the format of the matched value, unless the spec says a dtype."""
    bound = bind(node)
    wanted = bound.get("dtype", Literal(None))
    found: list[Doc] = []
    if wanted != Literal(None):
        found.append(named("dtype", _name(wanted.id) if isinstance(wanted, Name) else "dtype"))
    elif lookup(node).name not in ("arange", "tensor"):
        found.append("dtype=dtype")
    return [*found, "device=device"]


def needed_names(expressions: Iterable[Expr]) -> set[str]:
    """The names that the torch code of the expressions reads, with `dtype` and `device` where a factory needs them."""
    found: set[str] = set()
    for expression in expressions:
        for node in walk(expression):
            if isinstance(node, Name) and node.id not in DTYPE_NAMES and node.id not in ("inf", "pi", "nan"):
                found.add(node.id)
            if isinstance(node, Call) and _makes(node):
                found |= {"device"} if node.op == "arange" else {"dtype", "device"}
    return found


def _makes(node: Call) -> bool:
    return lookup(node).family == "source"


def _pad(node: Call, writer: Writer) -> Doc:
    bound = bind(node)
    dim = bound["dim"]
    before, after = (flat(torch_text(bound[key], writer, size=True)) for key in ("before", "after"))
    match dim:
        case Literal(value=int() as axis) if axis < 0:
            behind = -axis - 1
        case Call(op="neg", args=(Literal(value=int() as axis),)):
            behind = axis - 1
        case _:
            raise unsupported("`pad` of a dimension that is not counted from the end", node.span)
    amounts = ", ".join(["0, 0"] * behind + [before, after])
    items: list[Doc] = [torch_text(bound["x"], writer), f"[{amounts}]"]
    if bound["value"] != Literal(0):
        items.append(named("value", torch_text(bound["value"], writer)))
    return call("F.pad", *items)


def _finfo(attribute: str) -> Callable[[Call, Writer], Doc]:
    return lambda node, writer: f"torch.finfo({flat(torch_text(node.args[0], writer))}).{attribute}"


def _take(node: Call, writer: Writer) -> Doc:
    bound = bind(node)
    return f"{flat(torch_text(bound['x'], writer, precedence=_ATOM))}[{flat(torch_text(bound['index'], writer))}]"


def _to(node: Call, writer: Writer) -> Doc:
    bound = bind(node)
    return call(f"{flat(torch_text(bound['x'], writer, precedence=_ATOM))}.to", torch_text(bound["dtype"], writer))


def _size(node: Call, writer: Writer) -> Doc:
    bound = bind(node)
    return f"{flat(torch_text(bound['x'], writer, precedence=_ATOM))}.shape[{flat(torch_text(bound['dim'], writer, size=True))}]"


def _dtype_of(node: Call, writer: Writer) -> Doc:
    return f"{flat(torch_text(bind(node)['x'], writer, precedence=_ATOM))}.dtype"


_SPECIAL: dict[str, Callable[[Call, Writer], Doc]] = {
    "pad": _pad,
    "finfo_min": _finfo("min"),
    "finfo_max": _finfo("max"),
    "finfo_eps": _finfo("eps"),
    "finfo_tiny": _finfo("tiny"),
    "take": _take,
    "to": _to,
    "size": _size,
    "dtype_of": _dtype_of,
}
