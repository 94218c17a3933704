"""Commits the offsets of a stage that delivers at least once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from aiokafka import TopicPartition

from acs_aaep_bridge.errors import OwnershipLost
from acs_aaep_bridge.kafka.at_least_once import AtLeastOnce
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.partition import Worker
from acs_aaep_bridge.kafka.surroundings import Surroundings

# In seconds.
_EVERY = 0.2  # at the most: a commit per batch would cost more than the batch
_WITHIN = 30.0


class Committer:
    """Low-water marks to the group, a few times a second, in one request for all partitions."""

    def __init__(self, around: Surroundings, workers: Mapping[TopicPartition, Worker]) -> None:
        self._around = around
        self._workers = workers
        self._dirty = asyncio.Event()
        self._failures = 0
        self._under_way: asyncio.Task[None] | None = None

    def finished(self) -> None:
        """A batch is finished: its offset may be committed."""
        self._dirty.set()

    async def run(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._under_way = asyncio.ensure_future(self.commit(list(self._workers.values()), _WITHIN))
            await asyncio.wait([self._under_way])
            await asyncio.sleep(_EVERY * 2 ** min(self._failures, 6))

    async def commit(self, workers: Sequence[Worker], within: float) -> None:
        """The low-water marks of these workers, for the assignment they belong to."""
        around = self._around
        marks = {
            worker: worker.low
            for worker in workers
            if isinstance(worker, AtLeastOnce) and worker.status != "closed" and worker.low > worker.committed_offset
        }
        if not marks:
            return
        started = time.monotonic()
        try:
            async with asyncio.timeout(within):
                await around.source.commit({worker.partition: low for worker, low in marks.items()})
        except OwnershipLost:
            around.observer.committed(around.name, "lost", time.monotonic() - started)
        except Exception as error:  # unreachable, unauthorized: the offsets stay due
            around.observer.committed(around.name, "failed", time.monotonic() - started)
            around.observer.log("warning", "commit.failed", stage=around.name, error=describe(error))
            self._failures += 1
            self._dirty.set()
        else:
            self._failures = 0
            around.observer.committed(around.name, "ok", time.monotonic() - started)
            for worker, low in marks.items():
                worker.committed(low)

    def cancel(self) -> None:
        """Give up what is under way: it belongs to an assignment that has ended."""
        if self._under_way is not None:
            self._under_way.cancel()
