"""Two bridges, three brokers, twelve partitions, live traffic, and faults at random moments and at failpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bridge import caught_up
from tests.brokers.kafka import Kafka
from tests.faults.chaos import LONG, SHORT, Chaos
from tests.faults.report import write
from tests.verdict import Delivery, Evidence

pytestmark = [pytest.mark.faults, pytest.mark.timeout(7_000)]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_every_record_survives(kafka_cluster: Kafka, tmp_path: Path, delivery: Delivery, pytestconfig: pytest.Config) -> None:
    """Exactly once: each expected event once. At least once: none missing, and every repeat the same bytes."""
    long = pytestconfig.getoption("--long", default=False)
    seed = pytestconfig.getoption("--seed", default=1)
    plan = (LONG if long else SHORT)[delivery]
    with Chaos(kafka_cluster, tmp_path, delivery, seed) as chaos:
        chaos.run([name for name, times in plan.items() for _ in range(times)])
        caught_up(chaos.names, *chaos.bridges)
        chaos.end()
        evidence = Evidence(chaos.names, chaos.names.config())
        evidence.check(delivery)
        chaos.report.doubled = {one.what.removeprefix(chaos.names.prefix + "."): one.doubles() for one in evidence.comparisons()}
    write(chaos.report, into_docs=long)
