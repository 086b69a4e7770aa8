"""What a patch says when it cannot do what its spec promises: one sentence, a code of the ADC4xx range, a next step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)  # not frozen: Python writes the traceback of an exception that passes through a `with` block
class PatchError(Exception):
    """A user-visible failure of building or applying patches. `str()` is the one line that the command line prints."""

    code: str
    message: str
    place: str = ""  # file:line:column of the rule, when there is one
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{where}{self.code}: {self.message}{hint}"


OUTPUT_FOLDER = "ADC401"  # the output folder cannot be written, or holds something that is not ours
REFUSED_RULE = "ADC402"  # a rule whose verdict does not allow building
UNSUPPORTED_RULE = "ADC403"  # a rule that has no Python form
EXPECTATION = "ADC410"  # fired less or more often than `expect:` says
FIGHTING_RULES = "ADC411"  # two rules undo each other
ENDLESS_RULES = "ADC412"  # a rule feeds itself
REQUIREMENT = "ADC413"  # a `require` rule refuses the model
SUBSTITUTE = "ADC414"  # the substitute's value has another shape or dtype than what it replaces
INSTALLED = "ADC415"  # installed twice, or removed in the wrong order
