"""A worker whose outputs, dead letters, state and input offset are one transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiokafka import TopicPartition

from acs_aaep_bridge.errors import OwnershipLost
from acs_aaep_bridge.kafka.batch import Batch
from acs_aaep_bridge.kafka.entries import entries, next_offset_entry
from acs_aaep_bridge.kafka.partition import KILL_WITHIN, START_WITHIN, Parked, Worker
from acs_aaep_bridge.kafka.ports import Item, Refused, Transactor
from acs_aaep_bridge.kafka.surroundings import Surroundings

_ALONE_RECORDS = 200  # each item is a request of its own then, and the transaction must end in time


class ExactlyOnce(Worker):
    """One transaction at a time. Any failure: kill the producer and take the partition again, never abort."""

    def __init__(
        self,
        around: Surroundings,
        partition: TopicPartition,
        make: Callable[[], Transactor],
        parked: Parked | None = None,
    ) -> None:
        self._make = make
        self._transactor = parked.transactor if parked else None
        self._alone = False
        self._changelog_end = -1
        super().__init__(around, partition, parked)
        if self._transactor is not None:
            self._measure(self._transactor)

    async def _fence(self) -> None:
        await self._give_up()
        transactor = self._transactor = self._make()
        async with asyncio.timeout(START_WITHIN):
            await transactor.start()
        self._measure(transactor)

    def _measure(self, transactor: Transactor) -> None:
        self.processor.fits = transactor.fits
        self.processor.suspect = transactor.suspect

    async def _give_up(self) -> None:
        transactor, self._transactor = self._transactor, None
        if transactor is not None:
            # In the background, and waited for: a revoke may cancel the waiting, never the killing.
            await asyncio.shield(self.around.later(transactor.kill(KILL_WITHIN)))

    def _leave(self, clean: bool) -> Parked | None:
        transactor, self._transactor = self._transactor, None
        if clean and transactor is not None and (self.around.changelog is None or self._changelog_end >= 0):
            return Parked(self.processor, self.next_offset, self._changelog_end, transactor)
        if transactor is not None:
            self.around.later(transactor.kill(KILL_WITHIN))
        return None

    async def _work(self) -> None:
        config = self.around.config.transaction
        began = 0.0
        if self._owes_commit or self._owed:
            await self._transact(self._owed_batch())
            self._owed = ()
        while True:
            due = await self._wait()
            if self.draining:
                break
            interval = max(100, 10 * self.around.owned()) if config.interval == 0 else config.interval
            while (rest := began + interval / 1000 - time.monotonic()) > 0 and not self.draining:
                self._check_interrupt()
                await asyncio.sleep(min(rest, 0.05))
            if self.draining:
                break
            began = time.monotonic()
            fetches = self.inbox.take(_ALONE_RECORDS if self._alone else config.max_records)
            self.in_flight = sum(len(fetched.records) for fetched in fetches)
            batch = await self._process(fetches, due)
            if fetches or batch.items or self.processor.state.changes():
                await self._transact(batch)
            else:
                self.processor.commit()
            self.in_flight = 0
        await self._remember_end()

    async def _transact(self, batch: Batch) -> None:
        around, transactor = self.around, self._transactor
        if transactor is None:
            raise OwnershipLost("the producer was given up")
        items = batch.items + self._state_items(batch)
        sent = time.monotonic()
        try:
            async with asyncio.timeout(around.config.kafka.transaction_timeout / 1000):
                await transactor.begin()
                around.failpoint("transaction_open")
                await transactor.send(items, self._alone)
                around.failpoint("outputs_acked")
                around.failpoint("changelog_acked")
                self._be_current()
                around.failpoint("before_commit")
                acked = time.monotonic()
                await transactor.commit(self.partition, batch.next_offset)
        except Exception as error:
            lost = isinstance(error, OwnershipLost)
            around.observer.committed(around.name, "lost" if lost else "failed", time.monotonic() - sent)
            raise
        around.failpoint("after_commit")
        self.processor.commit()
        self._alone = False
        self.next_offset = self.low = batch.next_offset
        self.progressed_at = time.monotonic()
        around.observer.committed(around.name, "ok", time.monotonic() - acked)
        self._finished(batch, acked - sent)
        if around.changelog is not None:
            around.observer.sessions_open(around.name, *self.partition, self.processor.state.open_sessions())

    def _state_items(self, batch: Batch) -> list[Item]:
        changelog = self.around.changelog
        if changelog is None:
            return []
        number, wall = self.partition.partition, self.around.wall()
        changed = entries(changelog.topic, number, [*batch.entries, *self.processor.state.changes()], wall)
        return [*changed, next_offset_entry(changelog.topic, number, batch.next_offset, wall)]

    async def _remember_end(self) -> None:
        """Where the changelog ends as we leave it, to see at the next assignment whether anyone else has written since."""
        if self.around.changelog is not None:
            self._changelog_end = await self.around.changelog.end(self.partition.partition)

    def _learn_refusals(self, refused: Refused) -> None:
        """One item in a refused batch: that one. Several: find out which by sending each alone."""
        if self._alone or len(refused.refusals) == 1:
            super()._learn_refusals(refused)
        self._alone = True
