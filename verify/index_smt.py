"""Questions about integer polynomials that z3 answers (the `prove` extra); without z3 none of them is answered yes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from adapterc.dsl.poly import Poly

# z3's own count of steps, so that the answer does not depend on how busy the machine is.
STEPS = 150_000
MOST_QUESTIONS = 10


@cache
def available() -> bool:
    return find_spec("z3") is not None


@dataclass(slots=True)
class Questions:
    """How many may still be asked in one proof; `used` says whether an answer was needed."""

    left: int = MOST_QUESTIONS
    used: bool = False

    def follows(self, poly: Poly, bounds: Mapping[str, Poly], positive: Iterable[str], known: Iterable[Poly]) -> bool:
        """Whether poly ≥ 0 at all integers that meet the bounds and the known facts."""
        if self.left == 0 or not available():
            return False
        self.left -= 1
        z3 = import_module("z3")
        names: dict[str, Any] = {}
        solver = z3.SolverFor("QF_NIA")
        solver.set("rlimit", STEPS)
        statements = [_term(z3, poly, names) < 0]
        statements += [_term(z3, f, names) >= 0 for f in known]
        for name, bound in bounds.items():
            statements.append(names.setdefault(name, z3.Int(name)) < _term(z3, bound, names))
        for name in positive:
            statements.append(names.setdefault(name, z3.Int(name)) >= 1)
        solver.add(*statements, *(variable >= 0 for variable in names.values()))
        found = bool(solver.check() == z3.unsat)
        self.used = self.used or found
        return found


def _term(z3: Any, poly: Poly, names: dict[str, Any]) -> Any:
    total = z3.IntVal(0)
    scale = 1
    for _, coefficient in poly.terms:
        scale = scale * coefficient.denominator
    for monomial, coefficient in poly.terms:
        product = z3.IntVal(int(coefficient * scale))
        for name, exponent in monomial:
            variable = names.setdefault(name, z3.Int(name))
            for _ in range(exponent):
                product = product * variable
        total = total + product
    return total
