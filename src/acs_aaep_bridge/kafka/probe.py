"""Asks the broker how things stand, on a connection of its own: not through the consumer, whose answers freeze when it does."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from acs_aaep_bridge.kafka import internals


class KafkaProbe:
    """See `ports.Probe`. `topics` are those whose partition counts are watched."""

    def __init__(self, client: AIOKafkaClient, topics: Sequence[str]) -> None:
        self.client = client
        self._topics = list(topics)

    async def start(self) -> None:
        """Connect. Raises KafkaError when no broker answers."""
        await self.client.bootstrap()
        await self.client.set_topics(self._topics)

    async def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        if not await self.client.force_metadata_update():
            raise KafkaConnectionError("no broker answers a metadata request")
        known = [tp for tp in partitions if self.client.cluster.leader_for_partition(tp) not in {None, -1}]
        if not known:
            return {}
        stable = await internals.list_offsets(self.client, known, internals.LATEST, internals.READ_COMMITTED)
        high = await internals.list_offsets(self.client, known, internals.LATEST, internals.READ_UNCOMMITTED)
        return {tp: (stable[tp], high[tp]) for tp in known}

    def partitions(self, topic: str) -> int | None:
        found = self.client.cluster.partitions_for_topic(topic)
        return len(found) if found else None

    async def stop(self) -> None:
        await internals.close_client(self.client)
