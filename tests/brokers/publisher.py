"""Publishes traffic from a thread, at a pace, with an independent client; in the order given, nothing twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from confluent_kafka import Producer


class Record(Protocol):
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


class Publisher:
    """`rate` in records a second; None is as fast as it goes. `sent` counts what was handed over so far."""

    def __init__(self, bootstrap: str, topic: str, records: Iterable[Record], rate: float | None = None) -> None:
        self._records = records
        self._topic = topic
        self._rate = rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.max.bytes": 8 << 20,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Send no more, and wait for what was sent. Raises AssertionError if a record was not acknowledged."""
        self._stopped.set()
        self.join()

    def join(self, timeout: float = 600.0) -> None:
        """Wait until all is sent and acknowledged. Raises AssertionError if a record was not."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"the publisher is still at record {self.sent}"
        assert not self.failures, self.failures[:3]
        assert self.acknowledged == self.sent

    def _run(self) -> None:
        started = time.monotonic()
        for record in self._records:
            if self._stopped.is_set():
                break
            if self._rate is not None:
                ahead = started + self.sent / self._rate - time.monotonic()
                if ahead > 0:
                    self._producer.poll(0)
                    self._stopped.wait(ahead)
            self._send(record)
        left = self._producer.flush(120)
        if left:
            self.failures.append(f"{left} records were not acknowledged within 120 s")

    def _send(self, record: Record) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, headers=list(record.headers), on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            self.sent += 1
            if self.sent % 500 == 0:
                self._producer.poll(0)
            return

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))


def publish(bootstrap: str, topic: str, records: Sequence[Record]) -> None:
    """Publish all of them and return when they are acknowledged."""
    publisher = Publisher(bootstrap, topic, records)
    publisher.start()
    publisher.join()


@contextmanager
def publishing(bootstrap: str, topic: str, records: Iterable[Record], rate: float) -> Iterator[Publisher]:
    """A publisher at work during the block; after it, no more is sent."""
    publisher = Publisher(bootstrap, topic, records, rate)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()
