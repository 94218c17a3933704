"""The stages: the table of contents of the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.decode import Batch, elements, fate
from acs_aaep_bridge.core.encode import encode_json
from acs_aaep_bridge.core.encode_avro import AvroEncoding
from acs_aaep_bridge.core.inputs import Inputs
from acs_aaep_bridge.core.lifecycle import LifecycleStage
from acs_aaep_bridge.core.model import (
    Emit,
    HookEvent,
    Json,
    Outcome,
    Outgoing,
    PartitionState,
    Record,
    Reject,
    Skip,
    Stage,
    StageName,
    WriterSchema,
    new,
)
from acs_aaep_bridge.core.normalize import normalize
from acs_aaep_bridge.core.repeats import SeenRequests
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.signature import Verifier
from acs_aaep_bridge.core.validate import RequestValidator

_TOMBSTONE = (Skip("tombstone"),)

DUPLICATE: Final = ("acs-duplicate", b"true")
"""The header by which the replay guard marks a request that its session has shown before."""

Encode = Callable[[Mapping[str, Json], Record, str], Outgoing]


class Stateless:
    """The state of a stage that keeps none."""

    def next_deadline(self) -> int | None:
        return None

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        return ()

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def mark(self) -> None: ...

    def undo(self) -> None: ...

    def load(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self) -> None: ...

    def open_sessions(self) -> int:
        return 0


class NormalizeStage:
    """Raw records in, normalized events out. Keeps no state between records, but for the replay guard's."""

    name: StageName = "normalize"

    def __init__(self, config: Config, secrets: Mapping[str, bytes] | None = None, avro_id: int | None = None) -> None:
        self._topic = config.topics.normalized
        self._guarded = config.input.replay_guard
        self._validator = RequestValidator(shipped(), config.acs)
        self._inputs = Inputs(config)
        self._verifying = config.signature.mode != "off"
        self._verifier = Verifier(config.signature.mode, secrets)
        self._encode: Encode = encode_json if avro_id is None else AvroEncoding(avro_id)

    def new_state(self) -> PartitionState:
        return SeenRequests() if self._guarded else Stateless()

    def apply(self, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        value = record.value
        if value is None:
            return _TOMBSTONE
        content = self._inputs.read(record, value)
        if type(content) is Batch:
            return self._batch(record, content, state)
        return (self._one(record, content, 0, state),)

    def _batch(self, record: Record, batch: Batch, state: PartitionState) -> tuple[Outcome, ...]:
        """Every element stands alone: a bad one goes to the dead letters by itself, as its own bytes."""
        outcomes = [self._one(record, request, index, state) for index, request in enumerate(batch.requests)]
        if any(isinstance(outcome, Reject) for outcome in outcomes):
            parts = elements(batch.payload) or [batch.payload] * len(outcomes)
            outcomes = [
                outcome._replace(element=index, raw=parts[index]) if isinstance(outcome, Reject) else outcome
                for index, outcome in enumerate(outcomes)
            ]
        return tuple(outcomes)

    def _one(self, record: Record, request: Json, element: int, state: PartitionState) -> Outcome:
        event = self._validator.accept(request) or fate(request) or self._validator.check(request)
        if self._verifying and isinstance(event, HookEvent):
            event = self._verified(event, request)
        if not isinstance(event, HookEvent):
            return event
        normalized = normalize(event, record, element)
        outgoing = self._encode(normalized, record, self._topic)
        notes: tuple[str, ...] = ()
        if isinstance(state, SeenRequests) and state.repeated(normalized["session_id"], normalized["request_id"]):
            outgoing = outgoing._replace(headers=(*outgoing.headers, DUPLICATE))
            notes = ("replayed",)
        method, _, _, occurred_at, signature = event
        skew = occurred_at - record.timestamp if record.timestamp >= 0 else None
        return new(Emit, ((outgoing,), method, notes, (), skew, signature["status"], None))

    def _verified(self, event: HookEvent, request: Json) -> HookEvent | Reject:
        """The event with its signature's status, or why `signature.mode` does not let it pass."""
        verdict = self._verifier.check(request)
        refusal = self._verifier.refusal(verdict)
        if refusal is not None:
            return Reject("normalize", refusal.code, refusal.message, (refusal.violation,), event.method)
        return event._replace(signature={**event.signature, "status": verdict.status})

    def use_secrets(self, secrets: Mapping[str, bytes]) -> None:
        """Check signatures with these secrets, by `key_id`, from the next record on."""
        self._verifier.use(secrets)

    def wants(self, records: Sequence[Record]) -> frozenset[int]:
        return self._inputs.wants(records)

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None:
        self._inputs.learn(schema_id, schema)

    def advance(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        return ()


def build_stage(
    name: StageName, config: Config, *, secrets: Mapping[str, bytes] | None = None, avro_id: int | None = None
) -> Stage:
    """The stage called `name`. Compiles its schemas, so build each once; blocks for some ten milliseconds.

    `secrets` are the shared secrets by `key_id`; `avro_id` is the id under which the registry has our Avro schema, which
    `normalized.format: avro` needs: without one, events are written as JSON.
    """
    if name == "normalize":
        return NormalizeStage(config, secrets, avro_id)
    return LifecycleStage(config, shipped())
