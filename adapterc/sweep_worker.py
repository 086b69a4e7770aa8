"""What a worker of a sweep imports: importing this module makes a process ready for a row, and runs nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Also what a row's libraries would import at their first use, a third of the time of a small row.
import torch
import torch._dynamo.repro.after_dynamo
import torch._inductor.compile_fx
import torch.export._trace
import transformers
import transformers.masking_utils
import transformers.modeling_utils
import transformers.models.auto.modeling_auto

from adapterc.build import load_package
from adapterc.sweep_row import Outcome, Task, run_row


def work(task: Task) -> Outcome:
    """One row, on one thread: rows run side by side."""
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return run_row(task, load_package)


def work_with_own_patches(task: Task, package: Mapping[str, bytes]) -> Outcome:
    """One row on a machine that does not see the folder of patches: `package` holds its files."""
    with tempfile.TemporaryDirectory(prefix="adapterc-sweep-") as temporary:
        folder = Path(temporary) / Path(task.patches).name
        folder.mkdir()
        for name, content in package.items():
            (folder / name).write_bytes(content)
        return work(replace(task, patches=str(folder)))
