"""The one way in which a command tells its user that it cannot go on: a code, a sentence, the next step."""

from __future__ import annotations


class UserError(Exception):
    """What the user sees is `message` and `next_step`; `code` opens the long explanation with `adapterc explain`."""

    def __init__(self, code: str, message: str, next_step: str) -> None:
        super().__init__(f"{message} [{code}]; {next_step}")
        self.code = code
        self.message = message
        self.next_step = next_step
