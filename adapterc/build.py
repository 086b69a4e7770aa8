"""`adapterc build`: checked specs become a Python package of patches."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rich.console import Console

from adapterc.certify import hashes
from adapterc.check import CheckReport, check_specs, verdict_table
from adapterc.codegen.build import Manifest, build
from adapterc.dsl.diagnostics import SpecError
from adapterc.errors import UserError

_VERSIONS = ("adapterc", "torch", "transformers", "lark", "numpy")


@dataclass(frozen=True)
class BuildReport:
    output: Path
    checked: CheckReport
    manifest: Manifest | None  # None: nothing was written

    @property
    def ok(self) -> bool:
        return self.manifest is not None

    def to_json(self) -> Mapping[str, object]:
        return {"output": str(self.output) if self.ok else None, **self.checked.to_json()}

    def show(self, console: Console) -> None:
        if self.manifest is None:
            self.checked.show(console)
            console.print(f"[bold red]nothing was written to {self.output}[/]")
            return
        console.print(verdict_table(self.checked.rules))
        console.print(
            f"\nwrote {self.output}: {len(self.manifest.adapters)} adapters, {len(self.checked.rules)} rules; read {self.output / '__init__.py'} first"
        )


def versions() -> dict[str, str]:
    """The versions that a manifest records."""
    return {name: importlib.metadata.version(name) for name in _VERSIONS}


def build_specs(paths: Sequence[Path], output: Path) -> BuildReport:
    """Check and write. Raises SpecError for specs that cannot be read, PatchError ADC401 for a folder that cannot be written."""
    checked = check_specs(paths)
    if not checked.ok:
        return BuildReport(output, checked, None)
    return BuildReport(output, checked, build(checked.adapters, checked.verdicts, output, versions(), hashes(checked)))


def require_package(folder: Path) -> None:
    """Raise UserError ADC505 unless the folder looks like a built package; nothing of it is run."""
    if not (folder / "__init__.py").is_file() or not (folder / "manifest.json").is_file():
        raise UserError("ADC505", f"{folder}: no patches here", "build them with `adapterc build -o FOLDER`")


def load_package(folder: Path) -> ModuleType:
    """Import a built package from its folder, under its folder's name. Raises UserError ADC505 where the folder is no such package."""
    require_package(folder)
    init = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(folder.name, init, submodule_search_locations=[str(folder)])
    assert spec is not None and spec.loader is not None, "a path with a .py suffix always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def built(paths: Sequence[Path]) -> Iterator[tuple[CheckReport, ModuleType]]:
    """Check the specs and import their patches from a folder that lasts as long as the block. Raises SpecError, or UserError ADC506 for a failed check."""
    with tempfile.TemporaryDirectory(prefix="adapterc-") as temporary:
        folder = Path(temporary) / "adapterc_patches"
        report = build_specs(paths, folder)
        if not report.ok:
            bad = [rule for rule in report.checked.rules if not rule.ok]
            raise UserError(
                "ADC506", f"{len(bad)} rules may not be built, {bad[0].name} the first: {bad[0].verdict.how}", "see `adapterc check`"
            )
        try:
            yield report.checked, load_package(folder)
        finally:
            for name in [n for n in sys.modules if n.partition(".")[0] == folder.name]:
                del sys.modules[name]


__all__ = ["BuildReport", "SpecError", "build_specs", "built", "load_package", "versions"]
