"""What the demonstration sends, and what it shows of what comes out."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import orjson

from acs_aaep_bridge.cli.demo.screen import Screen
from acs_aaep_bridge.cli.letters import as_letter
from acs_aaep_bridge.cli.listen import Listener
from acs_aaep_bridge.cli.terminal import safe
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Record
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.samples import Sample, rounds

_STYLES: Final = {"critical": "bold red", "background": "dim"}

_SESSION: Final = len("sess_") + 8
"""Characters of a session id that are shown: enough to tell them apart by eye."""


def now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Feed:
    """Publishes sample traffic, `rate` records a second. `events` counts what was acknowledged, batches by their elements."""

    def __init__(self, clients: Clients, topic: str, screen: Screen, rate: float) -> None:
        self._clients, self._topic, self._screen, self._interval = clients, topic, screen, 1 / rate
        self.events = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; the record under way is finished."""
        producer = self._clients.producer("demo-hosts")
        await producer.start()
        try:
            for one_round in rounds(now(), now):
                for sample in one_round:
                    if await _set_within(stop, self._interval):
                        return
                    await self._publish(producer, sample)
        finally:
            await producer.stop()

    async def _publish(self, producer: Any, sample: Sample) -> None:
        self._screen.add("in", sample.what)
        await producer.send_and_wait(self._topic, sample.value, sample.key)
        self.events += sample.events


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Display:
    """Puts what the bridge publishes on the screen."""

    def __init__(self, config: Config, screen: Screen) -> None:
        self._screen, self._dead_letter = screen, config.topics.dead_letter
        self._listener = Listener("normal", 0, now)

    def show(self, record: Record) -> None:
        """One record of the lifecycle or the dead-letter topic."""
        if record.topic == self._dead_letter:
            letter = as_letter(record)
            where = letter.error.get("pointer", "")
            self._screen.add("out", safe(f"dead letter: {letter.code} {where}"), "yellow")
            return
        event = orjson.loads(record.value or b"{}")
        style = _STYLES.get(event.get("urgency"), "")
        kind, session = str(event.get("type")).removeprefix("aaep:"), str(event.get("session_id"))
        self._screen.add("out", safe(f"{kind} {session[:_SESSION]}…"), style)
        words = self._listener.hear(record.value)
        if words:
            self._screen.add("heard", words, style)
