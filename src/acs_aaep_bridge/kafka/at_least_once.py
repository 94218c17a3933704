"""A worker that delivers first and commits later. The next batch is processed while the acknowledgements of the last are due."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition

from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.core.offsets import LowWaterMark
from acs_aaep_bridge.kafka.batch import Batch
from acs_aaep_bridge.kafka.entries import entries
from acs_aaep_bridge.kafka.partition import Parked, Worker
from acs_aaep_bridge.kafka.ports import Item, Refusal, Refused, Sink
from acs_aaep_bridge.kafka.surroundings import Surroundings

_PIPELINE = 8  # batches under way at once


class AtLeastOnce(Worker):
    """Outputs acknowledged, then state, then the offset. Where there is no state to write, batches overlap."""

    def __init__(
        self,
        around: Surroundings,
        partition: TopicPartition,
        sink: Sink,
        finished: Callable[[], None],
        parked: Parked | None = None,
    ) -> None:
        self._sink = sink
        self._tell = finished
        self._open: set[asyncio.Task[None]] = set()
        self._mark = LowWaterMark(-1)
        self._tombstones: deque[tuple[int, Item]] = deque(parked.tombstones if parked else ())
        self._changelog_end = -1
        super().__init__(around, partition, parked)
        self.processor.fits = sink.fits
        self.processor.suspect = sink.suspect

    def _begin(self, start: int) -> None:
        super()._begin(start)
        self._mark = LowWaterMark(start)
        if self._owes_commit:
            self._tell()
        else:
            self.committed_offset = start

    async def _restore(self) -> None:
        self._tombstones.clear()
        await super()._restore()

    async def _fence(self) -> None:
        """Nothing fences here: a former owner may still publish, and what it publishes twice is the same."""

    async def _give_up(self) -> None:
        for task in self._open:
            task.cancel()
        self._open.clear()
        self.in_flight = 0

    def _leave(self, clean: bool) -> Parked | None:
        if clean and (self.around.changelog is None or self._changelog_end >= 0):
            return Parked(self.processor, self.next_offset, self._changelog_end, None, tuple(self._tombstones))
        for task in self._open:
            task.cancel()
        return None

    async def _work(self) -> None:
        limit = self.around.config.kafka.max_poll_records
        if self._owed:
            await self._say_what_is_owed()
        while True:
            due = await self._wait()
            if self.draining:
                break
            fetches = self.inbox.take(limit)
            batch = await self._process(fetches, due)
            if fetches:
                self.next_offset = batch.next_offset
                self._mark.accept(batch.next_offset)
            self.in_flight += batch.report.records
            changes = self.processor.state.changes()
            if changes:
                await self._settle()
                await self._deliver_with_state(batch, changes, timers_only=not fetches)
            else:
                self.processor.commit()
                self._begin_delivery(batch, bool(fetches))
                await self._sink.room()
                if len(self._open) >= _PIPELINE:
                    await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)
        await self._settle()
        await self._remember_end()

    def _begin_delivery(self, batch: Batch, has_records: bool) -> None:
        task = asyncio.ensure_future(self._deliver(batch, has_records, self._sink.send(batch.items)))
        self._open.add(task)
        task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.interrupt(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def _settle(self) -> None:
        """Wait for everything that is under way."""
        while self._open:
            await asyncio.wait(self._open)
        self._check_interrupt()

    async def _deliver(self, batch: Batch, has_records: bool, sent: asyncio.Future[None]) -> None:
        began = time.monotonic()
        await self._acknowledged(batch, sent)
        self.around.failpoint("outputs_acked")
        self._close(batch, has_records, time.monotonic() - began)

    async def _deliver_with_state(self, batch: Batch, changes: Sequence[tuple[bytes, bytes | None]], timers_only: bool) -> None:
        """What a timer decided by the wall clock may be decided otherwise the next time: it is written before it is said.

        Written together with what is to be said, and once more without, so that nobody who dies in between takes it along.
        Where both do not fit into one record of the changelog it is said first, as what a record gives.
        """
        began = time.monotonic()
        if timers_only:
            said = _by_session(batch.items)
            owed = self._fitting(changes, said)
            first = [(key, value) for key, value in changes if value is not None and (key in owed or key not in said)]
            await self._write_state(first, owed)
            changes = [(key, value) for key, value in changes if value is None or key in said]
        await self._acknowledged(batch, self._sink.send(batch.items))
        self.around.failpoint("outputs_acked")
        await self._write_state(changes)
        self.processor.commit()
        self._close(batch, not timers_only, time.monotonic() - began)
        state = self.processor.state
        self.around.observer.sessions_open(self.around.name, *self.partition, state.open_sessions())

    def _fitting(
        self, changes: Sequence[tuple[bytes, bytes | None]], said: Mapping[bytes, Sequence[Outgoing]]
    ) -> dict[bytes, Sequence[Outgoing]]:
        """What is `said` of those sessions whose entry and it are one record that the changelog takes."""
        changelog = self.around.changelog
        if changelog is None:
            return {}
        speaking = [(key, value) for key, value in changes if key in said]
        items = entries(changelog.topic, self.partition.partition, speaking, self.around.wall(), said)
        together = [item.outgoing for item in items if item.outgoing.value is not None]
        fits, suspect = self._sink.fits, self._sink.suspect
        return {one.key: said[one.key] for one in together if one.key and (_weight(one) <= suspect or fits(one))}

    async def _say_what_is_owed(self) -> None:
        """As a batch of its own, before anything else of this partition."""
        began, batch = time.monotonic(), self._owed_batch()
        self.in_flight = len(self._owed)
        await self._acknowledged(batch, self._sink.send(batch.items))
        await self._write_state(batch.entries)
        self._owed = ()
        self.in_flight = 0
        self._finished(batch, time.monotonic() - began)

    async def _write_state(
        self, changes: Sequence[tuple[bytes, bytes | None]], owed: Mapping[bytes, Sequence[Outgoing]] | None = None
    ) -> None:
        """Write entries now; tombstones only when the commit has passed what they forget, or a replay would find no session."""
        changelog = self.around.changelog
        if changelog is None:
            return
        items = entries(changelog.topic, self.partition.partition, changes, self.around.wall(), owed)
        written = {item.outgoing.key for item in items if item.outgoing.value is not None}
        # What was forgotten and has come back must not be buried by the tombstone that still waits.
        self._tombstones = deque(due for due in self._tombstones if due[1].outgoing.key not in written)
        self._tombstones += [(self.next_offset, item) for item in items if item.outgoing.value is None]
        await self._sink.send([item for item in items if item.outgoing.value is not None])
        self.around.failpoint("changelog_acked")
        self._bury()

    async def _acknowledged(self, batch: Batch, sent: asyncio.Future[None]) -> None:
        """Until every item, or what stands in for it, is acknowledged."""
        wall: int | None = None
        while True:
            try:
                await sent
                return
            except Refused as refused:
                # The present of the first refusal, for all: an outage may have come before it, and its own refusal is recognized.
                wall = wall or self.around.wall()
                if self.around.changelog is not None and any(map(_is_late_reject, refused.refusals)):
                    raise  # all of its record is rejected, and what it did to the state undone: that takes another reading
                stand_ins = []
                for item, refusal in refused.refusals:
                    if item.reject is not None:
                        self.around.observer.dead_letter_failed(self.around.name)
                    stand_ins.append(self.processor.replace(batch, item, refusal, wall))
                sent = self._sink.send(stand_ins)

    def _close(self, batch: Batch, has_records: bool, seconds: float) -> None:
        self.in_flight -= batch.report.records
        if has_records:
            self._mark.finish(batch.next_offset)
            self.low = self._mark.value
        self._finished(batch, seconds)
        self._tell()

    def committed(self, offset: int) -> None:
        """The group has this offset now: what was forgotten below it may go from the changelog."""
        self.progressed_at = time.monotonic()
        self.committed_offset = offset
        self._bury()

    def _bury(self) -> None:
        """Write the tombstones that no replay can ask for any more. None while draining: they would land after the revoke."""
        if self.draining:
            return
        due: list[Item] = []
        while self._tombstones and self._tombstones[0][0] <= self.committed_offset:
            due.append(self._tombstones.popleft()[1])
        if due:
            self._sink.send(due).add_done_callback(_retrieve)

    async def _remember_end(self) -> None:
        if self.around.changelog is not None:
            self._changelog_end = await self.around.changelog.end(self.partition.partition)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """A tombstone that could not be written costs a little space, nothing else."""
    if not future.cancelled():
        future.exception()


def _by_session(items: Sequence[Item]) -> dict[bytes, list[Outgoing]]:
    """What is said of each session."""
    said: dict[bytes, list[Outgoing]] = defaultdict(list)
    for item in items:
        if item.session is not None:
            said[item.session].append(item.outgoing)
    return said


def _weight(outgoing: Outgoing) -> int:
    return len(outgoing.value or b"") + sum(len(content or b"") for _, content in outgoing.headers)


def _is_late_reject(refused: tuple[Item, Refusal]) -> bool:
    """Whether the broker's refusal is what makes a dead letter of the record."""
    item, refusal = refused
    return refusal == "too_large" and item.reject is None and item.record is not None
