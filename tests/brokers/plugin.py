"""Brokers as pytest fixtures. Each is started when the first test asks for it, and once in a run.

Real Kafka is, in this order: what `KAFKA_BOOTSTRAP_SERVERS` names; a container, if a Docker engine answers; the jars from
Maven Central on a local Java. Where none can be had, tests are skipped with the reason, but fail when `CI` is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import pytest

from . import docker, jars
from .embedded import EmbeddedBroker
from .kafka import Kafka
from .registry import SchemaRegistry
from .secure import SecureKafka


class _Server(Protocol):
    def start(self) -> None: ...
    def stop(self) -> object: ...


S = TypeVar("S", bound=_Server)

_REAL = frozenset({"kafka", "kafka_cluster", "secure_kafka"})
_COSTLY = ("kafka_cluster", "secure_kafka", "schema_registry")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests are marked by what they use, so that `-m "not kafka"` needs nobody's memory.

    Where several processes share the tests, those that use a server which is costly to start stay in one of them.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for costly in _COSTLY:
            if costly in fixtures:
                item.add_marker(pytest.mark.xdist_group(costly))
        if fixtures & _REAL:
            item.add_marker(pytest.mark.kafka)
        if "embedded_broker" in fixtures:
            item.add_marker(pytest.mark.embedded)


@pytest.fixture(scope="session")
def embedded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The embedded broker: at-least-once only."""
    yield from _running(lambda: EmbeddedBroker(tmp_path_factory.mktemp("embedded")))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka | docker.Container | docker.Outside]:
    """One real Apache Kafka broker, reached at `.bootstrap`."""
    address = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if address:
        yield docker.Outside(address)
        return
    if docker.engine_answers():
        yield from _running(docker.Container)
    else:
        yield from _running(lambda: Kafka(tmp_path_factory.mktemp("kafka"), nodes=1, heap="512m"))


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Three real nodes from the jars, for tests that kill them. Leave it as it was found: all three running."""
    yield from _running(lambda: Kafka(tmp_path_factory.mktemp("cluster"), nodes=3, heap="384m"))


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """One real broker from the jars with TLS, SASL and an authorizer."""
    yield from _running(lambda: SecureKafka(tmp_path_factory.mktemp("secure")))


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A real schema registry; tests use subjects of their own."""
    yield from _running(lambda: SchemaRegistry(tmp_path_factory.mktemp("registry")))


def _running(make: Callable[[], S]) -> Iterator[S]:
    """The server, started, for as long as tests use it. Skips what cannot be run here; in CI that is a failure."""
    try:
        server = make()
    except jars.Unavailable as error:
        if os.environ.get("CI"):
            pytest.fail(f"real servers are required in CI: {error}", pytrace=False)
        pytest.skip(f"cannot be run here: {error}")
    try:
        server.start()
        yield server
    finally:
        server.stop()
