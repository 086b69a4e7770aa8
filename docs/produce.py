"""Makes docs/*.md out of docs/*.in.md, and docs/error-codes.md out of the table of codes.

In a page, a line `$ command` becomes the command and the output of running it, and a block that starts with ```yaml NAME.yaml is also a file that the
commands below it can read.

    python docs/produce.py [PAGE]…           # write the pages, or only those named (`tutorial`)
    python docs/produce.py --check [PAGE]…   # write nothing; fail where a page is not what its commands print now
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

DOCS = Path(__file__).parent
SHIPPED = DOCS.parent / "adapter_specs"
CODES_PAGE = "error-codes"
sys.path.insert(0, str(DOCS.parent / "tests" / "adapterc"))
_VARIES = (
    (re.compile(r'"seconds": [\d.]+'), '"seconds": 0'),
    (re.compile(r"replayed in [\d.]+ s"), "replayed"),
    (re.compile(r", [\d.]+ s in all"), ""),
    # Errors measured on samples follow the machine's mathematical library in their last digits.
    (re.compile(r'(_(?:measured|rms)_u": )[\d.e+-]+'), r'\1"…"'),
    (re.compile(r'[\d.]+(?:e[+-]\d+)?(?=\\u00b7u\\u00b7S measured|u rms|u at most|u[,;"])'), "…"),
    (re.compile(r"/[\w./-]*site-packages/"), ""),
    (re.compile(re.escape(str(DOCS.parent)) + "/"), ""),
)
_FILE = re.compile(r"```yaml ([\w-]+\.yaml)")


def output(command: str) -> str:
    """What `adapterc command` prints on both streams, without what differs from machine to machine."""
    from rich.console import Console

    from adapterc import cli, console

    printed = StringIO()
    console.out = Console(file=printed, width=120, highlight=False)
    console.err = Console(file=printed, width=120, highlight=False, soft_wrap=True)
    with redirect_stdout(printed), redirect_stderr(StringIO()):
        try:
            cli.app(shlex.split(command.replace("SHIPPED", str(SHIPPED))), standalone_mode=False)
        except SystemExit:
            pass
        except Exception as error:
            if type(error).__name__ != "Exit":  # what typer raises for an exit status
                raise
    text = printed.getvalue()
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def page(source: Path) -> str:
    """The page with every command run in an empty folder that holds the page's files."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        target: Path | None = None
        for line in source.read_text(encoding="utf-8").splitlines():
            named = _FILE.fullmatch(line)
            if named:
                target = Path(named[1])
                target.write_text("", encoding="utf-8")
                lines.append("```yaml")
            elif line.startswith("$ "):
                lines += ["```console", f"$ adapterc {line[2:].replace('SHIPPED', 'adapter_specs')}", output(line[2:]), "```"]
            else:
                if line == "```":
                    target = None
                if target is not None:
                    target.write_text(target.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
                lines.append(line)
    return "\n".join(lines) + "\n"


def codes_page() -> str:
    """Every error code with its meaning, an example and the mend, as `adapterc explain` has them."""
    return "\n".join(_codes_lines()) + "\n"


def _codes_lines() -> Iterator[str]:
    from adapterc.dsl.codes import CODES

    yield "# Error codes"
    yield ""
    yield "<!-- Written by `python docs/produce.py`; change the table in dsl/codes.py instead. -->"
    yield ""
    yield "Every message that a command ends with has a code, one sentence, the place where there is one, and a next step. `adapterc explain CODE` prints"
    yield "an entry of this page; with `--json`, `errors` holds `code`, `message`, `next_step` and, where there is a place, `file`, `line` and `column`."
    for entry in CODES.values():
        yield from ("", f"## {entry.code}", "", f"**{entry.title}.** {entry.text}", "", "```text", *entry.example.splitlines(), "```", "")
        yield f"Mend: {entry.mend}"


def pages(names: Sequence[str] = ()) -> Iterator[tuple[Path, str]]:
    """Each page with its text as it should be."""
    sources: Mapping[str, Path] = {source.name.removesuffix(".in.md"): source for source in sorted(DOCS.glob("*.in.md"))}
    for name in names or (*sources, CODES_PAGE):
        yield DOCS / f"{name}.md", codes_page() if name == CODES_PAGE else page(sources[name])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Make the pages of docs/ out of their sources.")
    parser.add_argument("pages", nargs="*", help="names such as `tutorial`; all pages if none is given")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is not what its commands print now")
    asked = parser.parse_args(arguments)
    from families import register

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    register()
    stale = []
    for target, text in pages(asked.pages):
        if not asked.check:
            target.write_text(text, encoding="utf-8")
        elif not target.is_file() or target.read_text(encoding="utf-8") != text:
            stale.append(target.name)
    if stale:
        print(f"not what their commands print now: {', '.join(stale)}; run python docs/produce.py")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
