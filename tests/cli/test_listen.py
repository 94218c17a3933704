"""`listen`: which events are spoken, in which words."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.brokers import topics
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import Kafka

from acs_aaep_bridge.cli.listen import Listener, Verbosity
from acs_aaep_bridge.cli.terminal import safe

NOW = 1_800_000_000_000
HOUR = 3_600_000
SRC = Path(__file__).parents[2] / "src"


def event(number: int, age: int = 0, **members: Any) -> bytes:
    when = datetime.fromtimestamp((NOW - age) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    base = {"type": "aaep:agent.session.started", "event_id": f"evt_{number}", "timestamp": when, "urgency": "normal"}
    return json.dumps({**base, "summary_normal": "planner is working.", "summary_terse": "planner working.", **members}).encode()


def listener(verbosity: Verbosity = "normal") -> Listener:
    return Listener(verbosity, HOUR, lambda: NOW)


def test_an_event_is_spoken_once_however_often_it_comes() -> None:
    ear = listener()
    assert [ear.hear(event(1)), ear.hear(event(1)), ear.hear(event(2))] == ["planner is working.", None, "planner is working."]


def test_what_is_stale_is_left_out_unless_it_is_critical() -> None:
    ear = listener()
    assert ear.hear(event(1, HOUR)) is not None
    assert ear.hear(event(2, HOUR + 1)) is None
    assert ear.hear(event(3, 24 * HOUR, urgency="critical")) == "Important: planner is working."


def test_without_a_limit_nothing_is_stale() -> None:
    patient = Listener("normal", 0, lambda: NOW)
    assert patient.hear(event(1, 10_000 * HOUR)) is not None
    assert patient.left_out == 0


def test_what_is_left_out_is_counted_so_that_silence_can_be_explained() -> None:
    """Neither what is critical nor what is fresh counts."""
    ear = listener()
    for each in (event(1), event(2, 2 * HOUR), event(3, 2 * HOUR, urgency="critical"), event(4, 2 * HOUR)):
        ear.hear(each)
    assert ear.left_out == 2


@pytest.mark.parametrize("verbosity", get_args(Verbosity))
def test_each_verbosity_takes_its_own_text_and_else_the_nearest(verbosity: Verbosity) -> None:
    texts: dict[str, Any] = {f"summary_{one}": one for one in get_args(Verbosity)}
    assert listener(verbosity).hear(event(1, **texts)) == verbosity
    texts[f"summary_{verbosity}"] = None
    other = listener(verbosity).hear(event(2, **texts))
    assert other == ("terse" if verbosity == "normal" else "normal")


def test_agent_output_is_spoken_as_it_is() -> None:
    assert listener().hear(event(1, type="aaep:agent.output.streaming", chunk="Line one.\nLine two.")) == "Line one. Line two."


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"null", event(1, summary_normal=None, summary_terse="")], ids=str)
def test_what_has_no_words_is_silent(value: bytes | None) -> None:
    assert listener().hear(value) is None


def test_text_cannot_command_the_terminal() -> None:
    hostile = "a\x1b[31mred\x1b]0;title\x07 \x9b2J \u202eevil\u2066 \r\nb\x00"
    said = listener().hear(event(1, summary_normal=hostile)) or ""
    assert said.isprintable()
    assert said == safe(said)


@pytest.mark.parametrize("which", ["embedded_broker", "kafka"])
def test_it_speaks_what_comes_and_ends_quietly(which: str, request: pytest.FixtureRequest) -> None:
    broker: EmbeddedBroker | Kafka = request.getfixturevalue(which)
    topic = topics.unique("lifecycle")
    topics.create(broker.bootstrap, {topic: 2})
    topics.fill(broker.bootstrap, topic, [(b"s", event(0, NOW - int(time.time() * 1000), summary_normal="before"))])
    command = [sys.executable, "-m", "acs_aaep_bridge", "listen", "--count", "2", "--set", f"topics.lifecycle={topic}"]
    command += ["--set", f"kafka.bootstrap_servers={broker.bootstrap}"]
    with subprocess.Popen(
        command, env={"PYTHONPATH": str(SRC)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "Listening" in process.stderr.readline()
        age = NOW - int(time.time() * 1000)
        sent = [event(1, age), event(1, age), event(2, age, urgency="critical", summary_normal="planner failed.")]
        topics.fill(broker.bootstrap, topic, [(b"s", value) for value in sent])
        out, err = process.communicate(timeout=60)
    assert out.splitlines() == ["planner is working.", "Important: planner failed."]
    assert err == ""
    assert process.returncode == 0
