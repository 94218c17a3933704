"""The vector files: `tests/vectors/<hook>/<case>/input.json` and what a stage must make of it.

Run with `REGENERATE_VECTORS=1` to write the expectations anew. That run fails, so that nobody takes it for a pass:
read the diff, then run again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from acs_aaep_bridge.config import Config, load

ROOT = Path(__file__).parents[1] / "vectors"
INPUTS = sorted(file for pattern in ("input.json", "input.bin") for file in ROOT.rglob(pattern))
CASES = {str(file.parent.relative_to(ROOT)): file for file in INPUTS}


def settings(case: Path) -> Config:
    """The defaults, with the dotted options of the case's `config.json`, if it has one."""
    overrides = case / "config.json"
    return load("", {}, orjson.loads(overrides.read_bytes()) if overrides.exists() else {})


def expect(file: Path, actual: Any) -> None:
    """Compare with the file, or write it and fail. An expectation that is nothing has no file."""
    if os.environ.get("REGENERATE_VECTORS"):
        if actual:
            file.write_bytes(orjson.dumps(actual, option=orjson.OPT_INDENT_2) + b"\n")
        else:
            file.unlink(missing_ok=True)
        pytest.fail(f"{file.relative_to(ROOT)} was written: read the diff, then run without REGENERATE_VECTORS")
    wanted = orjson.loads(file.read_bytes()) if file.exists() else []
    assert actual == wanted
