"""The YAML adapter specs that ship with adapterc; data only."""
