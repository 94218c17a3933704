"""Twenty thousand mixed records through the whole bridge, each of them accounted for by an independent reader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Message

from tests import oracle, traffic
from tests.bridge import caught_up, running, topics_for
from tests.brokers import publisher
from tests.brokers.kafka import Kafka
from tests.brokers.process import until
from tests.verdict import Delivery, Evidence

COUNT = 20_000
PARTITIONS = 4
pytestmark = pytest.mark.timeout(300)


def _error_codes(messages: list[Message]) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for message in messages:
        headers = dict(oracle.as_record(message).headers)
        found[(headers["bridge.error.stage"] or b"").decode(), (headers["bridge.error.code"] or b"").decode()] += 1
    return found


def test_every_record_is_accounted_for(kafka: Kafka, tmp_path: Path) -> None:
    """Consumed = emitted + absorbed + skipped + rejected, by the metrics, by the topics and by what was sent."""
    names = topics_for(kafka.bootstrap, "whole", PARTITIONS)
    sent = list(traffic.mixed(1, COUNT))
    publisher.publish(kafka.bootstrap, names.raw, sent)
    with running(tmp_path, names.settings(delivery="exactly_once")) as bridge:
        caught_up(names, bridge)
        evidence = Evidence(names, names.config())
        until(
            lambda: bridge.total("records_consumed_total", "stage")["lifecycle",] == len(evidence.normalized),
            20,
            "the metrics show the last batch",
        )
        counted = bridge.total("events_total", "stage", "result")
        dead_counted = bridge.total("dead_letters_total", "stage", "code")
        consumed = bridge.total("records_consumed_total", "stage")
        assert bridge.stop() == 0, bridge.child.tail()
    evidence.check("exactly_once")

    fates = Counter(fate.split(":")[0] for one in sent for fate in one.fate)
    results = {"emit": "emitted", "skip": "skipped", "reject": "rejected"}
    assert {results[fate]: count for fate, count in fates.items()} == {
        result: count for (stage, result), count in counted.items() if stage == "normalize"
    }
    codes: Counter[tuple[str, ...]] = Counter(
        ("normalize", fate.split(":")[1]) for one in sent for fate in one.fate if fate.startswith("reject:")
    )
    codes += Counter(("lifecycle", one.later) for one in sent if one.later)
    assert dead_counted == codes == _error_codes(evidence.dead)

    assert consumed["normalize",] == len(sent) == len(evidence.raw)
    assert fates["emit"] == len(evidence.normalized)
    lifecycle = Counter({result: count for (stage, result), count in counted.items() if stage == "lifecycle"})
    assert lifecycle.total() == len(evidence.normalized)
    assert lifecycle == evidence.expected["lifecycle"].results


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_restart_in_the_middle_loses_nothing(kafka: Kafka, tmp_path: Path, delivery: Delivery) -> None:
    """SIGTERM under load and a restart: it ends with 0 in time, and afterwards nothing is missing."""
    names = topics_for(kafka.bootstrap, f"restart-{delivery}", PARTITIONS)
    settings = names.settings(delivery=delivery)
    source = publisher.Publisher(kafka.bootstrap, names.raw, traffic.mixed(2, COUNT), rate=2_500)
    with running(tmp_path, settings) as bridge:
        source.start()
        until(lambda: bool(bridge.total("commits_total", "stage", "outcome")["lifecycle", "ok"]), 60, "events flow")
        assert bridge.stop(20) == 0, bridge.child.tail()
        assert source.sent < COUNT, "the restart was meant to happen under load"
    with running(tmp_path, settings) as bridge:
        source.join()
        caught_up(names, bridge)
        assert bridge.stop(20) == 0, bridge.child.tail()
    Evidence(names, names.config()).check(delivery)
