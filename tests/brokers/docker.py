"""Real Kafka that somebody else runs: a container of the `apache/kafka` image, or a cluster that is up already."""

from __future__ import annotations

import shutil
import subprocess

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from . import jars
from .process import free_ports, until


def engine_answers() -> bool:
    """Whether a Docker engine can be reached, not only its client."""
    client = shutil.which("docker")
    if client is None:
        return False
    try:
        asked = subprocess.run(
            [client, "version", "--format", "{{.Server.Version}}"], capture_output=True, timeout=5, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


class Outside:
    """A cluster named by the environment: never started, never stopped."""

    name = "kafka"
    transactions = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.version = "outside"


class Container:
    """One broker in a container, reached at a port of this machine."""

    name = "kafka"
    transactions = True

    def __init__(self, version: str = jars.VERSION) -> None:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - needs an engine to import usefully

        self.version = version
        (port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{port}"
        settings = {
            "NODE_ID": "1",
            "PROCESS_ROLES": "broker,controller",
            "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:9093",
            "ADVERTISED_LISTENERS": f"PLAINTEXT://{self.bootstrap}",
            "LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "OFFSETS_TOPIC_NUM_PARTITIONS": "5",
            "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "TRANSACTION_STATE_LOG_NUM_PARTITIONS": "5",
            "TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        }
        self._container = DockerContainer(f"apache/kafka:{version}").with_bind_ports(port, port)
        for name, value in settings.items():
            self._container = self._container.with_env(f"KAFKA_{name}", value)

    def start(self) -> None:
        self._container.start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def answers() -> bool:
            try:
                return bool(admin.list_topics(timeout=2).brokers)
            except KafkaException:
                return False

        until(answers, 90, "the Kafka container answers")

    def stop(self) -> None:
        self._container.stop()
