"""A simulator of IBM Spyre behind torch's own doors. Importing it registers the device and the Dynamo backend ``spyre``."""

from .device import register
from .settings import Settings, current_settings, settings
from .tensor import SpyreTensor

SIMULATED: bool = register()
"""False where torch_spyre is installed: then the device is the real one, and only the graph patches of this package act."""

__all__ = ["SIMULATED", "Settings", "SpyreTensor", "current_settings", "settings"]
