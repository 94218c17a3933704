"""One worker per owned partition: take, process, deliver, give up.

A worker lives for one assignment. When the partition is revoked it is closed, and whatever it still has open is dropped: a
closed worker commits nothing. What is clean (producer, state) it hands to the worker of the next assignment.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from acs_aaep_bridge.errors import Braked, OffsetOutOfRange, OwnershipLost, UnreadableState
from acs_aaep_bridge.kafka.batch import Batch, Processor, Unpublishable
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.inbox import Inbox
from acs_aaep_bridge.kafka.learning import learn
from acs_aaep_bridge.kafka.observer import BatchReport, Block
from acs_aaep_bridge.kafka.ports import Fetched, Item, Owed, Refused, Transactor
from acs_aaep_bridge.kafka.surroundings import Surroundings
from acs_aaep_bridge.kafka.taking import ASK_WITHIN, restore, where_to_start

SLICES = (20, 500)  # records applied in one go
TURN = 0.02  # seconds that should take
START_WITHIN = 60.0  # seconds; the coordinator first waits for what a former owner left open
KILL_WITHIN = 5.0  # seconds for a producer that will not be used again
BLOCKS: dict[type[Exception], Block] = {
    OffsetOutOfRange: "out_of_range",
    UnreadableState: "unreadable_state",
    Unpublishable: "unpublishable",
}

Status = Literal["taking", "running", "blocked", "braked", "closed"]


class TakeAgain(Exception):
    """The worker's position is of no use any more: begin where the group stands."""


class Bug(Exception):
    """The core or the worker itself failed: the process ends."""


class Parked(NamedTuple):
    """What a clean worker leaves for the next assignment of its partition."""

    processor: Processor
    next_offset: int
    changelog_end: int
    transactor: Transactor | None
    tombstones: tuple[tuple[int, Item], ...] = ()
    """At least once: what is forgotten once the group has this offset."""


class Worker(ABC):
    """Owns one partition for one assignment."""

    def __init__(self, around: Surroundings, partition: TopicPartition, parked: Parked | None = None) -> None:
        self.around = around
        self.partition = partition
        self.status: Status = "taking"
        self.reason = ""
        self.restoring = False
        self.taking_since = time.monotonic()
        self.draining = False
        self.next_offset = -1
        self.low = -1
        self.progressed_at = time.monotonic()
        self.processor = (
            parked.processor if parked else Processor(around.stage, around.config.topics.dead_letter, around.brake(partition))
        )
        self.parked = parked
        self.in_flight = 0
        self.committed_offset = -1
        self._owes_commit = False
        """Whether the group, asked again, would send us elsewhere than where we start."""
        self._owed: tuple[Owed, ...] = ()
        self._written_offset: int | None = None
        self.inbox = Inbox()
        self._slice = 100
        self._interrupt: Exception | None = None
        self._wake = asyncio.Event()
        self.task: asyncio.Task[None] = asyncio.ensure_future(self._live())
        self.task.add_done_callback(self._ended)

    # What the poll loop and the rebalance call: all of it returns at once.

    @property
    def hungry(self) -> bool:
        """Whether it wants more records."""
        around = self.around
        share = max(512 << 10, around.config.kafka.max_in_flight // max(1, around.owned()))
        few = self.inbox.records < 2 * around.config.kafka.max_poll_records and self.inbox.bytes < share
        return self.status == "running" and not self.draining and few

    @property
    def idle(self) -> bool:
        """Whether everything accepted is finished."""
        return not self.inbox and not self.in_flight

    def offer(self, fetched: Fetched) -> None:
        """Take records, in log order. A worker that is not running has no use for them: it will read them again."""
        if self.status != "running" or self.draining:
            return
        self.inbox.put(fetched)
        self._wake.set()

    def interrupt(self, error: Exception) -> None:
        """Make the worker give up what it has open, as if `error` had happened to it."""
        self._interrupt = error
        self._wake.set()

    def drain(self) -> None:
        """Begin nothing new; the task ends when what is open is finished."""
        self.draining = True
        self._wake.set()
        if self.status == "taking":
            self.task.cancel()

    def close(self) -> Parked | None:
        """The end of this assignment, at once. Gives what can be used again; the rest is killed in the background."""
        clean = self.task.done() and not self.task.cancelled() and self.status == "running" and not self.in_flight
        self.status = "closed"
        self.task.cancel()
        return self._leave(clean)

    @abstractmethod
    def _leave(self, clean: bool) -> Parked | None: ...

    @abstractmethod
    async def _fence(self) -> None:
        """Become the only one who can publish for this partition."""

    @abstractmethod
    async def _work(self) -> None:
        """Process and deliver until `draining`; then finish what is open."""

    @abstractmethod
    async def _give_up(self) -> None:
        """Drop what is open. Never raises."""

    # Its life.

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A worker that ends otherwise than by its own decision ends the process: a partition must not fall silent."""
        if task.cancelled():
            if self.status != "closed" and not self.draining:  # by a library, say
                tp = self.partition
                gone = RuntimeError(f"the worker of {tp.topic}-{tp.partition} was cancelled while it was {self.status}")
                self.around.fatal(gone)
        elif (error := task.exception()) is not None and not isinstance(error, OwnershipLost):
            self.around.fatal(error)

    async def _live(self) -> None:
        around = self.around
        while not self.draining:
            started = time.monotonic()
            try:
                await self._take()
                await self._work()
            except Refused as refused:
                self._tell_refusals(refused)
                try:
                    self._learn_refusals(refused)
                except Unpublishable as error:
                    await self._stand_still(error)
                    return
                await self._fall_back()
            except TakeAgain:
                await self._fall_back()
            except (Braked, OffsetOutOfRange, UnreadableState, Unpublishable) as error:
                await self._stand_still(error)
                return
            except OwnershipLost:
                await self._fall_back()
                return
            except Bug as bug:
                around.fatal(bug.__cause__ or bug)
                return
            except Exception as error:  # takeovers, timeouts and fencing look alike: all are answered by taking it again
                if self.status == "taking":
                    around.observer.taken(around.name, *self.partition, "failed", time.monotonic() - started)
                self.reason = describe(error)
                await self._fall_back()
                around.observer.log(
                    "warning", "partition.failed", **self.around.where(self.partition), error=describe(error), status=self.status
                )
                if isinstance(error, TopicAuthorizationFailedError) and around.config.topics.dead_letter in str(error):
                    around.observer.dead_letter_failed(around.name)
                if around.took_too_often(self.partition, error):
                    return
                if not self.draining:
                    await self.sleep(2 * around.config.kafka.heartbeat_interval / 1000)

    async def _fall_back(self) -> None:
        """Stop reading, drop the queue and what is open."""
        if self.status == "closed":  # the partition is someone else's matter, perhaps already our next worker's
            raise OwnershipLost(f"{self.partition} was given up")
        if self.status != "taking":
            self.taking_since = time.monotonic()
        self.status = "taking"
        self.around.source.pause(self.partition)
        self.inbox.clear()
        self.in_flight = 0
        self._interrupt = None
        self.processor.rollback()
        await self._give_up()
        self.around.changed()

    async def _stand_still(self, error: Exception) -> None:
        await self._fall_back()
        self.status = "braked" if isinstance(error, Braked) else "blocked"
        self.reason = str(error)
        around = self.around
        if isinstance(error, Braked):
            around.observer.braked(around.name, *self.partition, self.processor.brake.tripped or "")
        else:
            around.observer.blocked(around.name, *self.partition, BLOCKS[type(error)])
        around.observer.log("error", f"partition.{self.status}", **self.around.where(self.partition), reason=self.reason)
        around.changed()

    async def _take(self) -> None:
        around = self.around
        self.status = "taking"
        tripped = self.processor.brake.tripped
        if tripped is not None:
            raise Braked(self._braked(tripped))
        async with around.taking:
            started = time.monotonic()
            kept = self.parked
            self.parked = None
            if kept is None or not await self._reusable(kept):
                kept = None
                await self._fence()
                await self._restore()
            start = await self._where_to_start(kept)
        self._be_current()
        self._begin(start)
        self.status = "running"
        self.reason = ""
        around.source.seek(self.partition, start)
        around.observer.log(
            "info",
            "partition.taken",
            **self.around.where(self.partition),
            offset=start,
            reused=kept is not None,
            seconds=round(time.monotonic() - started, 3),
        )
        around.observer.taken(around.name, *self.partition, "ok", time.monotonic() - started)
        around.changed()

    def _owed_batch(self) -> Batch:
        """What timers of a former owner decided and did not live to say."""
        batch = Batch(self.next_offset, BatchReport(self.around.name, self.partition.topic, self.partition.partition))
        self._guarded(self.processor.repeat, batch, self._owed, self.around.wall())
        return batch

    def _begin(self, start: int) -> None:
        """The partition is taken: `start` is the first offset to be read."""
        self.next_offset = self.low = start

    async def _reusable(self, kept: Parked) -> bool:
        """Whether state and producer of the last assignment still hold. If anyone wrote the changelog since, they do not."""
        if self.around.changelog is None:
            return True
        async with asyncio.timeout(ASK_WITHIN):
            return await self.around.changelog.end(self.partition.partition) == kept.changelog_end

    async def _restore(self) -> None:
        self.processor.renew()
        self._written_offset, self._owed = None, ()
        if self.around.changelog is None:
            return
        self.restoring = True
        self.around.changed()
        try:
            restored = await restore(self.around, self.partition, self.processor, self.around.changelog)
        finally:
            self.restoring = False
        self._written_offset, self._owed = restored.next_offset, restored.owed

    async def _where_to_start(self, kept: Parked | None) -> int:
        start = await where_to_start(self.around, self.partition, kept.next_offset if kept else self._written_offset)
        self.committed_offset = -1 if start.committed is None else start.committed
        self._owes_commit = start.owes_commit
        return start.offset

    # What both kinds of delivery need.

    async def _wait(self) -> int | None:
        """Until there are records, or it is time to stop (None), or a timer is due (the stream time at which it is)."""
        state, around = self.processor.state, self.around
        while not self.inbox and not self.draining:
            self._check_interrupt()
            timeout = 5.0
            due = state.next_deadline()
            if due is not None:
                seen = around.source.seen_until(self.partition)
                if seen is not None and seen >= due:
                    return seen
                timeout = min(1.0, max(0.05, (due - around.wall()) / 1000))
            await self.sleep(timeout)
        self._check_interrupt()
        return None

    async def sleep(self, seconds: float) -> None:
        """Until something happens, at most so long."""
        if seconds <= 0:
            return
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _check_interrupt(self) -> None:
        if self._interrupt is not None:
            error, self._interrupt = self._interrupt, None
            raise error

    async def _process(self, fetches: Sequence[Fetched], due: int | None) -> Batch:
        """Apply the stage, a slice at a time, so that nothing else waits long. Raises Braked, Unpublishable or Bug."""
        around, processor, tp = self.around, self.processor, self.partition
        batch = Batch(self.next_offset, BatchReport(around.name, tp.topic, tp.partition))
        if due is not None:
            self._guarded(processor.advance, batch, due)
        for fetched in fetches:
            if around.schemas is not None:
                await learn(self, around.schemas, fetched.records)
            at = 0
            while at < len(fetched.records):
                records = fetched.records[at : at + self._slice]
                before = batch.report.processing_seconds
                self._guarded(processor.apply, batch, records, fetched.faults, around.wall())
                at += len(records)
                self._adapt(len(records), batch.report.processing_seconds - before)
                await asyncio.sleep(0)
            batch.next_offset = fetched.next_offset
        tripped = processor.brake.tripped
        if tripped is not None:
            raise Braked(self._braked(tripped))
        return batch

    def _adapt(self, records: int, seconds: float) -> None:
        """Choose slices that hold the event loop for about 20 ms, whatever a record costs."""
        self._slice = min(SLICES[1], max(SLICES[0], int(records * TURN / max(seconds, 1e-6))))

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except (Unpublishable, UnreadableState):  # a session that is read only now may turn out to be unreadable
            raise
        except Exception as error:
            raise Bug("the core failed") from error

    def _finished(self, batch: Batch, produce_seconds: float) -> None:
        """Report a batch that is delivered."""
        report, wall = batch.report, self.around.wall()
        report.produce_seconds = produce_seconds
        for item in batch.items:
            report.produced[item.outgoing.topic] += 1
        report.latencies = [(wall - timestamp) / 1000 for timestamp in batch.timestamps if timestamp >= 0]
        self.around.observer.batch_finished(report)

    def _tell_refusals(self, refused: Refused) -> None:
        """Say why the partition is about to be taken again."""
        counts = Counter((item.outgoing.topic, refusal) for item, refusal in refused.refusals)
        for (topic, refusal), count in counts.items():
            self.around.observer.log(
                "warning", "output.refused", **self.around.where(self.partition), output=topic, reason=refusal, count=count
            )

    def _learn_refusals(self, refused: Refused) -> None:
        """Remember what the broker will not take, for when the same input is read again.

        Raises Unpublishable for state: nothing can stand in for it.
        """
        changelog = self.around.changelog
        for item, refusal in refused.refusals:
            topic = item.outgoing.topic
            if changelog is not None and topic == changelog.topic:
                mend = "raise its max.message.bytes" if refusal == "too_large" else "see its message.timestamp settings"
                size = len(item.outgoing.value or b"")
                raise Unpublishable(f"{topic} does not take a session's entry of {size} bytes; {mend}")
            if item.reject is not None:
                self.around.observer.dead_letter_failed(self.around.name)
            self.processor.verdicts.remember(item, refusal, self.around.wall())

    def _be_current(self) -> None:
        if self.status == "closed" or not self.around.source.owns(self.partition):
            raise OwnershipLost(f"{self.partition} belongs to someone else now")

    def _braked(self, code: str) -> str:
        return (
            f"too many records are rejected, most of them as {code}, up to the one at offset {self.processor.brake.tripped_at}; "
            "mend what sends them, or the configuration, and restart"
        )
