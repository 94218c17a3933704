"""On real Kafka: exactly once is exactly once, whatever fails in between."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from tests.brokers import topics
from tests.brokers.kafka import Kafka
from tests.kafka.live import Site, bridge, finished, produce_raw
from tests.kafka.test_delivery import FAILPOINTS, Once

from acs_aaep_bridge.core.deadletter import ERROR_PREFIX
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.topics import Report, TopicInfo
from acs_aaep_bridge.kafka.transactions import KafkaTransactor, transactional_id

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])


def _expected(count: int, keys: int = 7) -> dict[bytes, list[int]]:
    return {b"k%d" % key: list(range(1, 1 + len(range(key, count, keys)))) for key in range(keys)}


@DELIVERIES
async def test_both_stages_end_to_end(kafka: Kafka, delivery: str) -> None:
    """Raw to lifecycle through two stages: all there, once, offsets at the end, sessions on the changelog."""
    site = Site(kafka.bootstrap, 3)
    await site.fill("raw", 2_000)
    async with bridge(site.config(delivery), ["normalize", "lifecycle"]) as run:
        await run.until(finished(run, 4_000), 60)
    assert await site.counted() == _expected(2_000)
    assert len(await site.values("normalized")) == 2_000
    raw_ends = sum((await site.committed("normalize", "raw")).values())
    assert raw_ends == 2_000
    async with bridge(site.config(delivery), ["normalize", "lifecycle"]) as run:
        await run.until(lambda: len(run.watcher.heard("partition.taken")) == 6, 30)
        await site.fill("raw", 70, start=2_000)
        await run.until(finished(run, 140), 30)
    assert await site.counted() == _expected(2_070)


@pytest.mark.parametrize("point", FAILPOINTS)
async def test_exactly_once_through_a_failure_at(kafka: Kafka, point: str) -> None:
    """A failure at any moment of a transaction: the producer is killed, the partition taken again, nothing lost or doubled."""
    site = Site(kafka.bootstrap, 2)
    await site.fill("normalized", 600)
    once = Once(point, times=3)
    async with bridge(site.config(transaction__max_records="100"), ["lifecycle"], once) as run:
        await site.until_committed("lifecycle", "normalized", 600)
        assert not run.task.done()
    assert once.left == 0
    assert await site.counted() == _expected(600)


async def test_a_producer_with_our_transactional_id_fences_us(kafka: Kafka) -> None:
    """A former owner that comes late fences the present one: it takes the partition again, and goes on without a loss."""
    site = Site(kafka.bootstrap, 1)
    settings = site.config()
    await site.fill("normalized", 70)
    tp = TopicPartition(site.topic("normalized"), 0)
    group = settings.group("lifecycle")
    async with bridge(settings, ["lifecycle"]) as run:
        await run.until(finished(run, 70), 30)
        other = KafkaTransactor(
            lambda: Clients(settings).producer("late", transactional_id(group, tp)),
            Report({site.topic("lifecycle"): TopicInfo(1)}, ()),
            group,
        )
        await other.start()
        await site.fill("normalized", 70, start=70)
        await run.until(finished(run, 140), 30)
        await other.kill(5)
    assert await site.counted() == _expected(140)
    assert run.watcher.commits["failed"] == 1


@DELIVERIES
async def test_members_come_and_go_under_load(kafka: Kafka, delivery: str) -> None:
    """Rebalances under load lose nothing and keep the order in each key; exactly once, they double nothing either."""
    site = Site(kafka.bootstrap, 4)
    settings = site.config(delivery, transaction__max_records="50", kafka__max_poll_records="50")
    total = 3_000

    async def feed() -> None:
        for start in range(0, total, 100):
            await site.fill("normalized", 100, start=start)
            await asyncio.sleep(0.1)

    async with bridge(settings, ["lifecycle"]) as first:
        feeding = asyncio.ensure_future(feed())
        await first.until(finished(first, 1), 30)
        for _ in range(2):
            async with bridge(settings, ["lifecycle"]) as second:
                await second.until(finished(second, 50), 30)
        await feeding
        await first.until(lambda: not first.watcher.reasons["lifecycle"], 30)
        await site.until_committed("lifecycle", "normalized", total)
    counted = await site.counted()
    if delivery == "exactly_once":
        assert counted == _expected(total)
    else:
        assert {key: sorted(set(numbers)) for key, numbers in counted.items()} == _expected(total)


async def test_a_broker_that_dies_and_returns(kafka: Kafka) -> None:
    """With the only broker gone the process lives, says so, and goes on by itself when it is back: exactly once."""
    if not isinstance(kafka, Kafka):
        pytest.skip("needs a broker that we may kill")
    site = Site(kafka.bootstrap, 2)
    await site.fill("normalized", 140)
    async with bridge(site.config(), ["lifecycle"]) as run:
        await run.until(finished(run, 140), 30)
        await asyncio.to_thread(kafka.kill, kafka.nodes[0])
        await asyncio.sleep(3)
        kafka._launch(kafka.nodes[0])  # not from a thread: the child would end with it
        await asyncio.to_thread(kafka.wait_ready)
        await site.fill("normalized", 140, start=140)
        await run.until(finished(run, 280), 90)
        await run.until(lambda: not run.watcher.reasons["lifecycle"], 30)
    assert await site.counted() == _expected(280)


@DELIVERIES
async def test_an_event_too_large_for_its_topic(kafka: Kafka, delivery: str) -> None:
    """What the topic's own limit refuses is dead-lettered, with its neighbours published, although sizes were misjudged."""
    site = Site(kafka.bootstrap, 1, {"normalized": {"max.message.bytes": "70000"}})
    big = bytes(range(256)) * 400

    records = [(b"k", b"before"), (b"k", big), (b"k", b"after")]
    await asyncio.to_thread(topics.fill, kafka.bootstrap, site.topic("raw"), records)
    async with bridge(site.config(delivery, kafka__compression="none")) as run:
        await run.until(finished(run, 3), 30)
    assert await site.values("normalized") == [b"n:before", b"n:after"]
    ((_, value, headers),) = await site.read("letters")
    assert value == big
    assert headers[ERROR_PREFIX + "code"] == b"output_too_large"


@DELIVERIES
async def test_a_timestamp_the_topic_refuses_becomes_now(kafka: Kafka, delivery: str) -> None:
    """An output topic that wants recent timestamps gets the present time for an old record, not a loss and not a loop."""
    site = Site(kafka.bootstrap, 1, {"normalized": {"message.timestamp.before.max.ms": "3600000"}})

    await produce_raw(kafka.bootstrap, site.topic("raw"), 0, [(b"old1", []), (b"old2", [])])
    async with bridge(site.config(delivery)) as run:
        await run.until(finished(run, 2), 60)
    assert await site.values("normalized") == [b"n:old1", b"n:old2"]


@DELIVERIES
async def test_a_start_at_the_end_is_remembered(kafka: Kafka, delivery: str) -> None:
    """With nothing read yet the group has its offset: a transaction that holds nothing else is committed, too."""
    site = Site(kafka.bootstrap, 1)
    await site.fill("raw", 10)
    settings = site.config(delivery, input__start="latest")
    async with bridge(settings) as run:
        await run.until(lambda: bool(run.watcher.commits["ok"]), 60)
    assert await site.committed("normalize", "raw") == {0: 10}
    await site.fill("raw", 5, start=10)
    async with bridge(settings) as run:
        await run.until(finished(run, 5), 60)
    assert await site.values("normalized") == [b"n:v%d" % number for number in range(10, 15)]


@DELIVERIES
async def test_a_changelog_that_cannot_be_decoded_blocks(kafka: Kafka, delivery: str) -> None:
    """It is fetched again, and then said to be damaged, with its place: no loop, and no session guessed."""
    site = Site(kafka.bootstrap, 1)
    await produce_raw(kafka.bootstrap, site.topic("sessions"), 0, [(b"[1,null]", []), (b"[1,null]", [("bad-name", b"")])])
    async with bridge(site.config(delivery), ["lifecycle"]) as run:
        await run.until(lambda: bool(run.watcher.heard("partition.blocked")), 60)
        (blocked,) = run.watcher.heard("partition.blocked")
    assert f"{site.topic('sessions')}-0 cannot be restored: the batch at offset 0" in blocked["reason"]
    assert not await site.values("lifecycle")
