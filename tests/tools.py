"""Programs that some tests run and that pip cannot install: found on PATH, or the test says what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def program(name: str, package: str) -> str:
    """The program's path. Without it the test is skipped on a developer's machine, and fails in CI."""
    found = shutil.which(name)
    if found is None:
        why = f"{name} is not on PATH; Debian has it in the package {package}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


def run(*command: str | Path, cwd: Path = ROOT, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run to the end with captured output, whatever the exit code."""
    return subprocess.run([str(part) for part in command], cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False)
