"""Each private part of aiokafka that the bridge touches still is what it was. A failure here names what an upgrade changed."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, ProducerClosed
from confluent_kafka.admin import AdminClient
from tests.brokers import topics
from tests.brokers.kafka import Kafka
from tests.kafka.live import Site

from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.client import Clients


@pytest.fixture
async def clients(kafka: Kafka) -> Clients:
    return Clients(Site(kafka.bootstrap, 1).config())


@pytest.fixture
def topic(kafka: Kafka) -> TopicPartition:
    name = topics.unique("internals")
    topics.create(kafka.bootstrap, {name: 1})
    return TopicPartition(name, 0)


async def _open_transaction(clients: Clients, tp: TopicPartition) -> AIOKafkaProducer:
    """A producer with one record acknowledged in a transaction that is still open."""
    producer = clients.producer("open", topics.unique("open"))
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(tp.topic, b"open", partition=0)
    return producer


async def test_asking_about_a_topic_does_not_create_it(kafka: Kafka, clients: Clients) -> None:
    """Neither a producer nor a consumer nor an admin client makes the broker create what they ask for."""
    missing = topics.unique("missing")
    producer, admin = clients.producer("ask"), clients.admin()
    await producer.start()
    await admin.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await producer.partitions_for(missing)
    (described,) = await admin.describe_topics([missing])
    assert described["error_code"] == 3
    await producer.stop()
    await admin.close()
    listed = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=20)
    assert missing not in listed.topics


async def test_probe_speaks_with_a_broker(kafka: Kafka, clients: Clients) -> None:
    """It connects where a broker is, and raises the plain reason where none is."""
    host, _, port = kafka.bootstrap.partition(":")
    await internals.probe(host, int(port), clients.settings("probe"))
    with pytest.raises(ConnectionRefusedError):
        await internals.probe("127.0.0.1", 1, clients.settings("probe"))


async def test_the_fetch_count_is_repaired(clients: Clients, topic: TopicPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that raises leaves the count up, which hides an idle consumer for good; the repair brings it down."""
    consumer = clients.reader("count")
    await consumer.start()
    consumer.assign([topic])

    async def broken(*_: object, **__: object) -> object:
        raise ValueError("on purpose")

    monkeypatch.setattr(consumer._fetcher, "fetched_records", broken)
    with pytest.raises(ValueError, match="on purpose"):
        await consumer.getmany(topic, timeout_ms=10)
    assert consumer._subscription._fetch_count == 1
    assert consumer._subscription.fetcher_idle_time == 0
    internals.repair_fetch_count(consumer)
    await asyncio.sleep(0.02)
    assert 0 < consumer._subscription.fetcher_idle_time < 1
    await consumer.stop()


async def test_keep_alive_counts_as_a_poll_and_raises_what_went_wrong(clients: Clients) -> None:
    """It moves the idle time back to nothing, and hands over an error of the coordination."""
    consumer = clients.member("alive", topics.unique("group"))
    await consumer.start()
    consumer._subscription._last_fetch_ended = time.monotonic() - 100
    internals.keep_alive(consumer)
    assert consumer._subscription.fetcher_idle_time < 1
    assert consumer._coordinator is not None
    consumer._coordinator._pending_exception = KafkaError("on purpose")
    with pytest.raises(KafkaError, match="on purpose"):
        internals.keep_alive(consumer)
    await consumer.stop()


@pytest.mark.parametrize("task", ["_fetcher._fetch_task", "_coordinator._coordination_task"])
async def test_a_dead_background_task_is_noticed(clients: Clients, task: str) -> None:
    """aiokafka goes on as if nothing was; nothing would ever be read again."""
    consumer = clients.member("dead", topics.unique("group"))
    await consumer.start()
    assert not internals.background_failed(consumer)
    owner, name = task.split(".")
    running = getattr(getattr(consumer, owner), name)
    running.cancel()
    await asyncio.wait([running])
    assert internals.background_failed(consumer)
    await internals.stop_consumer(consumer, 0.5)


async def test_joined_and_rebalancing(kafka: Kafka, clients: Clients, topic: TopicPartition) -> None:
    """A consumer has joined once it has its assignment; before that a rebalance is going on."""
    consumer = clients.member("join", topics.unique("group"))
    await consumer.start()
    consumer.subscribe([topic.topic])
    assert internals.is_rebalancing(consumer)
    assert not internals.has_joined(consumer)
    async with asyncio.timeout(20):
        while not internals.has_joined(consumer):
            await asyncio.sleep(0.05)
    assert consumer.assignment() == {topic}
    await consumer.stop()


async def test_position_never_waits(clients: Clients, topic: TopicPartition) -> None:
    """None where the public method would wait or raise."""
    consumer = clients.reader("position")
    await consumer.start()
    assert internals.position(consumer, topic) is None
    consumer.assign([topic])
    assert internals.position(consumer, topic) is None
    consumer.seek(topic, 5)
    assert internals.position(consumer, topic) == 5
    await internals.stop_consumer(consumer, 5)


async def test_offsets_by_isolation(clients: Clients, topic: TopicPartition) -> None:
    """The last stable offset stops at an open transaction, the high watermark does not."""
    client = clients.plain("offsets")
    await client.bootstrap()
    await client.set_topics([topic.topic])
    producer = await _open_transaction(clients, topic)
    stable = await internals.list_offsets(client, [topic], internals.LATEST, internals.READ_COMMITTED)
    high = await internals.list_offsets(client, [topic], internals.LATEST, internals.READ_UNCOMMITTED)
    first = await internals.list_offsets(client, [topic], internals.EARLIEST, internals.READ_UNCOMMITTED)
    assert (first[topic], stable[topic], high[topic]) == (0, 0, 1)
    with pytest.raises(KafkaError):
        await internals.list_offsets(client, [TopicPartition(topics.unique("missing"), 0)], internals.LATEST, 0)
    await producer.commit_transaction()
    await producer.stop()
    await client.close()


async def test_raw_fetch_gives_the_bytes_and_what_was_aborted(clients: Clients, topic: TopicPartition) -> None:
    """The batch as it lies in the log, and the transaction that a reader has to leave out."""
    producer = await _open_transaction(clients, topic)
    await producer.abort_transaction()
    await producer.stop()
    client = clients.plain("raw")
    await client.bootstrap()
    await client.set_topics([topic.topic])
    data, aborted = await internals.raw_fetch(client, topic, 0, 1 << 20)
    assert b"open" in data
    assert [first for _, first in aborted] == [0]
    await client.close()


async def test_unpack_gives_the_records_of_a_batch(clients: Clients) -> None:
    """As its producer packed them."""
    producer = clients.producer("unpack")
    builder = internals.batch_builder(producer, 1 << 20)
    for number in range(3):
        builder.append(timestamp=5 + number, key=b"k", value=None, headers=[("h", b"%d" % number)])
    found = [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in internals.unpack(bytes(builder._build()))]
    assert found == [(number, 5 + number, b"k", None, [("h", b"%d" % number)]) for number in range(3)]
    await producer.stop()


async def test_a_batch_takes_what_it_is_told_to(clients: Clients, topic: TopicPartition) -> None:
    """A batch holds as much as asked for, not what the producer's own batches do, and is transactional if its producer is."""
    plain, transactional = clients.producer("plain"), clients.producer("transactional", topics.unique("id"))
    for producer, flag in ((plain, 0), (transactional, 0x10)):
        batch = internals.batch_builder(producer, 100_000)
        count = 0
        while batch.append(timestamp=1, key=None, value=b"x" * 1_000, headers=[]) is not None:
            count += 1
        assert 90 < count < 100
        assert batch._build()[22] & 0x10 == flag
        await producer.stop()
    await plain.stop()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_batch_size_is_what_goes_over_the_wire(kafka: Kafka, codec: str) -> None:
    """What is measured is what is sent, compressed or not."""
    producer = Clients(Site(kafka.bootstrap, 1).config(kafka__compression=codec)).producer("size")
    value = bytes(range(256)) * 40
    batch = internals.batch_builder(producer, 1 << 20)
    batch.append(timestamp=5, key=b"k", value=value, headers=[("h", b"v")])
    assert internals.batch_size(producer, b"k", value, (("h", b"v"),), 5) == len(batch._build())
    await producer.stop()


async def test_partition_counts_come_from_the_metadata(clients: Clients, topic: TopicPartition) -> None:
    """Known once asked for, None before."""
    producer = clients.producer("count")
    await producer.start()
    assert internals.partition_count(producer, topics.unique("missing")) is None
    await producer.partitions_for(topic.topic)
    assert internals.partition_count(producer, topic.topic) == 1
    await producer.stop()


@pytest.mark.parametrize("when", ["idle", "open", "sending", "committing"])
async def test_a_killed_producer_leaves_nothing_behind(kafka: Kafka, clients: Clients, when: str) -> None:
    """Whatever it was doing: the kill ends in time, with no task left over, and a new one with its id works at once."""
    topic = TopicPartition(topics.unique("kill"), 0)
    topics.create(kafka.bootstrap, {topic.topic: 1})
    before = asyncio.all_tasks()
    identity = topics.unique("id")
    producer = clients.producer("kill", identity)
    await producer.start()
    waiting: list[asyncio.Future[object]] = []
    if when != "idle":
        await producer.begin_transaction()
        await producer.send_and_wait(topic.topic, b"open", partition=0)
    if when in {"sending", "committing"}:
        stuck = asyncio.get_running_loop().create_future()
        producer.client.send = lambda *_, **__: stuck  # type: ignore[method-assign, assignment]
        if when == "sending":
            waiting.append(await producer.send(topic.topic, b"stuck", partition=0))
        else:
            waiting.append(asyncio.ensure_future(producer.commit_transaction()))
        await asyncio.sleep(0.1)
    began = time.monotonic()
    in_order = await internals.stop_producer(producer, 0.5)
    assert time.monotonic() - began < 5
    assert in_order is (when in {"idle", "open"})
    for future in waiting:
        with pytest.raises((KafkaError, ProducerClosed)):
            await asyncio.wait_for(future, 1)
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set()
    successor = clients.producer("next", identity)
    await successor.start()
    await successor.begin_transaction()
    await successor.send_and_wait(topic.topic, b"next", partition=0)
    await successor.commit_transaction()
    await successor.stop()
    values = [one.value() for one in await asyncio.to_thread(topics.read_all, kafka.bootstrap, topic.topic)]
    assert values == [b"next"]


async def test_a_killed_consumer_leaves_nothing_behind(clients: Clients, topic: TopicPartition) -> None:
    """A stop that hangs is given up in time, with no task left over."""
    before = asyncio.all_tasks()
    consumer = clients.member("kill", topics.unique("group"))
    await consumer.start()
    consumer.subscribe([topic.topic])
    async with asyncio.timeout(20):
        while not internals.has_joined(consumer):
            await asyncio.sleep(0.05)
    stuck = asyncio.get_running_loop().create_future()
    internals.client_of(consumer).send = lambda *_, **__: stuck  # type: ignore[method-assign, assignment]
    assert not await internals.stop_consumer(consumer, 0.5)
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set()


async def test_a_consumer_that_can_stops_in_order(clients: Clients, topic: TopicPartition) -> None:
    """Where nothing hangs it leaves its group and says so."""
    consumer: AIOKafkaConsumer = clients.reader("stop")
    await consumer.start()
    assert await internals.stop_consumer(consumer, 5)


async def test_what_aiokafka_cancelled_does_not_cancel_who_closes_the_client() -> None:
    """Its `close` awaits futures that were cancelled before; that once ended a partition's worker without a word."""

    class Client:
        async def close(self) -> None:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await asyncio.gather(cancelled)

    await internals.close_client(cast("AIOKafkaClient", Client()))


async def test_a_failed_transaction_knows_why(clients: Clients, topic: TopicPartition) -> None:
    producer = await _open_transaction(clients, topic)
    assert internals.transaction_error(producer) is None
    producer._txn_manager.error_transaction(KafkaError("not allowed"))
    assert str(internals.transaction_error(producer)) == "KafkaError: not allowed"
    await internals.stop_producer(producer, 2)
