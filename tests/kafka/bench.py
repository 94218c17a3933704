"""Runs the machinery on the in-memory log, and watches it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from aiokafka import TopicPartition
from tests.kafka.stages import build

from acs_aaep_bridge.config import Config, load
from acs_aaep_bridge.core.model import Record, StageName
from acs_aaep_bridge.kafka.memory import MemoryBackend, MemoryLog
from acs_aaep_bridge.kafka.observer import BatchReport, NullObserver
from acs_aaep_bridge.kafka.ports import FailPoint, SchemaSource
from acs_aaep_bridge.kafka.runner import Parts, run_on

RAW, NORMALIZED, LIFECYCLE, LETTERS, CHANGELOG = "raw", "normalized", "lifecycle", "letters", "sessions"


def config(delivery: str = "exactly_once", **settings: str) -> Config:
    """Short topic names and short waits; `settings` are dotted overrides with `__` for the dot."""
    base = {
        "delivery": delivery,
        "input.topics": RAW,
        "topics.normalized": NORMALIZED,
        "topics.lifecycle": LIFECYCLE,
        "topics.dead_letter": LETTERS,
        "topics.changelog": CHANGELOG,
        "kafka.group_prefix": "g",
        "kafka.heartbeat_interval": "10ms",
        "kafka.drain_timeout": "1s",
        "shutdown.timeout": "4s",
        "transaction.interval": "1ms",
    }
    return load("", {}, base | {name.replace("__", "."): value for name, value in settings.items()})


def log(partitions: int = 1, **limits: int) -> MemoryLog:
    """The bridge's topics, with size limits by topic."""
    return MemoryLog(dict.fromkeys((RAW, NORMALIZED, LIFECYCLE, LETTERS, CHANGELOG), partitions), limits)


def copy_of(memory: MemoryLog) -> MemoryLog:
    """What the broker has at this moment: what a process that dies now leaves behind."""
    copy = log()
    copy.partitions = {tp: list(entries) for tp, entries in memory.partitions.items()}
    copy.committed = dict(memory.committed)
    return copy


class Watcher(NullObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.letters: Counter[str] = Counter()
        self.reports: list[BatchReport] = []
        self.commits: Counter[str] = Counter()
        self.reasons: dict[str, Sequence[str]] = defaultdict(lambda: ["not told yet"])
        self.probes: list[TopicPartition] = []
        self.lags: dict[TopicPartition, int] = {}
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.brakes: list[tuple[TopicPartition, str]] = []
        self.failed_letters = 0

    def batch_finished(self, report: BatchReport) -> None:
        self.reports.append(report)
        self.letters += report.dead_letters
        for (_, result), count in report.events.items():
            self.events[result] += count

    def committed(self, stage: StageName, outcome: Literal["ok", "failed", "lost"], seconds: float) -> None:
        self.commits[outcome] += 1

    def lag(self, stage: StageName, topic: str, partition: int, lag: int, open_transactions: int) -> None:
        self.probes.append(TopicPartition(topic, partition))
        self.lags[TopicPartition(topic, partition)] = lag

    def braked(self, stage: StageName, topic: str, partition: int, code: str) -> None:
        self.brakes.append((TopicPartition(topic, partition), code))

    def dead_letter_failed(self, stage: StageName) -> None:
        self.failed_letters += 1

    def readiness(self, stage: StageName, reasons: Sequence[str]) -> None:
        self.reasons[stage] = reasons

    def log(self, level: Literal["debug", "info", "warning", "error"], event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def heard(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.said if name == event]


class Run:
    """One running bridge. `end` stops it as SIGTERM would."""

    def __init__(self, watcher: Watcher, task: asyncio.Task[None], stop: asyncio.Event) -> None:
        self.watcher = watcher
        self.task = task
        self._stop = stop

    async def end(self) -> None:
        self._stop.set()
        await self.task

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Until the condition holds. AssertionError if it never does, or the bridge's own error if that ends first."""
        async with asyncio.timeout(seconds):
            while not condition():
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the bridge ended")
                await asyncio.sleep(0.005)

    async def until_committed(self, log: MemoryLog, stage: StageName = "normalize", seconds: float = 10.0) -> None:
        """Until the whole input of a stage is committed."""
        topic = RAW if stage == "normalize" else NORMALIZED
        wanted = {("g-" + stage, tp): len(entries) for tp, entries in log.partitions.items() if tp.topic == topic and entries}

        def reached() -> bool:
            return all(log.committed.get(key, 0) >= end - _markers(log, key[1]) for key, end in wanted.items())

        await self.until(reached, seconds)


def _markers(log: MemoryLog, tp: TopicPartition) -> int:
    """Markers at the very end: nothing is committed past the last record."""
    entries = log.partitions[tp]
    count = 0
    while count < len(entries) and entries[-1 - count] is None:
        count += 1
    return count


def start(
    log: MemoryLog,
    settings: Config,
    stages: Sequence[StageName] = ("normalize",),
    *,
    failpoint: FailPoint = lambda name: None,
    schemas: SchemaSource | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """A bridge with the test stages on `log`."""
    watcher = watcher or Watcher()
    stop = asyncio.Event()
    parts = Parts(schemas=schemas, stop=stop, build=build, failpoint=failpoint)
    work = run_on(MemoryBackend(log, settings), settings, stages, watcher, parts)
    return Run(watcher, asyncio.ensure_future(work), stop)


@asynccontextmanager
async def running(
    log: MemoryLog, settings: Config, stages: Sequence[StageName] = ("normalize",), **more: Any
) -> AsyncIterator[Run]:
    """`start`, ended in order."""
    run = start(log, settings, stages, **more)
    try:
        yield run
        await run.end()
    finally:
        run.task.cancel()
        await asyncio.wait([run.task])


def fill(log: MemoryLog, count: int, partitions: int, keys: int = 5, topic: str = NORMALIZED) -> None:
    """So many records, the keys in turn, each in the partition of its key."""
    for number in range(count):
        key = number % keys
        log.publish(topic, b"v%d" % number, key=b"k%d" % key, partition=key % partitions, at=1_000 + number)


def record(log: MemoryLog, topic: str, place: int = -1, partition: int = 0) -> Record:
    """One record of a topic."""
    return [one for one in log.partitions[TopicPartition(topic, partition)] if one is not None][place]


def counted(log: MemoryLog) -> dict[bytes, list[int]]:
    """What the counting stage said, by key, in order."""
    said: dict[bytes, list[int]] = defaultdict(list)
    for value in log.values(LIFECYCLE):
        key, _, number = (value or b"").partition(b"=")
        if number:
            said[key].append(int(number))
    return said
