"""The whole run: check, build the stages, supervise them, end in order."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Stage, StageName
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.errors import BrokerUnreachable
from acs_aaep_bridge.kafka import topics
from acs_aaep_bridge.kafka.at_least_once import AtLeastOnce
from acs_aaep_bridge.kafka.changelog import KafkaChangelog
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.exactly_once import ExactlyOnce
from acs_aaep_bridge.kafka.group import Group, MakeWorker
from acs_aaep_bridge.kafka.observer import Observer
from acs_aaep_bridge.kafka.partition import Parked, Surroundings, Worker
from acs_aaep_bridge.kafka.ports import FailPoint, SchemaSource, Transactor
from acs_aaep_bridge.kafka.probe import KafkaProbe
from acs_aaep_bridge.kafka.sink import KafkaSink
from acs_aaep_bridge.kafka.source import KafkaSource
from acs_aaep_bridge.kafka.transactions import KafkaTransactor, transactional_id

_LOOP_EVERY = 0.5


def _nothing(name: str) -> None:
    """The fail point of production: nothing fails on purpose."""


@dataclass(frozen=True)
class Parts:
    """What `run` takes besides the configuration.

    `schemas` is asked for writer schemas, `stop` ends the run like SIGTERM. `build` and `failpoint` are for tests: other
    stages, and a call at named moments of a delivery, where the process may be killed.
    """

    schemas: SchemaSource | None = None
    stop: asyncio.Event | None = None
    build: Callable[[StageName, Config], Stage] = build_stage
    failpoint: FailPoint = _nothing


async def run(config: Config, stages: Sequence[StageName], observer: Observer, parts: Parts | None = None) -> None:
    """Run `stages` until SIGTERM, SIGINT or `Parts.stop`, then drain, commit and leave within `shutdown.timeout`.

    A second signal ends the process at once. Raises StartError when it cannot start (broker, topics, authorization),
    PartitionTakeError, StalledError or TopicError when it cannot go on, and whatever else was raised: a bug.
    """
    parts = parts or Parts()
    stopping = parts.stop or asyncio.Event()
    with _signals(stopping):
        clients = Clients(config)
        report = await topics.check(config, stages, clients)
        for warning in report.warnings:
            observer.log("warning", "topics.odd", reason=warning)
        kit = _Kit(config, clients, report, observer, parts)
        groups: list[Group] = []
        watch = asyncio.ensure_future(_watch_loop(observer))
        try:
            for name in stages:
                groups.append(await kit.start(parts.build(name, config)))
            observer.log("info", "bridge.started", stages=list(stages), delivery=config.delivery)
            await _until(stopping, groups)
        finally:
            watch.cancel()
            began = time.monotonic()
            deadline = began + config.shutdown.timeout / 1000
            await asyncio.gather(*(group.stop(deadline) for group in groups))
            observer.log("info", "bridge.stopped", seconds=round(time.monotonic() - began, 3))


@dataclass(frozen=True)
class _Kit:
    """What it takes to put a stage on Kafka."""

    config: Config
    clients: Clients
    report: topics.Report
    observer: Observer
    parts: Parts

    async def start(self, stage: Stage) -> Group:
        """A running group. Raises BrokerUnreachable."""
        config, name = self.config, stage.name
        probe = KafkaProbe(self.clients.plain(f"{name}-probe"), sorted(self._expected(name)))
        around = Surroundings(
            config,
            stage,
            self._source(name),
            self.observer,
            group=config.group(name),
            start=config.input.start if name == "normalize" else "earliest",
            on_out_of_range=config.input.on_out_of_range,
            expected=self._expected(name),
            changelog=self._changelog(probe) if name == "lifecycle" else None,
            schemas=self.parts.schemas,
            failpoint=self.parts.failpoint,
        )
        sink = self._sink(name) if config.delivery == "at_least_once" else None
        group = Group(around, lambda: self._source(name), probe, sink)
        group.make_worker = self._exactly_once if sink is None else self._at_least_once(sink, group)
        try:
            await probe.start()
            if sink is not None:
                await sink.start()
            await group.start()
        except (KafkaError, OSError, TimeoutError) as error:
            await group.stop(time.monotonic() + 3)
            raise BrokerUnreachable(f"the {name} stage cannot connect: {error or type(error).__name__}") from error
        return group

    def _written(self, name: StageName) -> set[str]:
        names = self.config.topics
        own = {names.normalized} if name == "normalize" else {names.lifecycle, names.changelog}
        return own | {names.dead_letter}

    def _expected(self, name: StageName) -> dict[str, int]:
        inputs = set(self.config.input.topics) if name == "normalize" else {self.config.topics.normalized}
        return {topic: self.report.topics[topic].partitions for topic in inputs | self._written(name)}

    def _outputs(self, name: StageName) -> topics.Report:
        return topics.Report({topic: self.report.topics[topic] for topic in self._written(name)}, ())

    def _source(self, name: StageName) -> KafkaSource:
        config = self.config
        names = config.input.topics if name == "normalize" else (config.topics.normalized,)
        pattern = f"(?!__){config.input.pattern}" if name == "normalize" and config.input.pattern is not None else None
        member = partial(self.clients.member, name, config.group(name))
        return KafkaSource(member, names, pattern, config.kafka.max_partition_fetch)

    def _sink(self, name: StageName) -> KafkaSink:
        make = partial(self.clients.producer, name)
        return KafkaSink(make, self._outputs(name), self.config.kafka.max_in_flight, self.observer)

    def _changelog(self, probe: KafkaProbe) -> KafkaChangelog:
        wait = self.config.kafka.transaction_timeout / 1000 + 10
        reader = partial(self.clients.reader, "lifecycle-restore")
        return KafkaChangelog(self.config.topics.changelog, reader, probe.client, wait)

    def _exactly_once(self, around: Surroundings, tp: TopicPartition, parked: Parked | None) -> Worker:
        def transactor(partition: TopicPartition) -> Transactor:
            identity = transactional_id(around.group, partition)
            make = partial(self.clients.producer, f"{around.name}-{partition.topic}-{partition.partition}", identity)
            return KafkaTransactor(make, self._outputs(around.name), around.group)

        return ExactlyOnce(around, tp, transactor, parked)

    def _at_least_once(self, sink: KafkaSink, group: Group) -> MakeWorker:
        return lambda around, tp, parked: AtLeastOnce(around, tp, sink, group.finished, parked)


async def _until(stopping: asyncio.Event, groups: Sequence[Group]) -> None:
    """Until it is to stop, or a group cannot go on: then what ails it is raised."""
    stop = asyncio.ensure_future(stopping.wait())
    try:
        waited: list[asyncio.Future[Any]] = [stop, *(group.failed for group in groups)]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for group in groups:
            if group.failed.done():
                group.failed.result()
    finally:
        stop.cancel()


async def _watch_loop(observer: Observer) -> None:
    """How late the event loop is, twice a second."""
    while True:
        due = time.monotonic() + _LOOP_EVERY
        await asyncio.sleep(_LOOP_EVERY)
        observer.loop_lag(max(0.0, time.monotonic() - due))


@contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event; a second one ends the process at once. Left alone outside of the main thread."""
    loop = asyncio.get_running_loop()
    caught = (signal.SIGTERM, signal.SIGINT)

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    try:
        for number in caught:
            loop.add_signal_handler(number, on_signal, number)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
