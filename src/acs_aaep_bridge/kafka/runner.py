"""The whole run: check, build the stages, supervise them, end in order."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Stage, StageName
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.errors import BridgeError, BrokerUnreachable
from acs_aaep_bridge.kafka import topics
from acs_aaep_bridge.kafka.around import around
from acs_aaep_bridge.kafka.at_least_once import AtLeastOnce
from acs_aaep_bridge.kafka.backend import KafkaBackend
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.describe import describe
from acs_aaep_bridge.kafka.exactly_once import ExactlyOnce
from acs_aaep_bridge.kafka.group import Group
from acs_aaep_bridge.kafka.observer import Observer
from acs_aaep_bridge.kafka.partition import Parked, Worker
from acs_aaep_bridge.kafka.ports import Backend, FailPoint, SchemaSource
from acs_aaep_bridge.kafka.surroundings import Surroundings

_LOOP_EVERY = 0.5
_STOP_SHARE = 0.8  # of `shutdown.timeout`: on a busy machine every step ends a little late
_GIVE_UP_WITHIN = 5.0  # seconds for what was being started to be closed

T = TypeVar("T")


def _nothing(name: str) -> None:
    """The fail point of production: nothing fails on purpose."""


@dataclass(frozen=True)
class Parts:
    """What `run` takes besides the configuration.

    `schemas` is asked for writer schemas (default: the configured registry), `stop` ends the run like SIGTERM. `build` and
    `failpoint` are for tests: other stages, and a call at named moments of a delivery, where the process may be killed.
    `watch` is a task beside the stages that never ends by itself; what it fails with ends the run.
    """

    schemas: SchemaSource | None = None
    stop: asyncio.Event | None = None
    build: Callable[[StageName, Config], Stage] = build_stage
    failpoint: FailPoint = _nothing
    watch: asyncio.Task[None] | None = None


async def run(config: Config, stages: Sequence[StageName], observer: Observer, parts: Parts | None = None) -> None:
    """Run `stages` until SIGTERM, SIGINT or `Parts.stop`, then drain, commit and leave within `shutdown.timeout`.

    A second signal ends the process at once. Raises StartError when it cannot start (broker, topics, authorization),
    PartitionTakeError, StalledError or TopicError when it cannot go on, and whatever else was raised: a bug.
    """
    parts = parts or Parts()
    stopping = parts.stop or asyncio.Event()
    with _signals(stopping):
        clients = Clients(config)
        report = await _unless_stopped(stopping, topics.check(config, stages, clients))
        if report is None:
            return
        for warning in report.warnings:
            observer.log("warning", "topics.odd", reason=warning)
        backend = KafkaBackend(config, clients, report, observer)
        async with around(config, stages, observer) as found:
            build = found.build if parts.build is build_stage else parts.build
            parts = replace(parts, stop=stopping, schemas=parts.schemas or found.registry, build=build, watch=found.watch)
            await run_on(backend, config, stages, observer, parts)


async def run_on(backend: Backend[Any], config: Config, stages: Sequence[StageName], observer: Observer, parts: Parts) -> None:
    """`run` on what `backend` offers, without its checks and its signal handlers."""
    groups: list[Group] = []
    stopping = parts.stop or asyncio.Event()
    watch = asyncio.ensure_future(_watch_loop(observer))
    try:
        for name in stages:
            group = await _unless_stopped(stopping, _start(backend, config, parts.build(name, config), observer, parts))
            if group is None:
                return
            groups.append(group)
        observer.log("info", "bridge.started", stages=list(stages), delivery=config.delivery)
        await _until(stopping, groups, parts.watch)
    finally:
        watch.cancel()
        began = time.monotonic()
        deadline = began + config.shutdown.timeout / 1000 * _STOP_SHARE
        # The exception of one must not cut the others' leaving short; there is none that is expected.
        ends = await asyncio.gather(*(group.stop(deadline) for group in groups), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                observer.log("error", "bridge.stop_failed", error=describe(end))
        failures = [error for group in groups if group.failed.done() and (error := group.failed.exception())]
        observer.log("info", "bridge.stopped", seconds=round(time.monotonic() - began, 3))
    for error in failures:
        if not isinstance(error, BridgeError):  # a bug that showed while draining
            raise error


async def _unless_stopped(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None when it was given up because the process is to end."""
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        stop.cancel()
        task.cancel()
        await asyncio.wait([task], timeout=_GIVE_UP_WITHIN)
        if task.done() and not task.cancelled():
            task.exception()


async def _start(backend: Backend[Any], config: Config, stage: Stage, observer: Observer, parts: Parts) -> Group:
    """A running group. Raises BrokerUnreachable."""
    name = stage.name
    probe = backend.probe(name)
    sink = backend.sink(name) if config.delivery == "at_least_once" else None
    around = Surroundings(
        config,
        stage,
        backend.source(name),
        observer,
        start=config.input.start if name == "normalize" else "earliest",
        on_out_of_range=config.input.on_out_of_range,
        expected=backend.expected(name),
        changelog=backend.changelog(probe) if name == "lifecycle" else None,
        schemas=parts.schemas,
        failpoint=parts.failpoint,
    )
    group = Group(around, lambda: backend.source(name), probe, sink)

    def worker(around: Surroundings, tp: TopicPartition, parked: Parked | None) -> Worker:
        if sink is not None:
            return AtLeastOnce(around, tp, sink, group.committer.finished, parked)
        return ExactlyOnce(around, tp, lambda: backend.transactor(name, tp), parked)

    group.make_worker = worker
    try:
        await probe.start()
        if sink is not None:
            await sink.start()
        await group.start()
    except BaseException as error:
        await group.stop(time.monotonic() + 3)
        if isinstance(error, KafkaError | OSError | TimeoutError):
            raise BrokerUnreachable(f"the {name} stage cannot connect: {error or type(error).__name__}") from error
        raise
    return group


async def _until(stopping: asyncio.Event, groups: Sequence[Group], watch: asyncio.Task[None] | None) -> None:
    """Until it is to stop, or a group or `watch` cannot go on: then what ails it is raised."""
    stop = asyncio.ensure_future(stopping.wait())
    vital: list[asyncio.Future[None]] = [group.failed for group in groups]
    if watch is not None:
        vital.append(watch)
    try:
        waited: list[asyncio.Future[Any]] = [stop, *vital]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for one in vital:
            if one.done():
                one.result()
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
