"""On real Kafka: the consumer loses nothing to records that its client cannot read."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException, RecordTooLargeError
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from tests.brokers import topics
from tests.brokers.kafka import Kafka
from tests.kafka.live import Headed, Site, bridge, finished, produce_raw

from acs_aaep_bridge.core.deadletter import ERROR_PREFIX
from acs_aaep_bridge.kafka import internals

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])


@DELIVERIES
async def test_one_undecodable_header_is_one_dead_letter(kafka: Kafka, delivery: str) -> None:
    """The record goes to the dead letters without its headers; its batch and the other partitions are read as if nothing was."""
    site = Site(kafka.bootstrap, 3)
    await site.fill("raw", 300)
    spoiled: list[Headed] = [(b"s%d" % number, [("bad-name" if number == 4 else "good", b"x")]) for number in range(10)]
    await produce_raw(kafka.bootstrap, site.topic("raw"), 1, spoiled)
    await site.fill("raw", 300, start=300)
    async with bridge(site.config(delivery)) as run:
        await run.until(finished(run, 610), 60)
    expected = {b"n:v%d" % number for number in range(600)} | {b"n:s%d" % number for number in range(10) if number != 4}
    values = await site.values("normalized")
    assert len(values) == len(expected)
    assert set(values) == expected
    ((key, value, headers),) = await site.read("letters")
    assert (key, value) == (b"k", b"s4")
    assert headers[ERROR_PREFIX + "code"] == b"undecodable_headers"
    assert not any(name.endswith("name") or name == "good" for name in headers)


async def test_a_poll_that_fails_loses_no_other_partition(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a poll raises, and whenever: what it had already taken from other partitions is read again."""
    site = Site(kafka.bootstrap, 3)
    await site.fill("raw", 3_000, keys=50)
    getmany = AIOKafkaConsumer.getmany
    calls = [0]

    async def failing(self: AIOKafkaConsumer, *tps: TopicPartition, **options: object) -> object:
        found = await getmany(self, *tps, **options)
        calls[0] += bool(found)
        if found and calls[0] % 3 == 1 and calls[0] < 20:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "on purpose")
        return found

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", failing)
    async with bridge(site.config("at_least_once", kafka__max_poll_records="100")) as run:
        await run.until(finished(run, 3_000), 60)
    assert set(await site.values("normalized")) == {b"n:v%d" % number for number in range(3_000)}


async def test_a_corrupt_batch_is_retried_then_blocks(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checksum that stays wrong stops its partition and names the offset; the others go on."""
    site = Site(kafka.bootstrap, 2)
    await site.fill("raw", 100)
    raw_fetch = internals.raw_fetch
    getmany = AIOKafkaConsumer.getmany
    bad = TopicPartition(site.topic("raw"), 0)
    monkeypatch.setattr("acs_aaep_bridge.kafka.source._PAUSE", 0.01)

    async def corrupt(self: AIOKafkaConsumer, *tps: TopicPartition, **options: object) -> object:
        if bad in tps:
            raise CorruptRecordException(f"Invalid CRC - {bad}")
        return await getmany(self, *tps, **options)

    async def spoiled(*arguments: object) -> tuple[bytes, list[tuple[int, int]]]:
        data, aborted = await raw_fetch(*arguments)  # type: ignore[arg-type]
        return data[:70] + bytes([data[70] ^ 1]) + data[71:], aborted

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", corrupt)
    monkeypatch.setattr(internals, "raw_fetch", spoiled)
    async with bridge(site.config()) as run:
        await run.until(lambda: any("checksum" in reason for reason in run.watcher.reasons["normalize"]), 60)
        async with asyncio.timeout(30):
            while not (await site.committed("normalize", "raw")).get(1):
                await asyncio.sleep(0.1)
        assert 0 not in await site.committed("normalize", "raw")


async def test_a_record_larger_than_a_fetch_is_referred_to(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old brokers never send a record larger than the fetch: its place is dead-lettered, and its neighbours are not lost."""
    site = Site(kafka.bootstrap, 1)
    await site.fill("raw", 20)
    tp = TopicPartition(site.topic("raw"), 0)
    getmany = AIOKafkaConsumer.getmany
    raised = [False]

    async def too_large(self: AIOKafkaConsumer, *tps: TopicPartition, **options: object) -> object:
        if not raised[0] and tp in tps:
            raised[0] = True
            self.seek(tp, 1)  # as aiokafka does before it raises
            raise RecordTooLargeError("There are some messages", tp, 0, 262_144)
        return await getmany(self, *tps, **options)

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", too_large)
    async with bridge(site.config()) as run:
        await run.until(finished(run, 20), 60)
    assert await site.values("normalized") == [b"n:v%d" % number for number in range(1, 20)]
    ((_, value, headers),) = await site.read("letters")
    assert value is None or b'"offset":0' in value
    assert headers[ERROR_PREFIX + "code"] == b"too_large"
    assert headers[ERROR_PREFIX + "offset"] == b"0"


@pytest.mark.parametrize("policy", ["block", "earliest"])
async def test_records_deleted_before_they_were_read(kafka: Kafka, policy: str) -> None:
    """A committed offset below the log blocks, or goes on at the beginning if so configured."""
    site = Site(kafka.bootstrap, 1)
    await site.fill("raw", 10)
    async with bridge(site.config()) as run:
        await run.until(finished(run, 10), 30)
    await site.fill("raw", 10, start=10)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for deleted in admin.delete_records([Place(site.topic("raw"), 0, 15)]).values():
        await asyncio.to_thread(deleted.result, 30)
    async with bridge(site.config(input__on_out_of_range=policy)) as run:
        if policy == "block":
            await run.until(lambda: "offset 10 is not in the log (15 to 20)" in " ".join(run.watcher.reasons["normalize"]), 30)
        else:
            await run.until(finished(run, 5), 30)
    expected = range(10) if policy == "block" else [*range(10), *range(15, 20)]
    assert await site.values("normalized") == [b"n:v%d" % number for number in expected]


async def test_a_pattern_finds_topics_that_come_later(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input by pattern includes a topic that is made while the bridge runs."""
    monkeypatch.setattr("acs_aaep_bridge.kafka.client.METADATA_EVERY", 1_000)
    site = Site(kafka.bootstrap, 1)
    settings = site.config(input__topics="", input__pattern=site.name + r"\.raw.*")
    await site.fill("raw", 5)
    async with bridge(settings) as run:
        await run.until(finished(run, 5), 30)
        later = site.topic("raw-2")
        await asyncio.to_thread(topics.create, kafka.bootstrap, {later: 1})
        await asyncio.to_thread(topics.fill, kafka.bootstrap, later, [(b"k", b"later")])
        await run.until(finished(run, 6), 90)
    assert b"n:later" in await site.values("normalized")


async def test_a_deleted_topic_stays_deleted(kafka: Kafka) -> None:
    """The bridge says that an output topic is gone, and does not make the broker create it anew."""
    site = Site(kafka.bootstrap, 1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    gone = site.topic("normalized")
    async with bridge(site.config(kafka__transaction_timeout="5s")) as run:
        await run.until(lambda: not run.watcher.reasons["normalize"], 30)
        for deleted in admin.delete_topics([gone]).values():
            await asyncio.to_thread(deleted.result, 30)
        await site.fill("raw", 5)
        await run.until(lambda: f"the topic {gone} is gone" in run.watcher.reasons["normalize"], 60)
        assert gone not in (await asyncio.to_thread(admin.list_topics, timeout=20)).topics
        await asyncio.to_thread(topics.create, kafka.bootstrap, {gone: 1})
        await run.until(finished(run, 5), 90)
    assert sorted(filter(None, await site.values("normalized"))) == [b"n:v%d" % number for number in range(5)]
