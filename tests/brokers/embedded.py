"""The broker of the `demo` extra: in memory, ready at once, no Java. It has neither transactions nor idempotence."""

from __future__ import annotations

from pathlib import Path

from acs_aaep_bridge.cli.demo.broker import arguments, binary, environment

from .process import Child, free_ports, listening, until


class EmbeddedBroker:
    """The demonstration's broker as a test's child: it dies with the test run, and its output is kept."""

    name = "embedded"
    transactions = False

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        (self.port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._child: Child | None = None

    def start(self) -> None:
        self._child = child = Child([str(binary()), *arguments(self.port)], self.home / "tansu.log", environment())
        until(lambda: not child.running() or listening(self.port), 20, "the embedded broker listens")
        if not child.running():
            raise AssertionError(f"the embedded broker ended at start\n{child.tail()}")

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()  # it has nothing to save, and is slow to end by itself
