"""What the compiler says when it cannot take a graph: one frozen record per obstacle, raised as an exception."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Verdict = Literal["error", "unimplemented", "fallback_no_kernel"]


@dataclass(frozen=True)
class Obstacle:
    """One reason why a graph does not run.

    kind: class of the refusal (the vocabulary of the public compiler's answers, e.g. "restickify_infeasible").
    verdict: "error" refuses at compile, "unimplemented" compiles and raises when run, "fallback_no_kernel" has no CPU kernel.
    message: one sentence that names the sizes at fault. sizes: those sizes. stage: the pass that refused.
    op, node, source: device or ATen op, FX node and the user's "file:line" as far as known. gap, fault: ids in the profile.
    """

    kind: str
    message: str
    verdict: Verdict = "error"
    sizes: tuple[int, ...] = ()
    stage: str = ""
    op: str = ""
    node: str = ""
    source: str = ""
    gap: str | None = None
    fault: str | None = None

    def at(self, **known: Any) -> Obstacle:
        """The same obstacle with the empty fields among `known` filled in."""
        return replace(self, **{name: value for name, value in known.items() if value and not getattr(self, name)})

    def __str__(self) -> str:
        where = f" at {self.source}" if self.source else ""
        what = f" [{self.op}]" if self.op else ""
        return f"{self.kind}{what}{where}: {self.message}"


class Refusal(Exception):
    """Raised at the first obstacle; `obstacle` has the facts, and its fields can be read off the exception itself."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(str(obstacle))
        self.obstacle = obstacle

    def __str__(self) -> str:  # graph interpreters on the way rewrite an exception's arguments
        return str(self.obstacle)

    kind = property(lambda self: self.obstacle.kind)
    verdict = property(lambda self: self.obstacle.verdict)
    message = property(lambda self: self.obstacle.message)
    sizes = property(lambda self: self.obstacle.sizes)
    stage = property(lambda self: self.obstacle.stage)
    op = property(lambda self: self.obstacle.op)
    node = property(lambda self: self.obstacle.node)
    source = property(lambda self: self.obstacle.source)
    gap = property(lambda self: self.obstacle.gap)


Found = list[Obstacle] | None  # where passes put obstacles that they go on behind; None: the first one ends the compilation


def meet(refusal: Refusal, found: Found, **known: Any) -> None:
    """Raise the refusal, or note it and let the pass go on as if the obstacle were mended. `known` fills in what it does not say itself."""
    located = refusal.obstacle.at(**known)
    if found is None:
        raise Refusal(located) from None
    if located not in found:
        found.append(located)


def refuse(kind: str, message: str, **facts: Any) -> Refusal:
    """`raise refuse("matmul_inputs_unidentified", "…", sizes=(1, 64))`."""
    return Refusal(Obstacle(kind, message, **facts))
