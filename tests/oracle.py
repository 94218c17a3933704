"""What should have come out: the pure core, run over a stage's own input topic as it was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.deadletter import dead_letter
from acs_aaep_bridge.core.model import Emit, Outcome, Outgoing, PartitionState, Record, Reject, Skip, StageName
from acs_aaep_bridge.core.stages import build_stage


class Expected(NamedTuple):
    """What one stage makes of its input: records in order of their cause, and how each event ended."""

    outgoing: tuple[Outgoing, ...]
    results: Counter[str]

    def on(self, topic: str) -> list[Outgoing]:
        return [one for one in self.outgoing if one.topic == topic]


def as_record(message: Message) -> Record:
    """A consumed message as the bridge sees it."""
    kind, timestamp = message.timestamp()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.key(),
        message.value(),
        _headers(message),
    )


def as_outgoing(message: Message) -> Outgoing:
    """A consumed message as the stage that published it meant it."""
    record = as_record(message)
    return Outgoing(record.topic, record.key, record.value, record.headers, record.timestamp)


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def expect(name: StageName, config: Config, messages: Iterable[Message]) -> Expected:
    """Run the core over `messages`: every partition's in log order, partitions one after the other."""
    run = _Run(name, config)
    for message in messages:
        run.take(as_record(message))
    return Expected(tuple(run.outgoing), run.results)


class _Run:
    def __init__(self, name: StageName, config: Config) -> None:
        self._stage = build_stage(name, config)
        self._dead_letters = config.topics.dead_letter
        self._states: dict[int, tuple[PartitionState, int]] = {}
        self.outgoing: list[Outgoing] = []
        self.results: Counter[str] = Counter()

    def take(self, record: Record) -> None:
        state, now = self._states.get(record.partition) or (self._stage.new_state(), 0)
        now = max(now, record.timestamp)
        self._states[record.partition] = (state, now)
        due = state.next_deadline()
        if due is not None and due <= now:
            for released in self._stage.advance(state, now):
                self.outgoing += released.outgoing
        for outcome in self._stage.apply(record, state, now):
            self._settle(record, outcome)
        state.commit()

    def _settle(self, record: Record, outcome: Outcome) -> None:
        match outcome:
            case Emit(outgoing=made):
                self.results["emitted" if made else "absorbed"] += 1
                self.outgoing += made
            case Skip():
                self.results["skipped"] += 1
            case Reject():
                self.results["rejected"] += 1
                self.outgoing.append(dead_letter(record, outcome, self._dead_letters))


def compare(wanted: Sequence[Outgoing], found: Sequence[Outgoing]) -> tuple[list[Outgoing], list[Outgoing]]:
    """What is missing, and what is there too often or should not be there at all. Bytes, headers and timestamps count."""
    balance = Counter(wanted)
    balance.subtract(Counter(found))
    missing = [one for one, count in balance.items() for _ in range(count) if count > 0]
    surplus = [one for one, count in balance.items() for _ in range(-count) if count < 0]
    return missing, surplus


def describe(records: Sequence[Outgoing]) -> str:
    """The first few, by what identifies them and nothing of what they say."""
    lines = [f"{len(records)} records"]
    for one in records[:5]:
        named = {name: value for name, value in one.headers if name.startswith(("bridge.error", "acs-")) and name.islower()}
        lines.append(f"  {one.topic} {one.key!r} {named}")
    return "\n".join(lines)
