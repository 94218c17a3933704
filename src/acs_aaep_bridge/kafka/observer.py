"""What the shell reports, so that it need not know how metrics and logs are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from acs_aaep_bridge.core.model import StageName

Result = Literal["emitted", "absorbed", "skipped", "rejected"]
Role = Literal["consumer", "producer", "admin", "registry"]
Block = Literal["out_of_range", "unreadable_state", "unpublishable"]


@dataclass(slots=True)
class BatchReport:
    """One batch that is finished: acknowledged and committed (exactly-once) or acknowledged (at-least-once).

    Durations in seconds; `latencies` are input record timestamp to output acknowledged, `skews` hook timestamp less
    record timestamp. A worker fills one while it works and hands it over once; nobody changes it afterwards.
    """

    stage: StageName
    topic: str
    partition: int
    records: int = 0
    events: Counter[tuple[str, Result]] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    lifecycle: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    signatures: Counter[str] = field(default_factory=Counter)
    produced: Counter[str] = field(default_factory=Counter)
    processing_seconds: float = 0.0
    produce_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    skews: list[float] = field(default_factory=list)


class Observer(Protocol):
    """Receives what happened. Every method returns at once and never raises.

    It also writes the log lines for dead letters (summed up over some seconds), for a lost and restored connection and for
    refused dead letters; `log` is for everything else.
    """

    def batch_finished(self, report: BatchReport) -> None:
        """A batch is finished; the counters of the catalogue come from here."""

    def committed(self, stage: StageName, outcome: Literal["ok", "failed", "lost"], seconds: float) -> None:
        """An offset commit or a transaction ended."""

    def rebalanced(self, stage: StageName, assigned: int, seconds: float) -> None:
        """A rebalance ended; `assigned` partitions are owned now."""

    def assigned(self, stage: StageName, topic: str, partition: int) -> None:
        """A partition is owned."""

    def revoked(self, stage: StageName, topic: str, partition: int) -> None:
        """A partition is not owned any more: its series are removed."""

    def lag(self, stage: StageName, topic: str, partition: int, lag: int, open_transactions: int) -> None:
        """Records behind the last stable offset, and high watermark less last stable offset."""

    def inflight(self, stage: StageName, records: int) -> None:
        """Records accepted and not finished."""

    def sessions_open(self, stage: StageName, topic: str, partition: int, count: int) -> None:
        """Open sessions of one input partition."""

    def connected(self, role: Role, up: bool) -> None:
        """A client reached its broker, or lost it."""

    def braked(self, stage: StageName, topic: str, partition: int, code: str) -> None:
        """The brake stopped a partition; `code` is the most frequent dead-letter code of its window."""

    def blocked(self, stage: StageName, topic: str, partition: int, reason: Block) -> None:
        """A partition cannot go on without an operator, until it is assigned anew."""

    def restoring(self, stage: StageName, topic: str, partition: int, entries: int) -> None:
        """A partition's state is being restored; `entries` were read so far (0 at its start)."""

    def taken(self, stage: StageName, topic: str, partition: int, outcome: Literal["ok", "failed"], seconds: float) -> None:
        """An attempt to take a partition ended: fenced, restored and positioned, or not."""

    def stalled(self, stage: StageName, topic: str, partition: int) -> None:
        """The watchdog found lag and no commit progress for `watchdog.stall_after`."""

    def dead_letter_failed(self, stage: StageName) -> None:
        """The dead-letter topic refused a record; nothing is skipped, the partition retries."""

    def loop_lag(self, seconds: float) -> None:
        """How late the event loop woke up."""

    def readiness(self, stage: StageName, reasons: Sequence[str]) -> None:
        """Why the stage is not ready, in words; empty when it is. Repeated at least every 10 s: past 30 s it counts as stuck."""

    def log(self, level: Literal["debug", "info", "warning", "error"], event: str, **fields: Any) -> None:
        """A short dotted event name and its fields, never payload content."""


class NullObserver:
    """Ignores everything: for tests and one-shot commands."""

    def batch_finished(self, report: BatchReport) -> None: ...
    def committed(self, stage: StageName, outcome: Literal["ok", "failed", "lost"], seconds: float) -> None: ...
    def rebalanced(self, stage: StageName, assigned: int, seconds: float) -> None: ...
    def assigned(self, stage: StageName, topic: str, partition: int) -> None: ...
    def revoked(self, stage: StageName, topic: str, partition: int) -> None: ...
    def lag(self, stage: StageName, topic: str, partition: int, lag: int, open_transactions: int) -> None: ...
    def inflight(self, stage: StageName, records: int) -> None: ...
    def sessions_open(self, stage: StageName, topic: str, partition: int, count: int) -> None: ...
    def connected(self, role: Role, up: bool) -> None: ...
    def braked(self, stage: StageName, topic: str, partition: int, code: str) -> None: ...
    def blocked(self, stage: StageName, topic: str, partition: int, reason: Block) -> None: ...
    def restoring(self, stage: StageName, topic: str, partition: int, entries: int) -> None: ...
    def taken(self, stage: StageName, topic: str, partition: int, outcome: Literal["ok", "failed"], seconds: float) -> None: ...
    def stalled(self, stage: StageName, topic: str, partition: int) -> None: ...
    def dead_letter_failed(self, stage: StageName) -> None: ...
    def loop_lag(self, seconds: float) -> None: ...
    def readiness(self, stage: StageName, reasons: Sequence[str]) -> None: ...
    def log(self, level: Literal["debug", "info", "warning", "error"], event: str, **fields: Any) -> None: ...
