"""Makes docs/*.md out of docs/*.in.md: each line `$ command` becomes the command and the output of running it.

python docs/produce.py           # write
python docs/produce.py --check   # fail where a page is not what its commands print now
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

DOCS = Path(__file__).parent
SHIPPED = DOCS.parent / "adapter_specs"
sys.path.insert(0, str(DOCS.parent / "tests" / "adapterc"))
_VARIES = (
    (re.compile(r'"seconds": [\d.]+'), '"seconds": 0'),
    (re.compile(r"/[\w./-]*site-packages/"), ""),
    (re.compile(re.escape(str(DOCS.parent)) + "/"), ""),
)


def output(command: str) -> str:
    """What `adapterc command` prints, without what differs from machine to machine."""
    from rich.console import Console

    from adapterc import cli, console

    printed = StringIO()
    console.out = Console(file=printed, width=120, highlight=False)
    sys.argv = ["adapterc", *shlex.split(command.replace("SHIPPED", str(SHIPPED)))]
    with redirect_stdout(printed), redirect_stderr(StringIO()):
        try:
            cli.app(sys.argv[1:], standalone_mode=False)
        except SystemExit:
            pass
        except Exception as error:
            if type(error).__name__ != "Exit":
                raise
    text = printed.getvalue()
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def page(source: Path) -> str:
    lines = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for line in source.read_text(encoding="utf-8").splitlines():
            if line.startswith("$ "):
                lines += ["```console", f"$ adapterc {line[2:].replace('SHIPPED', 'adapter_specs')}", output(line[2:]), "```"]
            else:
                lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    from families import register

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    register()
    stale = []
    for source in sorted(DOCS.glob("*.in.md")):
        target = source.with_name(source.name.replace(".in.md", ".md"))
        text = page(source)
        if "--check" not in sys.argv:
            target.write_text(text, encoding="utf-8")
        elif not target.is_file() or target.read_text(encoding="utf-8") != text:
            stale.append(target.name)
    if stale:
        print(f"not what their commands print now: {', '.join(stale)}; run python docs/produce.py")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
