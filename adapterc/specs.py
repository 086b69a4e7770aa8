"""Which spec files a command works on: the ones named, or the ones that ship."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from adapterc.errors import UserError


def shipped_folder() -> Path:
    """The folder of the adapters that ship with adapterc, in a checkout as in an installed wheel."""
    return Path(str(files("adapterc.adapter_specs")))


def find(arguments: Sequence[str | Path]) -> tuple[Path, ...]:
    """Spec files in a stable order. A folder stands for its `*.yaml`; nothing stands for the shipped specs. Raises UserError ADC901."""
    if not arguments:
        return tuple(sorted(shipped_folder().glob("*.yaml")))
    found: dict[Path, None] = {}
    for argument in arguments:
        path = Path(argument)
        if path.is_dir():
            inside = sorted(path.glob("*.yaml"))
            if not inside:
                raise UserError("ADC901", f"{path}: the folder holds no spec (*.yaml)", "name a spec file")
            found.update(dict.fromkeys(inside))
        else:
            found[path] = None  # the loader says what is wrong with a missing or unreadable file
    return tuple(found)
