"""On real Kafka: a stop keeps its time, whatever state the group or the broker is in."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer
from tests.brokers.kafka import Kafka
from tests.kafka.live import Site, bridge, finished

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
WITHIN = 6.0


@DELIVERIES
async def test_a_stop_leaves_the_group_at_once(kafka: Kafka, delivery: str) -> None:
    """The next member need not wait for a session to time out: it has everything within moments."""
    site = Site(kafka.bootstrap, 2)
    await site.fill("raw", 10)
    settings = site.config(delivery, kafka__session_timeout="45s", kafka__heartbeat_interval="3s")
    async with bridge(settings) as run:
        await run.until(finished(run, 10), 30)
    began = time.monotonic()
    async with bridge(settings) as run:
        await run.until(lambda: len(run.watcher.heard("partition.taken")) == 2, 30)
    assert time.monotonic() - began < 20


@DELIVERIES
async def test_a_stop_during_a_rebalance(kafka: Kafka, delivery: str) -> None:
    """Another member joins and then says nothing: the rebalance hangs, the stop does not."""
    site = Site(kafka.bootstrap, 2)
    await site.fill("raw", 10)
    settings = site.config(delivery, shutdown__timeout="6s", kafka__drain_timeout="2s")
    async with bridge(settings) as run:
        await run.until(finished(run, 10), 30)
        silent = AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap, group_id=settings.group("normalize"), session_timeout_ms=6_000
        )
        await silent.start()
        silent.subscribe([site.topic("raw")])
        await run.until(lambda: bool(run.watcher.heard("rebalance.revoked")), 30)
        began = time.monotonic()
        await run.end()
        assert time.monotonic() - began < WITHIN
        await silent.stop()


@DELIVERIES
async def test_a_stop_with_the_broker_gone(kafka: Kafka, delivery: str) -> None:
    """Nothing can be committed and nobody told: it ends all the same, and the next run goes on where the last commit was."""
    if not isinstance(kafka, Kafka):
        pytest.skip("needs a broker that we may kill")
    site = Site(kafka.bootstrap, 2)
    await site.fill("normalized", 70)
    settings = site.config(delivery, shutdown__timeout="6s", kafka__drain_timeout="2s")
    async with bridge(settings, ["lifecycle"]) as run:
        await run.until(finished(run, 70), 30)
        await site.until_committed("lifecycle", "normalized", 70)
        await asyncio.to_thread(kafka.kill, kafka.nodes[0])
        await asyncio.sleep(1)
        began = time.monotonic()
        await run.end()
        took = time.monotonic() - began
        kafka._launch(kafka.nodes[0])  # not from a thread: the child would end with it
        await asyncio.to_thread(kafka.wait_ready)
        assert took < WITHIN
    await site.fill("normalized", 70, start=70)
    async with bridge(settings, ["lifecycle"]) as run:
        await site.until_committed("lifecycle", "normalized", 140)
    assert await site.counted() == {b"k%d" % key: list(range(1, 21)) for key in range(7)}
