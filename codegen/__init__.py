"""Adapters become patches: `build` writes the Python package, `runtime` is what that package imports."""

from .build import Manifest, build

__all__ = ["Manifest", "build"]
