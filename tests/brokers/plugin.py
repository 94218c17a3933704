"""Brokers as pytest fixtures. Each is started when the first test asks for it, and once in a run.

Real Kafka is, in this order: what `KAFKA_BOOTSTRAP_SERVERS` names; a container, if a Docker engine answers; the jars from
Maven Central on a local Java. Where none can be had, tests are skipped with the reason, but fail when `CI` is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from . import docker, jars
from .embedded import EmbeddedBroker
from .kafka import Kafka
from .registry import SchemaRegistry
from .secure import SecureKafka

_REAL = frozenset({"kafka", "kafka_cluster", "secure_kafka"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests are marked by what they use, so that `-m "not kafka"` needs nobody's memory."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & _REAL:
            item.add_marker(pytest.mark.kafka)
        if "embedded_broker" in fixtures:
            item.add_marker(pytest.mark.embedded)


@pytest.fixture(scope="session")
def embedded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The embedded broker: at-least-once only."""
    broker = EmbeddedBroker(tmp_path_factory.mktemp("embedded"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka | docker.Container | docker.Outside]:
    """One real Apache Kafka broker, reached at `.bootstrap`."""
    address = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if address:
        yield docker.Outside(address)
        return
    broker = docker.Container() if docker.engine_answers() else _from_jars(tmp_path_factory, "kafka", 1)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Three real nodes from the jars, for tests that kill them. Leave it as it was found: all three running."""
    cluster = _from_jars(tmp_path_factory, "cluster", 3)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """One real broker from the jars with TLS, SASL and an authorizer."""
    try:
        broker = SecureKafka(tmp_path_factory.mktemp("secure"))
    except jars.Unavailable as error:
        _unavailable(error)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A real schema registry; tests use subjects of their own."""
    try:
        registry = SchemaRegistry(tmp_path_factory.mktemp("registry"))
    except jars.Unavailable as error:
        _unavailable(error)
    try:
        registry.start()
        yield registry
    finally:
        registry.stop()


def _from_jars(tmp_path_factory: pytest.TempPathFactory, name: str, nodes: int) -> Kafka:
    try:
        return Kafka(tmp_path_factory.mktemp(name), nodes=nodes, heap="512m" if nodes == 1 else "384m")
    except jars.Unavailable as error:
        _unavailable(error)


def _unavailable(error: jars.Unavailable) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"real servers are required in CI: {error}", pytrace=False)
    pytest.skip(f"cannot be run here: {error}")
