"""Session state from its compacted topic, partition for partition with the stage's input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from acs_aaep_bridge.errors import UnreadableState
from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.entries import Reading
from acs_aaep_bridge.kafka.lenient import CorruptBatch, RawBatch, batches
from acs_aaep_bridge.kafka.ports import Restored

_SILENCE = 30.0  # seconds without a step forward or an answer, before a restore fails and is begun again
_PROGRESS_EVERY = 2.0  # seconds
_START_WITHIN = 60.0  # seconds
_PAUSE = 0.2  # seconds before the brokers are asked again
_FETCH_BYTES = 4 << 20
_RETRIES = 5


class KafkaChangelog:
    """See `ports.Changelog`. Reads committed data only, without a group.

    It fetches by itself, each restore on a connection of its own: a consumer hands records over by the hundred, and a
    restore has millions.
    """

    def __init__(
        self,
        topic: str,
        outputs: str,
        make_client: Callable[[], AIOKafkaClient],
        client: AIOKafkaClient,
        open_transaction_wait: float,
    ) -> None:
        self.topic = topic
        self._outputs = outputs
        self._make_client = make_client
        self._client = client
        self._open_transaction_wait = open_transaction_wait

    async def end(self, partition: int) -> int:
        tp = TopicPartition(self.topic, partition)
        return (await self._offsets(tp, internals.LATEST, internals.READ_COMMITTED))[tp]

    async def restore(
        self,
        partition: int,
        load: Callable[[bytes, bytes | None], None],
        progress: Callable[[int, int, int], None],
    ) -> Restored:
        tp = TopicPartition(self.topic, partition)
        start = (await self._offsets(tp, internals.EARLIEST, internals.READ_UNCOMMITTED))[tp]
        end = await self._settled_end(tp)
        reading = Reading(load, self._outputs)
        if start < end:
            client = self._make_client()
            try:
                async with asyncio.timeout(_START_WITHIN):
                    await client.bootstrap()
                    await client.set_topics([self.topic])
                await _read_to(client, tp, range(start, end), reading, progress)
            finally:
                await internals.close_client(client)
        return reading.restored(end)

    async def _settled_end(self, tp: TopicPartition) -> int:
        """The end once no transaction is open: below an open one, committed entries would be hidden."""
        deadline = time.monotonic() + self._open_transaction_wait
        while True:
            stable = (await self._offsets(tp, internals.LATEST, internals.READ_COMMITTED))[tp]
            end = (await self._offsets(tp, internals.LATEST, internals.READ_UNCOMMITTED))[tp]
            if stable >= end:
                return end
            if time.monotonic() > deadline:
                raise TimeoutError(f"a transaction of another writer stays open on {tp.topic}-{tp.partition}")
            await asyncio.sleep(_PAUSE)

    async def _offsets(self, tp: TopicPartition, which: int, isolation: int) -> dict[TopicPartition, int]:
        deadline = time.monotonic() + _SILENCE
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    return await internals.list_offsets(self._client, [tp], which, isolation)
            except KafkaError as error:
                if not error.retriable or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_PAUSE)


async def _read_to(
    client: AIOKafkaClient,
    tp: TopicPartition,
    offsets: range,
    reading: Reading,
    progress: Callable[[int, int, int], None],
) -> None:
    """All `offsets`, also those of a tail of markers without records.

    Raises TimeoutError after 30 s without a step forward, UnreadableState for what stays damaged however often it is fetched.
    """
    where, end = offsets.start, offsets.stop
    moved = told = time.monotonic()
    spoiled = 0
    while where < end:
        before = where
        try:
            async with asyncio.timeout(_SILENCE):
                data, aborted = await internals.raw_fetch(client, tp, where, _FETCH_BYTES)
            for batch in batches(data, aborted):
                if batch.is_shown:
                    _take(reading, batch, where)
                where = batch.next_offset
                await asyncio.sleep(0)
        except CorruptBatch as corrupt:  # a checksum that is wrong on the way is right the next time
            spoiled = spoiled + 1 if where == before else 0
            if spoiled > _RETRIES:
                raise UnreadableState(f"{tp.topic}-{tp.partition} cannot be restored: {corrupt}") from None
        except KafkaError as error:  # a leader that moves, a broker that restarts
            if not error.retriable:
                raise
            client.force_metadata_update()
            await asyncio.sleep(_PAUSE)
        now = time.monotonic()
        if where > before:
            moved = now
        elif now - moved > _SILENCE:
            raise TimeoutError(f"restoring {tp.topic}-{tp.partition} stands still at {where} of {end}")
        if now - told > _PROGRESS_EVERY:
            told = now
            progress(reading.count, where, end)


def _take(reading: Reading, batch: RawBatch, start: int) -> None:
    take = reading.take
    try:
        for record in internals.unpack(batch.data):
            if record.offset >= start:
                take(record.key, record.value, record.headers)
    except (KafkaError, ValueError) as error:  # ValueError: a header's name that is not UTF-8
        raise CorruptBatch(f"the batch at offset {batch.header[0]} cannot be decoded ({type(error).__name__})") from None
