"""Real Apache Kafka in KRaft mode, run from the jars: one node or several, each of them killable.

`python -m tests.brokers.kafka [NODES]` runs one in the foreground and prints its address.
"""

from __future__ import annotations

import base64
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from . import jars
from .process import Child, free_ports, until

_STARTING = 90.0


@dataclass
class Listener:
    """A named listener: its security protocol, and settings under `listener.name.<name>.`."""

    name: str
    protocol: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Node:
    number: int
    home: Path
    controller_port: int
    ports: dict[str, int]
    child: Child | None = None

    @property
    def settings_file(self) -> Path:
        return self.home / "server.properties"

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.running()


def _cluster_id() -> str:
    """A Kafka uuid that does not begin with `-`: the storage tool would take it for an option, one time in 64."""
    while (found := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return found


class Kafka:
    """A cluster of `nodes`, each broker and controller at once. Not thread-safe."""

    name = "kafka"
    transactions = True

    def __init__(
        self,
        home: Path,
        *,
        nodes: int = 1,
        heap: str = "512m",
        listeners: tuple[Listener, ...] = (),
        settings: Mapping[str, str] | None = None,
        version: str = jars.VERSION,
    ) -> None:
        self.version = version
        self._heap = heap
        self._classpath = jars.classpath(version)
        self._listeners = (Listener("PLAINTEXT", "PLAINTEXT"), *listeners)
        self._settings = dict(settings or {})
        self._cluster_id = _cluster_id()
        each = 1 + len(self._listeners)
        ports = free_ports(nodes * each)
        self.nodes = [
            Node(
                number=index + 1,
                home=home / f"node-{index + 1}",
                controller_port=ports[index * each],
                ports={one.name: ports[index * each + 1 + at] for at, one in enumerate(self._listeners)},
            )
            for index in range(nodes)
        ]

    @property
    def bootstrap(self) -> str:
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """The bootstrap servers of one listener."""
        return ",".join(f"127.0.0.1:{node.ports[listener]}" for node in self.nodes)

    def start(self) -> None:
        """Format, start and wait until every broker is registered and the internal topics exist."""
        with ThreadPoolExecutor(len(self.nodes)) as several:
            list(several.map(self._format, self.nodes))
        for node in self.nodes:  # not from the pool: a child must not outlive, nor die with, a passing thread
            self._launch(node)
        self.wait_ready()

    def stop(self) -> None:
        """End all of it at once; the data is thrown away anyway."""
        for node in self.nodes:
            self.kill(node)

    def kill(self, node: Node) -> None:
        """SIGKILL, as when a machine goes away."""
        if node.child is not None:
            node.child.kill()

    def shut_down(self, node: Node) -> None:
        """SIGTERM: the broker hands its leaderships over first."""
        if node.child is not None:
            node.child.stop()

    def freeze(self, node: Node) -> None:
        if node.child is not None:
            node.child.send(signal.SIGSTOP)

    def thaw(self, node: Node) -> None:
        if node.child is not None:
            node.child.send(signal.SIGCONT)

    def restart(self, node: Node) -> None:
        """Start a node that was ended, on its old data and ports, and wait until it is registered again."""
        self._launch(node)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Return when all started nodes are registered, lead, and answer for consumer groups and transactions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        started = [node for node in self.nodes if node.child is not None]

        def ready() -> bool:
            for node in started:
                if not node.running:
                    tail = cast(Child, node.child).tail()
                    raise AssertionError(
                        f"Kafka node {node.number} ended with {cast(Child, node.child).process.returncode}\n{tail}"
                    )
            try:
                metadata = admin.list_topics(timeout=2)
            except KafkaException:
                return False
            led = all(part.leader >= 0 for topic in metadata.topics.values() for part in topic.partitions.values())
            return led and len(metadata.brokers) >= sum(node.running for node in started)

        until(ready, _STARTING, "Kafka is ready", pause=0.1)
        _coordinate(self.bootstrap)

    def _launch(self, node: Node) -> None:
        # C1 alone starts in half the time; a broker under test is never what a test measures.
        tiered = os.environ.get("KAFKA_TEST_JVM", "-XX:TieredStopAtLevel=1")
        node.child = Child(
            [
                jars.java(),
                f"-Xmx{self._heap}",
                "-Xms128m",
                "-XX:+UseSerialGC",
                *tiered.split(),
                "-Djava.awt.headless=true",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.apache.kafka.sasl.oauthbearer.allowed.files=*",
                "-cp",
                self._classpath,
                "kafka.Kafka",
                str(node.settings_file),
            ],
            node.home / "kafka.log",
        )

    def _format(self, node: Node) -> None:
        node.home.mkdir(parents=True)
        lines = [f"{key}={value}" for key, value in self._properties(node).items()]
        node.settings_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [jars.java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self._classpath]
        command += ["kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(node.settings_file)]
        child = Child(command, node.home / "format.log")
        if child.wait(60):
            raise AssertionError(f"the storage of Kafka node {node.number} cannot be formatted\n{child.tail()}")

    def _properties(self, node: Node) -> dict[str, str]:
        copies = min(3, len(self.nodes))
        alive = min(2, copies)
        addresses = {one.name: f"{one.name}://127.0.0.1:{node.ports[one.name]}" for one in self._listeners}
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node.number),
            "controller.quorum.voters": ",".join(f"{one.number}@127.0.0.1:{one.controller_port}" for one in self.nodes),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join([*addresses.values(), f"CONTROLLER://127.0.0.1:{node.controller_port}"]),
            "advertised.listeners": ",".join(addresses.values()),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{one.name}:{one.protocol}" for one in self._listeners)]
            ),
            "log.dirs": str(node.home / "data"),
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            "log.cleaner.dedupe.buffer.size": "16777216",
            "log.index.size.max.bytes": "1048576",
            "default.replication.factor": str(copies),
            "min.insync.replicas": str(alive),
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": str(copies),
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": str(alive),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": str(copies),
            "share.coordinator.state.topic.min.isr": str(alive),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "controlled.shutdown.enable": "true",
        }
        for one in self._listeners:
            properties |= {f"listener.name.{one.name.lower()}.{key}": value for key, value in one.settings.items()}
        return properties | self._settings


def _coordinate(bootstrap: str) -> None:
    """Have the group and the transaction coordinator answer once, so that no test pays for making their topics."""
    settings: dict[str, str | int] = {"bootstrap.servers": bootstrap, "log_level": 0}
    consumer = Consumer({**settings, "group.id": "readiness"})

    def answered() -> bool:
        try:
            consumer.committed([TopicPartition("readiness", 0)], timeout=10)
        except KafkaException:  # while the coordinator loads its partition
            return False
        return True

    try:
        until(answered, _STARTING, "the group coordinator answers", pause=0.1)
    finally:
        consumer.close()
    Producer({**settings, "transactional.id": "readiness"}).init_transactions(_STARTING)


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with tempfile.TemporaryDirectory(prefix="kafka-") as home:
        kafka = Kafka(Path(home), nodes=nodes)
        kafka.start()
        print(kafka.bootstrap, flush=True)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            kafka.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
