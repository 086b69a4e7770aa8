"""Adapters become patches: `build` writes the Python package, `runtime` is what that package imports.

Nothing is imported here, so that a command that only names a problem does not wait for torch.
"""
