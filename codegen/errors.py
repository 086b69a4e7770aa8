"""How codegen complains about a spec: a sentence with a place."""

from __future__ import annotations

from adapterc.dsl.ast import Span
from adapterc.dsl.diagnostics import Diagnostic, SpecError


def unsupported(what: str, span: Span) -> SpecError:
    """ADC403: the rule is well formed, and has no Python form."""
    return SpecError(
        Diagnostic("ADC403", f"There is no Python form for {what}.", span, "`adapterc explain ADC403` lists what a rule can say.")
    )
