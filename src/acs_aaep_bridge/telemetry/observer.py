"""Turns what the shell reports into metrics and log lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.kafka.observer import BatchReport, Block, Role
from acs_aaep_bridge.telemetry.labels import (
    BLOCKS,
    DEAD_LETTER_CODES,
    LIFECYCLE_OUTCOMES,
    METHODS,
    OTHER,
    SESSION_NOTES,
    SIGNATURES,
    one_of,
)
from acs_aaep_bridge.telemetry.readiness import Readiness
from acs_aaep_bridge.telemetry.registry import Metrics

DEAD_LETTER_LOG_SECONDS: Final = 10.0

Place = tuple[str, str, int]


class Log(Protocol):
    """The four levels of a structlog logger."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class Clocks(NamedTuple):
    """Wall time and time that never goes back, both in seconds."""

    wall: Callable[[], float]
    steady: Callable[[], float]


class TelemetryObserver:
    """`kafka.observer.Observer` over Prometheus metrics and a structured log. Used on one thread; nothing blocks."""

    def __init__(self, metrics: Metrics, readiness: Readiness, log: Log, clocks: Clocks) -> None:
        self._metrics, self._readiness, self._log, self._clocks = metrics, readiness, log, clocks
        self._counter, self._gauge, self._histogram = metrics.counters, metrics.gauges, metrics.histograms
        self._owned: set[Place] = set()
        self._sessions: dict[Place, int] = {}
        self._open_transactions: dict[Place, int] = {}
        self._braked: set[Place] = set()
        self._blocked: dict[Place, str] = {}
        self._restoring: dict[Place, int] = {}
        self._connected: dict[str, bool] = {}
        self._rejects: Counter[tuple[str, str, int, str]] = Counter()
        self._rejects_due = 0.0
        for stage in metrics.stages:
            self._gauge["last_progress_timestamp_seconds"].labels(stage).set(clocks.wall())

    def batch_finished(self, report: BatchReport) -> None:
        """Count a finished batch."""
        stage, count = report.stage, self._counter
        count["records_consumed_total"].labels(stage, report.topic).inc(report.records)
        for (method, result), number in report.events.items():
            count["events_total"].labels(stage, one_of(METHODS, method), result).inc(number)
        for code, number in report.dead_letters.items():
            count["dead_letters_total"].labels(stage, one_of(DEAD_LETTER_CODES, code)).inc(number)
            self._rejects[stage, report.topic, report.partition, code] += number
        for announced, number in report.lifecycle.items():
            count["lifecycle_events_total"].labels(*_lifecycle_labels(*announced)).inc(number)
        for note, number in report.notes.items():
            count["sessions_events_total"].labels(one_of(SESSION_NOTES, note)).inc(number)
        for status, number in report.signatures.items():
            count["signatures_total"].labels(one_of(SIGNATURES, status)).inc(number)
        for topic, number in report.produced.items():
            count["records_produced_total"].labels(stage, topic).inc(number)
        self._histogram["processing_duration_seconds"].labels(stage).observe(report.processing_seconds)
        self._histogram["produce_duration_seconds"].labels(stage).observe(report.produce_seconds)
        self._metrics.distributions["end_to_end_latency_seconds"].labels(stage).observe_many(report.latencies)
        if report.skews:
            self._metrics.distributions["event_clock_skew_seconds"].labels().observe_many(report.skews)
        self._log_rejects()

    def committed(self, stage: StageName, outcome: Literal["ok", "failed", "lost"], seconds: float) -> None:
        """Count a commit; a good one is progress."""
        self._counter["commits_total"].labels(stage, outcome).inc()
        self._histogram["commit_duration_seconds"].labels(stage).observe(seconds)
        if outcome == "ok":
            self._gauge["last_progress_timestamp_seconds"].labels(stage).set(self._clocks.wall())

    def rebalanced(self, stage: StageName, assigned: int, seconds: float) -> None:
        """Count a rebalance."""
        self._counter["rebalances_total"].labels(stage).inc()
        self._histogram["rebalance_duration_seconds"].labels(stage).observe(seconds)
        self._gauge["assigned_partitions"].labels(stage).set(assigned)

    def assigned(self, stage: StageName, topic: str, partition: int) -> None:
        """Create the series of an owned partition."""
        self._owned.add((stage, topic, partition))
        self._counter["records_consumed_total"].labels(stage, topic)
        self._owned_changed(stage)

    def revoked(self, stage: StageName, topic: str, partition: int) -> None:
        """Remove every trace of a partition that is not owned any more."""
        place = (stage, topic, partition)
        self._owned.discard(place)
        self._braked.discard(place)
        self._restoring.pop(place, None)
        self._blocked.pop(place, None)
        self._sessions.pop(place, None)
        self._open_transactions.pop(place, None)
        self._metrics.forget("consumer_lag_records", stage, topic, str(partition))
        self._owned_changed(stage)

    def lag(self, stage: StageName, topic: str, partition: int, lag: int, open_transactions: int) -> None:
        """Show the lag of an owned partition; late news of a revoked one is dropped."""
        place = (stage, topic, partition)
        if place not in self._owned:
            return
        self._gauge["consumer_lag_records"].labels(stage, topic, str(partition)).set(lag)
        self._open_transactions[place] = open_transactions
        self._gauge["upstream_open_transactions"].labels(stage).set(_sum_of(self._open_transactions, stage))

    def inflight(self, stage: StageName, records: int) -> None:
        """Show the records in flight."""
        self._gauge["inflight_records"].labels(stage).set(records)

    def sessions_open(self, stage: StageName, topic: str, partition: int, count: int) -> None:
        """Show the open sessions of all owned partitions together."""
        place = (stage, topic, partition)
        if place in self._owned:
            self._sessions[place] = count
            self._gauge["sessions_open"].set(sum(self._sessions.values()))

    def connected(self, role: Role, up: bool) -> None:
        """Show whether a role reaches its server; log a change, but not the first success."""
        self._gauge["kafka_connected"].labels(role).set(up)
        if self._connected.get(role, True) != up:
            (self._log.info if up else self._log.warning)("connection.restored" if up else "connection.lost", role=role)
        self._connected[role] = up

    def braked(self, stage: StageName, topic: str, partition: int, code: str) -> None:
        """Show a braked partition."""
        self._end_restore(stage, topic, partition)
        self._braked.add((stage, topic, partition))
        self._gauge["braked_partitions"].labels(stage).set(_count_of(self._braked, stage))
        self._log_rejects(now=True)

    def blocked(self, stage: StageName, topic: str, partition: int, reason: Block) -> None:
        """Show a partition that waits for an operator."""
        self._end_restore(stage, topic, partition)
        self._blocked[stage, topic, partition] = reason
        self._show_blocked(stage)

    def restoring(self, stage: StageName, topic: str, partition: int, entries: int) -> None:
        """Show progress of a restore."""
        place = (stage, topic, partition)
        self._counter["restored_entries_total"].labels(stage).inc(max(0, entries - self._restoring.get(place, 0)))
        self._restoring[place] = entries
        self._gauge["restoring_partitions"].labels(stage).set(_count_of(self._restoring, stage))

    def taken(self, stage: StageName, topic: str, partition: int, outcome: Literal["ok", "failed"], seconds: float) -> None:
        """Count a take; its end is the end of a restore too."""
        self._end_restore(stage, topic, partition)
        self._counter["partition_takes_total"].labels(stage, outcome).inc()
        self._histogram["partition_take_duration_seconds"].labels(stage).observe(seconds)

    def stalled(self, stage: StageName, topic: str, partition: int) -> None:
        """Count a stall."""
        self._counter["stalls_total"].labels(stage).inc()

    def dead_letter_failed(self, stage: StageName) -> None:
        """Count and log a refused dead letter."""
        self._counter["dead_letter_failures_total"].labels(stage).inc()
        self._log.error("dead_letter.refused", stage=stage)

    def loop_lag(self, seconds: float) -> None:
        """Observe the event loop's lag."""
        self._histogram["event_loop_lag_seconds"].observe(seconds)

    def readiness(self, stage: StageName, reasons: Sequence[str]) -> None:
        """Pass the report on."""
        self._gauge["ready"].labels(stage).set(not reasons)
        self._readiness.report(stage, reasons)
        self._log_rejects()

    def log(self, level: Literal["debug", "info", "warning", "error"], event: str, **fields: Any) -> None:
        """Write one line."""
        write = {"debug": self._log.debug, "info": self._log.info, "warning": self._log.warning, "error": self._log.error}
        write[level](event, **fields)

    def flush(self) -> None:
        """Write what was summed up and not logged yet; called once at the end."""
        self._log_rejects(now=True)

    def _end_restore(self, stage: StageName, topic: str, partition: int) -> None:
        self._restoring.pop((stage, topic, partition), None)
        self._gauge["restoring_partitions"].labels(stage).set(_count_of(self._restoring, stage))

    def _owned_changed(self, stage: StageName) -> None:
        self._gauge["assigned_partitions"].labels(stage).set(_count_of(self._owned, stage))
        self._gauge["braked_partitions"].labels(stage).set(_count_of(self._braked, stage))
        self._gauge["restoring_partitions"].labels(stage).set(_count_of(self._restoring, stage))
        self._gauge["upstream_open_transactions"].labels(stage).set(_sum_of(self._open_transactions, stage))
        self._gauge["sessions_open"].set(sum(self._sessions.values()))
        self._show_blocked(stage)

    def _show_blocked(self, stage: StageName) -> None:
        counts = Counter(reason for (of, _, _), reason in self._blocked.items() if of == stage)
        for reason in BLOCKS:
            self._gauge["blocked_partitions"].labels(stage, reason).set(counts[reason])

    def _log_rejects(self, now: bool = False) -> None:
        """One line per partition and code for all rejects of some seconds: a poisoned topic must not flood the log too."""
        if not self._rejects or not (now or self._clocks.steady() >= self._rejects_due):
            return
        self._rejects_due = self._clocks.steady() + DEAD_LETTER_LOG_SECONDS
        rejects, self._rejects = self._rejects, Counter()
        for (stage, topic, partition, code), number in rejects.items():
            self._log.warning("dead_letter.written", stage=stage, topic=topic, partition=partition, code=code, count=number)


def _lifecycle_labels(kind: str, outcome: str) -> tuple[str, str]:
    outcomes = LIFECYCLE_OUTCOMES.get(kind)
    if outcomes is None:
        return OTHER, OTHER
    return kind, one_of(outcomes, outcome)


def _count_of(places: Iterable[Place], stage: str) -> int:
    return sum(1 for place in places if place[0] == stage)


def _sum_of(values: dict[Place, int], stage: str) -> int:
    return sum(value for place, value in values.items() if place[0] == stage)
