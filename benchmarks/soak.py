"""Memory of a bridge under steady load: `python -m benchmarks.soak [--minutes 30] [--rate 500] [--delivery exactly_once]`.

One bridge with both stages, one broker, twelve partitions, and hosts that come and go without end, some of them sending what
cannot be used. What the bridge remembers of a session it forgets after two minutes here, so that after the first minutes
nothing is left to grow. In the end every record must be accounted for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from tests import traffic
from tests.bridge import Bridge, caught_up, running, topics_for
from tests.brokers.kafka import Kafka
from tests.brokers.publisher import Publisher

PARTITIONS = 12
EVERY = 10.0
SHORT = {"closed_retention": "2m", "subagent_idle_timeout": "2m", "idle_timeout": "3m"}
WARM = 1 / 3
"""The part of the time after which nothing should grow any more."""


class Sample(NamedTuple):
    """Seconds since the start, resident MiB, open sessions, seconds of CPU so far."""

    at: float
    memory: float
    sessions: int
    cpu: float


def mixed(seed: int) -> Iterator[traffic.Sent]:
    """Without end: each thousand of records from hosts of its own."""
    return (sent for part in count() for sent in traffic.mixed(seed * 1_000_000 + part, 1_000, poison=0.05))


def watch(bridge: Bridge, seconds: float) -> list[Sample]:
    """A sample every ten seconds."""
    process, began = psutil.Process(bridge.pid), time.monotonic()
    samples: list[Sample] = []
    while (at := time.monotonic() - began) < seconds:
        used = process.cpu_times()
        sessions = sum(int(value) for _, value in bridge.metrics().get("sessions_open", []))
        samples.append(Sample(at, process.memory_info().rss / 2**20, sessions, used.user + used.system))
        time.sleep(max(0.0, EVERY * len(samples) - (time.monotonic() - began)))
    return samples


def table(samples: Sequence[Sample], minutes: float, parts: int = 6) -> Iterator[str]:
    """A row for each part of the time."""
    yield "| minutes | memory, median | highest | open sessions | CPU |"
    yield "|---|---|---|---|---|"
    length = minutes / parts
    for part in range(parts):
        mine = [one for one in samples if part * length <= one.at / 60 < (part + 1) * length]
        memory = [one.memory for one in mine]
        busy = (mine[-1].cpu - mine[0].cpu) / (mine[-1].at - mine[0].at)
        sessions = median(one.sessions for one in mine)
        yield (
            f"| {part * length:.0f} to {(part + 1) * length:.0f} | {median(memory):.0f} MiB | {max(memory):.0f} MiB "
            f"| {sessions:,.0f} | {busy:.0%} of a core |"
        )


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--rate", type=float, default=500.0, help="records a second")
    options.add_argument("--delivery", default="exactly_once", choices=["exactly_once", "at_least_once"])
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kafka = Kafka(Path(folder) / "kafka")
        kafka.start()
        try:
            names = topics_for(kafka.bootstrap, "soak", PARTITIONS)
            publisher = Publisher(kafka.bootstrap, names.raw, mixed(1), chosen.rate)
            with running(Path(folder), names.settings(delivery=chosen.delivery, sessions=SHORT)) as bridge:
                publisher.start()
                samples = watch(bridge, chosen.minutes * 60)
                publisher.stop()
                caught_up(names, bridge)
                ended = sum(bridge.total("events_total", "stage", "result").values())
                status = bridge.stop()
        finally:
            kafka.stop()
    print(*table(samples, chosen.minutes), sep="\n")
    warm = [one.memory for one in samples if one.at >= chosen.minutes * 60 * WARM]
    half = len(warm) // 2
    print(
        f"{publisher.sent:,} records, {ended:,} events accounted for, exit {status}; once warm, the second half of the time "
        f"against the first: {median(warm[half:]) - median(warm[:half]):+.1f} MiB"
    )


if __name__ == "__main__":
    main()
