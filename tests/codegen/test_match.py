"""The matcher: what it sees through, what it insists on, and what it says when it fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from adapterc.codegen.runtime import Dim, DType, Match, Matcher, Miss, Pattern, Rest, Scalar, Tensor, op
from adapterc.codegen.runtime.sizes import evaluate, solve

X, Y = torch.randn(3, 4), torch.randn(3, 4)


def x(*shape: Any) -> Tensor:
    return Tensor("x", "float", shape or (...,))


def y() -> Tensor:
    return Tensor("y", "float", (...,))


def at_end(graph: Any, pattern: Pattern, weights: tuple[int, ...] = ()) -> Match | Miss | None:
    """The match at the graph's only result, or the nearest miss."""
    nodes = list(graph.captured.module.graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder"]
    matcher = Matcher(pattern, frozenset(inputs[i] for i in weights))
    (result,) = nodes[-1].all_input_nodes
    return matcher.at(result) or matcher.miss


@pytest.mark.parametrize("function", [lambda a, b: a * torch.sigmoid(a) + b, lambda a, b: b + torch.sigmoid(a) * a])
def test_operands_of_exactly_commuting_ops_may_be_swapped(graphed: Any, function: Any) -> None:
    found = at_end(graphed(function, X, Y), x() * op("sigmoid", x()) + y())
    assert isinstance(found, Match)
    assert (found.captures["x"].name, found.captures["y"].name) != ()


def test_subtraction_is_not_commuted(graphed: Any) -> None:
    found = at_end(graphed(lambda a, b: b - torch.exp(a), X, Y), op("exp", x()) - y())
    assert isinstance(found, Miss)
    assert "`exp` in the pattern" in found.clause


def test_harmless_nodes_are_looked_through(graphed: Any) -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        inner = F.dropout(torch.exp(a.to(torch.float32)), 0.5, False).contiguous().expand(3, 4)
        return torch.sigmoid(inner.reshape(3, 4) * 1)

    assert isinstance(at_end(graphed(function, X), op("sigmoid", op("exp", x()))), Match)


def test_a_half_that_is_only_widened_and_narrowed_again_is_itself(graphed: Any) -> None:
    half = X.half()
    assert isinstance(at_end(graphed(lambda a: torch.sigmoid(torch.exp(a).float().half()), half), op("sigmoid", op("exp", x()))), Match)
    widened = at_end(graphed(lambda a: torch.sigmoid(torch.exp(a).half().float()), X), op("sigmoid", op("exp", x())))
    assert isinstance(widened, Miss)  # narrowing first loses bits


def test_a_real_cast_is_not_looked_through(graphed: Any) -> None:
    found = at_end(graphed(lambda a: torch.sigmoid(torch.exp(a).to(torch.float16)), X), op("sigmoid", op("exp", x())))
    assert isinstance(found, Miss)


@pytest.mark.parametrize(
    ("literal", "found", "matches"), [(1.000009, 1.000009, True), (1, 1.000009, False), (3, 3.0, True), (True, 1, False)]
)
def test_literals_are_exact(graphed: Any, literal: Any, found: Any, matches: bool) -> None:
    assert isinstance(at_end(graphed(lambda a: torch.exp(a) + found, X), op("exp", x()) + literal), Match) is matches


def test_a_repeated_capture_must_be_the_same_value(graphed: Any) -> None:
    pattern = x() * op("sigmoid", x())
    assert isinstance(at_end(graphed(lambda a, b: a * torch.sigmoid(a), X, Y), pattern), Match)
    other = at_end(graphed(lambda a, b: a * torch.sigmoid(b), X, Y), pattern)
    assert isinstance(other, Miss)
    assert "already" in other.clause
    assert isinstance(at_end(graphed(lambda a, b: (a + 1) * torch.sigmoid(a + 1), X, Y), pattern), Match)  # computed twice, one value


def test_sizes_are_bound_and_compared(graphed: Any) -> None:
    d = Dim("d")
    half = op("cat", [-x(..., d)[..., d / 2 :], x(..., d)[..., : d / 2]], dim=-1)

    def rotate(a: torch.Tensor, cut: int) -> torch.Tensor:
        return torch.cat([-a[..., cut:], a[..., :cut]], -1)

    found = at_end(graphed(lambda a: rotate(a, 2), X), half)
    assert isinstance(found, Match)
    assert found.sizes == {"d": 4}
    missed = at_end(graphed(lambda a: rotate(a, 1), X), half)
    assert isinstance(missed, Miss)
    assert "d / 2" in missed.clause


def test_both_ends_of_a_slice_are_compared_and_bound(graphed: Any) -> None:
    begin, end = Dim("s"), Dim("e")
    found = at_end(graphed(lambda a: torch.exp(a[:, 1:-1]), X), op("exp", x()[:, begin:end]))
    assert isinstance(found, Match)
    assert found.sizes == {"s": 1, "e": 3}
    assert isinstance(at_end(graphed(lambda a: torch.exp(a[:, 1:3]), X), op("exp", x()[:, 1:3])), Match)
    for other in (lambda a: torch.exp(a[:, 0:3]), lambda a: torch.exp(a[:, 1:4])):
        assert isinstance(at_end(graphed(other, X), op("exp", x()[:, 1:3])), Miss)


def test_an_index_by_a_list_of_neighbours_is_a_slice(graphed: Any) -> None:
    pattern = op("exp", x()[:, Dim("s") : Dim("e")])

    def picked(places: list[int]) -> Any:
        return graphed(lambda a: torch.exp(a[:, places]), X)

    for places, bounds in (([-2], (2, 3)), ([1, 2], (1, 3))):
        found = at_end(picked(places), pattern)
        assert isinstance(found, Match)
        assert (found.sizes["s"], found.sizes["e"]) == bounds
    for places in ([2, 1], [0, 2], [1, 1]):
        assert isinstance(at_end(picked(places), pattern), Miss)
    index = torch.tensor([1, 2])
    assert isinstance(at_end(graphed(lambda a, i: torch.exp(a[:, i]), X, index), pattern), Miss)  # an input is another one in the next call


@pytest.mark.parametrize(("of", "matches"), [(DType("float32"), True), (DType("dtype"), True), (DType("float16"), False)])
def test_the_end_of_a_format_is_its_number(graphed: Any, of: DType, matches: bool) -> None:
    lowest = torch.finfo(torch.float32).min
    pattern = op("where", Tensor("c", "bool", (...,)), x(), op("finfo_min", of))
    for function in (
        lambda a, b: torch.where(b, a, torch.full([], lowest, dtype=a.dtype)),
        lambda a, b: torch.where(b, a, lowest),
    ):
        found = at_end(graphed(function, X, X > 0), pattern)
        assert isinstance(found, Match) is matches


def test_pieces_of_a_chunk_are_slices(graphed: Any) -> None:
    d = Dim("d")

    def function(a: torch.Tensor) -> torch.Tensor:
        first, second = a.chunk(2, -1)
        return torch.cat([-second, first], -1)

    assert isinstance(at_end(graphed(function, X), op("cat", [-x(..., d)[..., d / 2 :], x(..., d)[..., : d / 2]], dim=-1)), Match)


def test_an_argument_that_the_pattern_does_not_mention_must_have_its_default(graphed: Any) -> None:
    found = at_end(graphed(lambda a: F.gelu(a, approximate="tanh"), X), op("gelu", x()))
    assert isinstance(found, Miss)
    assert "approximate=tanh" in found.clause


def test_a_weight_must_be_one(graphed: Any) -> None:
    pattern = op("linear", x(), Tensor("w", "float", (Dim("n"), Dim("k")), weight=True))
    graph = graphed(lambda a, w: F.linear(a, w), X, Y, weights=(1,))
    assert isinstance(at_end(graph, pattern, weights=(1,)), Match)
    missed = at_end(graph, pattern)
    assert isinstance(missed, Miss)
    assert "weights only" in missed.clause


def test_the_miss_is_the_deepest_one(graphed: Any) -> None:
    pattern = op("tanh", op("exp", x() * 3))
    missed = at_end(graphed(lambda a: torch.tanh(torch.exp(a * 4)), X), pattern)
    assert isinstance(missed, Miss)
    assert missed.depth == 3
    assert "4 where the pattern has 3" in str(missed)


def test_a_value_written_between_the_matched_ops_is_no_match(graphed: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        inner = torch.exp(a)
        a.copy_(b)
        return inner * a

    nodes = list(graphed(function, X, Y).captured.module.graph.nodes)
    product = next(n for n in nodes if "mul" in n.name)
    matcher = Matcher(op("exp", x()) * y(), frozenset())
    found = matcher.at(product)
    assert found is None or found.captures["y"] is not found.captures["x"]


def test_named_rests_are_equal() -> None:
    assert evaluate(Dim("d") / 2, {"d": 7}) is None
    assert evaluate(3 * Dim("d") + 1, {"d": 7}) == 22
    assert Rest("B") == Rest("B")


def test_scalars_are_bound(graphed: Any) -> None:
    found = at_end(graphed(lambda a: torch.exp(a) * 0.125, X), op("exp", x()) * Scalar("s"))
    assert isinstance(found, Match)
    assert found.captures["s"] == 0.125


@pytest.mark.parametrize(
    ("size", "found", "solution"),
    [
        (Dim("r") * Dim("p"), 12, ("r", 3)),
        (Dim("p") * Dim("r"), 12, ("r", 3)),
        (Dim("r") + Dim("p"), 12, ("r", 8)),
        (Dim("r") - Dim("p"), 12, ("r", 16)),
        (Dim("p") - Dim("r"), 1, ("r", 3)),
        (Dim("r") / Dim("p"), 12, ("r", 48)),
        (2 * Dim("r") + 1, 7, ("r", 3)),
        (Dim("r") * Dim("p"), 13, None),  # no whole number
        (Dim("r") * Dim("q"), 12, None),  # two names
        (Dim("r") // Dim("p"), 3, None),  # several numbers
        (Dim("p") * 0 * Dim("r"), 0, None),  # every number
    ],
)
def test_a_size_follows_from_an_expression_where_it_is_the_only_unknown(size: Dim, found: int, solution: object) -> None:
    assert solve(size, found, {"p": 4}) == solution


def test_windows_of_an_image_bind_how_many_there_are(graphed: Any) -> None:
    image, weight = torch.randn(2, 3, 8, 12), torch.randn(5, 3, 4, 4)
    pattern = op(
        "conv2d",
        Tensor("x", "float", (Dim("n"), Dim("c"), Dim("r") * Dim("p"), Dim("z") * Dim("q"))),
        Tensor("w", "float", (Dim("o"), Dim("c"), Dim("p"), Dim("q"))),
        stride=[Dim("p"), Dim("q")],
    )
    found = at_end(graphed(lambda a, b: F.conv2d(a, b, stride=4), image, weight), pattern)
    assert isinstance(found, Match)
    assert (found.sizes["r"], found.sizes["z"]) == (2, 3)
    padded = at_end(graphed(lambda a, b: F.conv2d(a, b, stride=4, padding=2), image, weight), pattern)
    assert isinstance(padded, Miss)
    uneven = at_end(graphed(lambda a, b: F.conv2d(a, b, stride=4), torch.randn(2, 3, 9, 12), weight), pattern)
    assert isinstance(uneven, Miss)
    assert "no whole" in uneven.clause
