"""Pages with outputs hold what their commands print now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_outputs_are_those_of_a_run() -> None:
    ran = subprocess.run([sys.executable, str(DOCS / "produce.py"), "--check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
