"""Rates, CPU and latencies of a running process, seen from outside: by what it has committed and by what comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import quantiles

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.brokers import topics
from tests.brokers.process import Child
from tests.brokers.publisher import Publisher, Record

_WARM = 0.1
_EVERY = 0.1
_SETTLING = 3.0
_QUIET = 15.0


@dataclass(frozen=True)
class Throughput:
    """Between the first tenth and the end of the input: records a second, and CPU microseconds of the process a record."""

    records: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.records * 1e6


def throughput(child: Child, done: Callable[[], int], total: int, timeout: float = 300.0) -> Throughput:
    """Watch `child` until `done` says that all of `total` records are."""
    process = psutil.Process(child.pid)
    start: tuple[int, float, float] | None = None
    deadline = time.monotonic() + timeout
    while True:
        count, now, cpu = done(), time.monotonic(), _cpu(process)
        if start is None and count >= total * _WARM:
            start = (count, now, cpu)
        if start is not None and count >= total:
            if count == start[0]:
                raise AssertionError("too few records to measure: all were done at the first look")
            return Throughput(count - start[0], now - start[1], cpu - start[2])
        if now > deadline or not child.running():
            raise AssertionError(f"{count} of {total} records after {timeout} s\n{child.tail()}")
        time.sleep(_EVERY)


@contextmanager
def progress(bootstrap: str, group: str, topic: str) -> Iterator[Callable[[], int]]:
    """How many records the group has committed of `topic`, which must hold no transaction markers: offsets count records."""
    asked = topics.Committed(bootstrap, group, topic, topics.count(bootstrap, topic))
    last = 0

    def done() -> int:
        nonlocal last
        with suppress(KafkaException):  # a busy broker: asked again
            last = sum(asked.read().values())
        return last

    try:
        yield done
    finally:
        asked.close()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the input record's timestamp until a read_committed consumer has the output."""

    p50: float
    p99: float
    events: int


def latency(bootstrap: str, source: str, target: str, records: Sequence[Record], rate: float) -> Latency:
    """Publish `records` at `rate`, and time what arrives on `target` (records there keep the input's timestamp)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topics.unique("latency"),
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": 10,
        }
    )
    partitions = list(topics.ends(bootstrap, target).items())
    consumer.assign([TopicPartition(target, number, end) for number, end in partitions])
    publisher = Publisher(bootstrap, source, records, rate)
    started = time.time()
    publisher.start()
    found: list[float] = []
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < _QUIET:
        for message in consumer.consume(500, timeout=0.02):
            if message.error() is not None:
                continue
            quiet_since = time.monotonic()
            _, timestamp = message.timestamp()
            if timestamp / 1000 > started + _SETTLING:
                found.append(time.time() * 1000 - timestamp)
    publisher.join()
    consumer.close()
    cuts = quantiles(found, n=100)
    return Latency(cuts[49], cuts[98], len(found))
