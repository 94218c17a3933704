"""The procedures of docs/operations.md do on a real broker what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests import traffic
from tests.bridge import ROOT, Bridge, Names, caught_up, running, topics_for
from tests.brokers import publisher, topics
from tests.brokers.kafka import Kafka
from tests.brokers.process import until

PARTITIONS = 3
COUNT = 600


@dataclass(frozen=True)
class Beside(Names):
    """The names of a second bridge that reads what the first one normalized."""

    first: Names

    @property
    def normalized(self) -> str:
        return self.first.normalized

    @property
    def dead_letter(self) -> str:
        return self.first.dead_letter

    def environment(self) -> dict[str, str]:
        """What the runbook exports."""
        return {
            "BRIDGE_KAFKA__GROUP_PREFIX": self.prefix,
            "BRIDGE_TOPICS__LIFECYCLE": self.lifecycle,
            "BRIDGE_TOPICS__CHANGELOG": self.changelog,
        }


def _create(folder: Path, names: Names, env: dict[str, str], *arguments: str) -> None:
    config = folder / "create.yaml"
    config.write_text(json.dumps(names.settings()), encoding="utf-8")
    command = [sys.executable, "-m", "acs_aaep_bridge", "topics", "create", "--config", str(config), *arguments]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path, **env}, check=True, capture_output=True, timeout=60)


def _values(names: Names, topic: str) -> list[bytes]:
    return [message.value() or b"" for message in topics.read_all(names.bootstrap, topic)]


def _by_session(names: Names, topic: str) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for value in _values(names, topic):
        found.setdefault(json.loads(value)["session_id"], []).append(value)
    return found


def _filled(kafka: Kafka, folder: Path) -> Names:
    """Topics with records in all of them, and no bridge any more."""
    names = topics_for(kafka.bootstrap, "runbook", PARTITIONS)
    publisher.publish(kafka.bootstrap, names.raw, list(traffic.fleet(5, COUNT, hosts=10)))
    with running(folder, names.settings()) as bridge:
        caught_up(names, bridge)
        assert bridge.stop() == 0, bridge.child.tail()
    return names


def test_the_lifecycle_topic_is_rebuilt_beside_the_old_one(kafka: Kafka, tmp_path: Path) -> None:
    """The same events with the same ids and bytes, in the same order for each session, on the new topic."""
    names = _filled(kafka, tmp_path)
    beside = Beside(names.bootstrap, topics.unique("beside"), names)
    _create(tmp_path, names, beside.environment(), "--stage", "lifecycle")
    with running(tmp_path, names.settings(), "--stage", "lifecycle", env=beside.environment()) as bridge:
        _consumed(beside, bridge)
    told = _by_session(names, names.lifecycle)
    assert len(told) > 10
    assert _by_session(names, beside.lifecycle) == told


def test_the_past_is_processed_again_without_being_told_again(kafka: Kafka, tmp_path: Path) -> None:
    """The group is moved back: every normalized event is there twice, and no listener hears anything twice."""
    names = _filled(kafka, tmp_path)
    before = Counter(_values(names, names.lifecycle))
    once = _identities(names)
    beginning = [TopicPartition(names.raw, partition, 0) for partition in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": names.bootstrap, "log_level": 0})
    request = ConsumerGroupTopicPartitions(names.group("normalize"), beginning)
    for done in admin.alter_consumer_group_offsets([request]).values():
        done.result(timeout=20)
    with running(tmp_path, names.settings()) as bridge:
        until(lambda: _identities(names).total() == 2 * once.total(), 60, "everything is normalized again", pause=0.5)
        caught_up(names, bridge)
    assert _identities(names) == Counter({identity: 2 * count for identity, count in once.items()})
    assert Counter(_values(names, names.lifecycle)) == before


def test_more_partitions_end_the_bridge_and_new_topics_carry_on(kafka: Kafka, tmp_path: Path) -> None:
    """A normalized topic that grows ends it with 3 and a word on the runbook; with a new one and a new changelog it runs."""
    names = topics_for(kafka.bootstrap, "grown", PARTITIONS)
    admin = AdminClient({"bootstrap.servers": names.bootstrap, "log_level": 0})
    with running(tmp_path, names.settings()) as bridge:
        for grown in admin.create_partitions([NewPartitions(names.normalized, PARTITIONS + 1)]).values():
            grown.result(timeout=20)
        until(lambda: not bridge.child.running(), 60, "the bridge ends")
        assert bridge.child.process.returncode == 3
        assert "see the runbook on changing partition counts" in bridge.child.output()
    new = Names(names.bootstrap, topics.unique("new"))
    environment = {"BRIDGE_TOPICS__NORMALIZED": new.normalized, "BRIDGE_TOPICS__CHANGELOG": new.changelog}
    _create(tmp_path, names, {**environment, "BRIDGE_TOPICS__CREATE__PARTITIONS": str(PARTITIONS + 1)})
    assert topics.count(names.bootstrap, new.changelog) == topics.count(names.bootstrap, new.normalized) == PARTITIONS + 1
    publisher.publish(kafka.bootstrap, names.raw, list(traffic.fleet(5, COUNT, hosts=10)))
    with running(tmp_path, names.settings(), env=environment):
        until(lambda: len(_values(names, new.normalized)) == COUNT, 60, "everything is normalized", pause=0.5)
        until(lambda: bool(_values(names, names.lifecycle)), 30, "sessions are told", pause=0.5)


def _identities(names: Names) -> Counter[tuple[str, str]]:
    events = [json.loads(value) for value in _values(names, names.normalized)]
    return Counter((event["session_id"], event["request_id"]) for event in events)


def _consumed(names: Names, bridge: Bridge) -> None:
    """Return when the second bridge has read all of the first one's normalized topic."""
    last = {one.partition(): one.offset() or 0 for one in topics.read_all(names.bootstrap, names.normalized)}
    group = names.group("lifecycle")

    def done() -> bool:
        assert bridge.child.running(), bridge.child.tail()
        seen = topics.committed(names.bootstrap, group, names.normalized, PARTITIONS)
        return all(seen.get(partition or 0, 0) > offset for partition, offset in last.items())

    until(done, 60, "the normalized topic is read to its end", pause=0.2)
