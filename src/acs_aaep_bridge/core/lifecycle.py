"""The lifecycle stage: normalized events in, AAEP events out (docs/mapping.md, 6).

Most hooks say nothing. Those are told by a record header and only show that their session is alive; the rest are read,
applied to their session, and what they say is checked against the AAEP schemas before it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core import fit, sessions
from acs_aaep_bridge.core.cloudevents import binary_headers
from acs_aaep_bridge.core.draft import Said
from acs_aaep_bridge.core.model import (
    Emit,
    Headers,
    Json,
    Outcome,
    Outgoing,
    PartitionState,
    Record,
    Reject,
    Skip,
    StageName,
    Violation,
    WriterSchema,
    new,
)
from acs_aaep_bridge.core.normalized import read
from acs_aaep_bridge.core.policy import prepare
from acs_aaep_bridge.core.reading import NORMALIZED_SCHEMA, EventReader, EventValidator
from acs_aaep_bridge.core.schemas import SchemaSet, Validator, violations
from acs_aaep_bridge.core.session import SessionState
from acs_aaep_bridge.core.table import SessionTable
from acs_aaep_bridge.core.translate import TRANSLATORS
from acs_aaep_bridge.core.writers import WriterSchemas
from acs_aaep_bridge.errors import BridgeError, ConfigError, Problem

AAEP_SCHEMA = "https://aaep-protocol.org/schemas/v1/core/{}.schema.json"
AAEP_TYPES = (
    "agent.session.started",
    "agent.session.completed",
    "agent.session.errored",
    "agent.session.cancelled",
    "agent.state.changed",
    "agent.progress.updated",
    "agent.tool.invoked",
    "agent.tool.completed",
    "agent.output.streaming",
)
_JSON = ("content-type", b"application/json")
_TOMBSTONE = (Skip("tombstone"),)


class LifecycleStage:
    """Pure: what is remembered lies in the `SessionTable` that `new_state` gives.

    Raises ConfigError for a context that AAEP would not allow.
    """

    name: StageName = "lifecycle"

    def __init__(self, config: Config, schemas: SchemaSet) -> None:
        if not schemas.compile({"format": "uri"}).is_valid(config.mapping.extension_context):
            raise ConfigError([Problem("mapping.extension_context", "AAEP wants a URI here: https://…, or urn:…")])
        self._policy = prepare(config)
        self._topic = config.topics.lifecycle
        self._writers = WriterSchemas()
        self._read = EventReader(config.limits, self._writers)
        self._has_registry = config.schema_registry.url is not None
        self._as_cloudevents = config.lifecycle.cloudevents
        self._events = EventValidator(schemas, TRANSLATORS)
        self._aaep: dict[str, Validator] = {f"aaep:{name}": schemas.validator(AAEP_SCHEMA.format(name)) for name in AAEP_TYPES}
        self._headers: dict[str, Headers] = {kind: (_JSON, ("aaep-type", kind.encode())) for kind in self._aaep}
        self._silent: dict[bytes, tuple[Emit, ...]] = {}
        self._speaking = frozenset(method.encode() for method in TRANSLATORS)

    def new_state(self) -> PartitionState:
        return SessionTable(self._policy.timing)

    def apply(self, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        table = _table(state)
        if record.value is None:
            return _TOMBSTONE
        method = _method(record)
        if method is not None and method not in self._speaking:
            return self._heard(method, record, table, now)
        return (self._one(record, record.value, table, now),)

    def wants(self, records: Sequence[Record]) -> frozenset[int]:
        return self._writers.wants(records) if self._has_registry else frozenset()

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None:
        self._writers.learn(schema_id, schema)

    def advance(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        table = _table(state)
        emits: list[Emit] = []
        while (key := table.pop_due(now)) is not None:
            session = table.get(key)
            if session is not None:
                self._take(table, key, session, sessions.expire(self._policy, session, now), emits)
        while (key := table.pop_victim()) is not None:
            session = table.get(key)
            if session is not None:
                self._take(table, key, session, self._evicted(session, now), emits)
        return tuple(emits)

    def settle(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        """What only waits for something better to come is given up waiting for, as at the end of a finite input.

        Sessions that are merely silent stay open.
        """
        table = _table(state)
        emits: list[Emit] = []
        waiting = [session for session in table.sessions() if session.held or (session.open and session.open.answer)]
        for session in sorted(waiting, key=lambda session: session.subject):
            key = session.subject.encode()
            self._take(table, key, session, sessions.settle(self._policy, session, now), emits)
        return tuple(emits)

    def _one(self, record: Record, value: bytes, table: SessionTable, now: int) -> Outcome:
        event = self._read(value)
        if isinstance(event, Reject):
            return event
        refused = self._events.check(event)
        if refused is not None:
            return refused
        if event["method"] in TRANSLATORS:
            return self._said(event, record, table, now)
        table.touch(event["subject_session_id"].encode(), now, record.timestamp)
        return Emit((), event["method"])

    def _said(self, event: Json, record: Record, table: SessionTable, now: int) -> Outcome:
        method = event["method"]
        hook = read(event, record, now)
        if hook is None:
            return _OUT_OF_TIME._replace(method=method)
        key = hook.context.subject.encode()
        before = table.get(key)
        step = sessions.reduce(self._policy, before, hook, now)
        if isinstance(step, sessions.Refused):
            return Reject("lifecycle", step.code, step.message, (Violation(step.pointer, step.code),), method)
        outgoing = self._outgoing(step.said, record.timestamp)
        if isinstance(outgoing, Reject):
            return outgoing._replace(method=method)
        if step.state is not before:
            table.put(key, step.state)
        return new(Emit, (outgoing, method, step.notes, _announced(step.said), None, None, None))

    def _heard(self, method: bytes, record: Record, table: SessionTable, now: int) -> tuple[Emit, ...]:
        if record.key is not None:
            table.touch(record.key, now, record.timestamp)
        known = self._silent.get(method)
        if known is None:
            known = (Emit((), unquote_to_bytes(method).decode("utf-8", "replace")),)
            if len(self._silent) < _MAX_SILENT:
                self._silent[method] = known
        return known

    def _evicted(self, session: SessionState, now: int) -> sessions.Step:
        step = sessions.settle(self._policy, session, now)
        return step if step.said else sessions.abandon(self._policy, session, session.stamp, now)

    def _take(self, table: SessionTable, key: bytes, before: SessionState, step: sessions.Step, emits: list[Emit]) -> None:
        """Remember what a timer did, and add what it said to `emits`, dated by the session's last record."""
        table.put(key, step.state)
        if not step.said:
            return
        outgoing = self._outgoing(step.said, before.stamp)
        if isinstance(outgoing, Reject):
            raise BridgeError(outgoing.message)
        method = before.open.context.hook if before.open else ""
        emits.append(Emit(outgoing, method, step.notes, _announced(step.said), session=key))

    def _outgoing(self, said: tuple[Said, ...], timestamp: int) -> tuple[Outgoing, ...] | Reject:
        records: list[Outgoing] = []
        for whole, trace, _ in said:
            event, value = fit.encode(whole)
            kind = event["type"]
            if not self._aaep[kind].is_valid(event):
                return self._invalid(kind, event)
            headers = self._headers[kind]
            if self._as_cloudevents:
                headers = (*headers, *binary_headers(event))
            if trace is not None:
                headers = (*headers, ("traceparent", trace.encode()))
            records.append(new(Outgoing, (self._topic, event["session_id"].encode(), value, headers, timestamp)))
        return tuple(records)

    def _invalid(self, kind: str, event: dict[str, object]) -> Reject:
        found = violations(self._aaep[kind], event)
        named = ", ".join(f"{pointer or 'the whole'} ({keyword})" for pointer, keyword in found[:8])
        message = f"the bridge made an event of type {kind} that AAEP does not allow: {named}. This is a bug: please report it."
        return Reject("lifecycle", "output_invalid", message, found, schema=AAEP_SCHEMA.format(kind.removeprefix("aaep:")))


def _table(state: PartitionState) -> SessionTable:
    if not isinstance(state, SessionTable):
        raise TypeError("the lifecycle stage needs the state that its new_state gave")
    return state


def _method(record: Record) -> bytes | None:
    for name, value in record.headers:
        if name == "acs-method":
            return value
    return None


def _announced(said: tuple[Said, ...]) -> tuple[tuple[str, str], ...]:
    return tuple([(event["type"], outcome) for event, _, outcome in said])


_MAX_SILENT = 1_000
_OUT_OF_TIME = Reject(
    "lifecycle",
    "invalid_timestamp",
    "occurred_at lies outside the years 1 to 9999: only the bridge should write this topic",
    (Violation("/occurred_at", "format"),),
    schema=NORMALIZED_SCHEMA,
)
