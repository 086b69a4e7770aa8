"""`adapterc list`: families come from the recorded audit, and texts with brackets are shown as they are."""

from __future__ import annotations

from rich.console import Console

from adapterc.listing import families_of, list_specs
from adapterc.specs import shipped_folder


def test_families_are_those_whose_source_the_rules_rewrote() -> None:
    (embedding,) = list_specs([shipped_folder() / "embedding.yaml"]).adapters
    assert {"bert", "gpt2", "llama"} <= set(families_of(embedding))
    (conv1d,) = list_specs([shipped_folder() / "conv1d.yaml"]).adapters
    assert families_of(conv1d) == ("shared",)


def test_brackets_of_a_summary_are_no_markup() -> None:
    console = Console(width=1000)
    with console.capture() as shown:
        list_specs([shipped_folder() / "conv1d.yaml"]).show(console)
    assert "[in, out]" in shown.get()
