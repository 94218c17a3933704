"""One stage at work: its group membership, its partitions, its probes. Everything it must watch, it watches here."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Literal

from aiokafka import TopicPartition
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from acs_aaep_bridge.errors import OwnershipLost, PartitionTakeError, StalledError, TopicError
from acs_aaep_bridge.kafka.at_least_once import AtLeastOnce
from acs_aaep_bridge.kafka.batch import Unpublishable
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.partition import Parked, TakeAgain, Worker
from acs_aaep_bridge.kafka.ports import Ends, Fetched, Probe, Sink, Source, Trouble
from acs_aaep_bridge.kafka.surroundings import Surroundings

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
PROBE_EVERY = 10.0
PROBE_VALID = 30.0  # three probes: one that is lost is not an outage
OVERDUE = 30.0  # since a record was sent, before readiness complains
_TROUBLE_LASTS = 5.0  # a trouble that is over is not told again, so it ends by itself
_COMMIT_EVERY = 0.2  # at the most: a commit per batch would cost more than the batch
_COMMIT_WITHIN = 30.0
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
        self._rebuilding = False
        self._stopping = False
        self._failed_commits = 0
        self.workers: dict[TopicPartition, Worker] = {}
        self._parked: dict[TopicPartition, Parked] = {}
        self._failures: dict[TopicPartition, deque[float]] = defaultdict(deque)
        self._troubles: dict[TopicPartition | None, tuple[float, str]] = {}
        self._stalled: set[TopicPartition] = set()
        self._probed_at = time.monotonic()
        self._revoked_at: float | None = None
        self._joined = False
        self._dirty = asyncio.Event()
        self._committing: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._unseen: list[str] = []
        self._told: tuple[str, ...] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        around.fatal = self.fail
        around.took_too_often = self._took_too_often
        around.changed = self._tell_readiness
        around.owned = lambda: len(self.workers)

    def fail(self, error: BaseException) -> None:
        """End the process with this error; the first one stands."""
        if not self.failed.done():
            self.failed.set_exception(error)

    async def start(self) -> None:
        """Connect and join. Raises when no broker can be reached."""
        await self.around.source.start(self)
        loops: list[Coroutine[Any, Any, None]] = [self._poll(), self._probe_regularly(), self._look_regularly()]
        if self._sink is not None:
            loops.append(self._commit_regularly())
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
        self._joined = True
        took = time.monotonic() - self._revoked_at if self._revoked_at is not None else 0.0
        self._revoked_at = None
        around.observer.rebalanced(around.name, len(partitions), took)
        around.observer.log("info", "rebalance.assigned", stage=around.name, partitions=len(partitions), seconds=round(took, 3))
        self._tell_readiness()

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._revoked_at = time.monotonic()
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
            await self._commit(workers, max(0.2, deadline - time.monotonic()))
        if self._committing is not None:
            self._committing.cancel()
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
        now = time.monotonic()
        if now - self._probed_at > PROBE_VALID or self._unseen or isinstance(error, FORBIDDEN):
            return False
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
            if self._rebuilding:
                await asyncio.sleep(_POLL)
                continue
            hungry = [tp for tp, worker in self.workers.items() if worker.hungry]
            timeout = _POLL if len(hungry) == len(self.workers) else _POLL / 4
            for one in await around.source.poll(hungry, timeout):
                if isinstance(one, Fetched):
                    self._troubles.pop(one.partition, None)
                    self._troubles.pop(None, None)
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
        known = self._troubles.get(tp)
        where = f"{tp.topic}-{tp.partition}: " if tp is not None else ""
        if known is None:
            around.observer.log("warning", f"consumer.{trouble.kind}", stage=around.name, reason=f"{where}{trouble.message}")
        self._troubles[tp] = (time.monotonic(), f"{where}{trouble.message}")
        self._tell_readiness()

    async def _rebuild(self, why: str) -> None:
        """Leave the group and join it anew, with a new consumer."""
        if self._rebuilding:
            return
        self._rebuilding = True
        try:
            await self._join_anew(why)
        finally:
            self._rebuilding = False

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

    # Committing, at least once.

    def finished(self) -> None:
        """A batch is finished: its offset may be committed."""
        self._dirty.set()

    async def _commit_regularly(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._committing = asyncio.ensure_future(self._commit(list(self.workers.values()), _COMMIT_WITHIN))
            await asyncio.wait([self._committing])
            await asyncio.sleep(_COMMIT_EVERY * 2 ** min(self._failed_commits, 6))

    async def _commit(self, workers: Sequence[Worker], within: float) -> None:
        """The low-water marks of these workers, for the assignment they belong to."""
        around = self.around
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
            self._failed_commits += 1
            self._dirty.set()
        else:
            self._failed_commits = 0
            around.observer.committed(around.name, "ok", time.monotonic() - started)
            for worker, low in marks.items():
                worker.committed(low)

    # Watching.

    async def _probe_regularly(self) -> None:
        around = self.around
        while True:
            owned = sorted(self.workers)
            try:
                async with asyncio.timeout(PROBE_EVERY):
                    ends = await self._probe.lags(owned)
            except Exception as error:  # whatever it is, the broker did not answer
                around.observer.connected("consumer", False)
                around.observer.log("warning", "broker.unreachable", stage=around.name, error=describe(error))
                for worker in self.workers.values():
                    worker.progressed_at = time.monotonic()
            else:
                self._probed_at = time.monotonic()
                around.observer.connected("consumer", True)
                self._check_topics()
                await self._measure(ends)
            self._tell_readiness()
            await asyncio.sleep(PROBE_EVERY)

    async def _measure(self, ends: dict[TopicPartition, Ends]) -> None:
        around = self.around
        allowed = around.config.watchdog.stall_after
        stalled = []
        # What an operator must mend elsewhere is said, not answered with a new consumer.
        forbidden = self._sink is not None and self._sink.forbidden() is not None
        for tp, worker in self.workers.items():
            if tp not in ends:  # whether it lags is not known, so nor is whether it stalls
                worker.progressed_at = time.monotonic()
                continue
            if worker.low < 0:
                continue
            stable, high = ends[tp]
            position = around.source.position(tp) if worker.idle and worker.status == "running" else None
            lag = max(0, stable - (worker.low if position is None else max(position, worker.low)))
            around.observer.lag(around.name, *tp, lag, max(0, high - stable))
            if lag == 0 or forbidden or worker.status in {"blocked", "braked"} or worker.reason:
                worker.progressed_at = time.monotonic()
            elif allowed and time.monotonic() - worker.progressed_at > allowed / 1000:
                stalled.append(tp)
            if time.monotonic() - worker.progressed_at < PROBE_EVERY:
                self._stalled.discard(tp)
        if stalled:
            await self._handle_stall(stalled)

    async def _handle_stall(self, stalled: list[TopicPartition]) -> None:
        """Once the consumer is made anew; if that does not help, the process ends."""
        names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in stalled)
        message = f"no commit progress for {self.around.config.watchdog.stall_after // 1000} s although there is lag: {names}"
        if self._stalled & set(stalled):
            raise StalledError(f"{message}; making the consumer anew did not help")
        self._stalled |= set(stalled)
        for tp in stalled:
            self.around.observer.stalled(self.around.name, *tp)
        self._tell_readiness()
        await self._rebuild(message)

    def _check_topics(self) -> None:
        """A topic that cannot be seen is said loudly; another number of partitions ends the process where state depends on it."""
        unseen = [topic for topic in sorted(self.around.expected) if self._probe.partitions(topic) is None]
        self._unseen = [f"the topic {topic} {self._why_unseen(topic)}" for topic in unseen]
        names = self.around.config.topics
        for topic in (names.normalized, names.changelog) if self.around.changelog is not None else ():
            count, expected = self._probe.partitions(topic), self.around.expected[topic]
            if count is not None and count != expected:
                raise TopicError(
                    f"{topic} has {count} partitions and had {expected} when the bridge started: sessions would be looked "
                    "for in the wrong partition; see the runbook on changing partition counts"
                )

    def _why_unseen(self, topic: str) -> str:
        return "may not be described: grant DESCRIBE on it" if self._probe.forbidden(topic) else "is gone"

    async def _look_regularly(self) -> None:
        while True:
            inflight = sum(worker.in_flight for worker in self.workers.values())
            self.around.observer.inflight(self.around.name, inflight)
            self._tell_readiness()
            self._log_readiness()
            await asyncio.sleep(1)

    def _tell_readiness(self) -> None:
        self.around.observer.readiness(self.around.name, self._reasons())

    def _log_readiness(self) -> None:
        """Once a second at most: a rebalance would fill the log otherwise."""
        reasons = tuple(self._reasons())
        if reasons != self._told:
            self._told = reasons
            level: Literal["warning", "info"] = "warning" if reasons else "info"
            self.around.observer.log(level, "readiness", stage=self.around.name, ready=not reasons, reasons=list(reasons))

    def _reasons(self) -> list[str]:
        now = time.monotonic()
        reasons: list[str] = []
        if not self._joined:
            reasons.append("not a member of the consumer group yet")
        elif self._revoked_at is not None and now - self._revoked_at > self.around.config.kafka.rebalance_timeout / 1000:
            reasons.append("a rebalance does not end")
        if self._rebuilding:
            reasons.append("the consumer is being made anew")
        restoring = sum(worker.restoring for worker in self.workers.values())
        if restoring:
            reasons.append(f"restoring {restoring} partitions")
        for tp, worker in sorted(self.workers.items()):
            if worker.status in {"blocked", "braked"} or worker.reason:
                reasons.append(f"{tp.topic}-{tp.partition} {worker.status}: {worker.reason}")
        if now - self._probed_at > PROBE_VALID:
            reasons.append(f"no broker has answered for {PROBE_VALID:.0f} s")
        reasons += self._unseen
        self._troubles = {tp: said for tp, said in self._troubles.items() if now - said[0] < _TROUBLE_LASTS}
        reasons += [message for _, message in self._troubles.values()]
        if self._sink is not None and (held_up := self._sink.forbidden() or self._sink.overdue(OVERDUE)):
            reasons.append(held_up)
        reasons += [f"{tp.topic}-{tp.partition} is stalled" for tp in sorted(self._stalled)]
        return reasons
