"""CPU per event in the core, without Kafka: `python -m benchmarks.core`.

Each figure is the fastest of many short rounds over distinct records, which is what the code costs; the mean also tells
what else the machine was doing. The steps are measured one upon another, so their differences are what each adds.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

import orjson

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.decode import read
from acs_aaep_bridge.core.model import HookEvent, Record
from acs_aaep_bridge.core.normalize import normalize
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.core.validate import RequestValidator

RECEIVED = 1_779_632_559_000
SIZE = 600
SUMMARY = "Found three call sites. Two were changed, one needs a review"
ROUNDS = 60
PER_ROUND = 500


class Figure(NamedTuple):
    """CPU time of one event, in microseconds."""

    name: str
    best: float
    mean: float


def stops(count: int, seed: int = 1) -> list[Record]:
    """Distinct `subagentStop` records of 600 bytes with a summary of 60 characters, a millisecond apart."""
    chance = random.Random(seed)
    return [_record(_stop(chance, number), number) for number in range(count)]


def _stop(chance: random.Random, number: int) -> bytes:
    second, millisecond = divmod(number, 1000)
    payload = {
        "subagent_session_id": _uuid(chance),
        "outcome": "completed",
        "final_chain_hash": f"{chance.getrandbits(256):064x}",
        "summary": {"value": SUMMARY, "provenance": {"provenance_id": "p1", "origin": "agent_generated"}},
    }
    params = {
        "acs_version": "0.1.0",
        "request_id": _uuid(chance),
        "timestamp": f"2026-05-24T14:{second // 60:02d}:{second % 60:02d}.{millisecond:03d}Z",
        "metadata": {"agent_id": "planner", "session_id": _uuid(chance)},
        "payload": payload,
    }
    message = {"jsonrpc": "2.0", "method": "steps/subagentStop", "id": "", "params": params}
    message["id"] = "0" * max(0, SIZE - len(orjson.dumps(message)))
    return orjson.dumps(message)


def _uuid(chance: random.Random) -> str:
    return str(UUID(int=chance.getrandbits(128), version=4))


def _record(value: bytes, offset: int) -> Record:
    return Record("acs.events.raw", 0, offset, RECEIVED, None, value)


def measure(name: str, step: Callable[[Record], object], records: Iterable[Record]) -> Figure:
    """The fastest and the mean round. Blocks for as long as they take."""
    taken = list(records)
    gc.freeze()  # a consumer does not hold tens of thousands of records for the collector to walk
    spans = [taken[start : start + PER_ROUND] for start in range(0, ROUNDS * PER_ROUND, PER_ROUND)]
    costs = []
    for span in spans:
        began = time.process_time_ns()
        for record in span:
            step(record)
        costs.append((time.process_time_ns() - began) / len(span) / 1_000)
    return Figure(name, min(costs), sum(costs) / len(costs))


def figures() -> list[Figure]:
    """The normalize path, step upon step, then the stage as it runs."""
    config = Config()
    validator = RequestValidator(shipped(), config.acs)
    stage = build_stage("normalize", config)
    state = stage.new_state()

    def parsed(record: Record) -> object:
        return orjson.loads(record.value or b"")

    def decoded(record: Record) -> object:
        return read(record.value or b"", config.limits)

    def checked(record: Record) -> HookEvent:
        event = validator.accept(decoded(record))
        assert event is not None
        return event

    def normalized(record: Record) -> object:
        return normalize(checked(record), record)

    def applied(record: Record) -> object:
        return stage.apply(record, state, RECEIVED)

    steps = {"parse": parsed, "+ decode": decoded, "+ validate": checked, "+ normalize": normalized, "normalize stage": applied}
    records = stops(ROUNDS * PER_ROUND)
    return [measure(name, step, records) for name, step in steps.items()]


def main() -> None:
    print(f"CPU per {SIZE}-byte subagentStop, µs{'best':>16}{'mean':>8}")
    for figure in figures():
        print(f"{figure.name:<35}{figure.best:>10.2f}{figure.mean:>8.2f}")


if __name__ == "__main__":
    main()
