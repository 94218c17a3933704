"""How a stage is doing: lag, stalls, topics and permissions, and whether it is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from aiokafka import TopicPartition

from acs_aaep_bridge.errors import StalledError, TopicError
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.partition import Worker
from acs_aaep_bridge.kafka.ports import Ends, Probe, Sink, Trouble
from acs_aaep_bridge.kafka.surroundings import Surroundings

# All in seconds.
PROBE_EVERY = 10.0
PROBE_VALID = 30.0  # three probes: one that is lost is not an outage
OVERDUE = 30.0  # since a record was sent, before readiness complains
LONG_TAKE = 15.0  # likewise, since a partition began to be taken
_TROUBLE_LASTS = 5.0  # a trouble that is over is not told again, so it ends by itself


class Watch:
    """Watches the workers of one stage and speaks for them. `rebuild` makes the consumer anew; `sink` is for at-least-once.

    The group sets `joined`, `revoked_at` and `rebuilding`; times are monotonic seconds.
    """

    def __init__(
        self,
        around: Surroundings,
        workers: Mapping[TopicPartition, Worker],
        probe: Probe,
        rebuild: Callable[[str], Awaitable[None]],
        sink: Sink | None = None,
    ) -> None:
        self._around = around
        self._workers = workers
        self._probe = probe
        self._rebuild = rebuild
        self._sink = sink
        self.joined = False
        self.revoked_at: float | None = None
        self.rebuilding = False
        self._troubles: dict[TopicPartition | None, tuple[float, str]] = {}
        self._stalled: set[TopicPartition] = set()
        self._probed_at = time.monotonic()
        self._unseen: list[str] = []
        self._told: tuple[str, ...] | None = None

    def is_outage(self) -> bool:
        """Whether no broker answers, or a topic is gone or hidden from us: what an operator must mend elsewhere."""
        return time.monotonic() - self._probed_at > PROBE_VALID or bool(self._unseen)

    def heed(self, trouble: Trouble) -> None:
        """The consumer ran into something; said once, and for as long as it lasts by `tell`."""
        around, tp = self._around, trouble.partition
        where = f"{tp.topic}-{tp.partition}: " if tp is not None else ""
        if tp not in self._troubles:
            around.observer.log("warning", f"consumer.{trouble.kind}", stage=around.name, reason=f"{where}{trouble.message}")
        self._troubles[tp] = (time.monotonic(), f"{where}{trouble.message}")
        self.tell()

    def works(self, partition: TopicPartition) -> None:
        """The consumer brought something: what ailed it, or this partition, is over."""
        self._troubles.pop(partition, None)
        self._troubles.pop(None, None)

    async def probe_regularly(self) -> None:
        around = self._around
        while True:
            owned = sorted(self._workers)
            try:
                async with asyncio.timeout(PROBE_EVERY):
                    ends = await self._probe.lags(owned)
            except Exception as error:  # whatever it is, the broker did not answer
                around.observer.connected("consumer", False)
                around.observer.log("warning", "broker.unreachable", stage=around.name, error=describe(error))
                for worker in self._workers.values():
                    worker.progressed_at = time.monotonic()
            else:
                self._probed_at = time.monotonic()
                around.observer.connected("consumer", True)
                self._check_topics()
                await self._measure(ends)
            self.tell()
            await asyncio.sleep(PROBE_EVERY)

    async def _measure(self, ends: dict[TopicPartition, Ends]) -> None:
        around = self._around
        allowed = around.config.watchdog.stall_after
        stalled = []
        # What an operator must mend elsewhere is said, not answered with a new consumer.
        forbidden = self._sink is not None and self._sink.forbidden() is not None
        for tp, worker in self._workers.items():
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
        message = f"no commit progress for {self._around.config.watchdog.stall_after // 1000} s although there is lag: {names}"
        if self._stalled & set(stalled):
            raise StalledError(f"{message}; making the consumer anew did not help")
        self._stalled |= set(stalled)
        for tp in stalled:
            self._around.observer.stalled(self._around.name, *tp)
        self.tell()
        await self._rebuild(message)

    def _check_topics(self) -> None:
        """A topic that cannot be seen is said loudly; another number of partitions ends the process where state depends on it."""
        unseen = [topic for topic in sorted(self._around.expected) if self._probe.partitions(topic) is None]
        self._unseen = [f"the topic {topic} {self._why_unseen(topic)}" for topic in unseen]
        names = self._around.config.topics
        for topic in (names.normalized, names.changelog) if self._around.changelog is not None else ():
            count, expected = self._probe.partitions(topic), self._around.expected[topic]
            if count is not None and count != expected:
                raise TopicError(
                    f"{topic} has {count} partitions and had {expected} when the bridge started: sessions would be looked "
                    "for in the wrong partition; see the runbook on changing partition counts"
                )

    def _why_unseen(self, topic: str) -> str:
        return "may not be described: grant DESCRIBE on it" if self._probe.forbidden(topic) else "is gone"

    async def look_regularly(self) -> None:
        while True:
            inflight = sum(worker.in_flight for worker in self._workers.values())
            self._around.observer.inflight(self._around.name, inflight)
            self.tell()
            self._log_readiness()
            await asyncio.sleep(1)

    def tell(self) -> None:
        self._around.observer.readiness(self._around.name, self._reasons())

    def _log_readiness(self) -> None:
        """Once a second at most: a rebalance would fill the log otherwise."""
        reasons = tuple(self._reasons())
        if reasons != self._told:
            self._told = reasons
            level: Literal["warning", "info"] = "warning" if reasons else "info"
            self._around.observer.log(level, "readiness", stage=self._around.name, ready=not reasons, reasons=list(reasons))

    def _reasons(self) -> list[str]:
        now = time.monotonic()
        reasons: list[str] = []
        if not self.joined:
            reasons.append("not a member of the consumer group yet")
        elif self.revoked_at is not None and now - self.revoked_at > self._around.config.kafka.rebalance_timeout / 1000:
            reasons.append("a rebalance does not end")
        if self.rebuilding:
            reasons.append("the consumer is being made anew")
        restoring = sum(worker.restoring for worker in self._workers.values())
        if restoring:
            reasons.append(f"restoring {restoring} partitions")
        for tp, worker in sorted(self._workers.items()):
            if worker.status in {"blocked", "braked"} or worker.reason:
                reasons.append(f"{tp.topic}-{tp.partition} {worker.status}: {worker.reason}")
            elif worker.status == "taking" and not worker.restoring and now - worker.taking_since > LONG_TAKE:
                reasons.append(f"{tp.topic}-{tp.partition} has not been taken for {LONG_TAKE:.0f} s")
        if now - self._probed_at > PROBE_VALID:
            reasons.append(f"no broker has answered for {PROBE_VALID:.0f} s")
        reasons += self._unseen
        self._troubles = {tp: said for tp, said in self._troubles.items() if now - said[0] < _TROUBLE_LASTS}
        reasons += [message for _, message in self._troubles.values()]
        if self._sink is not None and (held_up := self._sink.forbidden() or self._sink.overdue(OVERDUE)):
            reasons.append(held_up)
        reasons += [f"{tp.topic}-{tp.partition} is stalled" for tp in sorted(self._stalled)]
        return reasons
