"""Claims from text, for the tests of the checker."""

from __future__ import annotations

from adapterc.dsl.parser import parse_expression, parse_type
from adapterc.verify.claim import Claim, conjuncts


def claim(left: str, right: str, guard: str | None = None, **where: str) -> Claim:
    types = tuple((name, parse_type(text)) for name, text in where.items())
    guards = tuple(conjuncts(parse_expression(guard))) if guard else ()
    return Claim("rule", parse_expression(left), parse_expression(right), types, guards)
