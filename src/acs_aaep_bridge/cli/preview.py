"""What the bridge would make of records: both stages, exactly as they run, without Kafka between them.

Everything passes through one partition. The clock is the records' own: with timestamps it is the highest one so far, and
what is due comes before the record; without, it follows the hooks and nothing is ever due, so that only order counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import orjson

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.identity import format_timestamp
from acs_aaep_bridge.core.lifecycle import LifecycleStage
from acs_aaep_bridge.core.model import Emit, Outcome, Outgoing, Record, Reject, Skip
from acs_aaep_bridge.core.normalized import LATEST_MS
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.errors import UsageError
from acs_aaep_bridge.kafka.secrets import read_secrets


class Emitted(NamedTuple):
    """An accepted event: what goes to the two topics, and the remarks on it."""

    normalized: tuple[Outgoing, ...]
    lifecycle: tuple[Outgoing, ...]
    notes: tuple[str, ...]


class Rejected(NamedTuple):
    """A dead letter. `normalized` holds what was published before the lifecycle stage refused it."""

    reject: Reject
    normalized: tuple[Outgoing, ...] = ()


class Batch(NamedTuple):
    """The verdicts on the elements of a JSON-RPC batch, in order."""

    results: tuple[Emitted | Skip | Rejected, ...]


class Released(NamedTuple):
    """What came out without a record: by a timer, or because the input ended."""

    why: Literal["timer", "end_of_input"]
    lifecycle: tuple[Outgoing, ...]


Verdict = Emitted | Skip | Rejected | Batch | Released


class Preview:
    """Feed it records in order, then `finish` it once."""

    def __init__(self, config: Config) -> None:
        self._normalize = build_stage("normalize", config, secrets=read_secrets(config.signature))
        self._lifecycle = LifecycleStage(config, shipped())
        self._raw, self._sessions = self._normalize.new_state(), self._lifecycle.new_state()
        self._topic = config.topics.normalized
        self._offset = 0
        self._now = 0
        self._timed = False

    @property
    def now(self) -> int:
        """Where the clock stands, in milliseconds since the epoch; 0 before the first record."""
        return self._now

    def feed(self, record: Record) -> Iterator[Verdict]:
        """What timers release before the record, if anything, then the verdict on it."""
        if record.timestamp >= 0:
            self._timed = True
            yield from self._advance(max(self._now, record.timestamp))
        outcomes = self._normalize.apply(record, self._raw, self._now)
        self._raw.commit()
        results = tuple(self._follow(outcome, record.timestamp) for outcome in outcomes)
        yield Batch(results) if _is_batch(record, outcomes) else results[0]

    def finish(self, until: int | None) -> Iterator[Verdict]:
        """What is held is settled; then, with `until` (milliseconds), time passes up to there.

        Raises UsageError when the clock is further already.
        """
        if until is not None and until < self._now:
            asked, last = (format_timestamp(min(moment, LATEST_MS)) for moment in (until, self._now))
            raise UsageError(f"--until {asked} lies before the last record, of {last}: write that time or a later one")
        settled = _flat(self._lifecycle.settle(self._sessions, self._now))
        self._sessions.commit()
        if settled:
            yield Released("end_of_input", settled)
        if until is not None:
            yield from self._advance(until)

    def _advance(self, now: int) -> Iterator[Released]:
        self._now = now
        self._normalize.advance(self._raw, now)
        released = _flat(self._lifecycle.advance(self._sessions, now))
        self._sessions.commit()
        if released:
            yield Released("timer", released)

    def _follow(self, outcome: Outcome, timestamp: int) -> Emitted | Skip | Rejected:
        """One outcome of the normalize stage, on through the lifecycle stage."""
        match outcome:
            case Skip():
                return outcome
            case Reject():
                return Rejected(outcome)
            case Emit():
                lifecycle: list[Outgoing] = []
                notes = list(outcome.notes)
                for normalized in outcome.outgoing:
                    following = self._translate(normalized, timestamp)
                    if isinstance(following, Reject):
                        return Rejected(following, outcome.outgoing)
                    lifecycle += following.outgoing
                    notes += following.notes
                return Emitted(outcome.outgoing, tuple(lifecycle), tuple(dict.fromkeys(notes)))

    def _translate(self, normalized: Outgoing, timestamp: int) -> Emit | Reject:
        if not self._timed:
            self._now = max(self._now, _occurred_at(normalized))
        record = Record(self._topic, 0, self._offset, timestamp, normalized.key, normalized.value, normalized.headers)
        self._offset += 1
        (outcome,) = self._lifecycle.apply(record, self._sessions, self._now)
        self._sessions.commit()
        return Emit((), outcome.method) if isinstance(outcome, Skip) else outcome


def _occurred_at(normalized: Outgoing) -> int:
    """When the hook fired, in milliseconds; 0 if it cannot be told."""
    try:
        return int(datetime.fromisoformat(orjson.loads(normalized.value or b"")["occurred_at"]).timestamp() * 1000)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0


def _flat(emits: Iterable[Emit]) -> tuple[Outgoing, ...]:
    return tuple(outgoing for emit in emits for outgoing in emit.outgoing)


def _is_batch(record: Record, outcomes: Sequence[Outcome]) -> bool:
    """An array, unless it was refused as a whole."""
    if len(outcomes) != 1:
        return True
    whole = isinstance(outcomes[0], Reject) and outcomes[0].element is None
    return not whole and (record.value or b"").lstrip(b" \t\r\n").startswith(b"[")
