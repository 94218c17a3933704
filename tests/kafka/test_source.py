"""What the consumer gives out belongs to the position it is read at, however long a poll has taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import ConsumerRecord

from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.ports import Fetched, Trouble
from acs_aaep_bridge.kafka.source import KafkaSource

BAD, GOOD = TopicPartition("raw", 0), TopicPartition("raw", 1)


class Unconnected(AIOKafkaConsumer):
    """A consumer that no broker answers: `BAD` cannot be decoded, `GOOD` has one record at each offset."""

    def __init__(self) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            bootstrap_servers="127.0.0.1:1", auto_offset_reset="none"
        )
        self._subscription.assign_from_user([BAD, GOOD])
        self.alone: list[TopicPartition] = []

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._subscription.seek(partition, offset)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        if max_records:
            self.alone += partitions
        if BAD in partitions:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a header")
        state = self._subscription.subscription.assignment.state_value(GOOD)
        offset = state.position
        state.consumed_to(offset + 1)
        return {GOOD: [ConsumerRecord(GOOD.topic, 1, offset, 0, 0, None, b"v", None, 0, 1, ())]}


@pytest.fixture
async def source() -> AsyncIterator[KafkaSource]:
    found = KafkaSource(Unconnected, ["raw"], None, 1 << 20)
    found.seek(BAD, 80)
    found.seek(GOOD, 80)
    yield found
    await found.stop(1)


def _batch(base: int, count: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
    for place in range(count):
        builder.append(place, 0, None, b"v", [])
    data = builder.build()
    data[0:8] = base.to_bytes(8, "big")  # outside of what the checksum covers
    return bytes(data)


class Slow:
    """A raw fetch that waits until it may answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, client: object, tp: TopicPartition, offset: int, size: int) -> tuple[bytes, list[tuple[int, int]]]:
        self.asked.set()
        await self.go.wait()
        return _batch(offset, 10), []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    fetch = Slow()
    monkeypatch.setattr(internals, "raw_fetch", fetch)
    return fetch


async def _poll(
    source: KafkaSource, slow: Slow, meanwhile: Sequence[tuple[TopicPartition, int | None]]
) -> list[Fetched | Trouble]:
    """One poll of both partitions; while the raw fetch waits, partitions are taken anew (offset) or let go (None)."""
    poll = asyncio.ensure_future(source.poll([GOOD, BAD], 0.1))
    await slow.asked.wait()
    for tp, offset in meanwhile:
        if offset is None:
            source.pause(tp)
        else:
            source.seek(tp, offset)
    slow.go.set()
    return list(await poll)


async def test_a_batch_that_cannot_be_decoded_is_read_by_ourselves(source: KafkaSource, slow: Slow) -> None:
    """Undisturbed, it is accepted whole, and so is what the others had."""
    found = {one.partition: one for one in await _poll(source, slow, []) if isinstance(one, Fetched)}
    assert {tp: (one.records[0].offset, one.next_offset) for tp, one in found.items() if tp} == {GOOD: (80, 81), BAD: (80, 90)}
    assert (source.position(GOOD), source.position(BAD)) == (81, 90)


@pytest.mark.parametrize("offset", [50, None], ids=["taken again further back", "let go"])
async def test_what_was_read_before_a_partition_moved_is_dropped(source: KafkaSource, slow: Slow, offset: int | None) -> None:
    """A partition taken again meanwhile is read from where it was taken; the old read gives nothing and moves nothing."""
    found = await _poll(source, slow, [(BAD, offset), (GOOD, offset)])
    assert not [one for one in found if isinstance(one, Fetched)]
    if offset is not None:
        assert (source.position(GOOD), source.position(BAD)) == (offset, offset)
        (again,) = await source.poll([GOOD], 0.1)
        assert isinstance(again, Fetched)
        assert again.records[0].offset == offset


async def test_a_partition_that_failed_before_is_asked_first(source: KafkaSource, slow: Slow) -> None:
    """Idle partitions take a second each to say nothing: the second bad batch does not wait for them."""
    slow.go.set()
    await source.poll([GOOD, BAD], 0.1)
    consumer = source._consumer
    assert isinstance(consumer, Unconnected)
    consumer.alone.clear()
    found = await source.poll([GOOD, BAD], 0.1)
    assert consumer.alone == [BAD]
    assert [one.partition for one in found] == [BAD, GOOD]
