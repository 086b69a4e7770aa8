"""Writes into parts of a value that the graph holds alone become values; inputs and memory that may be shared stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from adapterc.codegen.runtime.graph import mutates

X, Y = torch.randn(2, 3, 8), torch.randn(3, 8)


def every_third(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    grid = a.cos()
    first = grid[0]
    first[..., 1::3] = grid[1, ..., 1::3]
    first[..., 2::3] = b[..., 2::3]
    return torch.cat([first, first], -1)


def read_through_other_views(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    whole = a + 1
    before, turned = whole.sum(), whole.transpose(1, 2)
    whole[:, 1:] = b[1:]
    whole[1].mul_(2)
    return before, turned.exp(), whole, whole[0] * 3


@pytest.mark.parametrize("function", [every_third, read_through_other_views])
def test_a_written_part_is_a_value(graphed: Any, function: Callable[..., Any]) -> None:
    graph = graphed(function, X, Y)
    assert any(mutates(node) for node in graph.captured.module.graph.nodes)
    rewritten, _ = graph.apply()
    assert not any(mutates(node) for node in rewritten.module.graph.nodes)
    assert graph.difference(rewritten) == 0


def through_a_perhaps_copied_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    whole = a + 1
    flat = whole.reshape(-1)
    whole[0] = b
    return flat * 2


def through_a_piece(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    whole = a + 1
    piece, _ = whole.chunk(2, -1)
    whole[0] = b
    return piece * 2


def into_an_input(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[0] = b
    return a * 2


@pytest.mark.parametrize("function", [through_a_perhaps_copied_view, through_a_piece, into_an_input])
def test_memory_that_others_may_read_is_written_as_before(graphed: Any, function: Callable[..., Any]) -> None:
    graph = graphed(function, X, Y)
    rewritten, _ = graph.apply()
    assert any(mutates(node) for node in rewritten.module.graph.nodes)
    assert graph.difference(rewritten) == 0


@pytest.mark.parametrize(("beta", "alpha"), [(1.0, 1.0), (1, 0.5), (0.25, 2.0), (0, 3.0)])
def test_a_product_with_a_bias_is_taken_apart(graphed: Any, beta: float, alpha: float) -> None:
    left, right, bias = torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.full((2, 1, 5), torch.nan if beta == 0 else 2.0)
    graph = graphed(lambda z, x, y: torch.baddbmm(z, x, y, beta=beta, alpha=alpha), bias, left, right)
    rewritten, _ = graph.apply()
    assert "baddbmm" not in str(rewritten.module.graph)
    assert graph.difference(rewritten) < 1e-6
