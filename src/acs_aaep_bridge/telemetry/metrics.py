"""The metric catalogue: every metric the bridge has, as rows. README, dashboard, alerts and tests are checked against it.

`python -m acs_aaep_bridge.telemetry.metrics` prints it as a Markdown table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

PREFIX: Final = "acs_aaep_bridge_"

Kind = Literal["counter", "gauge", "histogram", "distribution"]


class Metric(NamedTuple):
    """One metric. A `distribution` is exposed as a histogram; it is fed whole batches of observations at a time.

    `unit` is what one step of the value is; `help` says what the metric counts and what a rise means.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    unit: str
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def exposed_kind(self) -> str:
        return "histogram" if self.kind == "distribution" else self.kind


_BATCH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LATENCY_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
_SKEW_SECONDS = (-3600.0, -300.0, -60.0, -10.0, -5.0, -1.0, -0.1, 0.0, 0.1, 1.0, 5.0, 60.0, 300.0, 3600.0)
_LOOP_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

CATALOGUE: Final[tuple[Metric, ...]] = (
    Metric("records_consumed_total", "counter", ("stage", "topic"), "records", "Input records finished. A rise is load."),
    Metric(
        "events_total",
        "counter",
        ("stage", "method", "result"),
        "events",
        "Events by what became of them: emitted, absorbed (held, a repeat, or nothing to say), skipped (not an event) or "
        "rejected (dead-lettered). The four together are all that came in. A rise of rejected means a sender or the mapping "
        "is broken.",
    ),
    Metric(
        "lifecycle_events_total",
        "counter",
        ("type", "outcome"),
        "events",
        "AAEP events published, by type and outcome. A rise of errored or cancelled means agents are failing, not the bridge.",
    ),
    Metric("records_produced_total", "counter", ("stage", "topic"), "records", "Records acknowledged. A rise is load."),
    Metric(
        "dead_letters_total",
        "counter",
        ("stage", "code"),
        "records",
        "Records sent to the dead-letter topic, by reason. A rise means senders publish what cannot be used.",
    ),
    Metric(
        "dead_letter_failures_total",
        "counter",
        ("stage",),
        "failures",
        "Refused writes to the dead-letter topic. Any rise blocks the partition: nothing is skipped, so nothing moves.",
    ),
    Metric(
        "sessions_events_total",
        "counter",
        ("kind",),
        "events",
        "Hooks that did not follow the expected order and what was done. A rise means hosts repeat, lose or reorder hooks.",
    ),
    Metric(
        "signatures_total",
        "counter",
        ("status",),
        "events",
        "Accepted events by signature verdict (refused ones are dead letters). A rise of unverified means an unknown key or "
        "algorithm.",
    ),
    Metric("sessions_open", "gauge", (), "sessions", "Sessions kept in memory. A steady rise means ends are not reported."),
    Metric(
        "processing_duration_seconds",
        "histogram",
        ("stage",),
        "seconds",
        "CPU work for one batch. A rise means larger batches or costlier records.",
        _BATCH_SECONDS,
    ),
    Metric(
        "produce_duration_seconds",
        "histogram",
        ("stage",),
        "seconds",
        "Output sent to output acknowledged, per batch. A rise means slow or unhealthy brokers.",
        _BATCH_SECONDS,
    ),
    Metric(
        "end_to_end_latency_seconds",
        "distribution",
        ("stage",),
        "seconds",
        "Input record timestamp to output acknowledged: the service level. A rise means lag, slow brokers or old input.",
        _LATENCY_SECONDS,
    ),
    Metric(
        "event_clock_skew_seconds",
        "distribution",
        (),
        "seconds",
        "Hook timestamp less record timestamp. Far from 0 means a wrong clock or a sender that delivers late.",
        _SKEW_SECONDS,
    ),
    Metric(
        "consumer_lag_records",
        "gauge",
        ("stage", "topic", "partition"),
        "records",
        "Records behind the last stable offset, owned partitions only. A steady rise means more input than capacity, or a "
        "partition that does not move.",
    ),
    Metric(
        "last_progress_timestamp_seconds",
        "gauge",
        ("stage",),
        "seconds since the epoch",
        "When offsets were last committed (the start, before the first time). Standing still while there is lag is a stall.",
    ),
    Metric(
        "inflight_records",
        "gauge",
        ("stage",),
        "records",
        "Records accepted and not finished. A rise means the brokers acknowledge more slowly than records arrive.",
    ),
    Metric("assigned_partitions", "gauge", ("stage",), "partitions", "Partitions owned. 0 for long means an idle replica."),
    Metric(
        "blocked_partitions",
        "gauge",
        ("stage", "reason"),
        "partitions",
        "Owned partitions that cannot go on without an operator. Anything above 0 needs a person.",
    ),
    Metric(
        "braked_partitions",
        "gauge",
        ("stage",),
        "partitions",
        "Partitions stopped because too many records in a row were rejected. Anything above 0 needs a person.",
    ),
    Metric(
        "upstream_open_transactions",
        "gauge",
        ("stage",),
        "records",
        "High watermark less last stable offset, summed over owned partitions. Above 0 for long means a producer upstream "
        "left a transaction open, and nothing behind it can be read.",
    ),
    Metric(
        "commits_total",
        "counter",
        ("stage", "outcome"),
        "commits",
        "Offset commits and transactions. A rise of failed or lost means work is done twice (or rolled back) and repeated.",
    ),
    Metric(
        "commit_duration_seconds",
        "histogram",
        ("stage",),
        "seconds",
        "Duration of a commit or transaction. A rise means slow or unhealthy brokers.",
        _BATCH_SECONDS,
    ),
    Metric("rebalances_total", "counter", ("stage",), "rebalances", "Rebalances. A rise means members come and go."),
    Metric(
        "rebalance_duration_seconds",
        "histogram",
        ("stage",),
        "seconds",
        "Duration of a rebalance. A rise means members that drain or answer slowly; nothing is processed meanwhile.",
        _WAIT_SECONDS,
    ),
    Metric(
        "partition_takes_total",
        "counter",
        ("stage", "outcome"),
        "attempts",
        "Attempts to take over a partition (fence, restore, seek). A rise of failed ends in exit code 4.",
    ),
    Metric(
        "partition_take_duration_seconds",
        "histogram",
        ("stage",),
        "seconds",
        "Duration of taking a partition, state restore included. A rise means a grown changelog or slow brokers.",
        _WAIT_SECONDS,
    ),
    Metric(
        "restoring_partitions",
        "gauge",
        ("stage",),
        "partitions",
        "Partitions whose state is being restored. Above 0 for long means a grown changelog or slow brokers.",
    ),
    Metric(
        "restored_entries_total",
        "counter",
        ("stage",),
        "entries",
        "Changelog entries read while restoring. Rises with each assignment; standing still while restoring is a stall.",
    ),
    Metric(
        "stalls_total",
        "counter",
        ("stage",),
        "stalls",
        "Partitions that the watchdog found with lag and without progress. A second one in a row ends the process (exit 5).",
    ),
    Metric("ready", "gauge", ("stage",), "0 or 1", "Whether the stage is ready, as /readyz says. 0 for long needs a person."),
    Metric(
        "kafka_connected",
        "gauge",
        ("role",),
        "0 or 1",
        "Whether the clients of a role reach their server (registry: the schema registry). 0 means an outage or a network rule.",
    ),
    Metric(
        "event_loop_lag_seconds",
        "histogram",
        (),
        "seconds",
        "How late the event loop wakes up. A rise means blocked code or too little CPU; heartbeats suffer next.",
        _LOOP_SECONDS,
    ),
    Metric("build_info", "gauge", ("version", "python", "aiokafka"), "1", "Always 1. A new series is a rollout."),
)


def series_names(metric: Metric) -> tuple[str, ...]:
    """The names under which the metric's samples can be queried."""
    if metric.exposed_kind == "histogram":
        if metric.buckets[0] < 0:  # a sum that can fall is no counter: the format leaves sum and count out
            return (f"{metric.full_name}_bucket",)
        return tuple(f"{metric.full_name}_{suffix}" for suffix in ("bucket", "count", "sum"))
    return (metric.full_name,)


def table(rows: Sequence[Metric] = CATALOGUE) -> str:
    """The catalogue as a Markdown table, one metric a row."""
    lines = ["| metric | type | labels | unit | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels) or "–"
        lines.append(f"| `{row.full_name}` | {row.exposed_kind} | {labels} | {row.unit} | {row.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
