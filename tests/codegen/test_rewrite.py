"""Rewriting: what a substitute gets and leaves behind, and rules that never come to rest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from adapterc.codegen.runtime import Dim, Origin, PatchError, Rewrite, Tensor, op

X = torch.randn(3, 4)
A = Tensor("x", "float", (...,))


def rule(name: str, pattern: Any, substitute: Any, **more: Any) -> Rewrite:
    when = more.pop("when", None)
    return Rewrite(Origin(name, f"spec.yaml:{len(name)}", "", "", when), pattern, substitute, **more)


CUBE = rule("a.cube", op("pow", A, 3), lambda x: x * x * x)


def test_a_match_is_replaced_and_its_inside_goes(graphed: Any) -> None:
    graph = graphed(lambda a: torch.tanh(a**3), X)
    rewritten, report = graph.apply(CUBE)
    assert report.fired == {"a.cube": 1}
    assert not any("pow" in str(n.target) for n in rewritten.module.graph.nodes)
    assert graph.difference(rewritten) < 1e-6
    assert any("pow" in str(n.target) for n in graph.captured.module.graph.nodes)  # the captured graph itself is as it was


def test_an_inner_value_that_is_read_elsewhere_stays(graphed: Any) -> None:
    def function(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = torch.exp(a)
        return torch.tanh(inner), inner + 1

    graph = graphed(function, X)
    rewritten, report = graph.apply(rule("a.b", op("tanh", op("exp", A)), lambda x: torch.sigmoid(2 * torch.exp(x)) * 2 - 1))
    assert report.fired == {"a.b": 1}
    assert graph.difference(rewritten) < 1e-6


def test_overlapping_matches_are_each_replaced(graphed: Any) -> None:
    graph = graphed(lambda a: (a**3) ** 3, X)
    rewritten, report = graph.apply(CUBE)
    assert report.fired == {"a.cube": 2}
    assert graph.difference(rewritten) < 1e-3


def test_new_nodes_name_the_rule_and_the_users_line(graphed: Any) -> None:
    graph = graphed(lambda a: a**3, X)
    power = next(n for n in graph.captured.module.graph.nodes if "pow" in str(n.target))
    power.meta["stack_trace"] = '  File "modeling_x.py", line 7, in forward\n    a**3'
    rewritten, _ = graph.apply(CUBE)
    products = [n for n in rewritten.module.graph.nodes if "mul" in str(n.target)]
    assert {n.meta["adapter_rule"] for n in products} == {"a.cube"}
    assert all("line 7" in n.meta["stack_trace"] for n in products)
    assert all(n.meta["val"].shape == (3, 4) for n in products)


def test_programs_over_weights_run_at_load(graphed: Any) -> None:
    b, w = torch.randn(5), torch.randn(4, 5)
    k, m, n = Dim("k"), Dim("m"), Dim("n")
    pattern = op("addmm", Tensor("b", "float", (n,)), Tensor("x", "float", (m, k)), Tensor("w", "float", (k, n), weight=True))
    graph = graphed(lambda a, b, w: torch.addmm(b, a, w), X, b, w, weights=(1, 2))
    rewritten, _ = graph.apply(rule("a.linear", pattern, lambda x, wt, b: F.linear(x, wt, b), load=lambda w: {"wt": w.t()}))
    stages = {str(node.target): node.meta.get("stage") for node in rewritten.module.graph.nodes if node.op == "call_function"}
    assert stages["aten.t.default"] == "load"
    assert stages["aten.linear.default"] is None
    assert graph.difference(rewritten) < 1e-6


def test_when_sees_sizes_and_its_refusal_is_told(graphed: Any) -> None:
    d = Dim("d")
    guarded = rule("a.b", op("exp", Tensor("x", "float", (..., d))), lambda x: torch.exp(x) + 0, when=lambda here: here["d"] > 8)
    _, report = graphed(torch.exp, X).apply(guarded)
    assert report.fired.get("a.b", 0) == 0
    assert "`when` does not hold (d=4)" in str(report.misses["a.b"])


def test_rules_that_undo_each_other_are_reported(graphed: Any) -> None:
    there = rule("a.there", op("exp", A), lambda x: torch.sigmoid(x))
    back = rule("b.back", op("sigmoid", A), lambda x: torch.exp(x))
    with pytest.raises(PatchError, match=r"a\.there .* and b\.back .* undo each other") as error:
        graphed(torch.exp, X).apply(there, back)
    assert error.value.code == "ADC411"


def test_a_rule_that_feeds_itself_is_stopped(graphed: Any) -> None:
    with pytest.raises(PatchError, match=r"a\.grow still fires") as error:
        graphed(torch.exp, X).apply(rule("a.grow", op("exp", A), lambda x: torch.exp(x) * 1.5))
    assert error.value.code == "ADC412"


def test_a_substitute_of_another_dtype_is_an_error(graphed: Any) -> None:
    with pytest.raises(PatchError, match=r"replaces torch\.float32") as error:
        graphed(torch.exp, X).apply(rule("a.b", op("exp", A), lambda x: x.half()))
    assert error.value.code == "ADC414"


def test_a_rewritten_write_in_place_still_writes(graphed: Any) -> None:
    cache, new, place = torch.zeros(2, 4), torch.randn(1, 4), torch.tensor([1])
    pattern = op("index_copy", Tensor("c", "float", (..., Dim("d"))), 0, Tensor("i", "int", (1,)), Tensor("n", "float", (1, Dim("d"))))
    graph = graphed(lambda c, i, n: c.index_copy_(0, i, n) * 2, cache, place, new)
    rewritten, _ = graph.apply(rule("a.write", pattern, lambda c, i, n: torch.where((torch.arange(2) == i)[:, None], n, c)))
    mine, theirs = cache.clone(), cache.clone()
    assert torch.equal(graph.captured.module(mine, place, new), rewritten.module(theirs, place, new))
    assert torch.equal(mine, theirs)
    assert mine[1].equal(new[0])
