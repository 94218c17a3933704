"""The dashboard: as its table says, made of metrics that exist, loadable without an import dialogue."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest
from config.grafana.dashboard import TARGET, rendered

from acs_aaep_bridge.telemetry.metrics import CATALOGUE, PREFIX, series_names

DASHBOARD: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
SERIES = {name for metric in CATALOGUE for name in series_names(metric)}


def test_the_committed_file_is_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == rendered(), "run: python config/grafana/dashboard.py"


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in combinations((panel["gridPos"] for panel in DASHBOARD["panels"]), 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
        assert one["x"] + one["w"] <= 24


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_unit_a_description_and_the_chosen_data_source(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert {source["uid"] for source in (panel["datasource"], *(t["datasource"] for t in panel["targets"]))} == {"${datasource}"}


def test_nothing_needs_an_import_dialogue() -> None:
    assert "__inputs" not in DASHBOARD
    assert "${DS_" not in TARGET.read_text(encoding="utf-8")
    assert [v["name"] for v in DASHBOARD["templating"]["list"]] == ["datasource", "namespace", "job", "pod", "topic"]


def test_rates_adapt_to_the_scrape_interval() -> None:
    for expression in EXPRESSIONS:
        assert all(window == "$__rate_interval" for window in re.findall(r"\[(.+?)\]", expression)), expression


def test_every_metric_of_ours_on_it_exists_and_every_metric_is_on_it() -> None:
    used = {name for expression in EXPRESSIONS for name in re.findall(rf"{PREFIX}\w+", expression)}
    assert used <= SERIES
    shown = {metric.name for metric in CATALOGUE if used & set(series_names(metric))}
    assert shown == {metric.name for metric in CATALOGUE}
