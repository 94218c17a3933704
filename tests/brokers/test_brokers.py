"""The brokers themselves: what a test may rely on when it asks for one."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from . import topics
from .embedded import EmbeddedBroker
from .kafka import Kafka
from .process import until
from .secure import PASSWORD, USER, SecureKafka, token


def _pairs(messages: list[Message]) -> list[tuple[bytes | None, bytes | None]]:
    return [(message.key(), message.value()) for message in messages]


_RECORDS = [(b"key-%d" % number, b"value-%d" % number) for number in range(50)]


@pytest.mark.parametrize("which", ["embedded_broker", "kafka"])
def test_what_is_published_is_read_back(which: str, request: pytest.FixtureRequest) -> None:
    """Records come back in order, with their keys, from the embedded and the real broker."""
    broker = request.getfixturevalue(which)
    topic = topics.unique("echo")
    topics.create(broker.bootstrap, {topic: 1})
    topics.fill(broker.bootstrap, topic, _RECORDS)
    assert _pairs(topics.read_all(broker.bootstrap, topic)) == _RECORDS


def test_an_open_transaction_is_not_read(kafka: Kafka) -> None:
    """A read_committed reader sees what was committed and not what was aborted."""
    topic = topics.unique("transactions")
    topics.create(kafka.bootstrap, {topic: 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, keep in ((b"kept", True), (b"dropped", False)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        if keep:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    assert [message.value() for message in topics.read_all(kafka.bootstrap, topic)] == [b"kept"]


def test_a_cluster_survives_the_kill_of_a_node_and_takes_it_back(kafka_cluster: Kafka) -> None:
    """With one of three nodes killed the others go on, and it is registered again after its restart."""
    topic = topics.unique("killed")
    topics.create(kafka_cluster.bootstrap, {topic: 3})
    victim = kafka_cluster.nodes[1]
    kafka_cluster.kill(victim)
    try:
        assert topics.fill(kafka_cluster.bootstrap, topic, _RECORDS) == len(_RECORDS)
    finally:
        kafka_cluster.restart(victim)
    assert sorted(_pairs(topics.read_all(kafka_cluster.bootstrap, topic))) == sorted(_RECORDS)


def _listed(settings: dict[str, object]) -> bool:
    try:
        return bool(AdminClient({"log_level": 0, **settings}).list_topics(timeout=3).brokers)  # type: ignore[dict-item]
    except KafkaException:
        return False


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_opens_and_a_wrong_one_does_not(secure_kafka: SecureKafka, mechanism: str) -> None:
    """Each password mechanism lets the user in with the right password only."""
    common: dict[str, object] = {
        "bootstrap.servers": secure_kafka.kafka.address(mechanism.split("-", maxsplit=1)[0]),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secure_kafka.authority.file),
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
    }
    assert _listed({**common, "sasl.password": PASSWORD})
    assert not _listed({**common, "sasl.password": "wrong"})


def test_a_token_opens_and_an_expired_one_does_not(secure_kafka: SecureKafka) -> None:
    """OAUTHBEARER takes an unsecured token while it is valid."""

    def settings(lifetime: float) -> dict[str, object]:
        return {
            "bootstrap.servers": secure_kafka.kafka.address("OAUTH"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secure_kafka.authority.file),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _config: (token(lifetime=lifetime), 9e9),
        }

    for lifetime, opens in ((600.0, True), (-600.0, False)):
        client = Producer({"log_level": 0, **settings(lifetime)})
        client.poll(0)
        try:
            assert client.list_topics(timeout=5).brokers
            assert opens
        except KafkaException:
            assert not opens


@pytest.mark.parametrize(("listener", "opens"), [("TLS", True), ("EXPIRED", False), ("WRONGHOST", False), ("MUTUAL", False)])
def test_only_a_good_certificate_is_trusted(secure_kafka: SecureKafka, listener: str, opens: bool) -> None:
    """The bad listeners are bad for the reason in their name, and MUTUAL wants a client certificate."""
    address = secure_kafka.kafka.address(listener)
    settings: dict[str, object] = {
        "bootstrap.servers": address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(secure_kafka.authority.file),
    }
    assert _listed(settings) is opens
    if listener == "MUTUAL":
        client = {
            "ssl.certificate.location": str(secure_kafka.client.certificate),
            "ssl.key.location": str(secure_kafka.client.key),
        }
        assert _listed({**settings, **client})
        return
    context = ssl.create_default_context(cafile=str(secure_kafka.authority.file))
    reason = {"EXPIRED": "certificate has expired", "WRONGHOST": "IP address mismatch"}.get(listener, "")
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as plain:
        if opens:
            context.wrap_socket(plain, server_hostname=host).close()
        else:
            with pytest.raises(ssl.SSLCertVerificationError, match=reason):
                context.wrap_socket(plain, server_hostname=host)


def test_the_authorizer_is_on(secure_kafka: SecureKafka) -> None:
    """The user may write to a topic only after it was allowed to."""
    topic = topics.unique("guarded")
    topics.create(secure_kafka.bootstrap, {topic: 1})
    settings: dict[str, object] = {
        "bootstrap.servers": secure_kafka.kafka.address("PLAIN"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secure_kafka.authority.file),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "log_level": 0,
    }

    def visible() -> bool:
        return topic in AdminClient(settings).list_topics(timeout=5).topics  # type: ignore[arg-type]

    secure_kafka.allow_nothing()
    assert not visible()
    secure_kafka.allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    try:
        until(visible, 10, "the permission is in force")
    finally:
        secure_kafka.allow_nothing()


def test_a_broker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A killed test run leaves nothing behind."""
    script = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from tests.brokers.embedded import EmbeddedBroker
        broker = EmbeddedBroker(Path({str(tmp_path)!r}))
        broker.start()
        print(broker.bootstrap, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, env=env, check=False)
    bootstrap = ended.stdout.strip()
    assert bootstrap, ended.stderr
    until(lambda: not _listed({"bootstrap.servers": bootstrap, "socket.timeout.ms": 1000}), 10, "the broker is gone")


async def test_the_embedded_broker_is_not_taken_for_more_than_it_is(embedded_broker: EmbeddedBroker) -> None:
    """It refuses aiokafka's idempotent producer; when that changes, the demo and the contract tests can offer more."""
    assert not embedded_broker.transactions
    producer = AIOKafkaProducer(bootstrap_servers=embedded_broker.bootstrap, enable_idempotence=True)
    try:
        with pytest.raises(KafkaError):
            await producer.start()
    finally:
        await producer.stop()
