"""The catalogue as live instruments in a registry of its own, every child with closed labels created at once."""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from acs_aaep_bridge import __version__
from acs_aaep_bridge.telemetry.labels import (
    BLOCKS,
    CLOSED,
    COMMIT_OUTCOMES,
    LIFECYCLE_OUTCOMES,
    METHODS,
    OTHER,
    RESULTS,
    TAKE_OUTCOMES,
)
from acs_aaep_bridge.telemetry.metrics import CATALOGUE, Metric


class Distribution:
    """One child of a `DistributionCollector`."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe_many(self, values: Iterable[float]) -> None:
        """Count every value in the first bucket whose upper bound is not below it."""
        counts, bounds, total = self.counts, self.bounds, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self.total += total

    def cumulative(self) -> list[tuple[str, float]]:
        """(le, count) pairs, the last one `+Inf`."""
        running, pairs = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            pairs.append((floatToGoString(bound), float(running)))  # type: ignore[no-untyped-call]
        return pairs


class DistributionCollector(Collector):
    """A histogram fed by whole batches: the client's own takes a lock and walks its buckets for each observation, which at
    one observation per record would be a tenth of the lifecycle stage's budget. Used and collected on one thread.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], Distribution] = {}

    def labels(self, *values: str) -> Distribution:
        """The child with these label values, made on first use."""
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = Distribution(self._metric.buckets)
        return child

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """The family without samples, so that the registry can refuse a second one of that name."""
        return [HistogramMetricFamily(self._metric.full_name, self._metric.help, labels=self._metric.labels)]

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """The family with every child's buckets and sum."""
        family = HistogramMetricFamily(self._metric.full_name, self._metric.help, labels=self._metric.labels)
        for values, child in self._children.items():
            # Negative observations would make the sum go down, which no counter may: it is left out then.
            total = None if self._metric.buckets[0] < 0 else child.total
            family.add_metric(values, child.cumulative(), total)
        return [family]


# Metrics whose children are not the product of their labels' closed sets list them here.
_CHILDREN: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "events_total": tuple(product(CLOSED["stage"], METHODS, RESULTS)),
    "lifecycle_events_total": (
        *((kind, outcome) for kind, outcomes in LIFECYCLE_OUTCOMES.items() for outcome in outcomes),
        (OTHER, OTHER),
    ),
    "commits_total": tuple(product(CLOSED["stage"], COMMIT_OUTCOMES)),
    "partition_takes_total": tuple(product(CLOSED["stage"], TAKE_OUTCOMES)),
    "blocked_partitions": tuple(product(CLOSED["stage"], BLOCKS)),
    "kafka_connected": (),  # a role that this configuration does not use must not look disconnected
}


class Metrics:
    """Every instrument of the catalogue. `stages` are those this process runs; others get no series.

    `inputs` and `outputs` are topics by stage, as far as the configuration knows them: their children exist from the start.
    """

    def __init__(
        self,
        stages: Sequence[str],
        inputs: Mapping[str, Sequence[str]] | None = None,
        outputs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one process-wide switch of the client: no `_created` series
        self.stages = tuple(stages)
        self.registry = CollectorRegistry()
        self.counters: dict[str, Counter] = {}
        self.gauges: dict[str, Gauge] = {}
        self.histograms: dict[str, Histogram] = {}
        self.distributions: dict[str, DistributionCollector] = {}
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        for metric in CATALOGUE:
            self._create(metric)
        self._known_topics("records_consumed_total", inputs or {})
        self._known_topics("records_produced_total", outputs or {})
        self.gauges["build_info"].labels(__version__, platform.python_version(), _version_of("aiokafka")).set(1)

    def forget(self, name: str, *values: str) -> None:
        """Remove one child of a gauge, whether or not it was ever set."""
        with suppress(KeyError):
            self.gauges[name].remove(*values)

    def _create(self, metric: Metric) -> None:
        name, text, labels = metric.full_name, metric.help, metric.labels
        instrument: Counter | Gauge | Histogram | DistributionCollector
        match metric.kind:
            case "counter":
                instrument = self.counters[metric.name] = Counter(name, text, labels, registry=self.registry)
            case "gauge":
                instrument = self.gauges[metric.name] = Gauge(name, text, labels, registry=self.registry)
            case "histogram":
                instrument = Histogram(name, text, labels, registry=self.registry, buckets=metric.buckets)
                self.histograms[metric.name] = instrument
            case "distribution":
                instrument = self.distributions[metric.name] = DistributionCollector(metric)
                self.registry.register(instrument)
        for values in self._children_of(metric):
            if values or isinstance(instrument, DistributionCollector):
                instrument.labels(*values)

    def _children_of(self, metric: Metric) -> Iterable[tuple[str, ...]]:
        if metric.name in _CHILDREN:
            children: Iterable[tuple[str, ...]] = _CHILDREN[metric.name]
        elif all(label in CLOSED for label in metric.labels):
            children = product(*(CLOSED[label] for label in metric.labels))
        else:
            return ()
        where = metric.labels.index("stage") if "stage" in metric.labels else None
        return [values for values in children if where is None or values[where] in self.stages]

    def _known_topics(self, name: str, topics: Mapping[str, Sequence[str]]) -> None:
        for stage, names in topics.items():
            if stage in self.stages:
                for topic in names:
                    self.counters[name].labels(stage, topic)


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
