"""Kafka in memory: the same ports, no sockets. For tests of the machinery and for trying a stage without a broker.

It keeps what matters to the workers: offsets with gaps, committed offsets, eager rebalances, fencing by transactional id,
transactions that show all or nothing, records refused for their size. One process, one event loop, no persistence.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, ProducerFenced

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Outgoing, Record, StageName
from acs_aaep_bridge.errors import OwnershipLost
from acs_aaep_bridge.kafka.entries import Reading
from acs_aaep_bridge.kafka.partitioner import choose
from acs_aaep_bridge.kafka.ports import Fetched, Item, Listener, Refusal, Refused, Restored, Trouble
from acs_aaep_bridge.kafka.transactions import transactional_id


class MemoryLog:
    """Topics, groups and transactional ids. A `None` in a partition is a marker: an offset without a record.

    `limits` are the largest values a topic takes. `trap` is called before each operation with its name
    (`start begin send commit poll committed bounds restore lags`) and what it is about; what it raises happens.
    """

    def __init__(self, topics: Mapping[str, int], limits: Mapping[str, int] | None = None) -> None:
        self.partitions: dict[TopicPartition, list[Record | None]] = {
            TopicPartition(topic, number): [] for topic, count in topics.items() for number in range(count)
        }
        self.starts: dict[TopicPartition, int] = defaultdict(int)
        self.limits = dict(limits or {})
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.epochs: dict[str, int] = defaultdict(int)
        self.members: dict[str, list[MemorySource]] = defaultdict(list)
        self.trap: Callable[[str, object], None] = lambda operation, about: None
        self.changed = asyncio.Event()

    def count(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is none."""
        return sum(tp.topic == topic for tp in self.partitions)

    def place(self, item: Item) -> TopicPartition:
        """Where an item goes."""
        topic = item.outgoing.topic
        fallback = item.record.partition if item.record else 0
        number = item.partition if item.partition is not None else choose(item.outgoing.key, fallback, self.count(topic))
        return TopicPartition(topic, number)

    def append(self, item: Item) -> None:
        """Write one item."""
        tp, outgoing = self.place(item), item.outgoing
        log = self.partitions[tp]
        log.append(Record(tp.topic, tp.partition, len(log), outgoing.timestamp, outgoing.key, outgoing.value, outgoing.headers))
        self._wake()

    def publish(self, topic: str, *values: bytes, key: bytes | None = None, partition: int | None = None, at: int = 0) -> None:
        """Write records as a producer elsewhere would."""
        for value in values:
            self.append(Item(Outgoing(topic, key, value, (), at), partition))

    def mark(self, tp: TopicPartition) -> None:
        """Write a marker."""
        self.partitions[tp].append(None)
        self._wake()

    def values(self, topic: str) -> list[bytes | None]:
        """All values of a topic, partition by partition."""
        return [one.value for tp, log in sorted(self.partitions.items()) if tp.topic == topic for one in log if one is not None]

    def refusals(self, items: Sequence[Item]) -> list[tuple[Item, Refusal]]:
        """The items that are too large for their topics."""
        return [
            (item, "too_large")
            for item in items
            if len(item.outgoing.value or b"") > self.limits.get(item.outgoing.topic, 1 << 60)
        ]

    async def rebalance(self, group: str) -> None:
        """Revoke everything from every member, then deal the partitions out anew, as an eager rebalance does."""
        members = self.members[group]
        for member in members:
            await member.give_up()
        wanted = sorted({tp for member in members for tp in self.partitions if tp.topic in member.topics})
        for place, member in enumerate(members):
            member.receive(frozenset(wanted[place :: len(members)]))

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class MemorySource:
    """See `ports.Source`."""

    def __init__(self, log: MemoryLog, group: str, topics: Collection[str], max_records: int, wall: Callable[[], int]) -> None:
        self._log = log
        self._group = group
        self.topics = frozenset(topics)
        self._max_records = max_records
        self._wall = wall
        self._listener: Listener | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._next: dict[TopicPartition, int] = {}
        self.broken = False

    async def start(self, listener: Listener) -> None:
        self._log.trap("start", self._group)
        self._listener = listener
        self._log.members[self._group].append(self)
        await self._log.rebalance(self._group)

    async def stop(self, timeout: float) -> None:
        if self in self._log.members[self._group]:
            self._log.members[self._group].remove(self)
            self._assigned = frozenset()
            self._next.clear()
            await self._log.rebalance(self._group)

    async def give_up(self) -> None:
        """The partitions are revoked."""
        if self._listener is not None and self._assigned:
            await self._listener.revoked(self._assigned)

    def receive(self, partitions: frozenset[TopicPartition]) -> None:
        """These are assigned now."""
        self._next.clear()
        self._assigned = partitions
        if self._listener is not None:
            self._listener.assigned(partitions)

    async def poll(self, partitions: Collection[TopicPartition], timeout: float) -> Sequence[Fetched | Trouble]:
        changed = self._log.changed
        found: list[Fetched | Trouble] = [fetched for tp in partitions if (fetched := self._fetch(tp)) is not None]
        if not found:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, 0.02)):
                    await changed.wait()
        else:
            await asyncio.sleep(0)
        return found

    def _fetch(self, tp: TopicPartition) -> Fetched | Trouble | None:
        start = self._next.get(tp)
        if start is None:
            return None
        try:
            self._log.trap("poll", tp)
        except Exception as error:  # what a test makes happen
            return Trouble(tp, "failing", str(error))
        log = self._log.partitions[tp]
        if not self._log.starts[tp] <= start <= len(log):
            return Trouble(tp, "out_of_range", f"offset {start} is not in the log")
        entries = log[start : start + self._max_records]
        self._next[tp] = start + len(entries)
        records = [one for one in entries if one is not None]
        return Fetched(tp, records, start + len(entries)) if records else None

    def joined(self) -> bool:
        return self in self._log.members[self._group]

    def alive(self) -> bool:
        return not self.broken

    def owns(self, partition: TopicPartition) -> bool:
        return partition in self._assigned

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._next[partition] = offset

    def pause(self, partition: TopicPartition) -> None:
        self._next.pop(partition, None)

    def position(self, partition: TopicPartition) -> int | None:
        return self._next.get(partition)

    def seen_until(self, partition: TopicPartition) -> int | None:
        at_end = self._next.get(partition) == len(self._log.partitions[partition])
        return self._wall() if at_end else None

    async def committed(self, partition: TopicPartition) -> int | None:
        self._log.trap("committed", partition)
        return self._log.committed.get((self._group, partition))

    async def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        self._log.trap("bounds", partition)
        return self._log.starts[partition], len(self._log.partitions[partition])

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        await asyncio.sleep(0)
        self._log.trap("commit", offsets)
        if not set(offsets) <= self._assigned:
            raise OwnershipLost("the group has moved on")
        self._log.committed |= {(self._group, tp): offset for tp, offset in offsets.items()}


class MemorySink:
    """See `ports.Sink`. What a trap raises on `send` is retried, as a broker that is away would be."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.suspect = min([1 << 40, *log.limits.values()])
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._log.trap("start", "sink")

    async def stop(self, timeout: float) -> None:
        for task in self._tasks:
            task.cancel()

    def fits(self, outgoing: Outgoing) -> bool:
        return len(outgoing.value or b"") <= self._log.limits.get(outgoing.topic, 1 << 60)

    async def room(self) -> None:
        await asyncio.sleep(0)

    def forbidden(self) -> str | None:
        return None

    def overdue(self, seconds: float) -> str | None:
        return None

    def send(self, items: Sequence[Item]) -> asyncio.Future[None]:
        self._last = task = asyncio.ensure_future(self._send(list(items), self._last))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _send(self, items: list[Item], after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        while True:
            try:
                self._log.trap("send", items)
                break
            except KafkaConnectionError:
                await asyncio.sleep(0.01)
        refused = self._log.refusals(items)
        turned_down = {id(item) for item, _ in refused}
        for item in items:
            if id(item) not in turned_down:
                self._log.append(item)
        if refused:
            raise Refused(refused)


class MemoryTransactor:
    """See `ports.Transactor`. What is sent shows when it is committed, followed by a marker."""

    def __init__(self, log: MemoryLog, group: str, partition: TopicPartition) -> None:
        self._log = log
        self._group = group
        self._id = transactional_id(group, partition)
        self._epoch = -1
        self._open: list[Item] | None = None
        self.suspect = min([1 << 40, *log.limits.values()])

    def fits(self, outgoing: Outgoing) -> bool:
        return len(outgoing.value or b"") <= self._log.limits.get(outgoing.topic, 1 << 60)

    async def start(self) -> None:
        await asyncio.sleep(0)
        self._log.trap("start", self._id)
        self._log.epochs[self._id] += 1
        self._epoch = self._log.epochs[self._id]

    async def begin(self) -> None:
        await self._step("begin")
        self._open = []

    async def send(self, items: Sequence[Item], alone: bool = False) -> None:
        await self._step("send")
        refused = self._log.refusals(items)
        if refused:
            raise Refused(refused)
        if self._open is not None:
            self._open += items

    async def commit(self, partition: TopicPartition, offset: int) -> None:
        await self._step("commit")
        for item in self._open or ():
            self._log.append(item)
        for tp in {self._log.place(item) for item in self._open or ()}:
            self._log.mark(tp)
        self._open = None
        self._log.committed[self._group, partition] = offset
        self._log.trap("committed_transaction", self._id)

    async def kill(self, timeout: float) -> None:
        self._open = None
        self._epoch = -1

    async def _step(self, operation: str) -> None:
        await asyncio.sleep(0)
        self._log.trap(operation, self._id)
        if self._epoch != self._log.epochs[self._id]:
            raise ProducerFenced(self._id)


class MemoryChangelog:
    """See `ports.Changelog`."""

    def __init__(self, log: MemoryLog, topic: str, outputs: str) -> None:
        self._log = log
        self.topic = topic
        self._outputs = outputs

    async def restore(
        self, partition: int, load: Callable[[bytes, bytes | None], None], progress: Callable[[int, int, int], None]
    ) -> Restored:
        self._log.trap("restore", partition)
        log = self._log.partitions[TopicPartition(self.topic, partition)]
        reading = Reading(load, self._outputs)
        for entry in log:
            if entry is not None:
                reading.take(entry.key, entry.value, entry.headers)
        return reading.restored(len(log))

    async def end(self, partition: int) -> int:
        return len(self._log.partitions[TopicPartition(self.topic, partition)])


class MemoryProbe:
    """See `ports.Probe`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def start(self) -> None: ...

    async def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        self._log.trap("lags", partitions)
        return {tp: (len(self._log.partitions[tp]), len(self._log.partitions[tp])) for tp in partitions}

    def partitions(self, topic: str) -> int | None:
        return self._log.count(topic) or None

    def forbidden(self, topic: str) -> bool:
        return False

    async def stop(self) -> None: ...


class MemoryBackend:
    """See `ports.Backend`."""

    def __init__(self, log: MemoryLog, config: Config, wall: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._log = log
        self._config = config
        self._wall = wall

    def source(self, stage: StageName) -> MemorySource:
        names = self._config.input.topics if stage == "normalize" else (self._config.topics.normalized,)
        group = self._config.group(stage)
        return MemorySource(self._log, group, names, self._config.kafka.max_poll_records, self._wall)

    def sink(self, stage: StageName) -> MemorySink:
        return MemorySink(self._log)

    def transactor(self, stage: StageName, partition: TopicPartition) -> MemoryTransactor:
        return MemoryTransactor(self._log, self._config.group(stage), partition)

    def probe(self, stage: StageName) -> MemoryProbe:
        return MemoryProbe(self._log)

    def changelog(self, probe: MemoryProbe) -> MemoryChangelog:
        return MemoryChangelog(self._log, self._config.topics.changelog, self._config.topics.lifecycle)

    def expected(self, stage: StageName) -> dict[str, int]:
        return {tp.topic: self._log.count(tp.topic) for tp in self._log.partitions}
