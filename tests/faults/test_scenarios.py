"""Failures placed exactly where they hurt: the bridge as it is comes through each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.kafka import Kafka
from tests.brokers.secure import SecureKafka
from tests.faults import scenarios

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.mark.parametrize("scenario", scenarios.SCENARIOS.values(), ids=lambda one: one.__name__)
def test_nothing_is_lost_and_nothing_is_doubled(kafka: Kafka, tmp_path: Path, scenario: scenarios.Scenario) -> None:
    """The scenario ends with every record accounted for."""
    scenario(kafka.bootstrap, tmp_path, None)


def test_what_was_not_acknowledged_is_not_committed(kafka_cluster: Kafka, tmp_path: Path) -> None:
    """Records that too few replicas took are read again after the process died."""
    scenarios.unacknowledged(kafka_cluster, tmp_path, None)


def test_a_transaction_that_the_client_forgot_never_counts(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """A permission lost within a transaction and given back doubles nothing."""
    scenarios.cleared_transaction(secure_kafka, tmp_path, None)
