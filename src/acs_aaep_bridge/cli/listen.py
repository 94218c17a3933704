"""`listen`: what a screen-reader user would hear. Also the shortest example of how to subscribe."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, Literal

import click
import orjson

from acs_aaep_bridge.cli.options import as_duration, with_config
from acs_aaep_bridge.cli.reading import follow
from acs_aaep_bridge.cli.terminal import safe
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.telemetry.logs import configure

Verbosity = Literal["terse", "normal", "detailed"]

_FALLBACK: Final[dict[Verbosity, tuple[str, ...]]] = {
    "terse": ("summary_terse", "summary_normal", "summary_detailed"),
    "normal": ("summary_normal", "summary_terse", "summary_detailed"),
    "detailed": ("summary_detailed", "summary_normal", "summary_terse"),
}
_REMEMBERED: Final = 100_000
_CRITICAL: Final = "Important: "


class Listener:
    """One subscriber: drops repeats and what is too old to matter, and chooses the words. `clock` in milliseconds."""

    def __init__(self, verbosity: Verbosity, max_age: int, clock: Callable[[], int]) -> None:
        self._fields, self._max_age, self._clock = _FALLBACK[verbosity], max_age, clock
        self._heard: OrderedDict[str, None] = OrderedDict()
        self.left_out = 0
        """Events that were too old to be spoken."""

    def hear(self, value: bytes | None) -> str | None:
        """The line to speak, or None: not an event, heard before, stale, or an event without words."""
        event = _parsed(value)
        if event is None or self._repeated(event.get("event_id")):
            return None
        critical = event.get("urgency") == "critical"
        if not critical and self._stale(event.get("timestamp")):
            self.left_out += 1
            return None
        words = self._words(event)
        return (_CRITICAL if critical else "") + words if words else None

    def _repeated(self, event_id: object) -> bool:
        if not isinstance(event_id, str):
            return False
        if event_id in self._heard:
            return True
        self._heard[event_id] = None
        if len(self._heard) > _REMEMBERED:
            self._heard.popitem(last=False)
        return False

    def _stale(self, timestamp: object) -> bool:
        try:
            age = self._clock() - datetime.fromisoformat(str(timestamp)).timestamp() * 1000
        except ValueError:
            return False
        return self._max_age > 0 and age > self._max_age

    def _words(self, event: dict[str, Any]) -> str:
        fields = ("chunk",) if event.get("type") == "aaep:agent.output.streaming" else self._fields
        found = (event[name] for name in fields if isinstance(event.get(name), str))
        return next((text for text in map(safe, found) if text), "")


def _parsed(value: bytes | None) -> dict[str, Any] | None:
    try:
        event = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) else None


@click.command()
@click.option(
    "--verbosity",
    type=click.Choice(["terse", "normal", "detailed"]),
    default="normal",
    show_default=True,
    help="How much is said. Where an event has no text of this length, the nearest one is spoken.",
)
@click.option(
    "--max-age",
    default="1h",
    show_default=True,
    callback=as_duration,
    metavar="DURATION",
    help="Leave out events that are older, unless they are critical; 0 leaves out nothing.",
)
@click.option("--from-beginning", is_flag=True, help="Begin with what the topic still holds, not with what comes next.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many lines.")
@with_config
def listen(config: Config, verbosity: Verbosity, max_age: int, from_beginning: bool, count: int | None) -> None:
    """Print what a screen-reader user would hear, one line per event, as it happens.

    Subscribes to the lifecycle topic the way every subscriber should: committed events only, each event_id once, stale
    events left out unless they are critical. Critical ones are marked "Important:". Ctrl-C ends.
    """
    configure(config.log)
    listener = Listener(verbosity, max_age, lambda: int(time.time() * 1000))
    try:
        asyncio.run(_listen(config, listener, "beginning" if from_beginning else "end", count))
    except KeyboardInterrupt:
        return


async def _listen(config: Config, listener: Listener, start: Literal["beginning", "end"], count: int | None) -> None:
    topic = config.topics.lifecycle
    spoken = 0

    def ready() -> None:
        click.echo(f"Listening to {topic}. Ctrl-C ends.", err=True)

    async with aclosing(follow(config, [topic], start, ready)) as records:
        async for record in records:
            before = listener.left_out
            words = listener.hear(record.value)
            if listener.left_out > before == 0:
                click.echo("Some events are too old and left out; --max-age 0 speaks them too.", err=True)
            if words:
                click.echo(words)
                spoken += 1
            if spoken == count:
                return
