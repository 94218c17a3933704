"""What a topic will not take is answered with a stand-in, never with a loss and never with a loop."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from tests.kafka.bench import CHANGELOG, LETTERS, LIFECYCLE, NORMALIZED, RAW, config, log, record, running

from acs_aaep_bridge.core.deadletter import ERROR_PREFIX
from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.kafka.memory import MemoryLog, MemorySink, MemoryTransactor
from acs_aaep_bridge.kafka.ports import Item, Refusal
from acs_aaep_bridge.kafka.verdicts import Verdicts

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
KNOWN = pytest.mark.parametrize("known", [True, False], ids=["measured", "refused by the broker"])


def _blind(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Without a measure of our own, the broker's refusal is the first we hear of it."""
    if not known:
        for sink in (MemorySink, MemoryTransactor):
            monkeypatch.setattr(sink, "fits", lambda self, outgoing: True)


@DELIVERIES
@KNOWN
async def test_an_event_that_is_too_large_is_dead_lettered(delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input goes to the dead letters as `output_too_large`; its neighbours are published; all are counted right."""
    _blind(monkeypatch, known)
    memory = log(normalized=100)
    memory.publish(RAW, b"before", b"x" * 200, b"after", key=b"k", at=5)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
    assert sorted(memory.values(NORMALIZED), key=str) == [b"n:after", b"n:before"]
    letter = record(memory, LETTERS)
    assert letter.value == b"x" * 200
    assert dict(letter.headers)[ERROR_PREFIX + "code"] == b"output_too_large"
    assert +run.watcher.events == {"emitted": 2, "rejected": 1}
    assert run.watcher.letters == {"output_too_large": 1}


@DELIVERIES
@KNOWN
async def test_an_element_that_is_too_large_is_dead_lettered_by_itself(
    delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own bytes, and its place in the batch; the other elements are published, and a replay would not repeat them."""
    _blind(monkeypatch, known)
    memory = log(normalized=100)
    memory.publish(RAW, b"[1, 200,  2,201 ]", key=b"k", at=5)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
    assert sorted(memory.values(NORMALIZED), key=str) == [b"x", b"xx"]
    letters = [one for one in memory.partitions[TopicPartition(LETTERS, 0)] if one is not None]
    told = sorted((one.value, dict(one.headers)[ERROR_PREFIX + "index"]) for one in letters)
    assert told == [(b"200", b"1"), (b"201", b"3")]
    assert +run.watcher.events == {"emitted": 2, "rejected": 2}


@DELIVERIES
@KNOWN
async def test_a_hook_is_told_whole_or_not_at_all(delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of its three events are too large: one dead letter, nothing published, and it never happened to the state."""
    _blind(monkeypatch, known)
    memory = log(lifecycle=150)
    memory.publish(NORMALIZED, b"a", b"loud", b"b", key=b"k", at=5)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    told = dict.fromkeys(memory.values(LIFECYCLE))
    if not known and delivery == "at_least_once":  # what was out before the broker said no stays out
        assert told.pop(b"k=3", "said") is None
    assert list(told) == [b"k=1", b"k=2"]
    assert set(memory.values(LETTERS)) == {b"loud"}
    assert +run.watcher.events == {"emitted": 2, "rejected": 1}
    assert run.watcher.letters == {"output_too_large": 1}
    assert bool(run.watcher.heard("output.refused")) is not known


@DELIVERIES
@KNOWN
async def test_a_dead_letter_that_is_too_large_becomes_a_reference(
    delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is, how large it is and its digest stand in for it."""
    _blind(monkeypatch, known)
    memory = log(letters=300)
    value = b"bad" + b"x" * 400
    memory.publish(RAW, b"before", value, b"after", key=b"k", at=5)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
    letter = record(memory, LETTERS)
    content = json.loads(letter.value or b"")
    assert (content["topic"], content["partition"], content["offset"], content["size"]) == (RAW, 0, 1, 403)
    assert content["sha256"] == hashlib.sha256(value).hexdigest()
    assert dict(letter.headers)[ERROR_PREFIX + "truncated"] == b"true"
    assert len(memory.values(NORMALIZED)) == 2
    assert run.watcher.letters == {"payload_invalid": 1}
    assert bool(run.watcher.failed_letters) is not known


@DELIVERIES
@KNOWN
async def test_where_not_even_the_reference_fits_the_partition_stands_still(
    delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead-letter topic that takes nothing loses nothing: it blocks, and says so."""
    _blind(monkeypatch, known)
    memory = log(letters=10)
    memory.publish(RAW, b"bad" + b"x" * 400, key=b"k", at=5)
    async with running(memory, config(delivery)) as run:
        await run.until(lambda: "even a reference" in " ".join(run.watcher.reasons["normalize"]))
    assert not memory.committed.get(("g-normalize", TopicPartition(RAW, 0)))


@DELIVERIES
async def test_a_changelog_that_takes_no_entry_blocks(delivery: str) -> None:
    """State has no stand-in: the partition stands still and says which topic to mend; it does not try for ever."""
    memory = log(sessions=3)
    memory.publish(NORMALIZED, b"v", key=b"k", at=5)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until(lambda: f"{CHANGELOG} does not take" in " ".join(run.watcher.reasons["lifecycle"]))
        assert len(run.watcher.heard("partition.blocked")) == 1
    assert not memory.committed


class _Strict(MemoryLog):
    """A broker that refuses timestamps up to `limit`."""

    limit = 0
    turned_down = 0

    def refusals(self, items: Sequence[Item]) -> list[tuple[Item, Refusal]]:
        found: list[tuple[Item, Refusal]] = [(item, "timestamp") for item in items if item.outgoing.timestamp <= self.limit]
        self.turned_down += len(found)
        return found


@DELIVERIES
@pytest.mark.parametrize("present", [True, False], ids=["takes the present", "refuses the present, too"])
async def test_a_timestamp_that_is_refused_becomes_the_present(delivery: str, present: bool) -> None:
    """Once. A broker that refuses the present time blocks the partition: its clock and ours differ."""
    memory = _Strict(dict.fromkeys((RAW, NORMALIZED, LETTERS), 1))
    memory.publish(RAW, b"old", b"older", key=b"k", at=5)
    now = int(time.time() * 1000)
    memory.limit = now - 1 if present else now + 3_600_000
    async with running(memory, config(delivery)) as run:
        if not present:
            await run.until(lambda: "clock" in " ".join(run.watcher.reasons["normalize"]))
            assert not memory.committed
            return
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:old", b"n:older"]
    assert record(memory, NORMALIZED).timestamp >= now


async def test_the_present_is_that_of_the_refusal_not_of_before_an_outage() -> None:
    """At least once a record may wait for its broker for hours; the time it was sent at is no present then."""

    class Aging(MemoryLog):
        def refusals(self, items: Sequence[Item]) -> list[tuple[Item, Refusal]]:
            oldest = time.time() * 1000 - 300
            return [(item, "timestamp") for item in items if item.outgoing.timestamp < oldest]

    memory = Aging(dict.fromkeys((RAW, NORMALIZED, LETTERS), 1))
    memory.publish(RAW, b"old", key=b"k", at=5)
    back = time.monotonic() + 1

    def trap(operation: str, subject: object) -> None:
        if operation == "send" and time.monotonic() < back:
            raise KafkaConnectionError("away")

    memory.trap = trap
    async with running(memory, config("at_least_once")) as run:
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:old"]


@DELIVERIES
@KNOWN
async def test_events_that_are_too_large_trip_the_brake(delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output topic that takes nothing must not drain the whole input into the dead letters."""
    _blind(monkeypatch, known)
    memory = log(normalized=10)
    memory.publish(RAW, *[b"x" * 100] * 50, key=b"k", at=5)
    settings = config(delivery, dead_letter__max_consecutive="20", transaction__max_records="5", kafka__max_poll_records="5")
    async with running(memory, settings) as run:
        await run.until(lambda: "braked" in " ".join(run.watcher.reasons["normalize"]))
    assert run.watcher.brakes == [(TopicPartition(RAW, 0), "output_too_large")]


@DELIVERIES
@KNOWN
async def test_a_batch_of_which_something_is_taken_does_not_brake(
    delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record counts as rejected when nothing of it was accepted, whoever finds its elements too large."""
    _blind(monkeypatch, known)
    memory = log(normalized=100)
    memory.publish(RAW, *[b"[1, 200]"] * 10, b"[200, 201]", key=b"k", at=5)
    settings = config(delivery, dead_letter__max_consecutive="2", kafka__max_poll_records="1", transaction__max_records="1")
    async with running(memory, settings) as run:
        await run.until_committed(memory)
        assert not run.watcher.brakes
        memory.publish(RAW, *[b"[200, 201]"] * 2, key=b"k", at=5)
        await run.until(lambda: bool(run.watcher.brakes) or len(memory.values(LETTERS)) == 16)
        memory.publish(RAW, b"v", key=b"k", at=5)
        await run.until(lambda: bool(run.watcher.brakes))


@DELIVERIES
async def test_a_refused_timestamp_speaks_for_all_that_are_farther_from_now(delivery: str) -> None:
    """A topic full of old records costs one refusal, not one for each of them."""
    memory = _Strict(dict.fromkeys((RAW, NORMALIZED, LETTERS), 1))
    memory.limit = 100
    settings = config(delivery, transaction__max_records="1", kafka__max_poll_records="1")
    memory.publish(RAW, b"first", key=b"k", at=100)
    async with running(memory, settings) as run:
        await run.until_committed(memory)
        for at in range(99, 79, -1):
            memory.publish(RAW, b"v%d" % at, key=b"k", at=at)
        memory.publish(RAW, b"young", key=b"k", at=101)
        await run.until_committed(memory)
    assert len(memory.values(NORMALIZED)) == 22
    assert record(memory, NORMALIZED).timestamp == 101
    assert memory.turned_down == 1


def test_a_time_ahead_is_measured_from_now() -> None:
    """What was too far ahead an hour ago may be the present; what was too old stays too old."""
    verdicts = Verdicts()
    item = Item(Outgoing("t", None, b"", (), 5_000))
    verdicts.remember(item, "timestamp", 1_000)
    verdicts.remember(Item(Outgoing("t", None, b"", (), 400)), "timestamp", 1_000)
    verdicts.settle()

    def ask(timestamp: int, wall: int) -> Refusal | None:
        return verdicts.on(Item(Outgoing("t", None, b"x", (), timestamp)), wall)

    assert [ask(timestamp, 1_000) for timestamp in (5_000, 4_999, 401, 400)] == ["timestamp", None, None, "timestamp"]
    assert [ask(timestamp, 2_000) for timestamp in (6_000, 5_000, 400)] == ["timestamp", None, "timestamp"]
    assert verdicts.on(Item(Outgoing("other", None, b"x", (), 400)), 1_000) is None


def test_a_record_without_a_timestamp_is_not_taken_for_an_old_one() -> None:
    """The broker takes it as it is; the present in its place would be a time that nobody meant."""
    verdicts = Verdicts()
    verdicts.remember(Item(Outgoing("t", None, b"", (), 400)), "timestamp", 1_000)
    verdicts.settle()
    assert verdicts.on(Item(Outgoing("t", None, b"x", (), -1)), 1_000) is None
