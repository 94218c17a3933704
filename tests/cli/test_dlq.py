"""`dlq inspect | show | replay`: rejected records are found, and come back as they were."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner, Result
from confluent_kafka import Message
from tests.brokers import topics
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import Kafka

from acs_aaep_bridge.cli import main, replay
from acs_aaep_bridge.cli.letters import as_letter
from acs_aaep_bridge.config import load
from acs_aaep_bridge.core.deadletter import REPLAY_COUNT, dead_letter, reference
from acs_aaep_bridge.core.model import Outgoing, Record, Reject, Violation

NOW = int(time.time() * 1000)
MISSING = Reject("normalize", "payload_invalid", "final_chain_hash is missing", (Violation("/params/payload", "required"),))
BROKEN = Reject("normalize", "malformed_json", "not JSON")
FORGED = Reject("lifecycle", "parent_mismatch", "another parent is known", (Violation("/payload", "const"),))


@dataclass
class Stand:
    """Three topics on a broker, and the commands on them."""

    bootstrap: str
    transactions: bool
    raw: str
    normalized: str
    dead: str

    def options(self) -> list[str]:
        chosen = {
            "kafka.bootstrap_servers": self.bootstrap,
            "kafka.idempotence": str(self.transactions).lower(),
            "delivery": "exactly_once" if self.transactions else "at_least_once",
            "input.topics": self.raw,
            "topics.normalized": self.normalized,
            "topics.dead_letter": self.dead,
        }
        return [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]

    def invoke(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["dlq", *arguments, *self.options()])

    def record(self, number: int, topic: str | None = None, value: bytes | None = None, age: int = 0) -> Record:
        body = json.dumps({"method": "steps/subagentStop", "number": number}).encode() if value is None else value
        headers = (("traceparent", b"00-ab-cd-01"), ("empty", b""))
        return Record(topic or self.raw, 1, 100 + number, NOW - age, b"key-%d" % number, body, headers)

    def bury(self, letters: Iterable[Outgoing]) -> None:
        asyncio.run(self._bury(letters))

    async def _bury(self, letters: Iterable[Outgoing]) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            for one in letters:
                sent = await producer.send(one.topic, one.value, one.key, headers=list(one.headers), timestamp_ms=one.timestamp)
                if not self.transactions:
                    await sent  # the embedded broker tells wrong end offsets after batches of several records
            await producer.flush()

    def read(self, topic: str) -> list[Message]:
        return topics.read_all(self.bootstrap, topic)


@pytest.fixture(params=["embedded_broker", "kafka"])
def stand(request: pytest.FixtureRequest) -> Stand:
    broker: EmbeddedBroker | Kafka = request.getfixturevalue(request.param)
    names = [topics.unique(name) for name in ("raw", "normalized", "dead")]
    topics.create(broker.bootstrap, dict.fromkeys(names, 2))
    return Stand(broker.bootstrap, broker.transactions, *names)


def three(stand: Stand) -> Sequence[Outgoing]:
    letters = [
        dead_letter(stand.record(1), MISSING, stand.dead),
        dead_letter(stand.record(2, age=3_600_000), MISSING, stand.dead),
        dead_letter(stand.record(3, value=b"\xff{"), BROKEN, stand.dead),
        dead_letter(stand.record(4, topic=stand.normalized), FORGED, stand.dead),
    ]
    stand.bury(letters)
    return letters


def pairs(message: Message) -> object:
    return message.headers() or []


def test_inspect_counts_by_code_hook_and_pointer(stand: Stand) -> None:
    assert stand.invoke("inspect").stdout == "No dead letters.\n"
    three(stand)
    result = stand.invoke("inspect")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["COUNT", "CODE", "HOOK", "POINTER"]
    assert rows[1] == ["2", "payload_invalid", "steps/subagentStop", "/params/payload"]
    assert sorted(rows[2:]) == [["1", "malformed_json", "-", "-"], ["1", "parent_mismatch", "steps/subagentStop", "/payload"]]
    narrow = stand.invoke("inspect", "--code", "payload_invalid", "--since", "30m").stdout.splitlines()
    assert [line.split()[0] for line in narrow] == ["COUNT", "1"]


def test_show_tells_what_is_wrong_and_gives_the_record_back(stand: Stand) -> None:
    three(stand)
    told = stand.invoke("show", "--code", "malformed_json").stdout
    assert "malformed_json" in told
    assert "not JSON" in told
    lines = stand.invoke("show", "--json", "--max", "3").stdout.splitlines()
    assert len(lines) == 3
    (parsed,) = map(json.loads, stand.invoke("show", "--json", "--code", "parent_mismatch").stdout.splitlines())
    expected = stand.record(4, topic=stand.normalized)
    assert parsed["value"].encode() == expected.value
    assert (parsed["topic"], parsed["partition"], parsed["offset"]) == expected[:3]
    assert (parsed["key"], parsed["timestamp"]) == ("key-4", expected.timestamp)
    assert parsed["headers"] == [["traceparent", "00-ab-cd-01"], ["empty", ""]]
    assert parsed["error"]["code"] == "parent_mismatch"


def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(stand: Stand) -> None:
    three(stand)
    result = stand.invoke("replay", "--dry-run")
    assert sorted(result.stderr.splitlines()) == [f"would send 1 to {stand.normalized}", f"would send 3 to {stand.raw}"]
    assert stand.read(stand.raw) == []
    assert stand.read(stand.normalized) == []


def test_replay_sends_each_record_as_it_was_to_where_it_came_from(stand: Stand) -> None:
    letters = three(stand)
    result = stand.invoke("replay")
    assert result.exit_code == 0, result.output
    sent = {message.value(): message for topic in (stand.raw, stand.normalized) for message in stand.read(topic)}
    assert set(sent) == {one.value for one in letters}
    for one in letters:
        message = sent[one.value]
        assert message.topic() == as_letter(Record("", 0, 0, -1, *one[1:4])).source
        assert message.key() == one.key
        assert pairs(message) == [("traceparent", b"00-ab-cd-01"), ("empty", b""), (REPLAY_COUNT, b"1")]
        assert message.timestamp()[1] >= NOW  # a fresh one, or retention could take it before it is read


def test_replay_can_be_narrowed(stand: Stand) -> None:
    three(stand)
    stand.invoke("replay", "--code", "payload_invalid", "--since", "30m")
    assert [message.key() for message in stand.read(stand.raw)] == [b"key-1"]
    stand.invoke("replay", "--max", "1", "--code", "malformed_json", "--code", "parent_mismatch")
    assert len(stand.read(stand.raw)) + len(stand.read(stand.normalized)) == 2


def test_what_must_not_be_replayed_is_left_out_with_the_reason(stand: Stand) -> None:
    often = stand.record(1)._replace(headers=((REPLAY_COUNT, b"3"),))
    foreign = stand.record(2, topic="somebody.elses")
    nowhere = dead_letter(stand.record(4), MISSING, stand.dead)
    stand.bury(
        [
            dead_letter(often, MISSING, stand.dead),
            dead_letter(foreign, MISSING, stand.dead),
            reference(stand.record(3), MISSING, stand.dead),
            nowhere._replace(headers=()),
        ]
    )
    result = stand.invoke("replay")
    expected = [f"left out 1: {reason}" for reason in replay.REFUSALS.values()]
    assert sorted(result.stderr.splitlines()) == sorted([*expected, "Nothing to replay."])
    assert stand.read(stand.raw) == []
    allowed = stand.invoke("replay", "--max-replays", "4")
    assert f"sent 1 to {stand.raw}" in allowed.stderr
    (message,) = stand.read(stand.raw)
    assert pairs(message) == [(REPLAY_COUNT, b"4")]


def test_many_are_sent_in_chunks_and_none_is_left_out(stand: Stand) -> None:
    count = replay.CHUNK * 2 + 1
    letters = [dead_letter(stand.record(number), MISSING, stand.dead) for number in range(count)]
    topics_of = Counter(as_letter(Record("", 0, 0, -1, *one[1:4])).source for one in letters)
    stand.bury(letters)
    result = stand.invoke("replay")
    assert result.stderr.splitlines() == [f"sent {count} to {stand.raw}"]
    assert Counter({stand.raw: len(stand.read(stand.raw))}) == topics_of


def test_only_topics_that_the_bridge_reads_are_written_to() -> None:
    config = load("", {})
    for topic in (config.topics.lifecycle, config.topics.dead_letter, config.topics.changelog, "__consumer_offsets"):
        record = Record(topic, 0, 0, 0, None, b"{}")
        letter = as_letter(Record("dead", 0, 0, 0, *dead_letter(record, MISSING, "dead")[1:4]))
        assert replay.plan(config, [letter], 3).refused == {"not_ours": 1}


def test_a_missing_topic_is_one_line_and_exit_code_3(embedded_broker: EmbeddedBroker) -> None:
    stand = Stand(embedded_broker.bootstrap, False, "raw", "normalized", topics.unique("nowhere"))
    for command in ("inspect", "show", "replay"):
        result = stand.invoke(command)
        assert result.exit_code == 3
        assert [line for line in result.stderr.splitlines() if stand.dead in line and line.startswith("error: ")] == [
            result.stderr.splitlines()[0]
        ]
