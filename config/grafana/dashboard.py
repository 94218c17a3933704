"""Writes `acs-aaep-bridge.json`, the Grafana dashboard: `python config/grafana/dashboard.py`.

A panel is a row of the table below; ids and places on the grid follow from their order. The JSON is committed: chart,
compose and anybody's Grafana load it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

TARGET: Final = Path(__file__).with_name("acs-aaep-bridge.json")
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
GRID: Final = 24

PODS = 'namespace=~"$namespace", job=~"$job", pod=~"$pod"'
TOPIC = f'{PODS}, topic=~"$topic"'
B = "acs_aaep_bridge_"
WINDOW = "[$__rate_interval]"
WHO = "{{pod}} {{instance}}"

Target = tuple[str, str]
Thresholds = tuple[tuple[str, float | None], ...]


class Panel(NamedTuple):
    """One panel: `targets` are (expression, legend) pairs."""

    kind: str
    title: str
    description: str
    unit: str
    targets: tuple[Target, ...]
    width: int = 8
    height: int = 8
    thresholds: Thresholds = ()


def rate(metric: str, by: str, labels: str = PODS) -> str:
    return f"sum by ({by}) (rate({B}{metric}{{{labels}}}{WINDOW}))"


def total(metric: str, by: str, labels: str = PODS) -> str:
    return f"sum by ({by}) ({B}{metric}{{{labels}}})"


def quantile(q: float, metric: str, by: str = "") -> str:
    return f"histogram_quantile({q}, sum by ({by + ', ' if by else ''}le) (rate({B}{metric}_bucket{{{PODS}}}{WINDOW})))"


def quantiles(metric: str, *qs: float) -> tuple[Target, ...]:
    return tuple((quantile(q, metric, "stage"), f"{{{{stage}}}} p{q * 100:g}") for q in qs)


def lag(by: str = "") -> str:
    """Two replicas may report one partition during a rebalance, so the maximum is taken before the sum."""
    return f"sum by ({by}) (max by (stage, topic, partition) ({B}consumer_lag_records{{{TOPIC}}}))"


def stat(title: str, description: str, unit: str, expression: str, *thresholds: tuple[str, float | None]) -> Panel:
    return Panel("stat", title, description, unit, ((expression, ""),), 4, 4, (("green", None), *thresholds))


def lines(title: str, description: str, unit: str, *targets: Target) -> Panel:
    return Panel("timeseries", title, description, unit, targets)


ENDED = f'{PODS}, type=~"aaep:agent.session.(completed|errored|cancelled)"'
FIRST_STAGE = f'{PODS}, stage="normalize"'

# fmt: off
ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    ("Service level", (
        stat("Events in", "Input records finished by the normalize stage.", "cps",
             f"sum(rate({B}records_consumed_total{{{FIRST_STAGE}}}{WINDOW}))"),
        stat("Lifecycle events out", "AAEP events published.", "cps",
             f"sum(rate({B}lifecycle_events_total{{{PODS}}}{WINDOW}))"),
        stat("End-to-end p99", "Input record timestamp to output acknowledged, worst stage.", "s",
             f"max({quantile(0.99, 'end_to_end_latency_seconds', 'stage')})", ("orange", 5.0), ("red", 10.0)),
        stat("Lag", "Records waiting, all stages and partitions.", "short", lag(), ("orange", 1_000.0), ("red", 10_000.0)),
        stat("Dead letters", "Records sent to the dead-letter topic.", "cps",
             f"sum(rate({B}dead_letters_total{{{PODS}}}{WINDOW}))", ("orange", 0.01), ("red", 1.0)),
        stat("Not ready", "Stages, over all replicas, that are not ready.", "short",
             f"count({B}ready{{{PODS}}}) - sum({B}ready{{{PODS}}})", ("red", 1.0)),
    )),
    ("Lifecycle", (
        lines("Lifecycle events by type", "What subscribers hear about.", "cps",
              (rate("lifecycle_events_total", "type"), "{{type}}")),
        lines("Sessions ended, by outcome", "How agents and subagents end. Failures are theirs, not the bridge's.", "cps",
              (rate("lifecycle_events_total", "outcome", ENDED), "{{outcome}}")),
        lines("What hosts do wrong", "Repeats, late hooks, missing starts and ends, and what the bridge did about them.", "cps",
              (rate("sessions_events_total", "kind"), "{{kind}}")),
        lines("Sessions open", "Kept in memory. A steady rise means ends are not reported.", "short",
              (f"sum({B}sessions_open{{{PODS}}})", "open")),
        lines("Hook clock against record clock", "Hook timestamp less record timestamp. Far from 0: a wrong clock, or late "
              "delivery.", "s", *((quantile(q, "event_clock_skew_seconds"), f"p{q * 100:g}") for q in (0.01, 0.5, 0.99))),
        lines("Signatures", "Accepted events by signature verdict.", "cps", (rate("signatures_total", "status"), "{{status}}")),
    )),
    ("Rate", (
        lines("Records consumed", "Input records finished, by stage and topic.", "cps",
              (rate("records_consumed_total", "stage, topic", TOPIC), "{{stage}} {{topic}}")),
        lines("Records produced", "Records acknowledged, by topic.", "cps",
              (rate("records_produced_total", "stage, topic"), "{{stage}} {{topic}}")),
        lines("Events by hook", "Events in the normalize stage, by method.", "cps",
              (rate("events_total", "method", FIRST_STAGE) + " > 0", "{{method}}")),
    )),
    ("Errors and dead letters", (
        lines("Events by result", "The four together are all that came in.", "cps",
              (rate("events_total", "stage, result"), "{{stage}} {{result}}")),
        lines("Dead letters by code", "Why records were rejected.", "cps",
              (rate("dead_letters_total", "stage, code"), "{{stage}} {{code}}")),
        lines("Rejected by hook", "Which hook's events are rejected.", "cps",
              (rate("events_total", "stage, method", f'{PODS}, result="rejected"'), "{{stage}} {{method}}")),
        lines("Refused dead letters", "Writes that the dead-letter topic refused. Any of them blocks a partition.", "cps",
              (rate("dead_letter_failures_total", "stage"), "{{stage}}")),
        lines("Commits", "Commits and transactions by outcome. What failed or was lost is done again.", "cps",
              (rate("commits_total", "stage, outcome"), "{{stage}} {{outcome}}")),
        lines("Partitions that wait for an operator", "Braked or blocked. Anything above 0 needs a person.", "short",
              (total("braked_partitions", "stage"), "{{stage}} braked"),
              (total("blocked_partitions", "stage, reason"), "{{stage}} {{reason}}")),
    )),
    ("Duration", (
        Panel("heatmap", "End-to-end latency", "Input record timestamp to output acknowledged, all stages.", "s",
              ((f"sum by (le) (increase({B}end_to_end_latency_seconds_bucket{{{PODS}}}{WINDOW}))", "{{le}}"),), 12),
        Panel("timeseries", "End-to-end latency by stage", "Input record timestamp to output acknowledged.", "s",
              quantiles("end_to_end_latency_seconds", 0.5, 0.95, 0.99), 12),
        lines("Processing a batch", "CPU work for one batch.", "s", *quantiles("processing_duration_seconds", 0.5, 0.95, 0.99)),
        lines("Acknowledging a batch", "Output sent to output acknowledged.", "s",
              *quantiles("produce_duration_seconds", 0.5, 0.95, 0.99)),
        lines("Commit", "Duration of a commit or transaction.", "s", *quantiles("commit_duration_seconds", 0.5, 0.95, 0.99)),
    )),
    ("Lag and rebalances", (
        lines("Lag by topic", "Records behind the last stable offset.", "short", (lag("stage, topic"), "{{stage}} {{topic}}")),
        lines("Lag by partition (ten largest)", "One partition far above the others: a hot key, or it does not move.", "short",
              (f"topk(10, max by (stage, topic, partition) ({B}consumer_lag_records{{{TOPIC}}}))",
               "{{stage}} {{topic}}-{{partition}}")),
        lines("Since the last commit", "Rises while nothing comes in, too: read it together with the lag.", "s",
              (f"time() - max by (stage) ({B}last_progress_timestamp_seconds{{{PODS}}})", "{{stage}}")),
        lines("Hidden by open transactions", "High watermark less last stable offset. Rising steadily: one was left open.",
              "short", (total("upstream_open_transactions", "stage"), "{{stage}}")),
        lines("Partitions owned", "By replica. 0 for long: more replicas than partitions.", "short",
              (f"{B}assigned_partitions{{{PODS}}}", "{{stage}} " + WHO)),
        lines("Rebalances", "Per minute, by replica.", "cpm",
              (f"60 * rate({B}rebalances_total{{{PODS}}}{WINDOW})", "{{stage}} " + WHO)),
        lines("Rebalance duration", "Nothing is processed meanwhile.", "s", *quantiles("rebalance_duration_seconds", 0.99)),
        lines("Taking partitions", "Attempts by outcome, partitions being restored, and what the watchdog found.", "short",
              (f"sum by (stage, outcome) (increase({B}partition_takes_total{{{PODS}}}{WINDOW}))", "{{stage}} {{outcome}}"),
              (total("restoring_partitions", "stage"), "{{stage}} restoring"),
              (f"sum by (stage) (increase({B}stalls_total{{{PODS}}}{WINDOW}))", "{{stage}} stalled")),
        lines("Take duration", "Fencing, restoring the state, and finding the place.", "s",
              *quantiles("partition_take_duration_seconds", 0.99)),
    )),
    ("Saturation", (
        lines("CPU", "Cores used. A process uses one core at most: near 1, add replicas.", "short",
              (f"rate(process_cpu_seconds_total{{{PODS}}}{WINDOW})", WHO)),
        lines("Memory", "Resident memory.", "bytes", (f"process_resident_memory_bytes{{{PODS}}}", WHO)),
        lines("In flight", "Records accepted and not finished.", "short", (total("inflight_records", "stage"), "{{stage}}")),
        lines("Event loop lag", "How late the loop wakes up. Heartbeats suffer first.", "s",
              (quantile(0.99, "event_loop_lag_seconds", "pod, instance"), WHO + " p99")),
        lines("Open files", "Sockets and files. With exactly-once delivery each partition has a client of its own.", "short",
              (f"process_open_fds{{{PODS}}}", WHO)),
        lines("Restored entries", "Changelog entries read while partitions are taken.", "cps",
              (rate("restored_entries_total", "stage"), "{{stage}}")),
    )),
    ("Build", (
        Panel("table", "Versions", "What runs where.", "none",
              ((f"count by (pod, instance, version, python, aiokafka) ({B}build_info{{{PODS}}})", ""),)),
        lines("Uptime", "Since the process started.", "s", (f"time() - process_start_time_seconds{{{PODS}}}", WHO)),
        lines("Connected", "1: the clients of a role reach their server.", "short",
              (f"min by (role) ({B}kafka_connected{{{PODS}}})", "{{role}}")),
    )),
)
# fmt: on

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
    },
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    "heatmap": {"calculate": False, "yAxis": {"unit": "s"}, "color": {"mode": "scheme", "scheme": "Oranges"}},
    "table": {"showHeader": True},
}


def _target(ref: int, target: Target, kind: str) -> dict[str, Any]:
    expression, legend = target
    body: dict[str, Any] = {"refId": chr(ord("A") + ref), "datasource": SOURCE, "expr": expression}
    if kind == "table":
        return body | {"format": "table", "instant": True}
    if kind == "heatmap":
        return body | {"format": "heatmap", "legendFormat": legend}
    return body | {"legendFormat": legend or "__auto"}


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries" and "clock" not in panel.title:
        defaults["min"] = 0
    if panel.thresholds:
        steps = [{"color": color, "value": value} for color, value in panel.thresholds]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    body: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [_target(ref, target, panel.kind) for ref, target in enumerate(panel.targets)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": OPTIONS[panel.kind],
    }
    if panel.kind == "table":
        hidden = {"excludeByName": {"Time": True, "Value": True}}
        body["transformations"] = [{"id": "organize", "options": hidden}]
    return body


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": GRID, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place}


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for title, panels in ROWS:
        number += 1
        yield _row(number, title, y)
        y += 1
        x = height = 0
        for panel in panels:
            if x + panel.width > GRID:
                x, y, height = 0, y + height, 0
            number += 1
            yield _panel(number, panel, x, y)
            x, height = x + panel.width, max(height, panel.height)
        y += height


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "allValue": ".*",  # matches a missing label, too: outside Kubernetes there is no namespace and no pod
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    info = f"{B}build_info"
    return {
        "uid": "acs-aaep-bridge",
        "title": "acs-aaep-bridge",
        "description": "Agent hook events in, accessibility lifecycle events out. Alerts and what to do: docs/operations.md.",
        "tags": ["kafka", "acs-aaep-bridge"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
                _variable("namespace", "Namespace", f"label_values({info}, namespace)"),
                _variable("job", "Job", f'label_values({info}{{namespace=~"$namespace"}}, job)'),
                _variable("pod", "Pod", f'label_values({info}{{namespace=~"$namespace", job=~"$job"}}, pod)'),
                _variable("topic", "Input topic", f'label_values({B}consumer_lag_records{{job=~"$job"}}, topic)'),
            ]
        },
        "panels": list(_panels()),
    }


def rendered() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(rendered(), encoding="utf-8")
