"""The stages: the table of contents of the core."""

from __future__ import annotations

from collections.abc import Sequence

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.decode import Batch, elements, fate, read
from acs_aaep_bridge.core.encode import encode_json
from acs_aaep_bridge.core.model import (
    Emit,
    Json,
    Origin,
    Outcome,
    PartitionState,
    Record,
    Reject,
    Skip,
    Stage,
    StageName,
    WriterSchema,
)
from acs_aaep_bridge.core.normalize import normalize
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.validate import RequestValidator

_TOMBSTONE = (Skip("tombstone"),)


class Stateless:
    """The state of a stage that keeps none."""

    def next_deadline(self) -> int | None:
        return None

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        return ()

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def load(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self) -> None: ...

    def open_sessions(self) -> int:
        return 0


class NormalizeStage:
    """Raw records in, normalized events out. Keeps no state between records."""

    name: StageName = "normalize"

    def __init__(self, config: Config) -> None:
        self._limits = config.limits
        self._topic = config.topics.normalized
        self._validator = RequestValidator(shipped(), config.acs)

    def new_state(self) -> PartitionState:
        return Stateless()

    def apply(self, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        if record.value is None:
            return _TOMBSTONE
        content = read(record.value, self._limits)
        if type(content) is Batch:
            return self._batch(record, content)
        return (self._one(record, content, 0),)

    def _batch(self, record: Record, batch: Batch) -> tuple[Outcome, ...]:
        """Every element stands alone: a bad one goes to the dead letters by itself, as its own bytes."""
        outcomes = [self._one(record, request, index) for index, request in enumerate(batch.requests)]
        if any(isinstance(outcome, Reject) for outcome in outcomes):
            parts = elements(batch.payload) or [batch.payload] * len(outcomes)
            outcomes = [
                outcome._replace(element=index, raw=parts[index]) if isinstance(outcome, Reject) else outcome
                for index, outcome in enumerate(outcomes)
            ]
        return tuple(outcomes)

    def _one(self, record: Record, request: Json, element: int) -> Outcome:
        if settled := fate(request):
            return settled
        origin = Origin(record.topic, record.partition, record.offset, record.timestamp, element)
        event = self._validator.check(request, origin)
        if isinstance(event, Reject):
            return event
        outgoing = encode_json(normalize(event), record, self._topic)
        skew = event.occurred_at - record.timestamp if record.timestamp >= 0 else None
        return Emit((outgoing,), event.method, (), (), skew, event.signature["status"])

    def wants(self, records: Sequence[Record]) -> frozenset[int]:
        return frozenset()

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None: ...

    def advance(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        return ()


def build_stage(name: StageName, config: Config) -> Stage:
    """The stage called `name`. Compiles its schemas, so build each once; blocks for some ten milliseconds."""
    if name == "normalize":
        return NormalizeStage(config)
    raise NotImplementedError(name)
