"""The yardstick: consume and produce with aiokafka and nothing else, by the batch calls the bridge uses.

No parsing, no checks, no keys looked at: what any Python program on this client pays at least. At-least-once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

_BATCH_BYTES = 512 << 10


async def copy(bootstrap: str, source: str, target: str, group: str) -> None:
    """Copy `source` to `target`, partition for partition, until killed."""
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=1_000,
        max_partition_fetch_bytes=256 << 10,
        fetch_max_bytes=16 << 20,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        compression_type="zstd",
        max_batch_size=_BATCH_BYTES,
    )
    await consumer.start()
    await producer.start()
    done: asyncio.Task[None] | None = None
    while True:
        found = await consumer.getmany(timeout_ms=200, max_records=1_000)
        if not found:
            continue
        futures = [future for tp, records in found.items() for future in await _send(producer, target, tp, records)]
        offsets = {tp: records[-1].offset + 1 for tp, records in found.items()}
        if done is not None:
            await done  # the next fetch was read while these were on their way
        done = asyncio.ensure_future(_finish(consumer, futures, offsets))


async def _send(producer: AIOKafkaProducer, target: str, tp: TopicPartition, records: Sequence[Any]) -> list[Any]:
    futures = []
    builder = producer.create_batch()
    for one in records:
        fields = {"key": one.key, "value": one.value, "timestamp": one.timestamp, "headers": list(one.headers)}
        if builder.append(**fields) is None:
            futures.append(await producer.send_batch(builder, target, partition=tp.partition))
            builder = producer.create_batch()
            builder.append(**fields)
    futures.append(await producer.send_batch(builder, target, partition=tp.partition))
    return futures


async def _finish(consumer: AIOKafkaConsumer, futures: Sequence[Any], offsets: dict[TopicPartition, int]) -> None:
    await asyncio.gather(*futures)
    await consumer.commit(offsets)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(copy(*sys.argv[1:5]))
