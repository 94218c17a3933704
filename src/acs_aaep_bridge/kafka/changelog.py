"""Session state to and from its compacted topic, partition for partition with the stage's input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.errors import UnreadableState
from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.ports import Item, Restored

NEXT_OFFSET_KEY = b"@next-offset"
"""Key of the entry that says where the input goes on, written in each transaction: a commit is answered before the offset is
readable, and whoever takes the partition starts at the larger of the two. No session has this key."""

_SILENCE = 30.0  # seconds without a record or an answer, before a restore fails and is begun again
_PROGRESS_EVERY = 2.0  # seconds
_START_WITHIN = 60.0  # seconds
_VERSION = 1


def entries(topic: str, partition: int, changes: Iterable[tuple[bytes, bytes | None]], timestamp: int) -> list[Item]:
    """Changes of the state as items to publish."""
    return [Item(Outgoing(topic, key, value, (), timestamp), partition) for key, value in changes]


def next_offset_entry(topic: str, partition: int, offset: int, timestamp: int) -> Item:
    """Where the input goes on once this transaction is committed."""
    value = orjson.dumps({"version": _VERSION, "offset": offset})
    return Item(Outgoing(topic, NEXT_OFFSET_KEY, value, (), timestamp), partition)


def read_next_offset(value: bytes | None) -> int | None:
    """The offset of such an entry, None for a tombstone. Raises UnreadableState for one this version cannot read."""
    if value is None:
        return None
    try:
        content = orjson.loads(value)
        if content["version"] == _VERSION:
            return int(content["offset"])
        reason = f"version {content['version']}"
    except (ValueError, KeyError, TypeError):
        reason = "malformed"
    raise UnreadableState(f"the changelog entry {NEXT_OFFSET_KEY.decode()} cannot be read by this version ({reason})")


class KafkaChangelog:
    """See `ports.Changelog`. Reads committed data only, without a group."""

    def __init__(
        self,
        topic: str,
        make_reader: Callable[[], AIOKafkaConsumer],
        client: AIOKafkaClient,
        open_transaction_wait: float,
    ) -> None:
        self.topic = topic
        self._make_reader = make_reader
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
        if start >= end:
            return Restored(0, end, None)
        reader = self._make_reader()
        try:
            async with asyncio.timeout(_START_WITHIN):
                await reader.start()
            reader.assign([tp])
            reader.seek(tp, start)
            return await _read_to(reader, tp, end, load, progress)
        finally:
            await internals.stop_consumer(reader, 2)

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
            await asyncio.sleep(0.2)

    async def _offsets(self, tp: TopicPartition, which: int, isolation: int) -> dict[TopicPartition, int]:
        deadline = time.monotonic() + _SILENCE
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    return await internals.list_offsets(self._client, [tp], which, isolation)
            except KafkaError as error:
                if not error.retriable or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)


async def _read_to(
    reader: AIOKafkaConsumer,
    tp: TopicPartition,
    end: int,
    load: Callable[[bytes, bytes | None], None],
    progress: Callable[[int, int, int], None],
) -> Restored:
    """Up to `end`, also over a tail of markers without records. Raises TimeoutError after 30 s without a step forward."""
    count, where = 0, -1
    offset: int | None = None
    moved = told = time.monotonic()
    while where < end:
        found = await reader.getmany(tp, timeout_ms=500)
        for record in found.get(tp, ()):
            if record.key == NEXT_OFFSET_KEY:
                offset = read_next_offset(record.value)
            elif record.key is not None:
                load(record.key, record.value)
                count += 1
        now = time.monotonic()
        position = internals.position(reader, tp) or 0
        if position > where:
            where, moved = position, now
        elif now - moved > _SILENCE:
            raise TimeoutError(f"restoring {tp.topic}-{tp.partition} stands still at {where} of {end}")
        if now - told > _PROGRESS_EVERY:
            told = now
            progress(count, where, end)
    return Restored(count, end, offset)
