"""A child process that never outlives the tests, however they end."""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """A program with its output in a file. Killed at interpreter exit, and on Linux also when the parent is killed."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            # A process of its own group: Ctrl-C reaches the tests first, and they end their children in order.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl call, nothing that takes a lock
                process_group=0,
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        return self.process.pid

    def running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.running():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end. Nothing happens when it has ended already."""
        self.send(signal.SIGKILL)
        self.process.wait()
        atexit.unregister(self.kill)

    def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM, and SIGKILL after `timeout` seconds. The exit status, negative for a signal."""
        self.send(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        atexit.unregister(self.kill)
        return self.process.returncode

    def wait(self, timeout: float) -> int:
        """The exit status once it ends by itself; raises AssertionError with the log's tail if it does not."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s\n{self.tail()}") from None

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.output().splitlines()[-lines:])


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, outside the range that outgoing connections take theirs from.

    A broker that is killed must find its port free again when it restarts, also while clients are busy reconnecting.
    """
    floor = int(_EPHEMERAL.read_text(encoding="ascii").split()[0]) if _EPHEMERAL.exists() else 32_768
    chosen: list[int] = []
    chance = random.SystemRandom()
    while len(chosen) < count:
        port = chance.randrange(15_000, floor)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in chosen:
            chosen.append(port)
    return chosen


def until(condition: Callable[[], bool], timeout: float, what: str, pause: float = 0.05) -> None:
    """Return as soon as `condition` holds; AssertionError naming `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(pause)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
