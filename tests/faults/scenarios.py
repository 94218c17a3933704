"""One failure each, placed exactly where it hurts. With the rule it tests in force the scenario ends well; a bridge that
breaks the rule (see `mutants.py`) loses or doubles something.

Each takes the mutant that its bridges carry, or None, and raises `Lost` or `Doubled` for what it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AclOperation, ResourceType

from tests.bridge import secured
from tests.brokers import topics
from tests.brokers.kafka import Kafka
from tests.brokers.secure import SecureKafka
from tests.faults.lab import Lab
from tests.verdict import Evidence

Scenario = Callable[[str, Path, str | None], None]


def unacknowledged(cluster: Kafka, folder: Path, mutant: str | None) -> None:
    """Too few replicas of the output topic are alive to acknowledge anything, and the process dies: nothing was committed."""
    first, second, _ = cluster.nodes
    with Lab(cluster.bootstrap, folder, mutant) as lab:
        output = [[first.number, second.number]]  # two replicas, both needed
        topics.replace(cluster.bootstrap, lab.names.normalized, output)
        lab.publish(200)
        cluster.kill(second)
        try:
            bridge = lab.start("normalize", "at_least_once")
            bridge.wait_ready()
            lab.wait(
                lambda: lab.committed("normalize") == 200 or bridge.total("inflight_records", "stage")["normalize",] == 200,
                30,
                "the records are on their way",
            )
            bridge.kill()
        finally:
            cluster.restart(second)
        lab.start("normalize", "at_least_once").wait_ready()
        lab.consumed("normalize")
        Evidence(lab.names, lab.names.config(), ("normalize",)).check("at_least_once")


def refused(bootstrap: str, folder: Path, mutant: str | None) -> None:
    """The output topic's limit is lowered under the bridge: what it refuses is dead-lettered, not forgotten."""
    with Lab(bootstrap, folder, mutant) as lab:
        lab.start("normalize").wait_ready()
        lab.alter(lab.names.normalized, "max.message.bytes", "700")
        lab.publish(100)
        lab.consumed("normalize")
        lab.check_each_raw_record_once()


def late_commit(bootstrap: str, folder: Path, mutant: str | None) -> None:
    """The former owner commits while the next one is taking over: the offset is read after it was fenced, not before."""
    with Lab(bootstrap, folder, mutant) as lab:
        lab.publish(300)
        former = lab.start("normalize", fail_at="before_commit:1:freeze")
        lab.frozen(former)
        lab.start("normalize", slow_fence=True)
        lab.reached("fence", "waiting")
        lab.thaw(former)
        lab.wait(lambda: lab.committed("normalize") > 0, 20, "the former owner has committed")
        lab.go("fence")
        lab.publish(50)
        lab.consumed("normalize")
        Evidence(lab.names, lab.names.config(), ("normalize",)).check("exactly_once")


def zombie(bootstrap: str, folder: Path, mutant: str | None) -> None:
    """A process frozen before its commit comes back after another has done its work: its transaction never counts."""
    with Lab(bootstrap, folder, mutant) as lab:
        lab.publish(300)
        former = lab.start("normalize", fail_at="before_commit:1:freeze")
        lab.frozen(former)
        lab.start("normalize")
        lab.wait(lambda: lab.committed("normalize") == 300, 30, "the group has moved past the frozen process")
        lab.thaw(former)
        lab.wait(lambda: bool(former.total("commits_total", "stage")["normalize",]), 20, "its commit was decided")
        lab.publish(50)
        lab.consumed("normalize")
        Evidence(lab.names, lab.names.config(), ("normalize",)).check("exactly_once")


def failed_transaction(bootstrap: str, folder: Path, mutant: str | None) -> None:
    """A transaction fails after its outputs were acknowledged: its records are read again."""
    with Lab(bootstrap, folder, mutant) as lab:
        bridge = lab.start("normalize", fail_at="outputs_acked:2:raise")
        bridge.wait_ready()
        for _ in range(3):
            before = lab.committed("normalize")
            lab.publish(100)
            lab.wait(
                lambda before=before: lab.committed("normalize") > before or lab.logged(bridge, "partition.failed"),
                20,
                "the records were taken",
            )
        lab.consumed("normalize")
        Evidence(lab.names, lab.names.config(), ("normalize",)).check("exactly_once")


def failed_with_state(bootstrap: str, folder: Path, mutant: str | None) -> None:
    """A transaction of the lifecycle stage fails: its sessions are as before, or its records would look like repeats."""
    with Lab(bootstrap, folder, mutant) as lab:
        lab.publish(400)
        lab.normalize_all()
        lab.start("lifecycle", fail_at="outputs_acked:1:raise").wait_ready()
        lab.consumed("lifecycle")
        Evidence(lab.names, lab.names.config(), ("lifecycle",)).check("exactly_once")


def cleared_transaction(secure: SecureKafka, folder: Path, mutant: str | None) -> None:
    """The group's permission is taken away within a transaction: what it published so far never counts.

    The client forgets such a transaction without telling the broker, so that aborting it does nothing.
    """
    user = secured(secure, "PLAIN", "PLAIN")
    with Lab(secure.bootstrap, folder, mutant) as lab:
        group = lab.names.group("normalize")
        secure.allow_nothing()
        try:
            for kind in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID):
                secure.allow(kind, "*", AclOperation.ALL)
            secure.allow(ResourceType.GROUP, group, AclOperation.ALL)
            lab.publish(100)
            # One heartbeat in ten seconds: the membership does not notice, only the transaction does.
            calm = {"session_timeout": "30s", "heartbeat_interval": "10s"}
            bridge = lab.start("normalize", fail_at="outputs_acked:1:hold", kafka={**user.settings, **calm}, env=user.environment)
            lab.reached("hold", "reached")
            secure.forbid(ResourceType.GROUP, group)
            lab.go("hold")
            lab.wait(lambda: lab.logged(bridge, "partition.failed"), 20, "the transaction failed")
            secure.allow(ResourceType.GROUP, group, AclOperation.ALL)
            lab.publish(50)
            lab.consumed("normalize")
        finally:
            secure.allow_nothing()
        Evidence(lab.names, lab.names.config(), ("normalize",)).check("exactly_once")


SCENARIOS: dict[str, Scenario] = {
    "unawaited_delivery": refused,
    "committed_before_init": late_commit,
    "random_transactional_id": zombie,
    "no_seek_after_failure": failed_transaction,
    "no_state_rollback": failed_with_state,
}
"""The scenario that must notice each mutant, on one plain broker. Beside them `unacknowledged` notices `commit_before_acks`
and needs three nodes, `cleared_transaction` notices `abort_and_reuse` and needs an authorizer."""
