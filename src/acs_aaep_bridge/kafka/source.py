"""The consumer: a member of a stage's group that loses no record, whatever a poll runs into."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)

from acs_aaep_bridge.core.model import Record, new
from acs_aaep_bridge.errors import OwnershipLost
from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.lenient import CorruptBatch, read
from acs_aaep_bridge.kafka.ports import Fault, Fetched, Listener, Trouble

_RETRIES = 5  # a checksum that is wrong on the way is right the next time
_PAUSE = 1.0  # seconds after a poll that failed
TOO_LARGE = "too_large"


class KafkaSource:
    """See `ports.Source`."""

    def __init__(
        self,
        make: Callable[[], AIOKafkaConsumer],
        topics: Sequence[str],
        pattern: str | None,
        fetch_bytes: int,
    ) -> None:
        self._consumer = make()
        self._topics = topics
        self._pattern = pattern
        self._fetch_bytes = fetch_bytes
        self._next: dict[TopicPartition, int] = {}
        self._moves: Counter[TopicPartition] = Counter()
        self._attempts: dict[tuple[TopicPartition, int], int] = {}
        self._poisoned: set[TopicPartition] = set()
        self._broken = False

    async def start(self, listener: Listener) -> None:
        await self._consumer.start()
        # Subscribing after the start: with a subscription, `start` would wait for the group to form, and not say why it hangs.
        adapter = _Adapter(self, listener)
        if self._pattern is not None:
            self._consumer.subscribe(pattern=self._pattern, listener=adapter)
        else:
            self._consumer.subscribe(topics=list(self._topics), listener=adapter)

    async def stop(self, timeout: float) -> None:
        await internals.stop_consumer(self._consumer, timeout)

    def joined(self) -> bool:
        return internals.has_joined(self._consumer)

    def alive(self) -> bool:
        return not self._broken and not internals.background_failed(self._consumer)

    def owns(self, partition: TopicPartition) -> bool:
        return partition in self._consumer.assignment()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._moves[partition] += 1
        self._next[partition] = offset
        self._consumer.seek(partition, offset)
        self._consumer.resume(partition)

    def pause(self, partition: TopicPartition) -> None:
        self._moves[partition] += 1
        self._next.pop(partition, None)
        if self.owns(partition):
            self._consumer.pause(partition)

    def position(self, partition: TopicPartition) -> int | None:
        return internals.position(self._consumer, partition)

    def seen_until(self, partition: TopicPartition) -> int | None:
        if not self.owns(partition):
            return None
        end = self._consumer.last_stable_offset(partition)
        if end is None or end < 0:
            end = self._consumer.highwater(partition)
        position = self.position(partition)
        if end is None or position is None or position < end:
            return None
        return cast(int | None, self._consumer.last_poll_timestamp(partition))

    async def committed(self, partition: TopicPartition) -> int | None:
        found: int | None = await self._consumer.committed(partition)
        return found

    async def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        client = internals.client_of(self._consumer)
        while True:
            try:
                first = await internals.list_offsets(client, [partition], internals.EARLIEST, internals.READ_UNCOMMITTED)
                last = await internals.list_offsets(client, [partition], internals.LATEST, internals.READ_UNCOMMITTED)
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.2)
            else:
                return first[partition], last[partition]

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            await self._consumer.commit(dict(offsets))
        except (CommitFailedError, IllegalStateError) as error:
            raise OwnershipLost("the group has moved on") from error

    async def poll(self, partitions: Collection[TopicPartition], timeout: float) -> Sequence[Fetched | Trouble]:
        wanted = [tp for tp in partitions if tp in self._next and self.owns(tp)]
        try:
            if not wanted:
                internals.keep_alive(self._consumer)
                await asyncio.sleep(timeout)
                return []
            found = await self._consumer.getmany(*wanted, timeout_ms=int(timeout * 1000))
        except Exception as error:  # whatever it is, positions have moved over records that nobody was given
            self._rewind()
            return await self._explain(error, wanted)
        return [self._accept(tp, records) for tp, records in found.items() if tp in self._next]

    def _accept(self, tp: TopicPartition, consumed: Sequence[object]) -> Fetched:
        topic, partition = tp
        records = [
            new(Record, (topic, partition, one.offset, one.timestamp, one.key, one.value, one.headers))  # type: ignore[attr-defined]
            for one in consumed
        ]
        after = self.position(tp)
        last = records[-1].offset + 1
        self._next[tp] = last if after is None else max(after, last)
        return Fetched(tp, records, self._next[tp])

    def _rewind(self) -> None:
        """Back to what was accepted, on every partition."""
        internals.repair_fetch_count(self._consumer)
        for tp, offset in self._next.items():
            if self.owns(tp):
                self._consumer.seek(tp, offset)

    async def _explain(self, error: Exception, wanted: Sequence[TopicPartition]) -> Sequence[Fetched | Trouble]:
        found: list[Fetched | Trouble]
        match error:
            case OffsetOutOfRangeError(args=({**offsets},)):
                gone = cast(dict[TopicPartition, int], offsets)
                return [Trouble(tp, "out_of_range", f"offset {offset} is not in the log") for tp, offset in gone.items()]
            case RecordTooLargeError(args=(_, tp, offset, size)):
                return [self._skip(tp, offset, f"the record is larger than kafka.max_partition_fetch ({size} bytes)")]
            case TopicAuthorizationFailedError():
                denied = [tp for tp in wanted if tp.topic in str(error)] or wanted
                found = [Trouble(tp, "authorization", f"not allowed to read {tp.topic}") for tp in denied]
            case GroupAuthorizationFailedError():
                found = [Trouble(None, "authorization", "not allowed to use the consumer group")]
            case _ if internals.background_failed(self._consumer):
                self._broken = True
                found = [Trouble(None, "failing", f"the consumer has died: {describe(error)}")]
            case _ if _is_undecodable(error):
                return await self._narrow(error, wanted)
            case _:
                found = [Trouble(None, "failing", describe(error))]
        await asyncio.sleep(_PAUSE)
        return found

    async def _narrow(self, error: Exception, wanted: Sequence[TopicPartition]) -> Sequence[Fetched | Trouble]:
        """Which partition it was: aiokafka does not say. Each is polled alone, until one fails; that one is read leniently.

        Those that failed before come first: one without records takes a second to say so, and all others wait meanwhile.
        The rest is then polled together.
        """
        found: list[tuple[Fetched | Trouble, int]] = []
        order = sorted(wanted, key=lambda tp: tp not in self._poisoned)
        for place, tp in enumerate(order):
            if tp not in self._next:
                continue
            try:
                found += await self._poll_some([tp], 1_000, 1)
            except Exception as again:  # the same as before, and now we know where
                self._rewind()
                if _is_undecodable(again) and tp in self._next:
                    self._poisoned.add(tp)
                    moves = self._moves[tp]
                    found.append((await self._reread(tp, again), moves))
                    found += await self._poll_rest(order[place + 1 :])
                break
        # Others had their turn while this waited: what was read at a position that is no more is dropped, and read again.
        current = [one for one, moves in found if one.partition is None or self._moves[one.partition] == moves]
        return current or [Trouble(None, "failing", describe(error))]

    async def _poll_some(
        self, partitions: Sequence[TopicPartition], timeout: int, records: int | None = None
    ) -> list[tuple[Fetched | Trouble, int]]:
        """Each with the count of its partition's moves. `timeout` in milliseconds."""
        found = await self._consumer.getmany(*partitions, timeout_ms=timeout, max_records=records)
        return [(self._accept(tp, some), self._moves[tp]) for tp, some in found.items() if tp in self._next]

    async def _poll_rest(self, partitions: Sequence[TopicPartition]) -> list[tuple[Fetched | Trouble, int]]:
        """One that cannot be read for a while must not keep the others from being read."""
        rest = [tp for tp in partitions if tp in self._next and self.owns(tp)]
        try:
            return await self._poll_some(rest, 200) if rest else []
        except Exception:  # another one as well: the next poll runs into it again
            self._rewind()
            return []

    async def _reread(self, tp: TopicPartition, error: Exception) -> Fetched | Trouble:
        """The records up to the end of the batch that aiokafka cannot decode, by a decoder of our own."""
        start, moves = self._next[tp], self._moves[tp]
        try:
            async with asyncio.timeout(30):
                client = internals.client_of(self._consumer)
                data, aborted = await internals.raw_fetch(client, tp, start, self._fetch_bytes)
            found = _up_to_fault(data, tp, aborted, start)
        except CorruptBatch as corrupt:
            attempt = self._attempts[tp, start] = self._attempts.get((tp, start), 0) + 1
            if attempt > _RETRIES:
                return Trouble(tp, "corrupt", f"from offset {start} on: {corrupt}")
            error = corrupt
        except Exception as failure:  # the broker is unwell; the next poll runs into the bad batch again
            error = failure
        else:
            if found is not None:
                self._attempts.clear()
                if self._moves[tp] == moves:
                    self._next[tp] = found.next_offset
                    self._rewind()
                return found
        await asyncio.sleep(_PAUSE)
        return Trouble(tp, "failing", f"at offset {start}: {describe(error)}")

    def _skip(self, tp: TopicPartition, offset: int, message: str) -> Fetched:
        """A record that no fetch can bring: aiokafka has moved past it already; we do so with a record of what it was."""
        self._next[tp] = offset + 1
        if self.owns(tp):
            self._consumer.seek(tp, offset + 1)
        missing = Record(tp.topic, tp.partition, offset, -1, None, None)
        return Fetched(tp, [missing], offset + 1, {offset: Fault(TOO_LARGE, message)})

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Keep newly assigned partitions still until they are taken.

        The position makes aiokafka not look for the committed offset by itself: it would look before the former owner's
        transaction is settled, and raise where there is none.
        """
        self._next.clear()
        self._moves.update([*self._moves, *partitions])
        for tp in partitions:
            self._consumer.seek(tp, 0)
            self._consumer.pause(tp)


def _up_to_fault(data: bytes, tp: TopicPartition, aborted: list[tuple[int, int]], start: int) -> Fetched | None:
    """Everything in `data` up to the end of the first batch with a fault; None when there is no complete batch."""
    records: list[Record] = []
    found = None
    for batch in read(data, tp.topic, tp.partition, aborted, start):
        records += batch.records
        found = Fetched(tp, records, batch.next_offset, batch.faults)
        if batch.faults:
            break
    return found


def _is_undecodable(error: Exception) -> bool:
    """Whether the data is what is wrong, not the broker or the group."""
    if isinstance(error, CorruptRecordException | UnsupportedCodecError):
        return True
    return not isinstance(error, KafkaError | ConsumerStoppedError)


class _Adapter(ConsumerRebalanceListener):
    def __init__(self, source: KafkaSource, listener: Listener) -> None:
        self._source = source
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._listener.revoked(frozenset(revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._source.hold(assigned)
        self._listener.assigned(frozenset(assigned))
