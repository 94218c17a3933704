"""Faults that the fault tests must notice: each undoes one of the rules that delivery rests on.

They are put into a process of the tests, from `victim.py`, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition

from acs_aaep_bridge.kafka import backend
from acs_aaep_bridge.kafka.at_least_once import AtLeastOnce
from acs_aaep_bridge.kafka.batch import Batch, Processor
from acs_aaep_bridge.kafka.exactly_once import ExactlyOnce
from acs_aaep_bridge.kafka.partition import Parked, Worker
from acs_aaep_bridge.kafka.ports import Item
from acs_aaep_bridge.kafka.source import KafkaSource
from acs_aaep_bridge.kafka.transactions import KafkaTransactor


def commit_before_acks() -> None:
    """At least once: a record counts as finished when it is handed over, not when the broker has it."""

    async def deliver(self: AtLeastOnce, batch: Batch, has_records: bool, sent: asyncio.Future[None]) -> None:
        self._close(batch, has_records, 0.0)
        await self._acknowledged(batch, sent)

    AtLeastOnce._deliver = deliver  # type: ignore[method-assign]


def unawaited_delivery() -> None:
    """Exactly once: the transaction is committed without looking at what became of its batches."""

    async def send(self: KafkaTransactor, items: Sequence[Item], alone: bool = False) -> None:
        for tp, queue in self._packer.spread(items).items():
            while queue:
                builder, _ = self._packer.pack(queue, tp.topic)
                future = await self._producer.send_batch(builder, tp.topic, partition=tp.partition)
                future.add_done_callback(lambda done: done.exception())

    KafkaTransactor.send = send  # type: ignore[method-assign]


def committed_before_init() -> None:
    """The committed offset is read first, and only then is the former owner fenced."""
    fence, where = ExactlyOnce._fence, Worker._where_to_start
    early: dict[TopicPartition, int] = {}

    async def read_and_fence(self: ExactlyOnce) -> None:
        self._written_offset = None
        early[self.partition] = await where(self, None)
        await fence(self)

    async def remembered(self: Worker, kept: Parked | None) -> int:
        return early.get(self.partition, 0)

    ExactlyOnce._fence = read_and_fence  # type: ignore[method-assign]
    Worker._where_to_start = remembered  # type: ignore[method-assign]


def random_transactional_id() -> None:
    """Each process has transactional ids of its own, so that nobody fences anybody."""
    vars(backend)["transactional_id"] = lambda group, partition: f"{group}/{uuid.uuid4()}"


def no_seek_after_failure() -> None:
    """After a failure the partition is read on from where it stands."""
    seek = KafkaSource.seek

    def seek_once(self: KafkaSource, partition: TopicPartition, offset: int) -> None:
        if partition not in self._next:
            seek(self, partition, offset)

    KafkaSource.seek = seek_once  # type: ignore[method-assign]
    KafkaSource.pause = lambda self, partition: None  # type: ignore[method-assign]


def no_state_rollback() -> None:
    """What a failed batch did to the sessions stays."""
    renew = Processor.renew

    def renew_once(self: Processor) -> None:
        if not self.clock.now:
            renew(self)

    Processor.rollback = lambda self: self.state.commit()  # type: ignore[method-assign]
    Processor.renew = renew_once  # type: ignore[method-assign]


def abort_and_reuse() -> None:
    """After a failure the transaction is aborted as the client offers it, and the producer goes on with the next one."""
    fence = ExactlyOnce._fence

    async def give_up(self: ExactlyOnce) -> None:
        producer: Any = getattr(self._transactor, "_producer", None)
        if producer is not None:
            try:
                async with asyncio.timeout(5):
                    await producer.abort_transaction()
            except Exception:
                self._transactor = None

    async def fence_once(self: ExactlyOnce) -> None:
        if self._transactor is None:
            await fence(self)

    ExactlyOnce._give_up = give_up  # type: ignore[method-assign]
    ExactlyOnce._fence = fence_once  # type: ignore[method-assign]


def slow_fence() -> None:
    """No fault: between a takeover's decision and the fencing of the former owner lies as much time as the test wants."""
    fence = ExactlyOnce._fence

    async def wait_and_fence(self: ExactlyOnce) -> None:
        file = Path(os.environ["FENCE_FILE"])
        file.with_suffix(".waiting").touch()
        while not file.with_suffix(".go").exists():
            await asyncio.sleep(0.05)
        await fence(self)

    ExactlyOnce._fence = wait_and_fence  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "commit_before_acks": commit_before_acks,
    "unawaited_delivery": unawaited_delivery,
    "committed_before_init": committed_before_init,
    "random_transactional_id": random_transactional_id,
    "no_seek_after_failure": no_seek_after_failure,
    "no_state_rollback": no_state_rollback,
    "abort_and_reuse": abort_and_reuse,
}
