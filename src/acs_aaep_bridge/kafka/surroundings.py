"""What the workers of one stage share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka import TopicPartition

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.brake import Brake
from acs_aaep_bridge.core.model import Stage, StageName
from acs_aaep_bridge.kafka.observer import Observer
from acs_aaep_bridge.kafka.ports import Changelog, FailPoint, SchemaSource, Source


@dataclass
class Surroundings:
    """Configuration, stage, source and observer of a stage, and how a worker is heard.

    The group sets what it is told by: `fatal` ends the process, `took_too_often` counts a failure, `changed` asks for a look
    at the readiness. `expected` are partition counts by topic as they were found at the start.
    """

    config: Config
    stage: Stage
    source: Source
    observer: Observer
    start: Literal["earliest", "latest"]
    on_out_of_range: Literal["block", "earliest", "latest"]
    fatal: Callable[[BaseException], None] = lambda error: None
    took_too_often: Callable[[TopicPartition, Exception], bool] = lambda partition, error: False
    changed: Callable[[], None] = lambda: None
    owned: Callable[[], int] = lambda: 1
    expected: dict[str, int] = field(default_factory=dict)
    changelog: Changelog | None = None
    schemas: SchemaSource | None = None
    failpoint: FailPoint = lambda name: None
    wall: Callable[[], int] = lambda: int(time.time() * 1000)
    taking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))
    background: set[asyncio.Task[Any]] = field(default_factory=set)
    brakes: dict[TopicPartition, Brake] = field(default_factory=dict)

    @property
    def name(self) -> StageName:
        return self.stage.name

    def where(self, partition: TopicPartition) -> dict[str, Any]:
        """What a log line about an input partition says of it."""
        return {"stage": self.name, "topic": partition.topic, "partition": partition.partition}

    def brake(self, partition: TopicPartition) -> Brake:
        """One for the life of the process: a rebalance must not release it."""
        if partition not in self.brakes:
            limits = self.config.dead_letter
            self.brakes[partition] = Brake(limits.max_consecutive, limits.max_ratio)
        return self.brakes[partition]

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do it beside everything else; waited for, a moment, at the end."""
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task
