"""The alert rules: valid, each tried both ways, made of metrics that exist, each with a runbook section."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.tools import ROOT, program, run

from acs_aaep_bridge.telemetry.metrics import CATALOGUE, PREFIX, series_names

RULES = ROOT / "config/prometheus/rules.yaml"
RULES_TEST = ROOT / "config/prometheus/rules_test.yaml"

SERIES = {name for metric in CATALOGUE for name in series_names(metric)}


def load(path: Any) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in load(RULES)["groups"] for rule in group["rules"]}


ALERTS = alerts()


def test_promtool_accepts_the_rules() -> None:
    done = run(program("promtool", "prometheus"), "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_not_when_it_should_not() -> None:
    done = run(program("promtool", "prometheus"), "test", "rules", RULES_TEST)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tried_both_ways(name: str) -> None:
    tries = [case for test in load(RULES_TEST)["tests"] for case in test["alert_rule_test"] if case["alertname"] == name]
    assert {bool(case["exp_alerts"]) for case in tries} == {True, False}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_uses_only_metrics_that_exist(name: str) -> None:
    used = set(re.findall(rf"{PREFIX}\w+", ALERTS[name]["expr"]))
    assert used <= SERIES
