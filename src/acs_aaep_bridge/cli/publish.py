"""`publish`: a file of records, or endless sample traffic, into a topic."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import click
import orjson

from acs_aaep_bridge.cli.lines import described, lines, opened, plain
from acs_aaep_bridge.cli.options import with_config
from acs_aaep_bridge.cli.program import INTERRUPTED
from acs_aaep_bridge.cli.progress import Advance, bar
from acs_aaep_bridge.cli.reading import connected
from acs_aaep_bridge.cli.terminal import safe
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Record
from acs_aaep_bridge.errors import UsageError
from acs_aaep_bridge.samples import rounds
from acs_aaep_bridge.telemetry.logs import configure

_IN_FLIGHT: Final = 1_000
_CHUNK: Final = 500
_SAMPLE_RATE: Final = 5.0


@click.command()
@click.argument("file", required=False)
@click.option("--topic", required=True, help="Where to publish.")
@click.option("--sample", is_flag=True, help="Instead of a FILE: made-up traffic without end, as real agent hosts send it.")
@click.option(
    "--records",
    is_flag=True,
    help="Each line describes a whole record, as for `translate --records`; key, value and headers of it are used.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Records a second. Default: as fast as it goes; 5 with --sample.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many records.")
@with_config
def publish(
    config: Config, file: str | None, topic: str, sample: bool, records: bool, rate: float | None, count: int | None
) -> int:
    """Publish FILE, one record a line (`-` is standard input), to try the bridge on recordings of one's own.

    A record without a key gets its session id as key, so that the hooks of one session stay in order.
    """
    if sample == (file is not None):
        raise UsageError("name either a FILE or --sample")
    configure(config.log)
    publishing = Publishing(config, topic, Pace(rate or (_SAMPLE_RATE if sample else None)))
    try:
        if file is None:
            asyncio.run(publishing.send(itertools.islice(_samples(), count), 1))
        else:
            with opened(file) as source, bar(safe(file, 40)) as advance:
                found = itertools.islice(_from_file(source, file, records, advance), count)
                asyncio.run(publishing.send(found, 1 if file == "-" else _CHUNK))
    except KeyboardInterrupt:
        click.echo(f"Published {publishing.acknowledged} records to {topic}, then interrupted.", err=True)
        return INTERRUPTED
    click.echo(f"Published {publishing.acknowledged} records to {topic}.", err=True)
    return 0


class Pace:
    """Spreads records evenly over time."""

    def __init__(self, rate: float | None) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._due = 0.0

    async def wait(self) -> None:
        """Until the next record may go."""
        now = time.monotonic()
        self._due = max(self._due + self._interval, now - 1.0) if self._due else now
        if self._due > now:
            await asyncio.sleep(self._due - now)


def _samples() -> Iterator[Record]:
    seed = time.time_ns()
    for one_round in rounds(seed, lambda: time.time_ns() // 1_000_000):
        for sample in one_round:
            yield Record("", 0, 0, -1, sample.key, sample.value)


def _from_file(source: BinaryIO, name: str, records: bool, advance: Advance) -> Iterator[Record]:
    size = os.fstat(source.fileno()).st_size if name != "-" else 0
    for line in lines(source, name):
        for record in described(line, 0, "") if records else (plain(line, 0, ""),):
            if record.key is None and record.value is None:
                raise UsageError(f"line {line.number}: a record needs a key or a value")
            yield record if record.key is not None else record._replace(key=session_key(record.value))
        if size:
            advance(source.tell(), size)


def session_key(value: bytes | None) -> bytes | None:
    """The sender's session id, if the value is one request that has it."""
    try:
        session = orjson.loads(value or b"")["params"]["metadata"]["session_id"]
    except (orjson.JSONDecodeError, TypeError, KeyError, IndexError):
        return None
    return session.encode(errors="replace") if isinstance(session, str) else None


class Publishing:
    """Sends records to one topic at a pace. `acknowledged` counts those the broker has."""

    def __init__(self, config: Config, topic: str, pace: Pace) -> None:
        self._config, self._topic, self._pace = config, topic, pace
        self._pending: deque[asyncio.Future[Any]] = deque()
        self.acknowledged = 0

    async def send(self, records: Iterator[Record], chunk: int) -> None:
        """All of `records`, read in a thread, `chunk` at a time: one that comes through a pipe may be long in coming."""
        making = connected(self._config, f"publish to {self._topic}", [self._topic], lambda clients: clients.producer("publish"))
        async with making as (producer, _):
            while some := await asyncio.to_thread(lambda: list(itertools.islice(records, chunk))):
                for record in some:
                    await self._pace.wait()
                    headers = list(record.headers)
                    self._pending.append(await producer.send(self._topic, record.value, record.key, headers=headers))
                    await self._settle(_IN_FLIGHT)
            await self._settle(1)

    async def _settle(self, limit: int) -> None:
        """Take acknowledgements, until fewer than `limit` are outstanding."""
        while self._pending and (len(self._pending) >= limit or self._pending[0].done()):
            await self._pending.popleft()
            self.acknowledged += 1
