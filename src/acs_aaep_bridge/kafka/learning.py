"""Writers' schemas, learned before the records that need them are applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aiokafka import TopicPartition

from acs_aaep_bridge.core.model import Record
from acs_aaep_bridge.errors import BridgeError, OwnershipLost
from acs_aaep_bridge.kafka.ports import SchemaSource
from acs_aaep_bridge.kafka.surroundings import Surroundings

_PAUSES = (0.5, 30.0)  # seconds between two questions to the registry: doubled from the first up to the second


class Waiting(Protocol):
    """A worker that can wait, and be told to end while it does."""

    around: Surroundings
    partition: TopicPartition
    reason: str
    draining: bool

    async def sleep(self, seconds: float) -> None: ...


async def learn(worker: Waiting, schemas: SchemaSource, records: Sequence[Record]) -> None:
    """Learn every schema these records need. While the registry cannot be asked the partition waits, and says so.

    Raises OwnershipLost when the worker is to end meanwhile.
    """
    for schema_id in sorted(worker.around.stage.wants(records)):
        pause = _PAUSES[0]
        while not await _learned(worker, schemas, schema_id):
            pause = min(_PAUSES[1], 2 * pause)
            if not worker.draining:
                await worker.sleep(pause)
            if worker.draining:
                raise OwnershipLost("revoked while waiting for the schema registry")
        worker.reason = ""


async def _learned(worker: Waiting, schemas: SchemaSource, schema_id: int) -> bool:
    around = worker.around
    try:
        around.stage.learn(schema_id, await schemas.fetch(schema_id))
    except Exception as error:  # down, slow or confused: never a reason to reject a record
        worker.reason = f"the schema registry does not answer for schema {schema_id}"
        why = str(error) if isinstance(error, BridgeError) else type(error).__name__
        around.observer.log("warning", "registry.unavailable", **around.where(worker.partition), schema_id=schema_id, error=why)
        around.changed()
        return False
    return True
