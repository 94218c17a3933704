"""What passes between the steps of the core. All of it immutable; no repr prints a payload.

The hot path builds several of these for every record, so they are named tuples: immutable like frozen dataclasses,
at about a third of the cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

StageName = Literal["normalize", "lifecycle"]
Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]
Json = Any

new: Final = tuple.__new__
"""`new(Emit, (...))` makes a named tuple at half the cost of `Emit(...)`; every field is given, in order.

For the few places that do so once for every record.
"""


class Record(NamedTuple):
    """One consumed Kafka record. `timestamp` in milliseconds since the epoch, -1 when the broker has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def __repr__(self) -> str:
        size = "null" if self.value is None else f"{len(self.value)} bytes"
        return f"Record({self.topic}-{self.partition}@{self.offset}, {size})"


class Outgoing(NamedTuple):
    """One Kafka record to be published. `timestamp` in milliseconds since the epoch."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    def __repr__(self) -> str:
        size = "null" if self.value is None else f"{len(self.value)} bytes"
        return f"Outgoing({self.topic}, {size})"


class Emit(NamedTuple):
    """The event was accepted. An empty `outgoing` means it was absorbed: held, a repeat, or nothing to say.

    `method` is the hook's name as received (metrics map unknown ones to `other`). `notes` are of the closed set
    `held duplicate late after_end orphan_result no_request clock_ahead inferred_start inferred_end superseded replayed`.
    `announced` has one (AAEP type, outcome or "") per lifecycle event in `outgoing`. `skew_ms` is the hook's own
    timestamp less the record's, `signature` its verdict (normalize stage only, else None). `session` is the key in
    `PartitionState.changes` of the session that a timer spoke for, None for what a record gave.
    """

    outgoing: tuple[Outgoing, ...]
    method: str
    notes: tuple[str, ...] = ()
    announced: tuple[tuple[str, str], ...] = ()
    skew_ms: int | None = None
    signature: str | None = None
    session: bytes | None = None


class Skip(NamedTuple):
    """Not an event: `reason` is one of `tombstone response ping handshake`."""

    reason: str
    method: str = ""


class Violation(NamedTuple):
    """One broken rule: a JSON pointer (RFC 6901) and the schema keyword, never the value itself."""

    pointer: str
    keyword: str


class Reject(NamedTuple):
    """The event goes to the dead-letter topic. `code` is of the closed set of the mapping's section 8.

    `message` says which rule was broken and what to do, without any content of the payload. `element` is the place in a
    JSON-RPC batch and `raw` that element's own bytes as received; None for a whole record.
    `schema` is the `$id` of the schema that was broken, where there is one.
    """

    stage: StageName
    code: str
    message: str
    violations: tuple[Violation, ...] = ()
    method: str = ""
    schema: str | None = None
    element: int | None = None
    raw: bytes | None = None

    @property
    def pointer(self) -> str:
        """The first violation's JSON pointer, "" (the whole document) when there is none."""
        return self.violations[0].pointer if self.violations else ""

    def __repr__(self) -> str:
        return f"Reject({self.stage}, {self.code}, {self.pointer!r})"


Outcome = Emit | Skip | Reject


class HookEvent(NamedTuple):
    """A validated ACS request: everything in `params` is as received and read-only by agreement.

    `occurred_at` is the hook's timestamp in milliseconds since the epoch (UTC, truncated; a leap second is 59.999).
    """

    method: str
    jsonrpc_id: str
    params: Mapping[str, Json]
    occurred_at: int
    signature: Mapping[str, str]

    def __repr__(self) -> str:
        return f"HookEvent({self.method})"


class PartitionState(Protocol):
    """What one worker keeps for its input partition. Changes stay in an overlay until `commit`.

    Not thread-safe; none of it blocks.
    """

    def next_deadline(self) -> int | None:
        """Stream time (ms) at which `Stage.advance` has something to do; None when nothing waits."""

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        """Changelog entries (key, value; None = tombstone) of the overlay. Empty when nothing changed."""

    def commit(self) -> None:
        """Merge the overlay: what it holds is durable now."""

    def rollback(self) -> None:
        """Drop the overlay: the batch never happened."""

    def mark(self) -> None:
        """A record is about to be applied."""

    def undo(self) -> None:
        """What was applied since `mark` never happened; the rest of the overlay stays."""

    def load(self, key: bytes, value: bytes | None) -> None:
        """Take one changelog entry, in log order, while restoring. May keep the bytes unread until `loaded`."""

    def loaded(self) -> None:
        """The restore is complete. Raises `UnreadableState` naming the key when an entry cannot be read."""

    def open_sessions(self) -> int:
        """How many sessions are open, overlay included."""


class WriterSchema(NamedTuple):
    """A schema as the registry has it: `kind` is `AVRO`, `JSON` or `PROTOBUF`; `references` are texts by name."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Stage(Protocol):
    """A pure transform with one input topic. Deterministic: the same record, state and `now` give the same bytes."""

    name: StageName

    def new_state(self) -> PartitionState:
        """An empty state for one input partition."""

    def apply(self, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        """One outcome per event in the record (one for anything but a JSON-RPC batch); never raises on bad input.

        `now` is the partition's stream time in milliseconds. A record whose outcome is `Reject` leaves `state` as it was.
        """

    def wants(self, records: Sequence[Record]) -> frozenset[int]:
        """Registry ids of schemas that must be learned before these records are applied; empty for plain JSON."""

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None:
        """Take a schema that `wants` asked for; None when the registry has no such id (such records are rejected)."""

    def advance(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        """What is due at `now`: released hooks, silences, evictions, forgotten sessions. Empty when nothing is."""
