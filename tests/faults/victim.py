"""The bridge with something wrong with it: `python -m tests.faults.victim run --config …` instead of `acs_aaep_bridge`.

`FAIL_AT=<failpoint>:<count>:<action>` acts when a delivery passes the failpoint for the count-th time:

- `kill`: SIGKILL, as when the machine goes away
- `freeze`: SIGSTOP, a process that is gone for everyone else and then comes back
- `raise`: an error, as from a client that fails
- `hold`: make the file `$FAIL_FILE.reached`, and go on once `$FAIL_FILE.go` exists

With `FENCE_FILE`, a partition is fenced only once `$FENCE_FILE.go` exists, and `$FENCE_FILE.waiting` says so. `MUTANT` names
a fault of `mutants.py` to be put into the delivery code. Production code knows nothing of any of this.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.kafka import runner
from acs_aaep_bridge.kafka.observer import Observer
from tests.faults import mutants


class Injected(Exception):
    """The error of the action `raise`."""


class FailPoint:
    """Counts how often a named moment is passed, and acts once."""

    def __init__(self, instruction: str) -> None:
        self._name, count, self._action = instruction.split(":")
        self._left = int(count)

    def __call__(self, name: str) -> None:
        if name != self._name or self._left <= 0:
            return
        self._left -= 1
        if self._left == 0:
            self._act()

    def _act(self) -> None:
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._action == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._action == "hold":
            hold(Path(os.environ["FAIL_FILE"]))
        else:
            raise Injected(self._name)


def hold(file: Path) -> None:
    """Say that we are here, and block the whole process until we may go on."""
    file.with_suffix(".reached").touch()
    while not file.with_suffix(".go").exists():
        time.sleep(0.01)


def main() -> None:
    instruction = os.environ.get("FAIL_AT")
    if instruction:
        failpoint, run = FailPoint(instruction), runner.run

        async def run_and_fail(config: Config, stages: Any, observer: Observer, parts: runner.Parts | None = None) -> None:
            await run(config, stages, observer, replace(parts or runner.Parts(), failpoint=failpoint))

        runner.run = run_and_fail
    if "FENCE_FILE" in os.environ:
        mutants.slow_fence()
    mutant = os.environ.get("MUTANT")
    if mutant:
        mutants.MUTANTS[mutant]()

    from acs_aaep_bridge.cli import main as command  # noqa: PLC0415 - after the patches

    command(prog_name="acs-aaep-bridge")


if __name__ == "__main__":
    main()
