"""The course of the demonstration: start, feed, let it drain, account for everything."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, NamedTuple, TextIO

from acs_aaep_bridge.cli.demo.screen import Screen
from acs_aaep_bridge.cli.demo.show import Display, Feed
from acs_aaep_bridge.cli.demo.summary import Account, account
from acs_aaep_bridge.cli.reading import broker_errors, follow
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.runner import Parts, run
from acs_aaep_bridge.kafka.topics import create
from acs_aaep_bridge.telemetry.metrics import PREFIX
from acs_aaep_bridge.telemetry.registry import Metrics
from acs_aaep_bridge.telemetry.setup import telemetry

STAGES: Final[tuple[StageName, ...]] = ("normalize", "lifecycle")

_DRAIN: Final = 15.0
"""Seconds after the feed has ended, at most, for what is on its way."""

_START: Final = 10.0
"""Seconds, at most, until the bridge has its partitions."""

_ENDING: Final = 3.0
"""Seconds before the end at which nothing more is sent."""

_LAST_LOOK: Final = 1.0
"""Seconds that the last events get to reach the screen."""


class Course(NamedTuple):
    """How long the demonstration takes, in seconds, and how many records a second it sends."""

    seconds: float
    rate: float


async def play(config: Config, screen: Screen, course: Course, log: TextIO) -> Account:
    """Run until the time is over, or SIGINT or SIGTERM; then give the account."""
    ends = time.monotonic() + max(1.0, course.seconds - _ENDING)
    clients = Clients(config)
    await create(config, STAGES, clients)
    async with telemetry(config, STAGES, log) as seen:
        running = asyncio.ensure_future(run(config, STAGES, seen.observer, Parts(stop=(bridge := asyncio.Event()))))
        await asyncio.sleep(0)  # it has taken the signals now; they are ours
        try:
            with _signals() as interrupted:
                async with _shown(config, screen):
                    screen.status("the bridge joins its consumer groups")
                    await _until(lambda: _ready(seen.metrics), _START, running)
                    screen.status(f"metrics: http://127.0.0.1:{seen.port}/metrics - ends by itself, or on Ctrl-C")
                    feed = Feed(clients, config.input.topics[0], screen, course.rate)
                    await _feed(feed, interrupted, ends - time.monotonic(), running)
                    screen.status("nothing more is sent; waiting for what is on its way")
                    await _until(lambda: account(feed.events, seen.metrics.registry).settled(), _DRAIN, running)
        finally:
            bridge.set()
            await running
        return account(feed.events, seen.metrics.registry)


async def _feed(feed: Feed, interrupted: asyncio.Event, seconds: float, running: asyncio.Future[None]) -> None:
    """Feed for `seconds`, or until the user or the bridge ends it. Raises what ended the bridge."""
    stop = asyncio.Event()
    feeding = asyncio.ensure_future(feed.run(stop))
    waiting = asyncio.ensure_future(interrupted.wait())
    try:
        ends: set[asyncio.Future[Any]] = {feeding, waiting, running}
        await asyncio.wait(ends, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        waiting.cancel()
        with broker_errors("publish the sample traffic"):
            await feeding
    if running.done():
        running.result()


async def _until(condition: Callable[[], bool], seconds: float, running: asyncio.Future[None]) -> None:
    """Until `condition` holds, the bridge ends, or it takes too long. Looks now and then: counters tell nobody of themselves."""
    deadline = time.monotonic() + seconds
    while not condition():
        if running.done() or time.monotonic() > deadline:
            return
        await asyncio.sleep(0.1)


def _ready(metrics: Metrics) -> bool:
    name = PREFIX + "ready"
    return all(metrics.registry.get_sample_value(name, {"stage": stage}) == 1 for stage in STAGES)


@asynccontextmanager
async def _shown(config: Config, screen: Screen) -> AsyncIterator[None]:
    """Everything that comes out is put on the screen, from the first record on; what lags behind at the end is not waited for."""
    names = config.topics
    ready = asyncio.Event()

    async def show() -> None:
        display = Display(config, screen)
        async with aclosing(follow(config, [names.lifecycle, names.dead_letter], "beginning", ready.set)) as records:
            async for record in records:
                display.show(record)

    showing = asyncio.ensure_future(show())
    waiting = asyncio.ensure_future(ready.wait())
    try:
        await asyncio.wait({showing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        yield
        await asyncio.sleep(_LAST_LOOK)
    finally:
        waiting.cancel()
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """SIGINT and SIGTERM set the event; a second one ends the wait for what is on its way."""
    loop, interrupted = asyncio.get_running_loop(), asyncio.Event()
    task = asyncio.current_task()

    def on_signal() -> None:
        if interrupted.is_set() and task is not None:
            task.cancel()
        interrupted.set()

    caught = (signal.SIGINT, signal.SIGTERM)
    for number in caught:
        loop.add_signal_handler(number, on_signal)
    try:
        yield interrupted
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
