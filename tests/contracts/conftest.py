from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import TopicPartition

from acs_aaep_bridge.cli.demo.broker import EMBEDDED_SETTINGS
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Outgoing, Record
from acs_aaep_bridge.kafka import topics as bridge_topics
from acs_aaep_bridge.kafka.backend import KafkaBackend
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.memory import MemoryBackend, MemoryLog
from acs_aaep_bridge.kafka.observer import NullObserver
from acs_aaep_bridge.kafka.ports import Backend, Fetched, Item, Sink, Source
from tests import oracle
from tests.bridge import Names
from tests.brokers import topics

PARTITIONS = 3
LIMIT = 20_000


@dataclass
class Place:
    """One backend with fresh topics, and a way around it to write and read.

    `lacks` names what this broker is known not to do; tests of that are skipped, saying so.
    """

    kind: str
    names: Names
    config: Config
    backend: Backend[Any]
    write: Callable[[str, int, Sequence[tuple[bytes | None, bytes | None]]], None]
    read: Callable[[str], list[Record]]
    lacks: frozenset[str] = frozenset()

    def publish(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        self.write(topic, partition, [(None, value) for value in values])

    def needs(self, *abilities: str) -> None:
        missing = self.lacks.intersection(abilities)
        if missing:
            pytest.skip(f"the {self.kind} broker lacks {', '.join(sorted(missing))}")

    @asynccontextmanager
    async def member(self) -> AsyncIterator[Member]:
        """A member of the normalize stage's group that takes whatever it is assigned from the committed offset on."""
        member = Member(self.backend.source("normalize"))
        await member.source.start(member)
        try:
            yield member
        finally:
            await member.source.stop(5)

    @asynccontextmanager
    async def sink(self) -> AsyncIterator[Sink]:
        sink = self.backend.sink("normalize")
        await sink.start()
        try:
            yield sink
        finally:
            await sink.stop(5)


@dataclass
class Member:
    """The listener of a source, at its simplest."""

    source: Source
    owned: frozenset[TopicPartition] = frozenset()
    revoked_so_far: list[frozenset[TopicPartition]] = field(default_factory=list)

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.owned = partitions

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.owned = frozenset()
        if partitions:  # the first join revokes nothing, and says so
            self.revoked_so_far.append(partitions)

    async def owns(self, count: int, seconds: float = 30) -> list[TopicPartition]:
        """Poll, as a member must to stay one, until so many partitions are assigned."""
        async with asyncio.timeout(seconds):
            while len(self.owned) != count:
                await self.source.poll([], 0.05)
        return sorted(self.owned)

    async def collect(self, tps: Sequence[TopicPartition], count: int, seconds: float = 30) -> list[Fetched]:
        """Fetches of these partitions until they hold so many records. Trouble is a failure."""
        found: list[Fetched] = []
        async with asyncio.timeout(seconds):
            while sum(len(one.records) for one in found) < count:
                for one in await self.source.poll(tps, 0.1):
                    assert isinstance(one, Fetched), one
                    found.append(one)
        return found


@pytest.fixture(params=["memory", "embedded_broker", "kafka"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """The same place on each kind of broker."""
    if request.param == "memory":
        yield _memory()
        return
    broker = request.getfixturevalue(request.param)
    async with AsyncExitStack() as stack:
        yield await _real(broker.bootstrap, request.param, stack)


def _names(bootstrap: str) -> Names:
    return Names(bootstrap, topics.unique("contract"))


def _every(names: Names) -> list[str]:
    return [names.raw, names.normalized, names.lifecycle, names.dead_letter, names.changelog]


def _memory() -> Place:
    names = _names("nowhere:1")
    config = names.config()
    log = MemoryLog(dict.fromkeys(_every(names), PARTITIONS), {names.normalized: LIMIT})

    def write(topic: str, partition: int, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in pairs:
            log.append(Item(Outgoing(topic, key, value, (), 1_780_000_000_000), partition))

    def read(topic: str) -> list[Record]:
        return [one for tp, entries in sorted(log.partitions.items()) if tp.topic == topic for one in entries if one is not None]

    return Place("memory", names, config, MemoryBackend(log, config), write, read)


async def _real(bootstrap: str, kind: str, stack: AsyncExitStack) -> Place:
    names = _names(bootstrap)
    embedded = kind == "embedded_broker"
    kafka: dict[str, Any] = {"compression": "none", "session_timeout": "6s", "heartbeat_interval": "1s"}
    sections: dict[str, Any] = {"kafka": {**kafka, "transaction_timeout": "10s"}}
    if embedded:
        sections = {"delivery": EMBEDDED_SETTINGS["delivery"], "kafka": {**kafka, "idempotence": False}}
    config = names.config(**sections)
    special = {names.normalized: {"max.message.bytes": str(LIMIT)}, names.changelog: {"cleanup.policy": "compact"}}
    await asyncio.to_thread(topics.create, bootstrap, dict.fromkeys(_every(names), PARTITIONS), special)
    clients = Clients(config)
    report = await bridge_topics.check(config, ("normalize", "lifecycle"), clients)
    backend = KafkaBackend(config, clients, report, NullObserver())

    def write(topic: str, partition: int, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        topics.fill(bootstrap, topic, pairs, partition=partition)

    def read(topic: str) -> list[Record]:
        return [oracle.as_record(message) for message in topics.read_all(bootstrap, topic)]

    lacks = frozenset({"transactions", "size limits", "end offsets"}) if embedded else frozenset[str]()
    return Place(kind, names, config, backend, write, read, lacks)
