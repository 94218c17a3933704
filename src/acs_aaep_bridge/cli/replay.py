"""Sending rejected records again: to the topic they came from, as they were, all or none of a chunk."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer

from acs_aaep_bridge.cli.letters import Letter
from acs_aaep_bridge.cli.reading import connected
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.deadletter import REPLAY_COUNT
from acs_aaep_bridge.core.model import Headers

CHUNK: Final = 500
"""Records in one transaction."""

REFUSALS: Final = {
    "truncated": "only a reference was kept: the record was too large for the dead-letter topic",
    "too_often": "replayed as often as --max-replays allows",
    "no_source": "its headers do not say where it came from",
    "not_ours": "it came from a topic that the bridge does not read",
}


class Plan(NamedTuple):
    """What is sent, and what is not, by reason."""

    letters: Sequence[Letter]
    refused: Counter[str]


def plan(config: Config, letters: Sequence[Letter], max_replays: int) -> Plan:
    """Which of `letters` may be sent again. Pure."""
    refused: Counter[str] = Counter()
    taken = []
    for letter in letters:
        why = _refusal(config, letter, max_replays)
        if why:
            refused[why] += 1
        else:
            taken.append(letter)
    return Plan(taken, refused)


def _refusal(config: Config, letter: Letter, max_replays: int) -> str | None:
    if letter.truncated:
        return "truncated"
    if letter.replays >= max_replays:
        return "too_often"
    if not letter.source:
        return "no_source"
    if letter.source != config.topics.normalized and not config.input.includes(letter.source):
        # The header is data: it must not decide which topic of the cluster is written to.
        return "not_ours"
    return None


def headers_of(letter: Letter) -> Headers:
    """The record's own headers, and how often it has been replayed."""
    return (*letter.original_headers(), (REPLAY_COUNT, str(letter.replays + 1).encode()))


class Replayer:
    """Sends chunks of letters, at most `rate` records a second (0: no limit). `sent` counts what is committed."""

    def __init__(self, producer: AIOKafkaProducer, transactional: bool, rate: float) -> None:
        self._producer, self._transactional, self._rate = producer, transactional, rate
        self._begun = time.monotonic()
        self.chunk = CHUNK if not rate else max(1, min(CHUNK, int(rate)))
        self.sent = 0

    async def send(self, letters: Sequence[Letter]) -> None:
        """One chunk. Raises what aiokafka raises; then none of the chunk is visible (with transactions)."""
        if self._transactional:
            await self._producer.begin_transaction()
        acknowledgements = [await self._one(letter) for letter in letters]
        await asyncio.gather(*acknowledgements)
        if self._transactional:
            await self._producer.commit_transaction()
        self.sent += len(letters)
        if self._rate:
            await asyncio.sleep(max(0.0, self._begun + self.sent / self._rate - time.monotonic()))

    async def _one(self, letter: Letter) -> asyncio.Future[Any]:
        """Without a timestamp of its own: the broker's clock must see it as new, or retention would take it at once."""
        record = letter.record
        headers = list(headers_of(letter))
        acknowledgement: asyncio.Future[Any] = await self._producer.send(letter.source, record.value, record.key, headers=headers)
        return acknowledgement


@asynccontextmanager
async def replaying(config: Config, rate: float) -> AsyncIterator[Replayer]:
    """A replayer on a connected producer; transactional wherever the broker can (`kafka.idempotence`).

    One fixed transactional id: a second replay at the same time fences the first instead of doubling its records.
    """
    identity = f"{config.kafka.group_prefix}-replay" if config.kafka.idempotence else None
    async with connected(config, "replay dead letters", (), lambda clients: clients.producer("replay", identity)) as (
        producer,
        _,
    ):
        yield Replayer(producer, identity is not None, rate)
