"""`publish`: what is in the file is on the topic, in order, with the keys that keep sessions together."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.brokers import topics
from tests.brokers.embedded import EmbeddedBroker
from tests.core.hooks_sent import CHILD, SESSION, request

from acs_aaep_bridge.cli import main
from acs_aaep_bridge.cli.publish import session_key

SRC = Path(__file__).parents[2] / "src"
CHILDS = request("steps/sessionStart", metadata={"agent_id": "a", "session_id": CHILD})


class Stand:
    """A topic on the embedded broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.bootstrap = broker.bootstrap
        self.topic = topics.unique("raw")
        topics.create(self.bootstrap, {self.topic: 1})

    def options(self) -> list[str]:
        return ["--topic", self.topic, "--set", f"kafka.bootstrap_servers={self.bootstrap}", "--set", "kafka.idempotence=false",
                "--set", "delivery=at_least_once"]  # fmt: skip

    def invoke(self, *arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(main, ["publish", *arguments, *self.options()], input=text)

    def read(self) -> list[tuple[Any, Any]]:
        return [(message.key(), message.value()) for message in topics.read_all(self.bootstrap, self.topic)]


@pytest.fixture
def stand(embedded_broker: EmbeddedBroker) -> Stand:
    return Stand(embedded_broker)


def test_each_line_is_a_record_keyed_by_its_session(stand: Stand, tmp_path: Path) -> None:
    path = tmp_path / "hooks.jsonl"
    lines = [json.dumps(request("steps/sessionStart")), "half a {", json.dumps(CHILDS), "[1]"] * 300
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    result = stand.invoke(str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"Published {len(lines)} records to {stand.topic}.\n"
    keys = [SESSION.encode(), None, CHILD.encode(), None] * 300
    assert stand.read() == [(key, line.encode()) for key, line in zip(keys, lines, strict=True)]


def test_whole_records_keep_key_and_headers(stand: Stand) -> None:
    forms = [
        {"value": "a", "key": "k", "headers": [["h", "1"], ["h", None]]},
        {"value_base64": "/w=="},
        {"value": None, "key": "gone"},
    ]
    result = stand.invoke("-", "--records", text="\n".join(map(json.dumps, forms)))
    assert result.exit_code == 0, result.output
    assert stand.read() == [(b"k", b"a"), (None, b"\xff"), (b"gone", None)]
    (first, *_) = topics.read_all(stand.bootstrap, stand.topic)
    assert first.headers() == [("h", b"1"), ("h", None)]


def test_sample_traffic_ends_at_the_count(stand: Stand) -> None:
    result = stand.invoke("--sample", "--count", "12", "--rate", "400")
    assert result.exit_code == 0, result.output
    read = stand.read()
    assert len(read) == 12
    assert json.loads(read[0][1])["params"]["metadata"]["session_id"].encode() == read[0][0]


def test_the_rate_is_kept(stand: Stand) -> None:
    begun = time.monotonic()
    stand.invoke("--sample", "--count", "11", "--rate", "10")
    assert time.monotonic() - begun >= 1.0


def test_what_comes_through_a_pipe_is_published_at_once(stand: Stand) -> None:
    command = [sys.executable, "-m", "acs_aaep_bridge", "publish", "-", *stand.options()]
    with subprocess.Popen(
        command, env={"PYTHONPATH": str(SRC)}, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        deadline = time.monotonic() + 30
        while not stand.read():
            assert time.monotonic() < deadline
        _, err = process.communicate("two\n", timeout=30)
    assert err == f"Published 2 records to {stand.topic}.\n"
    assert [value for _, value in stand.read()] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--sample"),
        (["-", "--sample"], "--sample"),
        (["/nowhere/hooks.jsonl"], "/nowhere/hooks.jsonl"),
        (["-", "--rate", "0"], "--rate"),
    ],
    ids=str,
)
def test_wrong_usage_is_one_line(stand: Stand, arguments: list[str], says: str) -> None:
    result = stand.invoke(*arguments, text="")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert says in result.stderr


def test_a_record_without_key_and_value_is_named(stand: Stand) -> None:
    result = stand.invoke("-", "--records", text='{"value":"a"}\n{"value":null}\n')
    assert result.exit_code == 2
    assert "line 2" in result.stderr


def test_a_missing_topic_is_not_made_by_accident(stand: Stand) -> None:
    stand.topic = topics.unique("missing")
    for _ in range(2):
        result = stand.invoke("--sample", "--count", "1")
        assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
        assert stand.topic in result.stderr


@pytest.mark.parametrize(
    "value", [None, b"", b"[]", b"{}", b'{"params":1}', b'{"params":{"metadata":{"session_id":1}}}', b"\xff"], ids=str
)
def test_a_value_without_a_session_has_no_key(value: bytes | None) -> None:
    assert session_key(value) is None
