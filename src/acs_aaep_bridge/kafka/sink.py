"""The producer at least once: one lane per output partition, whole batches, nothing given up that may still succeed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.errors import BridgeError
from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.observer import Observer
from acs_aaep_bridge.kafka.partitioner import choose
from acs_aaep_bridge.kafka.ports import Item, Refusal, Refused
from acs_aaep_bridge.kafka.topics import DEFAULT_LIMIT, RECORD_OVERHEAD, Report

BATCH_BYTES = 512 << 10
_ROUND_IT = 64  # bytes of an item besides its value, about
REFUSALS: dict[type[BaseException], Refusal] = {
    MessageSizeTooLargeError: "too_large",
    RecordListTooLargeError: "too_large",
    InvalidTimestampError: "timestamp",
}


class Packer:
    """Items into batches for one producer, each within what its topic takes."""

    def __init__(self, producer: AIOKafkaProducer, topics: Report) -> None:
        self.producer = producer
        self._topics = topics
        self.suspect = min([DEFAULT_LIMIT, *(topics.limit(name) for name in topics.topics)]) - RECORD_OVERHEAD

    async def prepare(self) -> None:
        """Learn the partitions of every topic. Raises KafkaError for one that is gone."""
        for name in self._topics.topics:
            await self.producer.partitions_for(name)

    def spread(self, items: Sequence[Item]) -> dict[TopicPartition, deque[Item]]:
        """Items by where they go, in their order: to their own partition, else to the one of their key."""
        counts: dict[str, int] = {}
        spread: dict[tuple[str, int], deque[Item]] = {}
        for item in items:
            outgoing = item.outgoing
            topic, number = outgoing.topic, item.partition
            if number is None:
                count = counts.get(topic)
                if count is None:
                    count = counts[topic] = self._count(topic)
                number = choose(outgoing.key, item.record.partition if item.record is not None else 0, count)
            place = (topic, number)
            found = spread.get(place)
            if found is None:
                spread[place] = deque((item,))
            else:
                found.append(item)
        return {TopicPartition(*place): found for place, found in spread.items()}

    def _count(self, topic: str) -> int:
        return internals.partition_count(self.producer, topic) or self._topics.topics[topic].partitions

    def pack(self, items: deque[Item], topic: str, alone: bool = False) -> tuple[Any, list[Item]]:
        """Take items from the left into one closed batch; at least one, only one if `alone`."""
        builder = internals.batch_builder(self.producer, min(BATCH_BYTES, self._topics.limit(topic)))
        packed: list[Item] = []
        append = builder.append
        while items:
            outgoing = items[0].outgoing
            added = append(timestamp=outgoing.timestamp, key=outgoing.key, value=outgoing.value, headers=list(outgoing.headers))
            if added is None:
                break
            packed.append(items.popleft())
            if alone:
                break
        builder.close()
        return builder, packed

    def fits(self, outgoing: Outgoing) -> bool:
        """Whether a batch of this record alone is within the topic's limit, compressed as it will be."""
        size = internals.batch_size(self.producer, outgoing.key, outgoing.value, outgoing.headers, outgoing.timestamp)
        return size <= self._topics.limit(outgoing.topic)


class _Run:
    """Items of one delivery that lie in one lane, one after the other."""

    __slots__ = ("delivery", "remaining", "size")

    def __init__(self, delivery: _Delivery, remaining: int, size: int) -> None:
        self.delivery = delivery
        self.remaining = remaining
        self.size = size


class _Delivery:
    """Items that were handed over together: counts them down."""

    __slots__ = ("future", "refusals", "remaining")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.remaining = count
        self.refusals: list[tuple[Item, Refusal]] = []

    def settle(self, count: int) -> None:
        self.remaining -= count
        if self.remaining or self.future.done():
            return
        if self.refusals:
            self.future.set_exception(Refused(self.refusals))
        else:
            self.future.set_result(None)


class _Lane:
    """One output partition: at most one batch in flight, so that a repeated batch cannot overtake the next."""

    __slots__ = ("denied", "items", "runs", "since", "suspects", "task")

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.runs: deque[_Run] = deque()
        self.task: asyncio.Task[None] | None = None
        self.since: float | None = None
        self.suspects = 0
        self.denied = False


class KafkaSink:
    """See `ports.Sink`. One producer, shared by all partitions of a stage; replaced when it is beyond use.

    `failed` is told the topic of every attempt that failed.
    """

    def __init__(
        self,
        make: Callable[[], AIOKafkaProducer],
        topics: Report,
        max_in_flight: int,
        observer: Observer,
        failed: Callable[[str], None] = lambda topic: None,
    ) -> None:
        self._failed = failed
        self._make = make
        self._topics = topics
        self._observer = observer
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._room = asyncio.Event()
        self._room.set()
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._packer = Packer(make(), topics)
        self._replacing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def suspect(self) -> int:
        return self._packer.suspect

    def fits(self, outgoing: Outgoing) -> bool:
        return self._packer.fits(outgoing)

    async def start(self) -> None:
        await self._packer.producer.start()
        await self._packer.prepare()
        self._observer.connected("producer", True)

    async def stop(self, timeout: float) -> None:
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await internals.stop_producer(self._packer.producer, timeout)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    async def room(self) -> None:
        await self._room.wait()

    def send(self, items: Sequence[Item]) -> asyncio.Future[None]:
        delivery = _Delivery(len(items))
        if not items:
            delivery.future.set_result(None)
            return delivery.future
        now = time.monotonic()
        for tp, some in self._packer.spread(items).items():
            lane = self._lanes.get(tp)
            if lane is None:
                lane = self._lanes[tp] = _Lane()
            size = sum([len(item.outgoing.value or b"") for item in some]) + _ROUND_IT * len(some)
            lane.items += some
            lane.runs.append(_Run(delivery, len(some), size))
            if lane.task is None:
                lane.since = now
                lane.task = asyncio.ensure_future(self._drain(tp, lane))
            self._in_flight += size
        if self._in_flight >= self._max_in_flight:
            self._room.clear()
        return delivery.future

    def forbidden(self) -> str | None:
        denied = sorted({tp.topic for tp, lane in self._lanes.items() if lane.denied})
        return f"not allowed to write {', '.join(denied)}" if denied else None

    def overdue(self, seconds: float) -> str | None:
        limit = time.monotonic() - seconds
        late = sorted({tp.topic for tp, lane in self._lanes.items() if lane.since is not None and lane.since < limit})
        return f"{', '.join(late)} has not acknowledged for {seconds:.0f} s" if late else None

    async def _drain(self, tp: TopicPartition, lane: _Lane) -> None:
        attempt = 0
        try:
            while self._has_work(lane):
                packer = self._packer
                builder, packed = packer.pack(lane.items, tp.topic, alone=lane.suspects > 0)
                error = await _publish(packer.producer, builder, tp)
                lane.denied = isinstance(error, TopicAuthorizationFailedError | ClusterAuthorizationFailedError)
                if error is None:
                    attempt = 0
                    self._acknowledge(lane, packed)
                    continue
                lane.items.extendleft(reversed(packed))
                refusal = REFUSALS.get(type(error))
                if refusal is None:
                    attempt += 1
                    await self._recover(packer, tp, error, attempt)
                    continue
                # The refused batch has left a hole in the sequence numbers of an idempotent producer.
                await self._replace(packer)
                if len(packed) == 1:
                    self._refuse(lane, refusal)
                else:
                    lane.suspects = len(packed)
        except Exception as bug:  # nobody awaits this task: whoever waits for the items must hear of it
            for delivery in {run.delivery for run in lane.runs}:
                if not delivery.future.done():
                    delivery.future.set_exception(bug)
        finally:
            lane.task = None
            lane.since = None

    def _has_work(self, lane: _Lane) -> bool:
        """Whether there is anything to publish, once what was given up is dropped: by now another may have written newer."""
        if any(run.delivery.future.cancelled() for run in lane.runs):
            items, runs = deque[Item](), deque[_Run]()
            for run in lane.runs:
                mine = [lane.items.popleft() for _ in range(run.remaining)]
                if run.delivery.future.cancelled():
                    self._in_flight -= run.size
                else:
                    items += mine
                    runs.append(run)
            lane.items, lane.runs, lane.suspects = items, runs, min(lane.suspects, len(items))
            self._make_room()
        return bool(lane.items)

    def _acknowledge(self, lane: _Lane, packed: list[Item]) -> None:
        lane.since = time.monotonic()
        self._settle(lane, len(packed))

    def _settle(self, lane: _Lane, count: int) -> None:
        """So many of the lane's items are done with, from the left."""
        lane.suspects = max(0, lane.suspects - count)
        while count:
            run = lane.runs[0]
            some = min(count, run.remaining)
            run.remaining -= some
            count -= some
            if not run.remaining:
                lane.runs.popleft()
                self._in_flight -= run.size
            run.delivery.settle(some)
        self._make_room()

    def _make_room(self) -> None:
        if self._in_flight < self._max_in_flight:
            self._room.set()

    def _refuse(self, lane: _Lane, refusal: Refusal) -> None:
        lane.runs[0].delivery.refusals.append((lane.items.popleft(), refusal))
        self._settle(lane, 1)

    async def _recover(self, packer: Packer, tp: TopicPartition, error: BaseException, attempt: int) -> None:
        """Wait before the next attempt; with a new producer if the error says this one will not do."""
        self._observer.log(
            "warning", "produce.retry", topic=tp.topic, partition=tp.partition, attempt=attempt, error=describe(error)
        )
        self._failed(tp.topic)
        if not isinstance(error, TopicAuthorizationFailedError) and not getattr(error, "retriable", False):
            await self._replace(packer)
        await asyncio.sleep(min(10.0, 0.1 * 2 ** min(attempt, 7)))

    async def _replace(self, broken: Packer) -> None:
        """Put a new producer in the place of the broken one, unless another lane has done so meanwhile."""
        async with self._replacing:
            if self._packer is not broken:
                return
            try:
                fresh = Packer(self._make(), self._topics)
            except BridgeError as error:  # a certificate or secret that is just being replaced
                self._observer.log("warning", "producer.replacement_failed", error=describe(error))
                return
            try:
                async with asyncio.timeout(30):
                    await fresh.producer.start()
                    await fresh.prepare()
            except asyncio.CancelledError:
                internals.drop_producer(fresh.producer)
                raise
            except Exception as error:  # whatever it is, the lane tries again
                self._observer.connected("producer", False)
                self._observer.log("warning", "producer.replacement_failed", error=describe(error))
                await internals.stop_producer(fresh.producer, 0)
                return
            self._packer = fresh
            self._observer.connected("producer", True)
            self._later(internals.stop_producer(broken.producer, 5))

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _publish(producer: AIOKafkaProducer, builder: Any, tp: TopicPartition) -> BaseException | None:
    """None once the batch is acknowledged, else why not. Waits as long as aiokafka retries."""
    try:
        await (await producer.send_batch(builder, tp.topic, partition=tp.partition))
    except (KafkaError, AssertionError, OSError, TimeoutError) as error:  # a dead producer raises AssertionError too
        return error
    return None
