"""`sessions list | show`: what the changelog says about sessions, as the lifecycle stage wrote it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner, Result
from tests.brokers import topics
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import Kafka
from tests.core.hooks_sent import CHILD, SESSION, request

from acs_aaep_bridge.cli import main
from acs_aaep_bridge.cli.sessions import _duration
from acs_aaep_bridge.config import load
from acs_aaep_bridge.core.model import Emit, Record
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.kafka.entries import NEXT_OFFSET_KEY

NOW = int(time.time() * 1000)
Entries = list[tuple[bytes, bytes | None]]
Hook = dict[str, object]


def changelog(hooks: Iterable[tuple[int, Hook]]) -> Entries:
    """What the lifecycle stage writes while it handles hooks, each so many milliseconds ago."""
    config = load("", {})
    normalize, lifecycle = build_stage("normalize", config), build_stage("lifecycle", config)
    raw, state = normalize.new_state(), lifecycle.new_state()
    written: Entries = []
    for offset, (ago, hook) in enumerate(hooks):
        record = Record("raw", 0, offset, NOW - ago, None, json.dumps(hook).encode())
        (outcome,) = normalize.apply(record, raw, NOW - ago)
        assert isinstance(outcome, Emit)
        for one in outcome.outgoing:
            lifecycle.apply(Record("normalized", 0, offset, one.timestamp, one.key, one.value, one.headers), state, NOW - ago)
        written += state.changes()
        state.commit()
    return written


def dated(ago: int, number: int, hook: Hook, session: str = SESSION, agent: str = "planner") -> tuple[int, Hook]:
    params = hook["params"]
    assert isinstance(params, dict)
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime((NOW - ago) / 1000)) + f".{(NOW - ago) % 1000:03d}Z"
    own = {"request_id": f"00000000-0000-4000-8000-{number:012d}", "timestamp": when}
    return ago, {**hook, "params": {**params, **own, "metadata": {"agent_id": agent, "session_id": session}}}


HOUR, MINUTE = 3_600_000, 60_000
CALL = request("steps/toolCallRequest", {"tool": {"name": "Grep"}, "arguments": {}})
SPAWN = request("steps/subagentStart", {"subagent_session_id": CHILD, "subagent_descriptor": {"agent_name": "Explore"}})
STORY = [
    dated(2 * HOUR, 1, request("steps/turnStart", {"turn_id": "t1"})),
    dated(90 * MINUTE, 2, SPAWN),
    dated(80 * MINUTE, 3, CALL, CHILD, "explorer"),
    dated(10 * MINUTE, 4, CALL),
]


class Stand:
    """A changelog topic on a broker."""

    def __init__(self, broker: EmbeddedBroker | Kafka) -> None:
        self._bootstrap, self._transactions = broker.bootstrap, broker.transactions
        self.topic = topics.unique("sessions")
        topics.create(self._bootstrap, {self.topic: 2})

    def write(self, entries: Entries) -> None:
        asyncio.run(self._write(entries))

    async def _write(self, entries: Entries) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap) as producer:
            for key, value in entries:
                await producer.send_and_wait(self.topic, value, key)

    def invoke(self, *arguments: str) -> Result:
        options = {"kafka.bootstrap_servers": self._bootstrap, "topics.changelog": self.topic}
        chosen = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
        return CliRunner().invoke(main, ["sessions", *arguments, *chosen])

    def listed(self, *arguments: str) -> list[list[str]]:
        result = self.invoke("list", *arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return [line.split() for line in result.stdout.splitlines()]


@pytest.fixture(params=["embedded_broker", "kafka"])
def stand(request: pytest.FixtureRequest) -> Stand:
    return Stand(request.getfixturevalue(request.param))


def test_open_sessions_are_listed_with_age_silence_state_agent_and_parent(stand: Stand) -> None:
    assert stand.listed() == [["No", "open", "sessions."]]
    stand.write([*changelog(STORY), (NEXT_OFFSET_KEY, b'{"version":1,"offset":4}')])
    heading, child, root = stand.listed()
    assert heading == ["SESSION", "KIND", "AGE", "SILENT", "STATE", "CALLS", "AGENT", "PARENT"]
    assert (child[:2], child[4:]) == ([CHILD, "subagent"], ["calling_tool", "1", "Explore", SESSION])
    assert (root[:2], root[4:]) == ([SESSION, "request"], ["calling_tool", "1", "planner", "-"])
    # To ten minutes: a broker may take a while to start.
    assert [text[:3] for text in (*child[2:4], root[2])] == ["1h3", "1h2", "2h0"]
    assert re.fullmatch(r"1\dm\d\ds", root[3])


def test_only_the_silent_ones_on_request(stand: Stand) -> None:
    stand.write(changelog(STORY))
    assert [row[0] for row in stand.listed("--silent-for", "1h")[1:]] == [CHILD]
    assert stand.listed("--silent-for", "2h") == [["No", "open", "sessions."]]


def test_ended_and_forgotten_sessions_are_not_open(stand: Stand) -> None:
    end = dated(5 * MINUTE, 9, request("steps/turnEnd", {"turn_id": "t1", "outcome": "completed"}))
    stand.write([*changelog([*STORY, end]), (CHILD.encode(), None)])
    assert stand.listed() == [["No", "open", "sessions."]]
    assert [row[0] for row in stand.listed("--all")[1:]] == [SESSION]


@pytest.mark.parametrize("spelling", [CHILD, CHILD.upper(), "sess_" + CHILD.replace("-", "")])
def test_one_session_is_shown_by_any_of_its_ids(stand: Stand, spelling: str) -> None:
    stand.write(changelog(STORY))
    told = json.loads(stand.invoke("show", spelling, "--json").stdout)
    assert (told["session"], told["parent"], told["agent"], told["open_calls"]) == (CHILD, SESSION, "Explore", ["Grep"])
    assert told["aaep_session"] == "sess_" + CHILD.replace("-", "")
    plain = stand.invoke("show", spelling).stdout
    assert all(name in plain for name in told)


def test_a_session_that_is_not_known_is_one_line(stand: Stand) -> None:
    result = stand.invoke("show", "nobody")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_an_entry_that_cannot_be_read_is_told_and_hides_nothing_else(stand: Stand) -> None:
    stand.write([*changelog(STORY), (b"from-the-future", b"\xff" * 40)])
    result = stand.invoke("list")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    assert "from-the-future" in result.stderr


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0s"), (999, "0s"), (61_000, "1m01s"), (7_500_000, "2h05m"), (90_000_000, "1d01h"), (-5, "0s")]
)
def test_durations_are_two_units(milliseconds: int, text: str) -> None:
    assert _duration(milliseconds) == text
