"""One stage at work: its membership in the consumer group, and a worker for every partition it owns."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from acs_aaep_bridge.errors import PartitionTakeError
from acs_aaep_bridge.kafka.batch import Unpublishable
from acs_aaep_bridge.kafka.committer import Committer
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.partition import Parked, TakeAgain, Worker
from acs_aaep_bridge.kafka.ports import Fetched, Probe, Sink, Source, Trouble
from acs_aaep_bridge.kafka.surroundings import Surroundings
from acs_aaep_bridge.kafka.watch import Watch

FORBIDDEN = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailedError,
    SaslAuthenticationFailed,
)
# All in seconds.
TAKE_FAILURES = 5
TAKE_WINDOW = 600.0
_POLL = 0.2  # a quarter of it while partitions are full: what is hungry again must not wait for the others


MakeWorker = Callable[[Surroundings, TopicPartition, "Parked | None"], Worker]


class Group:
    """Runs one stage until `stop`. It is the `ports.Listener` of its source. `sink` is for at-least-once delivery.

    `make_worker` is to be set before `start`.
    """

    def __init__(
        self,
        around: Surroundings,
        make_source: Callable[[], Source],
        probe: Probe,
        sink: Sink | None = None,
    ) -> None:
        self.around = around
        self._make_source = make_source
        self.make_worker: MakeWorker
        self._probe = probe
        self._sink = sink
        self._stopping = False
        self.workers: dict[TopicPartition, Worker] = {}
        self._parked: dict[TopicPartition, Parked] = {}
        self._failures: dict[TopicPartition, deque[float]] = defaultdict(deque)
        self._watch = Watch(around, self.workers, probe, self._rebuild, sink)
        self.committer = Committer(around, self.workers)
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        around.fatal = self.fail
        around.took_too_often = self._took_too_often
        around.changed = self._watch.tell
        around.owned = lambda: len(self.workers)

    def fail(self, error: BaseException) -> None:
        """End the process with this error; the first one stands."""
        if not self.failed.done():
            self.failed.set_exception(error)

    async def start(self) -> None:
        """Connect and join. Raises when no broker can be reached."""
        await self.around.source.start(self)
        loops: list[Coroutine[Any, Any, None]] = [self._poll(), self._watch.probe_regularly(), self._watch.look_regularly()]
        if self._sink is not None:
            loops.append(self.committer.run())
        self._tasks = [asyncio.ensure_future(self._supervised(loop)) for loop in loops]

    async def stop(self, deadline: float) -> None:
        """Drain, commit, leave, close, by `deadline` (monotonic seconds)."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await self._release(self._budget(deadline - 2))
        for parked in self._parked.values():
            if parked.transactor is not None:
                self.around.later(parked.transactor.kill(max(0.5, deadline - time.monotonic() - 1)))
        self._parked.clear()
        leave = max(0.5, deadline - time.monotonic() - 0.7)
        await self.around.source.stop(leave)
        if self._sink is not None:
            await self._sink.stop(max(0.2, deadline - time.monotonic() - 0.4))
        if self.around.background:
            _, late = await asyncio.wait(self.around.background, timeout=max(0.1, deadline - time.monotonic() - 0.2))
            for task in late:
                task.cancel()
        with suppress(Exception):
            async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
                await self._probe.stop()

    def _budget(self, latest: float) -> float:
        return max(0.5, min(self.around.config.kafka.drain_timeout / 1000, latest - time.monotonic()))

    async def _supervised(self, loop: Coroutine[Any, Any, None]) -> None:
        try:
            await loop
        except Exception as error:  # every loop handles what can be expected: this is a bug, or meant to end the process
            self.fail(error)

    # The assignment.

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        around = self.around
        if self._stopping:  # a rebalance that ends while we leave: taking them would fence their next owner
            return
        for tp in sorted(partitions):
            self.workers[tp] = self.make_worker(around, tp, self._parked.pop(tp, None))
            around.observer.assigned(around.name, *tp)
        for parked in self._parked.values():
            if parked.transactor is not None:
                around.later(parked.transactor.kill(5))
        self._parked.clear()
        self._watch.joined = True
        took = time.monotonic() - self._watch.revoked_at if self._watch.revoked_at is not None else 0.0
        self._watch.revoked_at = None
        around.observer.rebalanced(around.name, len(partitions), took)
        around.observer.log("info", "rebalance.assigned", stage=around.name, partitions=len(partitions), seconds=round(took, 3))
        self._watch.tell()

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._watch.revoked_at = time.monotonic()
        try:
            await self._release(self.around.config.kafka.drain_timeout / 1000)
        except Exception as error:  # a rebalance that fails here would be hidden by aiokafka
            self.fail(error)

    async def _release(self, budget: float) -> None:
        """Let every worker finish what is open, within the budget; then close them all. All, because rebalances are eager."""
        around = self.around
        workers, deadline = list(self.workers.values()), time.monotonic() + budget
        for worker in workers:
            worker.drain()
        if workers:
            await asyncio.wait([worker.task for worker in workers], timeout=budget)
        if self._sink is not None and workers:
            await self.committer.commit(workers, max(0.2, deadline - time.monotonic()))
        self.committer.cancel()
        for worker in workers:
            parked = worker.close()
            if parked is not None:
                self._parked[worker.partition] = parked
            if self.workers.get(worker.partition) is worker:
                del self.workers[worker.partition]
            around.observer.revoked(around.name, *worker.partition)
        if workers:
            around.observer.log(
                "info",
                "rebalance.revoked",
                stage=around.name,
                partitions=len(workers),
                clean=len(self._parked),
                seconds=round(budget - deadline + time.monotonic(), 3),
            )

    def _took_too_often(self, tp: TopicPartition, error: Exception) -> bool:
        """Whether that was the fifth failure in ten minutes. What an operator must mend elsewhere does not count.

        That is: while no broker answers, while a topic is gone or hidden from us, and what the broker does not allow.
        """
        if self._watch.is_outage() or isinstance(error, FORBIDDEN):
            return False
        now = time.monotonic()
        failures = self._failures[tp]
        failures.append(now)
        while failures and failures[0] < now - TAKE_WINDOW:
            failures.popleft()
        if len(failures) < TAKE_FAILURES:
            return False
        self.fail(
            PartitionTakeError(
                f"{tp.topic}-{tp.partition} could not be taken and kept {TAKE_FAILURES} times in ten minutes; "
                f"the last time: {describe(error)}"
            )
        )
        return True

    # Reading.

    async def _poll(self) -> None:
        around = self.around
        while True:
            if self._watch.rebuilding:
                await asyncio.sleep(_POLL)
                continue
            hungry = [tp for tp, worker in self.workers.items() if worker.hungry]
            timeout = _POLL if len(hungry) == len(self.workers) else _POLL / 4
            for one in await around.source.poll(hungry, timeout):
                if isinstance(one, Fetched):
                    self._watch.works(one.partition)
                    worker = self.workers.get(one.partition)
                    if worker is not None:
                        worker.offer(one)
                else:
                    self._heed(one)
            if not around.source.alive():
                await self._rebuild("the consumer's background tasks have died")

    def _heed(self, trouble: Trouble) -> None:
        around, tp = self.around, trouble.partition
        worker = self.workers.get(tp) if tp is not None else None
        if worker is not None and trouble.kind == "out_of_range":
            around.source.pause(worker.partition)
            # To be taken again: the offset it starts at is checked against the log, and the policy applied there.
            worker.interrupt(TakeAgain(trouble.message))
            return
        if worker is not None and trouble.kind == "corrupt":
            worker.interrupt(Unpublishable(f"the log cannot be read {trouble.message}"))
            return
        self._watch.heed(trouble)

    async def _rebuild(self, why: str) -> None:
        """Leave the group and join it anew, with a new consumer."""
        if self._watch.rebuilding:
            return
        self._watch.rebuilding = True
        try:
            await self._join_anew(why)
        finally:
            self._watch.rebuilding = False

    async def _join_anew(self, why: str) -> None:
        around = self.around
        around.observer.log("error", "consumer.rebuilt", stage=around.name, reason=why)
        await self._release(1)
        await around.source.stop(5)
        attempt = 0
        while True:
            try:
                around.source = self._make_source()
                await around.source.start(self)
            except Exception as error:  # no broker yet, or a certificate that is just being replaced
                attempt += 1
                around.observer.log("warning", "consumer.start_failed", stage=around.name, error=str(error), attempt=attempt)
                await around.source.stop(1)
                await asyncio.sleep(min(30.0, 2.0 ** min(attempt, 5)))
            else:
                return
