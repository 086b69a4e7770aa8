"""A simulator of IBM Spyre behind torch's own doors. Importing it registers the device ``spyre``.

The Dynamo backend of that name is an entry point (`torch_dynamo_backends` in pyproject.toml), so that Dynamo and Inductor are loaded by
`torch.compile` and not by a command that only reads a profile.
"""

from .device import register
from .formats import NumberRules
from .patches import GraphPatch, active_for, fired_report, install
from .settings import Settings, current_settings, settings
from .tensor import DEVICE_TYPE, SpyreTensor

SIMULATED: bool = register()
"""False where torch_spyre is installed: then the device is the real one, and only the graph patches of this package act."""

__all__ = [
    "DEVICE_TYPE",
    "SIMULATED",
    "GraphPatch",
    "NumberRules",
    "Settings",
    "SpyreTensor",
    "active_for",
    "current_settings",
    "fired_report",
    "install",
    "settings",
]
