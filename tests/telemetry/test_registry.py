"""The instruments are the catalogue: names, labels, children from the start."""

from __future__ import annotations

from itertools import product

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from acs_aaep_bridge.telemetry.labels import CLOSED, DEAD_LETTER_CODES, METHODS, RESULTS
from acs_aaep_bridge.telemetry.metrics import CATALOGUE, PREFIX, Metric, series_names, table
from acs_aaep_bridge.telemetry.registry import Distribution, Metrics

BOTH = ("normalize", "lifecycle")


def exposed(metrics: Metrics) -> dict[str, list[dict[str, str]]]:
    """Label sets by series name, as a scraper sees them."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


def test_every_sample_of_ours_is_in_the_catalogue() -> None:
    ours = {name for name in exposed(Metrics(BOTH)) if name.startswith(PREFIX)}
    assert ours <= {name for metric in CATALOGUE for name in series_names(metric)}


@pytest.mark.parametrize("metric", [m for m in CATALOGUE if not {"topic", "role"} & set(m.labels)], ids=lambda m: m.name)
def test_a_metric_with_closed_labels_is_there_before_anything_happened(metric: Metric) -> None:
    seen = exposed(Metrics(BOTH))
    assert set(series_names(metric)) <= set(seen)


def test_every_stage_method_and_result_has_its_series_so_that_rate_sees_the_first_event() -> None:
    seen = exposed(Metrics(BOTH))[f"{PREFIX}events_total"]
    assert {(s["stage"], s["method"], s["result"]) for s in seen} == set(product(BOTH, METHODS, RESULTS))


def test_a_process_that_runs_one_stage_shows_no_series_of_the_other() -> None:
    seen = exposed(Metrics(("normalize",)))
    assert {s["stage"] for labels in seen.values() for s in labels if "stage" in s} == {"normalize"}
    assert {s["code"] for s in seen[f"{PREFIX}dead_letters_total"]} == set(DEAD_LETTER_CODES)


def test_topics_that_the_configuration_names_have_series_from_the_start() -> None:
    seen = exposed(Metrics(BOTH, {"normalize": ("a", "b")}, {"lifecycle": ("c",)}))
    assert [s["topic"] for s in seen[f"{PREFIX}records_consumed_total"]] == ["a", "b"]
    assert [s["topic"] for s in seen[f"{PREFIX}records_produced_total"]] == ["c"]


def test_there_are_no_creation_timestamps() -> None:
    assert not [name for name in exposed(Metrics(BOTH)) if name.endswith("_created")]


def test_the_process_itself_is_measured_too() -> None:
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= set(exposed(Metrics(BOTH)))


def test_two_sets_of_metrics_live_side_by_side() -> None:
    one, two = Metrics(BOTH), Metrics(BOTH)
    one.counters["rebalances_total"].labels("normalize").inc()
    assert two.registry.get_sample_value(f"{PREFIX}rebalances_total", {"stage": "normalize"}) == 0


def test_a_distribution_counts_each_value_in_the_first_bucket_that_holds_it() -> None:
    child = Distribution((1.0, 2.0))
    child.observe_many([0.5, 1.0, 1.5, 2.0, 2.5])
    assert child.cumulative() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert child.total == 7.5


def test_names_labels_and_help_follow_the_conventions() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert bool(metric.buckets) == (metric.exposed_kind == "histogram"), metric.name
        assert list(metric.buckets) == sorted(metric.buckets), metric.name
        assert metric.help.endswith("."), metric.name
        open_labels = set(metric.labels) - set(CLOSED) - {"outcome"}
        assert open_labels <= {"topic", "partition", "version", "python", "aiokafka"}, metric.name


def test_the_table_has_one_row_for_each_metric() -> None:
    rows = table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [metric.full_name for metric in CATALOGUE]
