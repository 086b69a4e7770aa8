"""Files that a command writes: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from adapterc.errors import UserError


def check_writable(path: Path, option: str) -> None:
    """Raises UserError ADC512 where `path` cannot become a file, so that nobody waits for a result that has no place."""
    folder = path.resolve().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "it is a folder" if path.is_dir() else "its folder cannot be written" if folder.is_dir() else "its folder does not exist"
        raise UserError("ADC512", f"{option} {path} cannot be written: {why}", "name a file in a folder that exists")


def write_whole(path: Path, text: str, option: str) -> None:
    """Write next to the target and move into place. Raises UserError ADC512; the file that was there before then still is."""
    check_writable(path, option)
    handle, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        raise UserError("ADC512", f"{option} {path} cannot be written: {error.strerror}", "free some space, or name another file") from None
    finally:
        Path(name).unlink(missing_ok=True)
