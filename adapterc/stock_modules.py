"""A stock module for a `replace` rule to be measured against: found by its class, taken out of a small instance of a family that has it, and run."""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers

from adapterc import tiny
from adapterc.dsl.adapter import Adapter, Replace
from adapterc.errors import UserError
from adapterc.verify.rung_model import check_replace
from adapterc.verify.verdict import UNDECIDED, Verdict

_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
FAMILIES = 3  # instances of one class in several families are the same code; a glob may name several


def replace_verdict(rule: Replace, adapter: Adapter) -> Verdict:
    """The verdict of a `replace` rule: the weakest over the stock modules that its glob names in up to FAMILIES families."""
    verdicts = [check_replace(rule, adapter, module, shapes) for module, shapes in _stock(rule)]
    if not verdicts:
        how = f"no module of Transformers {transformers.__version__} that could be run has a class like `{rule.module}`"
        return Verdict(rule.header.name, adapter.name, "WRONG", UNDECIDED, how)
    return next((v for v in verdicts if not v.ok(rule.header)), verdicts[0])


def _stock(rule: Replace) -> Iterator[tuple[torch.nn.Module, tuple[tuple[int, ...], ...]]]:
    found = 0
    for model_type in families_with(rule.module):
        taken = _taken(rule, model_type)
        if taken is not None:
            yield taken
            found += 1
        if found == FAMILIES:
            return


@cache
def families_with(glob: str) -> tuple[str, ...]:
    """Model types whose code defines a class that matches; for a class of the common files, every type (the caller stops early)."""
    root = Path(transformers.__file__).parent
    known = set(transformers.models.auto.configuration_auto.CONFIG_MAPPING)
    own = [path.parent.name for path in sorted(root.glob("models/*/modeling_*.py")) if _defines(path, glob)]
    if own:
        return tuple(dict.fromkeys(name for folder in own for name in (folder, folder.replace("_", "-")) if name in known))
    common = any(_defines(path, glob) for path in sorted(root.glob("*.py")))
    return ("gpt2", "bert", "llama", "t5", "bart") if common else ()


def _defines(path: Path, glob: str) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in _CLASS.findall(path.read_text(encoding="utf-8")))


def _taken(rule: Replace, model_type: str) -> tuple[torch.nn.Module, tuple[tuple[int, ...], ...]] | None:
    """The first module of the glob's class in a tiny model of the type, and the shapes that it was called with; None where there is none."""
    try:
        loaded = tiny.recipe(model_type, "", "tiny").build(0)
    except UserError:
        return None
    matching = [m for m in loaded.model.modules() if fnmatch.fnmatchcase(type(m).__name__, rule.module)]
    if not matching:
        return None
    calls: list[tuple[Any, ...]] = []
    hook = matching[0].register_forward_hook(lambda _, args, __: calls.append(args))
    try:
        with torch.no_grad():
            loaded.model(**tiny.inputs_for(loaded))
    finally:
        hook.remove()
    if not calls or len(calls[0]) < len(rule.inputs) or not all(isinstance(a, torch.Tensor) for a in calls[0][: len(rule.inputs)]):
        return None
    # Few elements decide as much as many: every dimension but the last, which a weight may fix, is cut.
    shapes = tuple((*(min(n, 2) for n in a.shape[:-1]), a.shape[-1]) for a in calls[0][: len(rule.inputs)])
    return copy.deepcopy(matching[0]), shapes
