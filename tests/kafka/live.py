"""Runs the bridge with the test stages against a real broker, in this process, and reads with an independent client."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c
from tests.brokers import topics
from tests.kafka.bench import Run, Watcher
from tests.kafka.stages import build

from acs_aaep_bridge.config import Config, load
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.kafka.ports import FailPoint
from acs_aaep_bridge.kafka.runner import Parts, run


class Site:
    """Topics and a group that nobody else uses, on a broker."""

    def __init__(self, bootstrap: str, partitions: int, special: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.name = topics.unique("live")
        every = [self.topic(role) for role in ("raw", "normalized", "lifecycle", "letters", "sessions")]
        settings = {self.topic("sessions"): {"cleanup.policy": "compact"}}
        settings |= {self.topic(role): dict(values) for role, values in (special or {}).items()}
        topics.create(bootstrap, dict.fromkeys(every, partitions), settings)

    def topic(self, role: str) -> str:
        return f"{self.name}.{role}"

    def config(self, delivery: str = "exactly_once", **settings: str) -> Config:
        base = {
            "delivery": delivery,
            "kafka.bootstrap_servers": self.bootstrap,
            "kafka.group_prefix": self.name,
            "kafka.session_timeout": "6s",
            "kafka.heartbeat_interval": "500ms",
            "kafka.transaction_timeout": "10s",
            "input.topics": self.topic("raw"),
            "topics.normalized": self.topic("normalized"),
            "topics.lifecycle": self.topic("lifecycle"),
            "topics.dead_letter": self.topic("letters"),
            "topics.changelog": self.topic("sessions"),
        }
        return load("", {}, base | {name.replace("__", "."): value for name, value in settings.items()})

    async def fill(self, role: str, count: int, keys: int = 7, start: int = 0) -> None:
        """`v<n>` under the keys in turn, by the default partitioner."""
        records = [(b"k%d" % (number % keys), b"v%d" % number) for number in range(start, start + count)]
        await asyncio.to_thread(topics.fill, self.bootstrap, self.topic(role), records)

    async def read(self, role: str) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
        """Key, value and headers of every committed record."""
        found = await asyncio.to_thread(topics.read_all, self.bootstrap, self.topic(role))
        return [(one.key(), one.value(), dict(cast(Any, one.headers() or ()))) for one in found]

    async def values(self, role: str) -> list[bytes | None]:
        return [value for _, value, _ in await self.read(role)]

    async def counted(self) -> dict[bytes, list[int]]:
        """What the counting stage said, by key, in order."""
        said: dict[bytes, list[int]] = defaultdict(list)
        for value in await self.values("lifecycle"):
            key, _, number = (value or b"").partition(b"=")
            if number:
                said[key].append(int(number))
        return dict(said)

    async def committed(self, stage: str, role: str) -> dict[int, int]:
        return await asyncio.to_thread(
            topics.committed, self.bootstrap, f"{self.name}-{stage}", self.topic(role), self.partitions
        )

    async def until_committed(self, stage: str, role: str, total: int, seconds: float = 60) -> None:
        """Until the group's offsets sum up to `total`."""
        async with asyncio.timeout(seconds):
            while sum((await self.committed(stage, role)).values()) < total:
                await asyncio.sleep(0.2)


@asynccontextmanager
async def bridge(
    settings: Config, stages: Sequence[StageName] = ("normalize",), failpoint: FailPoint = lambda name: None
) -> AsyncIterator[Run]:
    """The bridge on the broker that `settings` name, ended in order."""
    watcher, stop = Watcher(), asyncio.Event()
    work = asyncio.ensure_future(run(settings, stages, watcher, Parts(stop=stop, build=build, failpoint=failpoint)))
    running = Run(watcher, work, stop)
    try:
        yield running
        await running.end()
    finally:
        work.cancel()
        await asyncio.wait([work])


def finished(running: Run, records: int) -> Any:
    """A condition: so many records are delivered."""
    return lambda: sum(report.records for report in running.watcher.reports) >= records


Headed = tuple[bytes, list[tuple[str, bytes]]]


async def produce_raw(bootstrap: str, topic: str, partition: int, records: Sequence[Headed]) -> None:
    """One batch of (value, headers). A header `bad-name` gets a name that is not UTF-8, and the batch a new checksum."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        batch = producer.create_batch()
        for value, headers in records:
            batch.append(timestamp=1_700_000_000_000, key=b"k", value=value, headers=headers)
        build_batch = batch._build

        def spoiled() -> bytearray:
            data = bytearray(build_batch())
            data[:] = data.replace(b"bad-name", b"\xff\xfe\xfd-name")
            data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
            return data

        batch._build = spoiled
        batch.close()
        await (await producer.send_batch(batch, topic, partition=partition))
    finally:
        await producer.stop()
