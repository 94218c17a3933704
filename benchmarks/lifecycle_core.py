"""CPU per event in the lifecycle half of the core, and what a restore takes: `python -m benchmarks.lifecycle_core`.

The standard record is the `subagentStop` of `benchmarks.core`, as the normalize stage writes it. A stop of a subagent
whose start was seen makes one event; one that nobody announced makes two.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import orjson

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core import sessions
from acs_aaep_bridge.core.model import Emit, Record
from acs_aaep_bridge.core.normalized import read
from acs_aaep_bridge.core.policy import prepare
from acs_aaep_bridge.core.reading import EventReader, EventValidator
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.core.table import SessionTable
from acs_aaep_bridge.core.translate import TRANSLATORS
from acs_aaep_bridge.core.writers import WriterSchemas
from benchmarks.core import PER_ROUND, RECEIVED, ROUNDS, Figure, measure, stops

RESTORED = 200_000
UPDATES = 10


def normalized_stops() -> list[Record]:
    """The standard stops on the normalized topic."""
    stage = build_stage("normalize", Config())
    state = stage.new_state()
    found: list[Record] = []
    for record in stops(ROUNDS * PER_ROUND):
        (outcome,) = stage.apply(record, state, RECEIVED)
        assert isinstance(outcome, Emit)
        out = outcome.outgoing[0]
        found.append(Record(out.topic, 0, record.offset, out.timestamp, out.key, out.value, out.headers))
    return found


def start_of(stop: Record) -> Record:
    """A start of the stop's subagent, by its parent, a moment before."""
    event = orjson.loads(stop.value or b"")
    event["method"] = "steps/subagentStart"
    event["request_id"] = event["request_id"][::-1].replace("-", "")[:8] + event["request_id"][8:]
    event["payload"] = {"subagent_session_id": event["subject_session_id"], "subagent_descriptor": {"agent_name": "Explore"}}
    event["source"]["offset"] = 0
    return stop._replace(value=orjson.dumps(event), headers=(("acs-method", b"steps/subagentStart"),))


def figures() -> list[Figure]:
    """The lifecycle path, step upon step, then the stage as it runs, for stops with and without a start, and for other hooks."""
    config = Config()
    policy = prepare(config)
    reader = EventReader(config.limits, WriterSchemas())
    validator = EventValidator(shipped(), TRANSLATORS)
    stage = build_stage("lifecycle", config)
    records = normalized_stops()
    started = stage.new_state()
    for record in records:
        stage.apply(start_of(record), started, RECEIVED)
    started.commit()
    assert isinstance(started, SessionTable)

    def parsed(record: Record) -> Any:
        return reader(record.value or b"")

    def checked(record: Record) -> Any:
        event = parsed(record)
        assert validator.check(event) is None
        return event

    def reduced(record: Record) -> object:
        hook = read(checked(record), record, RECEIVED)
        assert hook is not None
        return sessions.reduce(policy, started.get(record.key or b""), hook, RECEIVED)

    def apply(state: Any) -> Callable[[Record], object]:
        return lambda record: stage.apply(record, state, RECEIVED)

    others = [record._replace(headers=(("acs-method", b"steps/memoryStore"),)) for record in records]
    return [
        measure("parse", parsed, records),
        measure("+ validate", checked, records),
        measure("+ reduce and translate", reduced, records),
        measure("stage: another hook", apply(started), others),
        measure("stage: stop, start known", apply(started), records),
        measure("stage: stop, nothing known", apply(stage.new_state()), records),
    ]


def restore() -> tuple[float, float, int]:
    """Seconds of CPU to load and to index the changelog of many sessions, and the bytes of one entry."""
    stage = build_stage("lifecycle", Config())
    table = stage.new_state()
    record = start_of(normalized_stops()[0])
    stage.apply(record, table, RECEIVED)
    ((_, value),) = table.changes()
    assert value is not None
    chance = random.Random(1)
    keys = [chance.randbytes(18).hex().encode() for _ in range(RESTORED)]
    restored = stage.new_state()
    began = time.process_time()
    for _ in range(UPDATES):
        for key in keys:
            restored.load(key, bytes(value))
    loaded = time.process_time()
    restored.loaded()
    return loaded - began, time.process_time() - loaded, len(value)


def main() -> None:
    print(f"CPU per 600-byte subagentStop, µs{'best':>19}{'mean':>8}")
    for figure in figures():
        print(f"{figure.name:<35}{figure.best:>10.2f}{figure.mean:>8.2f}")
    loading, indexing, size = restore()
    print(
        f"restore of {RESTORED:,} sessions with {UPDATES} updates each ({size} bytes): {loading:.1f} s + {indexing:.1f} s of CPU"
    )


if __name__ == "__main__":
    main()
