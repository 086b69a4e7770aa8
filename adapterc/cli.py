"""The command `adapterc`. Each command parses its options, calls one workflow and prints that workflow's report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from adapterc.console import Report, emit, emit_problems
from adapterc.errors import UserError
from adapterc.problems import EXPECTED, Problem, of_error

# Commands import their workflow when they run: `adapterc explain` must not wait for torch.
app = typer.Typer(
    name="adapterc",
    help="Compile declarative adapters that let stock HuggingFace models run on IBM Spyre, and prove them first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Specs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[SPEC]…", help="Spec files or folders of them; the shipped adapters if none is named.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A local model folder, or a config: spec such as `config:GPT2LMHeadModel,n_layer=2,seed=0`.")
]
ProfileName = Annotated[str, typer.Option("--profile", help="The backend release, a file of spyre_runtime/profiles.")]


def run(command: str, as_json: bool, workflow: Callable[[], Report]) -> None:
    """Print the workflow's report; exit 1 where it is not well, with the problem in one sentence where it could not run."""
    try:
        report = workflow()
    except EXPECTED as error:
        emit_problems(command, of_error(error), as_json)
        raise typer.Exit(1) from None
    emit(command, report, as_json)
    if not report.ok:
        raise typer.Exit(1)


@app.command(
    epilog="Examples: `adapterc check` · `adapterc check my_adapter.yaml` · `adapterc check --certificates proofs` · `adapterc check --replay proofs`",
)
def check(
    specs: Specs = None,
    certificates: Annotated[Path | None, typer.Option("--certificates", help="Write one certificate a rule to this folder.")] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="Verify the certificates of this folder again, without searching.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option("--examples", min=0, help="How many examples Hypothesis draws for each rule; 6 or 12 unless told.")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="Also put the patches on this model (a folder or a config: spec), as a whole.")
    ] = None,
    families: Annotated[bool, typer.Option("--families", help="Also put the patches on tiny models of five families.")] = False,
    as_pytest: Annotated[bool, typer.Option("--pytest", help="Run one pytest test a rule and rung.")] = False,
    watching: Annotated[
        bool, typer.Option("--watch", help="Check each spec again when it is saved, until Ctrl-C; with --json one object a line.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give every rule a verdict: schema, grammar, types, shapes, equivalence."""
    from adapterc import certify
    from adapterc.check import CheckReport, check_specs
    from adapterc.specs import find

    def workflow() -> CheckReport:
        report = check_specs(find(specs or ()), examples)
        if certificates is not None:
            certify.write(report, certificates)
        return report

    def whole_models() -> Report:
        from adapterc.check_model import FAMILIES, check_models

        return check_models(find(specs or ()), models or (), FAMILIES if families else ())

    if as_pytest:
        run_pytest(specs or (), as_json)
    elif watching:
        watch_specs(specs or (), as_json)
    elif models or families:
        run("check", as_json, whole_models)
    elif replay is not None:
        run("check", as_json, lambda: certify.replay_all(find(specs or ()), replay))
    else:
        run("check", as_json, workflow)


def watch_specs(specs: Sequence[Path], as_json: bool) -> None:
    """Check what changed again and again; a spec that cannot be read is a message, and the watch goes on."""
    from adapterc import watch
    from adapterc.check import check_specs

    def check(changed: Sequence[Path]) -> None:
        try:
            emit("check", check_specs(changed), as_json, lines=True)
        except EXPECTED as error:
            emit_problems("check", of_error(error), as_json, lines=True)

    def gone(path: Path) -> None:
        removed = UserError("ADC101", f"{path} was removed", "the watch goes on; press Ctrl-C to end it")
        emit_problems("check", of_error(removed), as_json, lines=True)

    try:
        watch.watch(specs, check, gone, watch.every())
    except EXPECTED as error:
        emit_problems("check", of_error(error), as_json)
        raise typer.Exit(1) from None


def run_pytest(specs: Sequence[Path], as_json: bool) -> None:
    """Collect the specs as tests; the exit status is pytest's."""
    from adapterc.specs import find

    try:
        import pytest
    except ImportError:
        emit_problems("check", of_error(UserError("ADC904", "pytest is not installed", "pip install pytest")), as_json)
        raise typer.Exit(1) from None
    paths = [str(path) for path in find(specs)]
    raise typer.Exit(int(pytest.main(["-p", "adapterc.verify.pytest_plugin", "-p", "no:cacheprovider", "-q", *paths])))


@app.command(epilog="Examples: `adapterc build -o build/patches` · `adapterc build my_adapter.yaml -o patches`")
def build(
    specs: Specs = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of the Python package that is written, whole or not at all.")
    ] = Path("build/patches"),
    as_json: Json = False,
) -> None:
    """Write the patches as a readable Python package; refuses what check refuses."""
    from adapterc.build import build_specs
    from adapterc.specs import find

    run("build", as_json, lambda: build_specs(find(specs or ()), output))


@app.command(
    name="run",
    epilog="Examples: `adapterc run ./all-MiniLM-L6-v2 --text 'A sentence.' --report run.html` · "
    "`adapterc run config:qwen3,num_hidden_layers=2 --ids 1,2,3 --dump plan`",
)
def run_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A local model folder, a config: spec such as `config:GPT2LMHeadModel,n_layer=2,seed=0`, or `plan:FILE.json` to run plans that "
            "--plan wrote, without their model.",
        ),
    ],
    text: Annotated[list[str] | None, typer.Option("--text", help="A sentence to run on; may be given several times.")] = None,
    ids: Annotated[str | None, typer.Option("--ids", help="Token ids: `1,2,3`, or `1,2,3;4,5` for two sequences.")] = None,
    spec: Annotated[list[Path] | None, typer.Option("--spec", help="Spec files to use instead of the shipped adapters.")] = None,
    profile: ProfileName = "torch-spyre-2026-06",
    dtype: Annotated[
        str, typer.Option("--dtype", help="`device`: the device's number format. `fp32`: unrounded values, every legality rule as it is.")
    ] = "device",
    tokens: Annotated[int, typer.Option("--tokens", min=0, help="New tokens for a causal LM to generate greedily.")] = 8,
    dump: Annotated[
        str | None,
        typer.Option(
            "--dump",
            metavar="STAGE",
            help="Print one stage of the last graph compiled: capture, patches, decompose, lower, propagate, restickify, pad, divide, "
            "scratchpad, fuse or plan.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write what the run found as one HTML page that needs nothing else.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write the predicted run as a trace that Perfetto and Chrome open (JSON).")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Write the plans of all compiled graphs (JSON), to be run later without the compiler.")
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option("--fault", metavar="ID", help="A fault of the profile to inject; may be given several times.")
    ] = None,
    without_fault: Annotated[
        list[str] | None,
        typer.Option("--without-fault", metavar="ID", help="A fault of the compiler to switch off; may be given several times."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="`simulated` or `real`; the real one where torch_spyre is installed if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a stock model on the simulator: what it is refused for, which adapters attach, how near the patched result is, what it costs."""

    def workflow() -> Report:
        from adapterc.run import run_source
        from adapterc.run_setup import Outputs, Setup
        from adapterc.specs import find

        setup = Setup(tuple(fault or ()), tuple(without_fault or ()), device)
        if model.startswith("plan:"):
            from adapterc.run_plan import run_plans

            return run_plans(model, setup)
        return run_source(
            model,
            texts=text or (),
            ids=ids,
            specs=find(spec or ()),
            profile=profile,
            numerics=dtype,
            new_tokens=tokens,
            dump=dump,
            outputs=Outputs(report, trace, plan),
            setup=setup,
        )

    run("run", as_json, workflow)


@app.command(
    epilog="Examples: `adapterc explain ADC301` · `adapterc explain gelu_new.cube` · `adapterc explain 'ceil_to(50257, 16 * stick)'`"
)
def explain(
    what: Annotated[str, typer.Argument(metavar="CODE|RULE|SIZE", help="An error code, a rule (`adapter.rule`) or a size expression.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]…", help="Values for the names of a size: `d=32 dtype=float16`.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what an error code means, what a rule does and why, or how a size comes about."""
    from adapterc.explain import explain_what

    run("explain", as_json, lambda: explain_what(what, settings or ()))


@app.command(name="list", epilog="Examples: `adapterc list` · `adapterc list --json`")
def list_adapters(specs: Specs = None, as_json: Json = False) -> None:
    """Show the adapters: what each is for, how long it stays, which gap it bridges."""
    from adapterc.listing import list_specs
    from adapterc.specs import find

    run("list", as_json, lambda: list_specs(find(specs or ())))


@app.command(
    epilog="Examples: `adapterc gaps config:gpt2,n_layer=1` · `adapterc gaps ./my-model --as issue` · `adapterc gaps --all --top 40 --store gaps.sqlite`"
)
def gaps(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]…", help="Model folders or config: specs.", show_default=False)
    ] = None,
    profile: ProfileName = "torch-spyre-2026-06",
    spec: Annotated[list[Path] | None, typer.Option("--spec", help="Spec files to use instead of the shipped adapters.")] = None,
    form: Annotated[str, typer.Option("--as", help="`table`, or `issue`: each gap as a report for the compiler's tracker.")] = "table",
    everything: Annotated[
        bool, typer.Option("--all", help="Rank the gaps of the most downloaded architectures by the models they block.")
    ] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="With --all: how many architectures, the most frequent first.")] = 20,
    patched: Annotated[bool, typer.Option("--patched", help="Only what stays when all adapters are applied.")] = False,
    store: Annotated[
        Path, typer.Option("--store", help="With --all: SQLite file of the answers; what is in it is not asked again.")
    ] = Path("gaps.sqlite"),
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="With --all: begin no further architecture after this.")] = None,
    as_json: Json = False,
) -> None:
    """List everything that does not lower, runs on the CPU or is a known fault: in one run, each with a program that fails alone."""

    def workflow() -> Report:
        from adapterc.specs import find

        if everything:
            from adapterc.gap_ranking import rank_gaps

            return rank_gaps(find(spec or ()), profile, top=top, patched=patched, store=store, seconds=seconds, form=form)

        from adapterc.gaps import gaps_of

        return gaps_of(models or (), find(spec or ()), profile, form=form, patched=patched)

    run("gaps", as_json, workflow)


@app.command(epilog="Examples: `adapterc why gelu_new.cube config:gpt2,n_layer=1` · `adapterc why rope.halves ./my-model --json`")
def why(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule, as `adapter.rule`.")],
    model: Model,
    spec: Annotated[list[Path] | None, typer.Option("--spec", help="Spec files to use instead of the shipped adapters.")] = None,
    profile: ProfileName = "torch-spyre-2026-06",
    as_json: Json = False,
) -> None:
    """Say why a rule fires on a model or does not: the failed clause with its values, the nearest miss, or the rule in its way."""
    from adapterc.specs import find
    from adapterc.why import why_rule

    run("why", as_json, lambda: why_rule(rule, model, find(spec or ()), profile))


@app.command(
    epilog="Examples: `adapterc audit` · `adapterc audit --profile torch-spyre-2026-09` · `adapterc audit --model ./my-model --json`"
)
def audit(
    specs: Specs = None,
    profile: Annotated[list[str] | None, typer.Option("--profile", help="A backend release; all that ship if none is named.")] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Models to audit with, instead of the most frequent architectures.")
    ] = None,
    families: Annotated[int, typer.Option("--families", min=1, help="How many architectures of the population to ask.")] = 24,
    record: Annotated[bool, typer.Option("--record", help="Keep fingerprints of the stock functions that the rules fire in.")] = False,
    as_json: Json = False,
) -> None:
    """Say which adapters are still needed, retired by a release, partial, changed underneath by Transformers, or dead."""
    from adapterc.audit import audit_specs
    from adapterc.specs import find

    run("audit", as_json, lambda: audit_specs(find(specs or ()), profile or (), model or (), families=families, record=record))


@app.command(
    epilog="Examples: `adapterc draft pow-integer-exponent` · `adapterc draft 'pow(x, 5)' -o pow5.yaml` · `adapterc draft G2 --model config:gpt2,n_layer=1`"
)
def draft(
    gap: Annotated[
        str, typer.Argument(metavar="GAP", help="A gap's number (with --model), a gap id, a topic such as `silu`, or an expression.")
    ],
    model: Annotated[str | None, typer.Option("--model", help="The model whose gaps are numbered.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The adapter's name.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the spec to this file.")] = None,
    profile: ProfileName = "torch-spyre-2026-06",
    as_json: Json = False,
) -> None:
    """Write a spec for a gap: the substitute is searched among known forms, proved, and put to the compiler first."""
    from adapterc.draft import draft_gap
    from adapterc.specs import find

    run("draft", as_json, lambda: draft_gap(gap, find(()), profile, model=model, name=name, output=output))


@app.command(
    epilog="Examples: `adapterc diagnose ./my-model` · `adapterc diagnose config:bert,num_hidden_layers=2 --fault exp-floor` · `adapterc diagnose plan:bert.json --fault exp-floor`"
)
def diagnose(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL|PLAN", help="A model folder, a config: spec, or `plan:FILE.json` that `adapterc run --plan` wrote."),
    ],
    fault: Annotated[
        list[str] | None, typer.Option("--fault", help="A device fault of the profile to simulate; may be given several times.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A sentence to run on; may be given several times.")] = None,
    ids: Annotated[str | None, typer.Option("--ids", help="Token ids: `1,2,3`, or `1,2,3;4,5` for two sequences.")] = None,
    spec: Annotated[list[Path] | None, typer.Option("--spec", help="Spec files to use instead of the shipped adapters.")] = None,
    profile: ProfileName = "torch-spyre-2026-06",
    as_json: Json = False,
) -> None:
    """Find the op that makes a number wrong on the device: drift, lowering, fusion, padding, overflow or layout, with how sure that is."""
    from adapterc.diagnose_model import diagnose_source
    from adapterc.specs import find

    run("diagnose", as_json, lambda: diagnose_source(model, find(spec or ()), profile, fault or (), texts=text or (), ids=ids))


@app.command(
    epilog='Needs the extra: `pip install \'adapterc[mcp]\'`. Example of a client\'s entry: `{"command": "adapterc", "args": ["mcp"]}`'
)
def mcp() -> None:
    """Serve gaps, draft, check, why, run, diagnose and explain as tools for agents, on standard input and output."""
    from adapterc.mcp_server import serve

    try:
        serve()
    except EXPECTED as error:
        emit_problems("mcp", of_error(error), as_json=False)
        raise typer.Exit(1) from None


@app.command(
    epilog="Needs the extra: `pip install 'adapterc[editor]'`. An editor starts it for YAML files in `adapter_specs/`; docs/editors.md shows how."
)
def lsp() -> None:
    """Serve editors: problems and verdicts in place, explanations of ops and codes, completion. On standard input and output."""
    try:
        from adapterc.language_server import server
    except ImportError:
        missing = UserError("ADC609", "the package `pygls` is not installed", "pip install 'adapterc[editor]'")
        emit_problems("lsp", of_error(missing), as_json=False)
        raise typer.Exit(1) from None
    server().start_io()


sweep_app = typer.Typer(
    name="sweep",
    help="Attach, run and compare each kind of model of a population, at small and at real widths.",
    epilog="Examples: `adapterc sweep --population models.csv --widths tiny` · `adapterc sweep report sweep.sqlite --html sweep.html`",
    invoke_without_command=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(sweep_app)


@sweep_app.callback()
def sweep(
    context: typer.Context,
    population: Annotated[
        Path | None, typer.Option("--population", help="CSV with model_id, model_type, architectures, and if known downloads and class.")
    ] = None,
    store: Annotated[Path, typer.Option("--store", help="SQLite file of the results; what is in it is not run again.")] = Path(
        "sweep.sqlite"
    ),
    widths: Annotated[str, typer.Option("--widths", help="`tiny`, `real` or `both`.")] = "both",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="MODEL_TYPE", help="Only this model type; may be given several times.")
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only the groups that stand for most models.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Rows at a time; one a core if not given.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds after which a row counts as hung.")] = 900.0,
    memory: Annotated[
        float | None, typer.Option("--memory", min=0.1, help="GiB that a row may take; a share of this machine's if not given.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="`local`, or `ray` for a cluster (extra `ray`).")] = "local",
    retry: Annotated[bool, typer.Option("--retry", help="Run the rows that did not pass again.")] = False,
    spec: Annotated[list[Path] | None, typer.Option("--spec", help="Spec files to use instead of the shipped adapters.")] = None,
    patches: Annotated[
        Path | None, typer.Option("--patches", help="A folder that `adapterc build` wrote, instead of checking specs here.")
    ] = None,
    profile: ProfileName = "torch-spyre-2026-06",
    as_json: Json = False,
) -> None:
    """Attach, run and compare each kind of model of a population, at small and at real widths. Goes on where it stood."""
    if context.invoked_subcommand is not None:
        return
    if population is None:
        raise typer.BadParameter("name the list of models, or use `adapterc sweep report STORE`", param_hint="--population")
    csv = population

    def workflow() -> Report:
        from adapterc.specs import find
        from adapterc.sweep import Plan
        from adapterc.sweep import sweep as run_sweep

        plan = Plan(csv, store, find(spec or ()), patches, widths, tuple(only or ()), top, jobs, timeout, memory, engine, profile, retry)
        return run_sweep(plan)

    run("sweep", as_json, workflow)


@sweep_app.command(
    name="report", epilog="Examples: `adapterc sweep report sweep.sqlite` · `adapterc sweep report sweep.sqlite --html sweep.html`"
)
def sweep_report(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The file that `adapterc sweep` wrote.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML file that needs nothing else.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a sweep found, by family and by reason; also while it runs."""
    from adapterc.sweep_report import read_report

    run("sweep report", as_json, lambda: read_report(store, html))


def main() -> None:
    """Entry point. A fault of the user's input is one sentence and exit status 1; wrong options are exit status 2."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models come from folders and configs; nothing here may wait for a hub
    try:
        app()
    except KeyboardInterrupt:
        emit_problems("adapterc", [Problem("ADC902", "interrupted", "run the command again", shown="interrupted")], as_json=False)
        sys.exit(130)


if __name__ == "__main__":
    main()
