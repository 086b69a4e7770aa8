"""Declarative, proven adapters that let stock HuggingFace models run on IBM Spyre.

`adapterc.load(model_or_path)` gives the model back, patched and compiled for the device. The command line is `adapterc --help`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapterc.load import load

__version__ = version("adapterc")
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> object:
    # torch and transformers take seconds to import, and `adapterc explain` needs neither.
    if name == "load":
        from adapterc.load import load

        return load
    raise AttributeError(f"module 'adapterc' has no attribute {name!r}")
