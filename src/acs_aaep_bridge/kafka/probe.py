"""Asks the broker how things stand, on a connection of its own: not through the consumer, whose answers freeze when it does."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import BrokerResponseError, KafkaConnectionError, StaleMetadata

from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.ports import Ends

_LEADER_ANSWERS_WITHIN = 5.0  # seconds; one that hangs must not keep the answers of the others from us


class KafkaProbe:
    """See `ports.Probe`. `topics` are those whose partition counts are watched."""

    def __init__(self, client: AIOKafkaClient, topics: Sequence[str]) -> None:
        self.client = client
        self._topics = list(topics)

    async def start(self) -> None:
        """Connect. Raises KafkaError when no broker answers."""
        await self.client.bootstrap()
        await self.client.set_topics(self._topics)

    async def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Ends]:
        if not await self.client.force_metadata_update():
            raise KafkaConnectionError("no broker answers a metadata request")
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in partitions:
            leader = self.client.cluster.leader_for_partition(tp)
            if leader is not None and leader != -1:
                led[leader].append(tp)
        answers = await asyncio.gather(*(self._ask(group) for group in led.values()), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if failures and len(failures) == len(answers):
            raise failures[0]
        return {tp: ends for answer in answers if not isinstance(answer, BaseException) for tp, ends in answer.items()}

    async def _ask(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Ends]:
        """What their common leader says of those it answers for. Raises when it does not answer at all."""
        try:
            async with asyncio.timeout(_LEADER_ANSWERS_WITHIN):
                stable = await internals.list_offsets(self.client, partitions, internals.LATEST, internals.READ_COMMITTED)
                high = await internals.list_offsets(self.client, partitions, internals.LATEST, internals.READ_UNCOMMITTED)
        except (BrokerResponseError, StaleMetadata):  # of one of them: it moved since, or may not be described any more
            if len(partitions) == 1:
                return {}
            alone = await asyncio.gather(*(self._ask([tp]) for tp in partitions))
            return {tp: ends for answer in alone for tp, ends in answer.items()}
        return {tp: (stable[tp], high[tp]) for tp in partitions}

    def partitions(self, topic: str) -> int | None:
        found = self.client.cluster.partitions_for_topic(topic)
        return len(found) if found else None

    def forbidden(self, topic: str) -> bool:
        return topic in self.client.cluster.unauthorized_topics

    async def stop(self) -> None:
        await internals.close_client(self.client)
