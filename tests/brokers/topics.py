"""Topics for a test: created, filled and read by an independent client."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .process import until


def unique(name: str) -> str:
    """A topic or group name nobody else uses: brokers are shared by all tests of a run."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def create(bootstrap: str, topics: Mapping[str, int], config: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Make topics with so many partitions each, and return when every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [NewTopic(name, count, -1, config=dict((config or {}).get(name, {}))) for name, count in topics.items()]
    for future in admin.create_topics(wanted).values():
        future.result(timeout=30)

    def led() -> bool:
        known = admin.list_topics(timeout=10).topics
        return all(
            name in known
            and len(known[name].partitions) == count
            and all(part.leader >= 0 for part in known[name].partitions.values())
            for name, count in topics.items()
        )

    until(led, 30, f"leaders for {sorted(topics)}")


def replace(bootstrap: str, name: str, replicas: list[list[int]]) -> None:
    """Make an empty topic anew, each partition on the given nodes, the first of them leading; all must acknowledge."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(timeout=30)
    until(lambda: name not in admin.list_topics(timeout=10).topics, 30, f"{name} is gone")
    config = {"min.insync.replicas": str(len(replicas[0]))}
    admin.create_topics([NewTopic(name, len(replicas), replica_assignment=replicas, config=config)])[name].result(timeout=30)
    until(lambda: name in admin.list_topics(timeout=10).topics, 30, f"{name} is back")


def fill(bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], *, partition: int = -1) -> int:
    """Publish (key, value) pairs, in order, and return how many once all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all", "message.max.bytes": 32 << 20})
    failed: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    count = 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        count += 1
    producer.flush(60)
    assert not failed, failed[:3]
    return count


class Committed:
    """What a group has committed of a topic, asked again and again on one connection."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._settings: dict[str, str | int] = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
        self._wanted = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer = Consumer(self._settings)

    def read(self) -> dict[int, int]:
        """The offset by partition; partitions without one are left out. Raises KafkaException while nobody can say."""
        try:
            found = self._consumer.committed(self._wanted, timeout=5)
        except KafkaException:
            # A consumer that never joins does not look for a coordinator that has moved: the next look takes a new one.
            self.close()
            self._consumer = Consumer(self._settings)
            raise
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def close(self) -> None:
        self._consumer.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """`Committed.read` for a single look."""
    asked = Committed(bootstrap, group, topic, partitions)
    try:
        return asked.read()
    finally:
        asked.close()


def count(bootstrap: str, topic: str) -> int:
    """How many partitions a topic has."""
    return len(
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=20).topics[topic].partitions
    )


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """The high watermark by partition. Waits for a leader that does not know it yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unique("ends"), "log_level": 0})
    found: dict[int, int] = {}

    def known() -> bool:
        try:
            for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
                found[number] = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)[1]
        except KafkaException:  # after a change of leaders
            return False
        return True

    try:
        until(known, 60, f"the ends of {topic}")
    finally:
        consumer.close()
    return found


def read_all(bootstrap: str, topic: str, *, committed_only: bool = True, timeout: float = 60.0) -> list[Message]:
    """Everything in a topic up to its end at the time of the call, partition by partition in log order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 32 << 20,
            "log_level": 0,
        }
    )
    found: list[Message] = []
    try:
        numbers = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        open_partitions = set(numbers)

        def finished() -> bool:
            for message in consumer.consume(5_000, timeout=0.5):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    open_partitions.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
            return not open_partitions

        until(finished, timeout, f"the end of {topic}", pause=0)
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))
