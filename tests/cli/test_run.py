"""`run` and `topics` as processes: what goes wrong at the start is one clear line and its exit code; SIGTERM is a clean end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.brokers import topics
from tests.brokers.embedded import EmbeddedBroker

from acs_aaep_bridge.cli.demo.broker import EMBEDDED_SETTINGS

SRC = Path(__file__).parents[2] / "src"


def command(*arguments: str, **options: str) -> list[str]:
    chosen = [part for name, value in options.items() for part in ("--set", f"{name.replace('__', '.')}={value}")]
    return [sys.executable, "-m", "acs_aaep_bridge", *arguments, *chosen]


def finished(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, **options), env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that nothing listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that says what is wrong. All other lines are the log's."""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == lines[-1:], done.stderr
    for line in lines[:-1]:
        assert json.loads(line)["level"] in {"info", "warning"}
    return errors[0]


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["topics", "check"], ["topics", "create"], ["listen"], ["dlq", "inspect"], ["sessions", "list"]],
    ids=" ".join,
)
def test_no_broker(arguments: list[str], deaf: str) -> None:
    done = finished(*arguments, kafka__bootstrap_servers=deaf, http__port="0")
    assert (done.returncode, done.stdout) == (3, "")
    assert deaf in error_of(done)


def test_a_broker_without_tls_is_told_from_one_that_is_away(embedded_broker: EmbeddedBroker) -> None:
    options = {"kafka__bootstrap_servers": embedded_broker.bootstrap, "kafka__tls__enabled": "true", "http__port": "0"}
    done = finished("run", **options)
    assert done.returncode == 3
    assert "TLS" in error_of(done)


def test_a_certificate_that_is_not_there(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    options = {"kafka__bootstrap_servers": embedded_broker.bootstrap, "kafka__tls__enabled": "true", "http__port": "0"}
    done = finished("run", **options, kafka__tls__ca_file=str(tmp_path / "ca.pem"))
    assert done.returncode == 2
    assert "kafka.tls.ca_file" in error_of(done)


def test_a_bad_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("kafka: [", encoding="utf-8")
    done = finished("run", "--config", str(path))
    assert done.returncode == 2
    assert "not valid YAML: line 1" in error_of(done)


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = finished("run", http__port=port)
    assert done.returncode == 2
    assert port in error_of(done)


def test_missing_topics_are_named_with_the_remedy(embedded_broker: EmbeddedBroker) -> None:
    missing = topics.unique("missing")
    options = {name.replace(".", "__"): value for name, value in EMBEDDED_SETTINGS.items()}
    done = finished(
        "run", kafka__bootstrap_servers=embedded_broker.bootstrap, topics__lifecycle=missing, http__port="0", **options
    )
    assert done.returncode == 3
    assert missing in error_of(done)
    assert "topics create" in error_of(done)


@pytest.fixture
def running(embedded_broker: EmbeddedBroker) -> Iterator[subprocess.Popen[str]]:
    """A bridge with topics of its own, made by `topics create`."""
    mark = topics.unique("run")
    options = {name.replace(".", "__"): value for name, value in EMBEDDED_SETTINGS.items()}
    options |= {
        "kafka__bootstrap_servers": embedded_broker.bootstrap,
        "kafka__group_prefix": mark,
        "kafka__session_timeout": "4s",
        "kafka__heartbeat_interval": "1s",
        "input__topics": f"{mark}.raw",
        "topics__normalized": f"{mark}.normalized",
        "topics__lifecycle": f"{mark}.lifecycle",
        "topics__dead_letter": f"{mark}.dead",
        "topics__changelog": f"{mark}.sessions",
        "topics__create__partitions": "2",
        "topics__create__replication_factor": "1",
        "http__host": "127.0.0.1",
        "http__port": "0",
    }
    made = finished("topics", "create", **options)
    assert (made.returncode, len(made.stdout.splitlines())) == (0, 5), made.stderr
    checked = finished("topics", "check", **options)
    assert (checked.returncode, len(checked.stdout.splitlines())) == (0, 5), checked.stderr
    with subprocess.Popen(command("run", **options), env={"PYTHONPATH": str(SRC)}, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(running: subprocess.Popen[str], number: signal.Signals) -> None:
    assert running.stderr is not None
    port = 0
    for line in running.stderr:
        told = json.loads(line)
        port = told["port"] if told["event"] == "http.listening" else port
        if told["event"] == "readiness" and told["ready"]:
            break
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=10) as answer:
        assert answer.status == 200
    running.send_signal(number)
    rest = [json.loads(line) for line in running.stderr]
    assert rest[-1]["event"] == "bridge.stopped"
    assert running.wait(30) == 0
