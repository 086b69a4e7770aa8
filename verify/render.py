"""A verdict for people: both sides as written, the table of values where they part, the rung that found it, the nearest rule that holds."""

from __future__ import annotations

from adapterc.verify.verdict import MEANING, PROVED, REFUTED, TESTED, Counterexample, Evidence, Verdict

WIDTH = 100


def render_verdict(verdict: Verdict) -> str:
    """Several lines; no markup."""
    scope = f", at {verdict.scope}" if verdict.scope and verdict.status in (PROVED, TESTED) else ""
    lines = [f"{verdict.adapter}.{verdict.rule}: {verdict.klass} ({MEANING[verdict.klass]}), {verdict.status}{scope}"]
    if verdict.sides != ("", ""):
        lines += [f"  match       {verdict.sides[0]}", f"  substitute  {verdict.sides[1]}"]
    if verdict.counterexample is not None:
        lines += _table(verdict.counterexample)
    lines.append(f"  why: {verdict.how}")
    lines += [line for e in verdict.evidence if e.detail for line in _shown(e)]
    if verdict.formats:
        lines.append(f"  formats: {', '.join(f'{name} {klass}' for name, klass in verdict.formats)}")
    if verdict.edges:
        lines.append(f"  edges: {', '.join(verdict.edges)}")
    if verdict.suggested_guard:
        lines += ["  it holds with this guard:", f"    when: {quoted(verdict.suggested_guard)}", f"    # then {verdict.guarded_class}"]
    if verdict.mend:
        lines.append(f"  nearest rule that holds: {verdict.mend}")
    elif verdict.status == REFUTED and not verdict.suggested_guard:
        lines.append("  nearest rule that holds: none was found by a small change of the substitute or a guard")
    return "\n".join(lines)


def _shown(evidence: Evidence) -> list[str]:
    """One line, but for what is said of each format."""
    if not evidence.rung.startswith("5 error"):
        return [f"  rung {evidence.rung}: {evidence.detail}"]
    place, _, formats = evidence.detail.partition(": ")
    return [
        f"  rung {evidence.rung}: {place}, u the unit roundoff, S the sum of absolute values",
        *(f"    {row}" for row in formats.split("; ")),
    ]


def _table(example: Counterexample) -> list[str]:
    sizes = ", ".join(f"{name}={value}" for name, value in example.sizes)
    rows = [(name, _clipped(value)) for name, value in example.values]
    place = f"[{', '.join(map(str, example.place))}]" if example.place else ""
    rows += [(f"match{place}", example.left), (f"substitute{place}", example.right)]
    width = max(len(name) for name, _ in rows)
    where = "over the reals" if example.format == "real" else f"in {example.format}"
    head = f"  they part {where}" + (f" at {sizes}" if sizes else "") + (f", ... = {list(example.rest)}" if example.rest else "") + ":"
    return [head, *(f"    {name.ljust(width)} = {value}" for name, value in rows)]


def _clipped(value: str) -> str:
    return value if len(value) <= WIDTH else value[: WIDTH - 1] + "…"


def quoted(predicate: str) -> str:
    """A predicate as a YAML scalar: quoted where YAML would read it otherwise."""
    special = (
        any(mark in predicate for mark in (": ", " #", "{", "}", "[", "]", "&", "*", "!", "|", ">", "'", '"', "%", "@", "`"))
        or predicate[:1] in "-?"
    )
    plain = predicate.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if special else predicate
