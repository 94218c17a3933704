"""Small deterministic stages for tests of the shell: they emit, skip, reject by content and keep counts as state."""

from __future__ import annotations

import json
from collections.abc import Sequence

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import (
    Emit,
    Outcome,
    Outgoing,
    PartitionState,
    Record,
    Reject,
    Skip,
    Stage,
    StageName,
    WriterSchema,
)
from acs_aaep_bridge.core.stages import Stateless
from acs_aaep_bridge.errors import UnreadableState


class EchoStage:
    """Values `skip…` are skipped, `bad…` rejected, `boom` is a bug; the rest goes to the normalized topic as `<n:value`.

    An array of numbers is a batch: each gives so many bytes.
    """

    name: StageName = "normalize"

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def new_state(self) -> PartitionState:
        return Stateless()

    def apply(self, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        value = record.value or b""
        if value.startswith(b"skip"):
            return (Skip("ping", "system/ping"),)
        if value.startswith(b"bad"):
            return (Reject("normalize", "payload_invalid", "it says so", method="steps/bad"),)
        if value == b"boom":
            raise ZeroDivisionError("a bug in the core")
        values = [b"x" * size for size in json.loads(value)] if value.startswith(b"[") else [b"n:" + value]
        return tuple(Emit((Outgoing(self._topic, record.key, one, (), record.timestamp),), "steps/echo") for one in values)

    def wants(self, records: Sequence[Record]) -> frozenset[int]:
        return frozenset()

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None: ...

    def advance(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        return ()


class CountState:
    """How often each key came; a key whose value ends in `wait` is due a while after its record."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.due: dict[bytes, int] = {}
        self._changed: dict[bytes, int | None] = {}
        self._due: dict[bytes, int | None] = {}
        self.mark()

    def count(self, key: bytes) -> int:
        return (self._changed[key] if key in self._changed else self.counts.get(key, 0)) or 0

    def set(self, key: bytes, count: int | None, due: int | None = None) -> None:
        self._changed[key] = count
        self._due[key] = due

    def deadlines(self) -> dict[bytes, int]:
        return {key: due for key, due in (self.due | self._due).items() if due is not None}

    def next_deadline(self) -> int | None:
        return min(self.deadlines().values(), default=None)

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        return [
            (key, None if count is None else json.dumps([count, self._due.get(key)]).encode())
            for key, count in self._changed.items()
        ]

    def commit(self) -> None:
        for key, count in self._changed.items():
            due = self._due.get(key)
            self.counts.pop(key, None)
            self.due.pop(key, None)
            if count is not None:
                self.counts[key] = count
            if due is not None:
                self.due[key] = due
        self.rollback()

    def rollback(self) -> None:
        self._changed, self._due = {}, {}

    def mark(self) -> None:
        self._marked = dict(self._changed), dict(self._due)

    def undo(self) -> None:
        self._changed, self._due = self._marked

    def load(self, key: bytes, value: bytes | None) -> None:
        if value == b"unreadable":
            raise UnreadableState(f"{key.decode()} cannot be read")
        count, due = (None, None) if value is None else json.loads(value)
        self.set(key, count, due)

    def loaded(self) -> None:
        self.commit()

    def open_sessions(self) -> int:
        return len(self.counts)


class CountStage(EchoStage):
    """Gives each record its number within its key: `<key>=<number>`. `forget` drops the key, `…wait` makes a timer of 1 s.

    `…loud` says it twice, each time at length.
    """

    name: StageName = "lifecycle"

    def new_state(self) -> PartitionState:
        return CountState()

    def apply(self, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        assert isinstance(state, CountState)
        value, key = record.value or b"", record.key or b""
        if value.startswith((b"skip", b"n:skip", b"bad", b"n:bad")):
            return super().apply(record._replace(value=value.removeprefix(b"n:")), state, now)
        if value.endswith(b"forget"):
            state.set(key, None)
            return (Emit((), "steps/forget"),)
        number = state.count(key) + 1
        state.set(key, number, record.timestamp + 1_000 if value.endswith(b"wait") else None)
        said = key + b"=" + str(number).encode()
        if value.endswith(b"loud"):
            loud = Outgoing(self._topic, key, said + b"!" * 200, (), record.timestamp)
            return (Emit((Outgoing(self._topic, key, said, (), record.timestamp), loud, loud), "steps/count"),)
        return (Emit((Outgoing(self._topic, key, said, (), record.timestamp),), "steps/count"),)

    def advance(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        assert isinstance(state, CountState)
        due = sorted((when, key) for key, when in state.deadlines().items() if when <= now)
        for _, key in due:
            state.set(key, state.count(key))
        said = [(key, Outgoing(self._topic, key, key + b"!", (("said", b"late"),), when)) for when, key in due]
        return tuple(Emit((outgoing,), "steps/timer", session=key) for key, outgoing in said)


def build(name: StageName, config: Config) -> Stage:
    """The test stage in the place of the real one."""
    return EchoStage(config.topics.normalized) if name == "normalize" else CountStage(config.topics.lifecycle)
