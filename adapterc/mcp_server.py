"""`adapterc mcp`: the commands as tools for agents, over the Model Context Protocol. Each returns the JSON object that the command prints.

The functions below need nothing but adapterc; only `serve` needs the optional package (`pip install 'adapterc[mcp]'`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from adapterc import specs
from adapterc.console import Report
from adapterc.errors import UserError
from adapterc.problems import EXPECTED, of_error

Result = dict[str, Any]
PROFILE = "torch-spyre-2026-06"


def answered(command: str, workflow: Callable[[], Report]) -> Result:
    """The report as JSON, or the errors: what `--json` prints."""
    try:
        report = workflow()
    except EXPECTED as error:
        return {"command": command, "ok": False, "errors": [problem.to_json() for problem in of_error(error)]}
    return {"command": command, "ok": report.ok, **report.to_json()}


def gaps(model: str, profile: str = PROFILE, spec_files: Sequence[str] = (), patched: bool = False) -> Result:
    """Everything in a model that does not lower, falls back or is a known fault, with source line, reproducer, covering adapter or nearest template.

    `patched`: only what stays when the adapters are applied.
    """
    from adapterc.gaps import gaps_of

    return answered("gaps", lambda: gaps_of([model], specs.find(spec_files), profile, patched=patched))


def draft(gap: str, model: str | None = None, output: str | None = None, name: str | None = None, profile: str = PROFILE) -> Result:
    """A spec for a gap (a number of `gaps` with its model, a gap id, a topic or an expression), its substitute proved and put to the compiler."""
    from adapterc.draft import draft_gap

    return answered(
        "draft", lambda: draft_gap(gap, specs.find(()), profile, model=model, name=name, output=Path(output) if output else None)
    )


def check(spec_files: Sequence[str] = ()) -> Result:
    """A verdict for every rule: class, status, evidence, and what is wrong with file, line and column."""
    from adapterc.check import check_specs

    return answered("check", lambda: check_specs(specs.find(spec_files)))


def why(rule: str, model: str, spec_files: Sequence[str] = (), profile: str = PROFILE) -> Result:
    """Why a rule fires on a model or does not."""
    from adapterc.why import why_rule

    return answered("why", lambda: why_rule(rule, model, specs.find(spec_files), profile))


def run(
    model: str, spec_files: Sequence[str] = (), ids: str | None = None, dtype: str = "device", tokens: int = 0, profile: str = PROFILE
) -> Result:
    """Run a model on the simulator with its adapters and compare it with stock float32 on the CPU."""
    from adapterc.run import run_source

    return answered(
        "run", lambda: run_source(model, ids=ids, specs=specs.find(spec_files), profile=profile, numerics=dtype, new_tokens=tokens)
    )


def diagnose(model: str, faults: Sequence[str] = (), spec_files: Sequence[str] = (), profile: str = PROFILE) -> Result:
    """Which op makes a number wrong on the device, of which class, and how sure that is."""
    from adapterc.diagnose_model import diagnose_source

    return answered("diagnose", lambda: diagnose_source(model, specs.find(spec_files), profile, faults))


def explain(what: str, settings: Sequence[str] = ()) -> Result:
    """What an error code means, what a rule does, or how a size comes about."""
    from adapterc.explain import explain_what

    return answered("explain", lambda: explain_what(what, settings))


TOOLS: Mapping[str, Callable[..., Result]] = {tool.__name__: tool for tool in (gaps, draft, check, why, run, diagnose, explain)}


def serve() -> None:
    """Serve the tools on standard input and output until the client leaves. Raises UserError ADC609 without the `mcp` package."""
    try:
        library = import_module("mcp.server.mcpserver")
    except ImportError:
        raise UserError("ADC609", "the package `mcp` is not installed", "pip install 'adapterc[mcp]'") from None
    server = library.MCPServer("adapterc")
    for name, tool in TOOLS.items():
        server.add_tool(tool, name=name, structured_output=True)
    server.run()
