"""Exactly once: one transactional producer per input partition.

aiokafka speaks version 0 of the transaction requests, which carry neither member nor generation: the group does not fence a
member that has lost its partition. The transactional id does, because it names the input partition and every owner
initialises it before it reads the committed offset. After any failure the producer is killed and taken anew; the
initialisation settles whatever was open. Nothing is ever aborted: after some errors aiokafka's abort returns without having
sent anything, and a retry would commit both copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaProducer, TopicPartition

from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.kafka import internals
from acs_aaep_bridge.kafka.ports import Item, Refusal, Refused
from acs_aaep_bridge.kafka.sink import REFUSALS, Packer
from acs_aaep_bridge.kafka.topics import Report


def transactional_id(group: str, partition: TopicPartition) -> str:
    """The id that fences former owners of an input partition: the same for every owner, and for no one else."""
    return f"{group}/{partition.topic}/{partition.partition}"


class KafkaTransactor:
    """See `ports.Transactor`. One transaction at a time; every await is under a deadline of the caller's."""

    def __init__(self, make: Callable[[], AIOKafkaProducer], topics: Report, group: str) -> None:
        self._producer = make()
        self._packer = Packer(self._producer, topics)
        self._group = group

    @property
    def suspect(self) -> int:
        return self._packer.suspect

    def fits(self, outgoing: Outgoing) -> bool:
        return self._packer.fits(outgoing)

    async def start(self) -> None:
        await self._producer.start()
        await self._packer.prepare()

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def send(self, items: Sequence[Item], alone: bool = False) -> None:
        by_partition = self._packer.spread(items)
        sent: list[tuple[list[Item], asyncio.Future[object]]] = []
        while by_partition:
            for tp in list(by_partition):
                queue = by_partition[tp]
                builder, packed = self._packer.pack(queue, tp.topic, alone)
                sent.append((packed, await self._producer.send_batch(builder, tp.topic, partition=tp.partition)))
                if not queue:
                    del by_partition[tp]
        # All of them: a batch that failed does not make the transaction fail, a commit would go out without its data.
        results = await asyncio.gather(*(future for _, future in sent), return_exceptions=True)
        outcomes = [(packed, result) for (packed, _), result in zip(sent, results, strict=True)]
        _raise_first(outcomes, internals.transaction_error(self._producer))

    async def commit(self, partition: TopicPartition, offset: int) -> None:
        await self._producer.send_offsets_to_transaction({partition: offset}, self._group)
        await self._producer.commit_transaction()

    async def kill(self, timeout: float) -> None:
        await internals.stop_producer(self._producer, timeout)


def _raise_first(results: Sequence[tuple[list[Item], object]], cause: BaseException | None) -> None:
    refusals: list[tuple[Item, Refusal]] = []
    failure: BaseException | None = None
    for packed, result in results:
        if isinstance(result, BaseException):
            refusal = REFUSALS.get(type(result))
            if refusal is None:
                failure = failure or result
            else:
                refusals += [(item, refusal) for item in packed]
    # A refusal first: what follows a refused batch fails for its sequence number.
    if refusals:
        raise Refused(refusals)
    if failure is not None:
        raise cause or failure
