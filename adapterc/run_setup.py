"""How a run is to be made besides its model: which device, which faults; and which files it writes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adapterc.errors import UserError
from adapterc.files import check_writable, write_whole
from adapterc.plan_file import plans_json
from adapterc.run_result import RunReport
from adapterc.spyre_runtime import SIMULATED
from adapterc.spyre_runtime.faults import FAULTS
from adapterc.spyre_runtime.profile import Profile
from adapterc.spyre_runtime.tiled_options import TiledOptions

DEVICES = ("simulated", "real")


@dataclass(frozen=True)
class Setup:
    """faults: ids to switch on, without: ids of compiler faults to switch off. device: None takes the real one where it is installed.

    layers: measure the error behind each block, which runs the model once more.
    """

    faults: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    device: str | None = None
    layers: bool = False

    @property
    def injected(self) -> tuple[str, ...]:
        return (*self.faults, *(f"without {name}" for name in self.without))

    def settings(self) -> Mapping[str, Any]:
        """Device faults need the executor that has a device's memory; faults of the compiler change what it takes."""
        device = frozenset(name for name in self.faults if name in FAULTS)
        switched = (*((name, True) for name in self.faults if name not in FAULTS), *((name, False) for name in self.without))
        return {
            **({"executor": "tiled", "tiled": TiledOptions(faults=device)} if device else {}),
            **({"switched": switched} if switched else {}),
        }


AS_IT_IS = Setup()


def _import_real_device() -> None:
    """The real backend registers its device when it is imported."""
    try:
        importlib.import_module("torch_spyre")
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            "ADC511", f"torch_spyre is installed and cannot be imported: {reason}", "mend its installation, or remove it"
        ) from None


def checked_setup(setup: Setup, profile: Profile) -> Setup:
    """Raises UserError ADC507 (no such device), ADC511 (it is not here), ADC608 (no such fault)."""
    if setup.device not in (None, *DEVICES):
        raise UserError("ADC507", f"--device {setup.device} is no device of a run", f"choose {' or '.join(DEVICES)}")
    if setup.device == "real" and SIMULATED:
        raise UserError(
            "ADC511",
            "--device real: torch_spyre, the real backend, cannot be imported",
            "install it, or leave the option out for the simulator",
        )
    if setup.device == "simulated" and not SIMULATED:
        raise UserError(
            "ADC511",
            "--device simulated: torch_spyre is installed, and the simulator stands aside for it",
            "use --device real, or a Python environment without torch_spyre",
        )
    on_device = [name for name in FAULTS if name in profile.faults]
    for name in setup.faults:
        if name not in on_device and name not in profile.compiler_faults:
            raise UserError(
                "ADC608", f"{profile.name} has no fault `{name}`", f"choose among {', '.join((*on_device, *profile.compiler_faults))}"
            )
    for name in setup.without:
        if name not in profile.compiler_faults:
            raise UserError(
                "ADC608",
                f"`{name}` is no fault of the compiler of {profile.name}, and only those are on by themselves",
                f"choose among {', '.join(profile.compiler_faults)}",
            )
    if not SIMULATED:
        _import_real_device()
    if setup.injected and not SIMULATED:
        raise UserError(
            "ADC511", "faults are injected by the simulator, and torch_spyre is installed", "leave --fault out on the real device"
        )
    return setup


@dataclass(frozen=True)
class Outputs:
    """Files that a run writes, each whole or not at all."""

    report: Path | None = None
    trace: Path | None = None
    plan: Path | None = None

    def _wanted(self) -> tuple[tuple[str, Path], ...]:
        named = (("--report", self.report), ("--trace", self.trace), ("--plan", self.plan))
        return tuple((option, path) for option, path in named if path is not None)

    def check(self) -> None:
        """Raises UserError ADC512 for a path that cannot be written, before the run."""
        for option, path in self._wanted():
            check_writable(path, option)

    def write(self, report: RunReport) -> RunReport:
        for option, path in self._wanted():
            write_whole(path, _text(option, report), option)
        return replace(report, written=tuple(str(path) for _, path in self._wanted()))


NO_FILES = Outputs()


def _text(option: str, report: RunReport) -> str:
    if option == "--report":
        from adapterc.report_page import page

        return page(report)
    if option == "--trace":
        from adapterc.trace import trace_json

        return trace_json(report.model, report.profile, report.graphs)
    return plans_json(report.model, report.graphs)
