"""A real Prometheus scrapes two bridges at work on a real Kafka; dashboard and alerts are asked for what it saw."""

from __future__ import annotations

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.bridge import Bridge, caught_up, topics_for
from tests.brokers import topics
from tests.brokers.process import Child, free_ports, until
from tests.telemetry.test_dashboard import PANELS
from tests.telemetry.test_rules import ALERTS
from tests.tools import ROOT, program
from tests.traffic import mixed

RECORDS = 4_000
VARIABLES = {"namespace": ".*", "job": ".*", "pod": ".*", "topic": ".*", "__rate_interval": "1m"}


class Prometheus:
    """A Prometheus of our own. Ask it by `query`."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        self.port = free_ports(1)[0]
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ROOT / "config/prometheus/rules.yaml")],
            "scrape_configs": [{"job_name": "acs-aaep-bridge", "static_configs": [{"targets": targets}]}],
        }
        config = folder / "prometheus.json"  # JSON is YAML
        config.write_text(json.dumps(settings), encoding="utf-8")
        command = [
            program("prometheus", "prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        self.child = Child(command, folder / "prometheus.log")

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression: str) -> list[float]:
        """The values of an instant query."""
        return [float(sample["value"][1]) for sample in self.get("/api/v1/query", query=expression)["result"]]

    def up(self) -> bool:
        try:
            return bool(self.query("vector(1)"))
        except OSError:
            return False


pytestmark = pytest.mark.xdist_group("prometheus")  # one Prometheus for all of them, not one in each process


@pytest.fixture(scope="module")
def seen(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus after two bridges have worked off mixed traffic. The second one joined late, so there was a rebalance."""
    folder = tmp_path_factory.mktemp("prometheus")
    names = topics_for(kafka.bootstrap, "prometheus", 4)
    settings = [names.settings(sessions={"grace": "1s"}) for _ in range(2)]
    with ExitStack() as stack:
        prometheus = Prometheus(folder, [f"127.0.0.1:{one['http']['port']}" for one in settings])
        stack.callback(prometheus.child.kill)
        until(prometheus.up, 30, "Prometheus answers")
        bridges = []
        for one in settings:
            bridge = Bridge(folder, one)
            stack.callback(bridge.kill)
            bridge.wait_ready()
            bridges.append(bridge)
            # A rate needs a look from before: without it the rebalance that the next bridge causes would not be seen.
            until(lambda: len(prometheus.query("up == 1")) == len(bridges), 30, "Prometheus scrapes the bridge", pause=0.5)
            records = ((sent.key, sent.value) for sent in mixed(len(bridges), RECORDS))
            topics.fill(kafka.bootstrap, names.raw, records)
        caught_up(names, *bridges)
        shown = f'sum(acs_aaep_bridge_records_consumed_total{{stage="normalize"}}) >= {2 * RECORDS}'
        until(lambda: bool(prometheus.query(shown)), 30, "Prometheus has scraped what the bridges did", pause=0.5)
        # Two measurements of each stage's lag at least: one has no slope.
        slope = "deriv(sum by (namespace, job, stage, topic) (acs_aaep_bridge_consumer_lag_records)[15m:1s])"
        until(lambda: len(prometheus.query(slope)) == 2, 60, "the lag of both stages has been measured", pause=0.5)
        yield prometheus


def filled(expression: str) -> str:
    return re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], expression)


TARGETS = [(f"{panel['title']}: {target['refId']}", target["expr"]) for panel in PANELS for target in panel["targets"]]


def test_both_bridges_are_scraped_without_a_complaint(seen: Prometheus) -> None:
    active = seen.get("/api/v1/targets")["activeTargets"]
    assert [(target["health"], target["lastError"]) for target in active] == [("up", "")] * 2


@pytest.mark.parametrize(("title", "expression"), TARGETS, ids=[title for title, _ in TARGETS])
def test_every_target_of_the_dashboard_has_something_to_show(seen: Prometheus, title: str, expression: str) -> None:
    values = seen.query(filled(expression))
    assert [value for value in values if not math.isnan(value)], (title, values)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_is_evaluated_over_series_that_exist_and_whose_labels_fit_together(seen: Prometheus, name: str) -> None:
    """With `bool` a comparison that does not hold gives 0 instead of nothing: what is empty then, could never fire."""
    asked = re.sub(r" (==|>|<) (?=[\d.]+)", r" \1 bool ", ALERTS[name]["expr"])
    asked = asked.replace("[15m:1m]", "[15m:1s]")  # this Prometheus is younger than two minutes
    assert seen.query(asked), asked


def test_prometheus_evaluates_the_rules_without_an_error(seen: Prometheus) -> None:
    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for group in groups() for rule in group["rules"])

    def groups() -> Any:
        return seen.get("/api/v1/rules")["groups"]

    until(evaluated, 30, "every rule was evaluated", pause=0.5)
    assert {rule["name"]: rule.get("lastError") for group in groups() for rule in group["rules"]} == dict.fromkeys(ALERTS)


def test_nothing_critical_fires_while_all_is_well(seen: Prometheus) -> None:
    """Rejected records are part of the traffic; a warning about them may be pending."""
    alerts = seen.get("/api/v1/alerts")["alerts"]
    assert [alert for alert in alerts if alert["labels"]["severity"] == "critical" and alert["state"] == "firing"] == []


def test_the_counts_add_up(seen: Prometheus) -> None:
    [events] = seen.query('sum(acs_aaep_bridge_events_total{stage="normalize"})')
    [records] = seen.query('sum(acs_aaep_bridge_records_consumed_total{stage="normalize"})')
    assert records == 2 * RECORDS
    assert events >= records  # a batch holds several
