"""`adapterc check --watch`: check again what was saved, until the user stops it. Files are looked at by their time and size: no package, no thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from adapterc import specs
from adapterc.errors import UserError

Stamp = tuple[int, int]
POLL_SECONDS = 0.4


def every(seconds: float = POLL_SECONDS) -> Iterator[None]:
    """At once, and then again after each pause, for ever."""
    while True:
        yield
        time.sleep(seconds)


def watch(
    arguments: Sequence[Path],
    check: Callable[[Sequence[Path]], None],
    gone: Callable[[Path], None],
    ticks: Iterable[object],
) -> None:
    """At each tick give `check` the specs that are new or were saved since the last one, and `gone` those that were removed.

    `arguments` as for `specs.find`, so that a spec that is put into a watched folder is checked too. Ends with `ticks`, or when the user interrupts.
    Raises UserError ADC101 for a file that is not there, ADC901 where there is nothing to watch.
    """
    missing = next((path for path in specs.find(arguments) if not path.exists()), None)
    if missing is not None:
        raise UserError("ADC101", f"{missing}: there is no such file", "check the path, or name a folder to watch")
    seen: Mapping[Path, Stamp] = {}
    try:
        for _ in ticks:
            now = stamps(arguments)
            for path in seen.keys() - now.keys():
                gone(path)
            changed = tuple(path for path, stamp in now.items() if seen.get(path) != stamp)
            if changed:
                check(changed)
            seen = now
    except KeyboardInterrupt:
        return


def stamps(arguments: Sequence[Path]) -> dict[Path, Stamp]:
    """When each spec was last written, and its size. Editors replace a file in two steps, and between them it is not there."""
    try:
        paths = specs.find(arguments)
    except UserError:  # a watched folder that is empty for now
        return {}
    found = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found
