"""A simulator of IBM Spyre behind torch's own doors. Importing it registers the device and the Dynamo backend ``spyre``."""

from .backend import CompileRecord, clear_compile_log, compile_log
from .device import register
from .formats import NumberRules
from .patches import GraphPatch, active_for, fired_report, install
from .settings import Settings, current_settings, settings
from .tensor import SpyreTensor

SIMULATED: bool = register()
"""False where torch_spyre is installed: then the device is the real one, and only the graph patches of this package act."""

__all__ = [
    "SIMULATED",
    "CompileRecord",
    "GraphPatch",
    "NumberRules",
    "Settings",
    "SpyreTensor",
    "active_for",
    "clear_compile_log",
    "compile_log",
    "current_settings",
    "fired_report",
    "install",
    "settings",
]
