"""Growing a dimension: values stay, whatever the graph does with heads in between, or nothing changes and the reason is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from adapterc.codegen.runtime import Anything, Dim, Origin, Pad, Tensor, op
from adapterc.codegen.runtime.growth import CannotGrow, Growth, through_view
from adapterc.codegen.runtime.numbers import ceil_to

D, L, M, V, H = Dim("d"), Dim("l"), Dim("m"), Dim("V"), Dim("H")


def head() -> Pad:
    q, k, v = Tensor("q", "float", (..., L, D)), Tensor("k", "float", (..., M, D)), Tensor("v", "float", (..., M, D))
    pattern = op("sdpa", q, k, v, Anything("mask"), scale=Anything("s"), causal=Anything("c"), enable_gqa=Anything("g"))
    origin = Origin("pad.head", "spec.yaml:1", "", "", lambda here: here["d"] % here.stick != 0)
    return Pad(origin, pattern, "d", lambda here: ceil_to(here["d"], here.stick), dict.fromkeys("qkv", 0.0), "contract")


VOCABULARY = Pad(
    Origin("pad.vocabulary", "spec.yaml:2", "", "", lambda here: here["V"] == here.config.vocab_size),
    op("linear", Tensor("h", "float", (..., H)), Tensor("w", "float", (V, H), weight=True)),
    "V",
    lambda here: ceil_to(here["V"], here.stick),
    {"w": 0.0},
    "crop",
)

GROUP, HEADS, SIZE, WIDTH = 2, 4, 32, 48
X = torch.randn(2, 5, WIDTH)


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.view(2, 5, heads, -1).transpose(1, 2)


def merged(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(2, 5, -1)


def weight(rows: int, columns: int = WIDTH) -> torch.Tensor:
    return torch.randn(rows, columns) / columns**0.5


def plain(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    heads = [split(F.linear(x, w), HEADS) for w in (q, k, v)]
    return F.linear(merged(F.scaled_dot_product_attention(*heads)), o)


def grouped(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    def repeated(t: torch.Tensor) -> torch.Tensor:
        return t[:, :, None].expand(2, GROUP, 2, 5, SIZE).reshape(2, HEADS, 5, SIZE)

    keys, values = (repeated(split(F.linear(x, w), GROUP)) for w in (k, v))
    return F.linear(merged(F.scaled_dot_product_attention(split(F.linear(x, q), HEADS), keys, values)), o)


def fused(x: torch.Tensor, qkv: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    pieces = F.linear(x, qkv).split(HEADS * SIZE, dim=2)
    return F.linear(merged(F.scaled_dot_product_attention(*(split(p, HEADS) for p in pieces))), o)


def interleaved(x: torch.Tensor, qkv: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    pieces = F.linear(x, qkv).view(2, 5, HEADS, 3 * SIZE).transpose(1, 2).chunk(3, -1)
    return F.linear(merged(F.scaled_dot_product_attention(*pieces)), o)


def unbound(x: torch.Tensor, qkv: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    queries, keys, values = F.linear(x, qkv).view(2, 5, 3, HEADS, SIZE).unbind(2)
    attended = F.scaled_dot_product_attention(queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
    return F.linear(merged(attended), o)


def normed(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    def norm(t: torch.Tensor) -> torch.Tensor:
        return g * (t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-6))

    queries = F.rms_norm(split(F.linear(x, q), HEADS), [SIZE], g, 1e-6)
    keys = norm(split(F.linear(x, k), HEADS))
    return F.linear(merged(F.scaled_dot_product_attention(queries, keys, split(F.linear(x, v), HEADS))), o)


SQUARE = HEADS * SIZE
CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "plain": (plain, (weight(SQUARE), weight(SQUARE), weight(SQUARE), weight(WIDTH, SQUARE))),
    "grouped": (grouped, (weight(SQUARE), weight(GROUP * SIZE), weight(GROUP * SIZE), weight(WIDTH, SQUARE))),
    "fused": (fused, (weight(3 * SQUARE), weight(WIDTH, SQUARE))),
    "interleaved": (interleaved, (weight(3 * SQUARE), weight(WIDTH, SQUARE))),
    "unbound": (unbound, (weight(3 * SQUARE), weight(WIDTH, SQUARE))),
    "normed": (normed, (weight(SQUARE), weight(SQUARE), weight(SQUARE), weight(WIDTH, SQUARE), torch.randn(SIZE))),
}


@pytest.mark.parametrize("case", CASES)
def test_heads_grow_and_the_result_stays(graphed: Any, case: str) -> None:
    function, weights = CASES[case]
    graph = graphed(function, X, *weights, weights=tuple(range(1, 1 + len(weights))))
    rewritten, report = graph.apply(head())
    assert report.fired["pad.head"] == 1, report.misses
    attention = next(n for n in rewritten.module.graph.nodes if "scaled_dot" in str(n.target))
    assert attention.meta["val"].shape[-1] == 64
    assert attention.kwargs["scale"] == SIZE**-0.5  # pinned to the size that the model has
    assert graph.difference(rewritten) < 1e-5
    pads = [n for n in rewritten.module.graph.nodes if "pad" in str(n.target)]
    assert pads
    assert all(n.meta["stage"] == "load" for n in pads)


def test_heads_that_come_from_outside_grow_and_are_cut_back(graphed: Any) -> None:
    heads = [torch.randn(2, HEADS, 5, SIZE) for _ in "qkv"]
    graph = graphed(F.scaled_dot_product_attention, *heads)
    rewritten, report = graph.apply(head())
    assert report.fired["pad.head"] == 1, report.misses
    assert graph.difference(rewritten) < 1e-5


def test_lanes_that_are_not_zero_are_refused(graphed: Any) -> None:
    function, weights = CASES["plain"]
    graph = graphed(lambda x, q, k, v, o: function(x, q, k + 0, v, o), X, *weights, weights=(1, 2, 3, 4))

    def biased(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        heads = [torch.exp(split(F.linear(x, w), HEADS)) for w in (q, k, v)]
        return F.linear(merged(F.scaled_dot_product_attention(*heads)), o)

    _, report = graph.apply(head())
    assert report.fired["pad.head"] == 1
    _, report = graphed(biased, X, *weights, weights=(1, 2, 3, 4)).apply(head())
    assert report.fired["pad.head"] == 0
    assert "would sum products of finite and finite new lanes" in str(report.misses["pad.head"])


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (lambda t: torch.softmax(t, -1), "runs along the grown dimension"),
        (lambda t: F.layer_norm(t, [SIZE]), "subtracts a mean over the grown dimension"),
        (lambda t: t - t.amax(-1, keepdim=True), "the new lanes could win"),
        (lambda t: t.flip(-1), "flip"),
    ],
)
def test_what_new_lanes_would_change_is_refused_and_nothing_moves(graphed: Any, between: Any, reason: str) -> None:
    def function(x: torch.Tensor, q: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        heads = between(split(F.linear(x, q), HEADS))
        return F.linear(merged(F.scaled_dot_product_attention(heads, heads, heads)), o)

    graph = graphed(function, X, weight(SQUARE), weight(WIDTH, SQUARE), weights=(1, 2))
    rewritten, report = graph.apply(head())
    assert report.fired["pad.head"] == 0
    assert reason in str(report.misses["pad.head"])
    assert [str(n.target) for n in rewritten.module.graph.nodes] == [str(n.target) for n in graph.captured.module.graph.nodes]


def test_a_cache_outside_the_graph_keeps_its_size(graphed: Any) -> None:
    cache, new = torch.zeros(2, HEADS, 5, SIZE), torch.tensor([True, False, True, True, False]).view(1, 1, 5, 1)

    def function(
        x: torch.Tensor, q: torch.Tensor, o: torch.Tensor, cache: torch.Tensor, new: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        heads = split(F.linear(x, q), HEADS)
        keys = torch.where(new, heads, cache)
        cache.copy_(keys)
        return F.linear(merged(F.scaled_dot_product_attention(heads, keys, keys)), o), keys

    graph = graphed(function, X, weight(SQUARE), weight(WIDTH, SQUARE), cache, new, weights=(1, 2))
    rewritten, report = graph.apply(head())
    assert report.fired["pad.head"] == 1, report.misses
    assert graph.difference(rewritten) < 1e-5
    mine, theirs = cache.clone(), cache.clone()
    graph.captured.module(*graph.inputs[:3], mine, new)
    rewritten.module(*graph.inputs[:3], theirs, new)
    assert torch.allclose(mine, theirs, atol=1e-6)


def test_the_vocabulary_grows_as_a_copy_and_padded_logits_never_win(graphed: Any) -> None:
    table = -torch.rand(99, WIDTH)
    hidden = torch.rand(2, 5, WIDTH)
    ids = torch.randint(0, 99, (2, 5))

    def tied(h: torch.Tensor, ids: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.linear(h + w[ids] * 1e-3, w)

    graph = graphed(tied, hidden, ids, table, weights=(2,))
    rewritten, report = graph.apply(VOCABULARY, config={"vocab_size": 99})
    assert report.fired["pad.vocabulary"] == 1
    nodes = {str(n.target): n for n in rewritten.module.graph.nodes}
    assert nodes["aten.linear.default"].meta["val"].shape[-1] == 128
    logits = rewritten.module(*graph.inputs)
    assert logits.shape == (2, 5, 99)  # all real logits are negative, so an uncropped zero would win
    assert graph.difference(rewritten) < 1e-6
    lookup = nodes["aten.index.Tensor"]
    assert lookup.args[0].op == "placeholder"  # the embedding reads the table itself


def test_what_reads_cropped_logits_sees_the_old_size(graphed: Any) -> None:
    """BART adds a bias of the vocabulary's size behind its head."""
    hidden, table, bias = torch.rand(2, 5, WIDTH), torch.randn(99, WIDTH), torch.randn(1, 99)
    graph = graphed(lambda h, w, b: (F.linear(h, w) + b).softmax(-1), hidden, table, bias, weights=(1, 2))
    rewritten, report = graph.apply(VOCABULARY, config={"vocab_size": 99})
    assert report.fired["pad.vocabulary"] == 1
    assert rewritten.module(*graph.inputs).shape == (2, 5, 99)
    assert graph.difference(rewritten) < 1e-6


@pytest.mark.parametrize(("low", "high", "fires"), [(-0.1, 0.1, 1), (None, 0.1, 1), (0.05, 0.1, 0)])
def test_a_clamp_keeps_lanes_zero_where_its_bounds_hold_zero(graphed: Any, low: float | None, high: float, fires: int) -> None:
    """OLMo clips its queries, keys and values."""

    def clipped(x: torch.Tensor, qkv: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        pieces = F.linear(x, qkv).clamp(low, high).split(HEADS * SIZE, dim=2)
        return F.linear(merged(F.scaled_dot_product_attention(*(split(p, HEADS) for p in pieces))), o)

    graph = graphed(clipped, X, weight(3 * SQUARE), weight(WIDTH, SQUARE), weights=(1, 2))
    rewritten, report = graph.apply(head())
    assert report.fired["pad.head"] == fires, report.misses
    assert graph.difference(rewritten) < 1e-5


def test_heads_that_are_clipped_in_place_grow(graphed: Any) -> None:
    def clipped(x: torch.Tensor, q: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        flat = F.linear(x, q)
        flat.clamp_(-0.1, 0.1)
        heads = split(flat, HEADS)
        return F.linear(merged(F.scaled_dot_product_attention(heads, heads, heads)), o)

    graph = graphed(clipped, X, weight(SQUARE), weight(WIDTH, SQUARE), weights=(1, 2))
    rewritten, report = graph.apply(head())
    assert report.fired["pad.head"] == 1, report.misses
    assert graph.difference(rewritten) < 1e-5


def test_views_keep_groups_together() -> None:
    grown = Growth(2, 4, 32, 64)
    assert through_view((2, 5, 128), grown, (2, 5, 4, 32)) == Growth(3, 1, 32, 64)
    assert through_view((2, 5, 4, 32), Growth(3, 1, 32, 64), (10, 128)) == Growth(1, 4, 32, 64)
    with pytest.raises(CannotGrow, match="takes groups of 32 apart"):
        through_view((2, 5, 128), grown, (2, 5, 8, 16))


def test_a_scale_that_the_graph_names_is_left(graphed: Any) -> None:
    def function(x: torch.Tensor, q: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        heads = split(F.linear(x, q), HEADS)
        return F.linear(merged(F.scaled_dot_product_attention(heads, heads, heads, scale=0.5)), o)

    graph = graphed(function, X, weight(SQUARE), weight(WIDTH, SQUARE), weights=(1, 2))
    rewritten, _ = graph.apply(head())
    attention = next(n for n in rewritten.module.graph.nodes if "scaled_dot" in str(n.target))
    assert attention.kwargs["scale"] == 0.5
    assert graph.difference(rewritten) < 1e-5
