"""The pytest plugin: one test a rule and rung from a folder of specs, and a message that teaches where one fails."""

from __future__ import annotations

import pytest

from adapterc.verify import pytest_plugin

pytest_plugins = ["pytester"]

GOOD = """
adapter: cube
summary: A sample.
lifetime: scaffold
rules:
  - rewrite: it
    match: pow(x, 3)
    where: {x: "float[...]"}
    substitute: x * x * x
    reason: A sample.
  - rewrite: view
    match: transpose(transpose(x, 0, 1), 0, 1)
    where: {x: "float[a, b]"}
    substitute: x
    reason: A sample.
"""
# Named by the module, which is so loaded before pytester takes its picture of the modules.
PLUGIN = ("-p", pytest_plugin.__name__, "-p", "no:cacheprovider", "-p", "no:xdist")


def test_each_rule_and_rung_is_a_test(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", cube=GOOD, notes="title: not a spec\n")
    listed = pytester.runpytest_inprocess(*PLUGIN, "--collect-only", "-q")
    names = [line.split("::", 1)[1] for line in listed.outlines if "::" in line]
    assert names[0] == "it::policy"
    assert {"it::1 index algebra", "it::3 exact algebra", "it::5 error bounds", "it::6 Hypothesis", "view::policy"} <= set(names)
    assert len(names) == len(set(names))


def test_rules_that_hold_pass_and_a_wrong_one_fails_with_what_it_should_be(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", cube=GOOD.replace("x * x * x", "x * x"))
    ran = pytester.runpytest_inprocess(*PLUGIN, "-q")
    outcomes = ran.parseoutcomes()
    assert outcomes["passed"] >= 2
    assert outcomes["failed"] >= 1
    ran.stdout.fnmatch_lines(
        ["*error ADC301*`it` is wrong*", "*match *x ?? 3*", "*they part over the reals*", "*nearest rule that holds*substitute: x ? x ? x*"]
    )
    assert "Traceback" not in ran.stdout.str()


def test_a_spec_that_cannot_be_read_is_an_error_with_its_place(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", broken=GOOD.replace("x * x * x", "x * * x"))
    ran = pytester.runpytest_inprocess(*PLUGIN, "-q")
    ran.stdout.fnmatch_lines(["*broken.yaml:8:*ADC201*"])
    assert ran.parseoutcomes()["errors"] == 1
