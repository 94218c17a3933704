"""The fault tests can fail: each rule of delivery is broken in turn, and its scenario must notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.kafka import Kafka
from tests.brokers.secure import SecureKafka
from tests.faults import scenarios
from tests.faults.mutants import MUTANTS
from tests.verdict import Doubled, Lost

pytestmark = [pytest.mark.mutants, pytest.mark.timeout(120)]

HARM: dict[str, type[AssertionError]] = {
    "commit_before_acks": Lost,
    "unawaited_delivery": Lost,
    "committed_before_init": Doubled,
    "random_transactional_id": Doubled,
    "no_seek_after_failure": Lost,
    "no_state_rollback": Lost,
    "abort_and_reuse": Doubled,
}


def test_every_mutant_is_tried() -> None:
    """No mutant is without a scenario and a known harm."""
    assert set(MUTANTS) == set(HARM) == {*scenarios.SCENARIOS, "commit_before_acks", "abort_and_reuse"}


@pytest.mark.parametrize("mutant", scenarios.SCENARIOS)
def test_the_mutant_is_noticed(kafka: Kafka, tmp_path: Path, mutant: str) -> None:
    """The scenario fails, by the harm that this mutant does and not by anything else."""
    with pytest.raises(HARM[mutant]):
        scenarios.SCENARIOS[mutant](kafka.bootstrap, tmp_path, mutant)


def test_committing_before_the_acknowledgement_is_noticed(kafka_cluster: Kafka, tmp_path: Path) -> None:
    """Offsets that run ahead of the acknowledgements lose what was under way."""
    with pytest.raises(HARM["commit_before_acks"]):
        scenarios.unacknowledged(kafka_cluster, tmp_path, "commit_before_acks")


def test_aborting_and_going_on_is_noticed(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """A client that aborts after it has forgotten its transaction doubles what was in it."""
    with pytest.raises(HARM["abort_and_reuse"]):
        scenarios.cleared_transaction(secure_kafka, tmp_path, "abort_and_reuse")
