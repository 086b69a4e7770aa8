"""Installing on a model: what the user's model is before, during and after, and what is said when a promise is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from adapterc.codegen.runtime import Expectation, Origin, PatchError, PatchSet, Replace, Require, Rewrite, Tensor, op
from adapterc.codegen.runtime.patchset import GraphReport, check_expectations
from adapterc.spyre_runtime import patches

A = Tensor("x", "float", (...,))


class Cubed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x**3


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = {"model_type": "small", "layers": 2, "rope_scaling": None}
        self.inner = nn.Linear(4, 4)
        self.first, self.second = Cubed(), Cubed()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.inner(x)))


def origin(name: str, **more: Any) -> Origin:
    return Origin(name, "spec.yaml:3", "", "", **more)


def cube(**more: Any) -> Rewrite:
    return Rewrite(origin("a.cube", **more), op("pow", A, 3), lambda x: x * x * x)


REPLACE = Replace(origin("a.module"), "Cube*", lambda module, x: x * x * x)


def state(model: nn.Module) -> list[Any]:
    """Everything of the module tree that patching could leave behind."""
    return [(name, type(m), sorted(m.__dict__), id(m.__dict__.get("forward"))) for name, m in model.named_modules()]


def test_on_cpu_the_patched_model_is_bitwise_stock() -> None:
    model, x = Model().eval(), torch.randn(3, 4)
    before = model(x)
    with PatchSet((cube(), REPLACE)).patched(model):
        assert torch.equal(model(x), before)
    assert torch.equal(model(x), before)


def test_removing_leaves_the_module_tree_as_it_was() -> None:
    model = Model()
    found = state(model)
    handle = PatchSet((REPLACE,)).install(model)
    assert state(model) != found
    assert handle.fired() == {"a.module": 2}
    handle.remove()
    handle.remove()
    assert state(model) == found
    assert patches.fired_report(model) == {}
    assert "forward" not in Cubed.__dict__ or Cubed.forward.__qualname__ == "Cubed.forward"  # the class was never touched


def test_an_error_inside_the_block_still_takes_the_patches_off() -> None:
    model = Model()
    found = state(model)
    with pytest.raises(ZeroDivisionError), PatchSet((REPLACE,)).patched(model):
        _ = 1 / 0
    assert state(model) == found


def test_an_instances_own_forward_comes_back() -> None:
    model = Model()
    own = model.first.forward
    model.first.forward = own
    with PatchSet((REPLACE,)).patched(model):
        assert model.first.forward is not own
    assert model.first.__dict__["forward"] is own


def test_a_second_model_of_the_class_is_stock() -> None:
    patched, other = Model(), Model()
    with PatchSet((REPLACE,)).patched(patched):
        assert "forward" not in other.first.__dict__


def test_a_model_is_patched_once() -> None:
    model = Model()
    with PatchSet((cube(),)).patched(model), pytest.raises(PatchError, match="patched already") as error:
        PatchSet((cube(),)).install(model)
    assert error.value.code == "ADC415"
    PatchSet((cube(),)).install(model).remove()


def test_a_requirement_refuses_with_its_sentence() -> None:
    model = Model()
    message = "rope_scaling.rope_type longrope changes with the length, and one table cannot follow it."
    rule = Require(origin("a.no_longrope"), lambda here: here.config.rope_scaling is not None, message)
    with pytest.raises(PatchError) as error:
        PatchSet((rule,)).install(model)
    assert error.value.code == "ADC413"
    assert message in str(error.value)
    PatchSet((Require(origin("a.fine"), lambda here: here.config.absent is None, ""),)).install(model).remove()


@pytest.mark.parametrize(
    ("fired", "whole", "complaint"),
    [(2, True, None), (1, True, "fired 1 times"), (0, True, "Nearest miss"), (3, False, "at most 2"), (0, False, None)],
)
def test_expectations_are_checked(fired: int, whole: bool, complaint: str | None, graphed: Any) -> None:
    expectation = Expectation(lambda here: here.config.layers, lambda here: here.config.layers, place="spec.yaml:9")
    rule = cube(expect=(expectation,))
    _, report = graphed(torch.exp, torch.randn(2)).apply(rule)
    report = GraphReport({"a.cube": fired}, report.misses, whole)
    context = PatchSet((rule,)).install(Model()).context
    if complaint is None:
        check_expectations((rule,), report, context)
        return
    with pytest.raises(PatchError, match=complaint) as error:
        check_expectations((rule,), report, context)
    assert error.value.code == "ADC410"
    assert "spec.yaml:9" in str(error.value)


def test_an_expectation_for_another_model_does_not_count() -> None:
    expectation = Expectation(lambda here: 7, when=lambda here: here.config.model_type == "other")
    check_expectations((cube(expect=(expectation,)),), GraphReport({}, {}, True), PatchSet(()).install(Model()).context)


def test_an_error_passes_through_a_with_block_as_itself() -> None:
    """A frozen exception cannot take the traceback that contextlib writes, and would come out as another error."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        yield

    with pytest.raises(PatchError, match="ADC410"), block():
        raise PatchError("ADC410", "fired too seldom")
