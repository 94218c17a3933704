"""What the shell reports becomes counts, gauges and log lines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from acs_aaep_bridge.kafka.observer import BatchReport, Observer
from acs_aaep_bridge.telemetry.metrics import PREFIX
from acs_aaep_bridge.telemetry.observer import DEAD_LETTER_LOG_SECONDS, Clocks, TelemetryObserver
from acs_aaep_bridge.telemetry.readiness import Readiness
from acs_aaep_bridge.telemetry.registry import Metrics

RAW = "acs.events.raw"


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.lines.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.lines.append(("error", event, fields))


class Bench:
    """An observer with everything it writes to, and a clock to move."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000.0, 50.0
        self.log = Lines()
        self.metrics = Metrics(("normalize", "lifecycle"))
        self.readiness = Readiness(("normalize", "lifecycle"), lambda: self.steady)
        clocks = Clocks(lambda: self.wall, lambda: self.steady)
        self.observer = TelemetryObserver(self.metrics, self.readiness, self.log, clocks)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(PREFIX + name, labels)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_is_an_observer(bench: Bench) -> None:
    observer: Observer = bench.observer
    assert observer is bench.observer


def report(**fields: Any) -> BatchReport:
    return BatchReport("normalize", RAW, 3, **fields)


def test_a_batch_is_counted_event_by_event(bench: Bench) -> None:
    bench.observer.batch_finished(
        report(
            records=7,
            events=Counter({("steps/subagentStop", "emitted"): 4, ("steps/subagentStop", "rejected"): 1, ("", "skipped"): 2}),
            dead_letters=Counter({"payload_invalid": 1}),
            signatures=Counter({"verified": 3, "unsigned": 1}),
            produced=Counter({"acs.events.normalized": 4, "acs.events.dead-letter": 1}),
            processing_seconds=0.02,
            produce_seconds=0.3,
            latencies=[0.04, 0.2, 7.0],
            skews=[-0.2],
        )
    )
    stage = {"stage": "normalize"}
    assert bench.value("records_consumed_total", topic=RAW, **stage) == 7
    assert bench.value("events_total", method="steps/subagentStop", result="emitted", **stage) == 4
    assert bench.value("events_total", method="other", result="skipped", **stage) == 2
    assert bench.value("dead_letters_total", code="payload_invalid", **stage) == 1
    assert bench.value("signatures_total", status="verified") == 3
    assert bench.value("records_produced_total", topic="acs.events.normalized", **stage) == 4
    assert bench.value("processing_duration_seconds_count", **stage) == 1
    assert bench.value("end_to_end_latency_seconds_bucket", le="0.25", **stage) == 2
    assert bench.value("end_to_end_latency_seconds_sum", **stage) == pytest.approx(7.24)
    assert bench.value("event_clock_skew_seconds_bucket", le="-0.1") == 1


def test_what_comes_from_a_payload_never_becomes_a_label(bench: Bench) -> None:
    bench.observer.batch_finished(
        report(
            records=1,
            events=Counter({("steps/9f1e-secret", "emitted"): 1}),
            dead_letters=Counter({"surprise": 1}),
            lifecycle=Counter({("aaep:agent.session.cancelled", "user typed this"): 1, ("other:thing", "x"): 1}),
            notes=Counter({"surprise": 1}),
        )
    )
    assert bench.value("events_total", stage="normalize", method="other", result="emitted") == 1
    assert bench.value("dead_letters_total", stage="normalize", code="other") == 1
    assert bench.value("lifecycle_events_total", type="aaep:agent.session.cancelled", outcome="other") == 1
    assert bench.value("lifecycle_events_total", type="other", outcome="other") == 1
    assert bench.value("sessions_events_total", kind="other") == 1


def test_the_series_of_a_partition_go_when_it_is_revoked_and_late_news_do_not_bring_them_back(bench: Bench) -> None:
    observer = bench.observer
    observer.assigned("lifecycle", "n", 0)
    observer.assigned("lifecycle", "n", 1)
    for partition in (0, 1):
        observer.lag("lifecycle", "n", partition, 40 + partition, 5)
        observer.sessions_open("lifecycle", "n", partition, 10)
        observer.braked("lifecycle", "n", partition, "not_utf8")
        observer.blocked("lifecycle", "n", partition, "out_of_range")
        observer.restoring("lifecycle", "n", partition, 100)
    observer.revoked("lifecycle", "n", 0)
    observer.lag("lifecycle", "n", 0, 99, 9)
    observer.sessions_open("lifecycle", "n", 0, 99)
    assert bench.value("consumer_lag_records", stage="lifecycle", topic="n", partition="0") is None
    assert bench.value("consumer_lag_records", stage="lifecycle", topic="n", partition="1") == 41
    assert bench.value("sessions_open") == 10
    stage = {"stage": "lifecycle"}
    assert bench.value("upstream_open_transactions", **stage) == 5
    assert bench.value("assigned_partitions", **stage) == 1
    assert bench.value("braked_partitions", **stage) == 1
    assert bench.value("restoring_partitions", **stage) == 1
    assert bench.value("blocked_partitions", reason="out_of_range", **stage) == 1


def test_only_a_good_commit_is_progress(bench: Bench) -> None:
    bench.wall = 2_000.0
    bench.observer.committed("normalize", "failed", 0.1)
    assert bench.value("last_progress_timestamp_seconds", stage="normalize") == 1_000
    bench.observer.committed("normalize", "ok", 0.1)
    assert bench.value("last_progress_timestamp_seconds", stage="normalize") == 2_000
    assert bench.value("commits_total", stage="normalize", outcome="failed") == 1


def test_a_flood_of_rejects_is_one_line_per_partition_and_code_every_few_seconds(bench: Bench) -> None:
    for _ in range(50):
        bench.observer.batch_finished(report(records=10, dead_letters=Counter({"not_utf8": 10})))
    bench.steady += DEAD_LETTER_LOG_SECONDS
    bench.observer.batch_finished(report(records=1))
    counts = [fields["count"] for _, event, fields in bench.log.lines if event == "dead_letter.written"]
    assert counts == [10, 490]


def test_what_was_not_logged_yet_is_logged_at_the_end(bench: Bench) -> None:
    bench.observer.batch_finished(report(records=1, dead_letters=Counter({"not_utf8": 1})))
    bench.observer.batch_finished(report(records=2, dead_letters=Counter({"too_deep": 2})))
    bench.observer.flush()
    assert bench.log.lines[-1] == (
        "warning",
        "dead_letter.written",
        {"stage": "normalize", "topic": RAW, "partition": 3, "code": "too_deep", "count": 2},
    )


def test_a_lost_connection_is_logged_once_and_a_first_success_is_not_news(bench: Bench) -> None:
    for up in (True, False, False, True):
        bench.observer.connected("consumer", up)
    assert [line[:2] for line in bench.log.lines] == [("warning", "connection.lost"), ("info", "connection.restored")]
    assert bench.value("kafka_connected", role="consumer") == 1


def test_readiness_is_shown_as_a_number_and_passed_on_in_words(bench: Bench) -> None:
    bench.observer.readiness("lifecycle", ["restoring 2 partitions"])
    assert bench.value("ready", stage="lifecycle") == 0
    assert bench.readiness.reasons() == ["normalize: starting", "lifecycle: restoring 2 partitions"]
    bench.observer.readiness("lifecycle", [])
    assert bench.value("ready", stage="lifecycle") == 1
    assert bench.readiness.reasons() == ["normalize: starting"]


def test_a_finished_take_ends_the_restore(bench: Bench) -> None:
    bench.observer.restoring("lifecycle", "n", 0, 0)
    bench.observer.restoring("lifecycle", "n", 0, 500)
    assert bench.value("restoring_partitions", stage="lifecycle") == 1
    bench.observer.taken("lifecycle", "n", 0, "ok", 1.5)
    assert bench.value("restoring_partitions", stage="lifecycle") == 0
    assert bench.value("restored_entries_total", stage="lifecycle") == 500
    assert bench.value("partition_takes_total", stage="lifecycle", outcome="ok") == 1


def test_the_entries_of_a_restore_are_counted_once(bench: Bench) -> None:
    for entries in (0, 300, 300, 450):
        bench.observer.restoring("lifecycle", "n", 0, entries)
    bench.observer.restoring("lifecycle", "n", 1, 50)
    assert bench.value("restored_entries_total", stage="lifecycle") == 500


def test_a_partition_that_blocks_is_not_restoring_any_more(bench: Bench) -> None:
    bench.observer.restoring("lifecycle", "n", 0, 0)
    bench.observer.blocked("lifecycle", "n", 0, "unreadable_state")
    assert bench.value("restoring_partitions", stage="lifecycle") == 0
    assert bench.value("blocked_partitions", stage="lifecycle", reason="unreadable_state") == 1


def test_stalls_and_refused_dead_letters_are_counted(bench: Bench) -> None:
    bench.observer.stalled("normalize", RAW, 2)
    bench.observer.dead_letter_failed("normalize")
    assert bench.value("stalls_total", stage="normalize") == 1
    assert bench.value("dead_letter_failures_total", stage="normalize") == 1
    assert [line[:2] for line in bench.log.lines] == [("error", "dead_letter.refused")]
