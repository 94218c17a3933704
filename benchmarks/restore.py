"""How long a take waits for its sessions: 200,000 of them with ten updates each, read from a changelog on real Kafka.

`python -m benchmarks.restore ADDRESS`. Twelve partitions, restored eight at a time as a bridge does that owns all of them.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from tests.brokers import topics as independent

from acs_aaep_bridge.cli.run import spare_the_collector
from acs_aaep_bridge.config import load
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.kafka.backend import KafkaBackend
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.observer import NullObserver
from acs_aaep_bridge.kafka.topics import Report, TopicInfo
from benchmarks.core import RECEIVED
from benchmarks.lifecycle_core import RESTORED, UPDATES, normalized_stops, start_of

PARTITIONS = 12
AT_ONCE = 8


def entry() -> bytes:
    """A session's entry as the lifecycle stage writes it."""
    stage = build_stage("lifecycle", load("", {}))
    state = stage.new_state()
    stage.apply(start_of(normalized_stops()[0]), state, RECEIVED)
    ((_, value),) = state.changes()
    assert value is not None
    return bytes(value)


def fill(bootstrap: str, topic: str, value: bytes) -> None:
    """Every session in its partition, one update after the other."""
    independent.create(bootstrap, {topic: PARTITIONS}, {topic: {"cleanup.policy": "compact"}})
    chance = random.Random(1)
    keys = [chance.randbytes(18).hex().encode() for _ in range(RESTORED)]
    for partition in range(PARTITIONS):
        mine = keys[partition::PARTITIONS]
        independent.fill(bootstrap, topic, ((key, value) for _ in range(UPDATES) for key in mine), partition=partition)


async def restore(bootstrap: str, topic: str) -> tuple[float, float, int]:
    """Seconds, seconds of CPU, and how many sessions there are then."""
    config = load("", {}, {"kafka.bootstrap_servers": bootstrap, "topics.changelog": topic})
    backend = KafkaBackend(config, Clients(config), Report({topic: TopicInfo(PARTITIONS)}, ()), NullObserver())
    probe = backend.probe_of([topic])
    await probe.start()
    changelog = backend.changelog(probe)
    stage = build_stage("lifecycle", config)
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(partition: int) -> int:
        state = stage.new_state()
        async with turns:
            await changelog.restore(partition, state.load, lambda *_: None)
            state.loaded()
        return state.open_sessions()

    began, cpu = time.monotonic(), time.process_time()
    found = await asyncio.gather(*(one(partition) for partition in range(PARTITIONS)))
    took = time.monotonic() - began, time.process_time() - cpu
    await probe.stop()
    return *took, sum(found)


def main() -> None:
    (bootstrap,) = sys.argv[1:]
    value, topic = entry(), independent.unique("restore")
    fill(bootstrap, topic, value)
    spare_the_collector()
    seconds, cpu, sessions = asyncio.run(restore(bootstrap, topic))
    records = RESTORED * UPDATES
    print(
        f"{sessions:,} sessions of {len(value)} bytes with {UPDATES} updates each ({records:,} records, not compacted yet): "
        f"{seconds:.1f} s, {cpu:.1f} s of CPU, {records / seconds:,.0f} records/s"
    )


if __name__ == "__main__":
    main()
