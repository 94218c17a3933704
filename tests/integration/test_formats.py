"""Formats across a real Kafka and a real schema registry, written and read by an independent client."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from acs_aaep_bridge.core.encode_avro import normalized_schema
from tests import oracle
from tests.bridge import Bridge, Names, caught_up, running, topics_for
from tests.brokers import topics
from tests.brokers.kafka import Kafka
from tests.brokers.process import until
from tests.brokers.registry import SchemaRegistry
from tests.core import signing
from tests.samples import HASH, OCCURRED, PARENT, request

pytestmark = pytest.mark.timeout(240)

UUID = {"type": "string", "logicalType": "uuid"}
REQUEST = {
    "type": "record",
    "name": "Request",
    "namespace": "com.example.agents",
    "fields": [
        {"name": "jsonrpc", "type": "string"},
        {"name": "method", "type": "string"},
        {"name": "id", "type": ["string", "long"]},
        {
            "name": "params",
            "type": {
                "type": "record",
                "name": "Params",
                "fields": [
                    {"name": "acs_version", "type": "string"},
                    {"name": "request_id", "type": UUID},
                    {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                    {"name": "nonce", "type": ["null", "string"], "default": None},
                    {"name": "metadata", "type": {"type": "map", "values": "string"}},
                    {"name": "payload_json", "type": "string"},
                ],
            },
        },
    ],
}
SECRET = b"the secret of the agents"


def stop() -> dict[str, Any]:
    """A subagent's stop that nothing else is about."""
    payload = {"subagent_session_id": str(uuid.uuid4()), "outcome": "completed", "final_chain_hash": HASH}
    return request("steps/subagentStop", payload, request_id=str(uuid.uuid4()))


def child(sent: dict[str, Any]) -> str:
    found: str = sent["params"]["payload"]["subagent_session_id"]
    return found


class Sender:
    """Writes a request in the format that the method is named for."""

    def __init__(self, names: Names, client: SchemaRegistryClient) -> None:
        own = {"subject.name.strategy": record_subject_name_strategy}
        self._topic = names.raw
        self._producer = Producer({"bootstrap.servers": names.bootstrap, "acks": "all"})
        self._avro = AvroSerializer(client, json.dumps(REQUEST), conf=own)
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "AgentRequest", "type": "object"}
        self._json = JSONSerializer(json.dumps(schema), client, conf=own)
        self._field = SerializationContext(names.raw, MessageField.VALUE)

    def plain(self, sent: dict[str, Any]) -> None:
        self.raw(json.dumps(sent).encode())

    def framed_json(self, sent: dict[str, Any]) -> None:
        self.raw(self._json(sent, self._field))

    def avro(self, sent: dict[str, Any]) -> None:
        params = dict(sent["params"])
        text = json.dumps(params.pop("payload"))
        moment = datetime.fromisoformat(params["timestamp"])
        self.raw(self._avro({**sent, "params": {**params, "timestamp": moment, "payload_json": text}}, self._field))

    def structured(self, sent: dict[str, Any]) -> None:
        event = {"specversion": "1.0", "id": "1", "source": "/agents", "type": "acs.hook", "data": sent}
        self.raw(json.dumps(event).encode(), {"content-type": "application/cloudevents+json; charset=utf-8"})

    def encoded(self, sent: dict[str, Any]) -> None:
        data = base64.b64encode(json.dumps(sent).encode()).decode()
        event = {"specversion": "1.0", "id": "1", "source": "/agents", "type": "acs.hook", "data_base64": data}
        self.raw(json.dumps(event).encode(), {"content-type": "application/cloudevents+json"})

    def binary(self, sent: dict[str, Any]) -> None:
        attributes = {"specversion": "1.0", "id": "1", "source": "/agents", "type": "acs.hook"}
        headers = {f"ce_{name}": value for name, value in attributes.items()}
        self.raw(json.dumps(sent).encode(), {**headers, "content-type": "application/json"})

    def raw(self, value: bytes | None, headers: dict[str, str] | None = None) -> None:
        self._producer.produce(self._topic, value, headers=dict(headers or {}))

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


def headers(message: Message) -> dict[str, bytes | None]:
    return dict(oracle.as_record(message).headers)


@pytest.fixture
def client(schema_registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    """The independent client of the shared registry."""
    with SchemaRegistryClient({"url": schema_registry.url}) as found:
        yield found


def test_every_format_in_and_avro_out(
    kafka: Kafka, schema_registry: SchemaRegistry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Six formats on one topic; the independent client reads the Avro events, and AAEP comes as CloudEvents."""
    names = topics_for(kafka.bootstrap, "formats", 2)
    sender = Sender(names, client)
    sent = [stop() for _ in range(6)]
    writers = (sender.plain, sender.framed_json, sender.avro, sender.structured, sender.encoded, sender.binary)
    for write, one in zip(writers, sent, strict=True):
        write(one)
    sender.raw(b"[]", {"content-type": "application/cloudevents-batch+json"})
    sender.raw(b"\0\x7f\xff\xff\xff{}")
    sender.raw(b"Obj\x01", {"content-type": "application/avro"})
    sender.flush()
    settings = names.settings(
        input={"formats": ["json", "avro", "cloudevents"]},
        normalized={"format": "avro"},
        lifecycle={"cloudevents": True},
        schema_registry={"url": schema_registry.url},
    )
    with running(tmp_path, settings) as bridge:
        caught_up(names, bridge)
        assert bridge.stop() == 0, bridge.child.tail()

    assert schema_registry.ask("GET", f"/subjects/{names.normalized}-value/versions") == [1]
    field = SerializationContext(names.normalized, MessageField.VALUE)
    for reader in (AvroDeserializer(client), AvroDeserializer(client, normalized_schema())):
        rows = [reader(message.value(), field) for message in topics.read_all(kafka.bootstrap, names.normalized)]
        assert {str(row["subject_session_id"]) for row in rows} == {child(one) for one in sent}
        for row in rows:
            assert row["occurred_at"] == datetime.fromisoformat(OCCURRED)
            assert str(row["session_id"]) == PARENT
            assert row["outcome"] == json.loads(row["payload_json"])["outcome"] == "completed"
            assert row["tenant_id"] is None

    dead = [headers(message) for message in topics.read_all(kafka.bootstrap, names.dead_letter)]
    assert sorted(str(one["bridge.error.code"], "ascii") for one in dead if one["bridge.error.code"]) == [
        "unknown_schema",
        "unsupported_format",
        "unsupported_format",
    ]

    spoken = list(topics.read_all(kafka.bootstrap, names.lifecycle))
    assert len(spoken) == 2 * len(sent)
    for message in spoken:
        event, found = json.loads(message.value() or b""), headers(message)
        assert {name: value for name, value in found.items() if name.startswith("ce_") or name == "content-type"} == {
            "content-type": b"application/json",
            "ce_specversion": b"1.0",
            "ce_id": event["event_id"].encode(),
            "ce_type": event["type"].encode(),
            "ce_source": b"urn:acs-aaep-bridge:agent:planner",
            "ce_subject": event["session_id"].encode(),
            "ce_time": event["timestamp"].encode(),
        }


def test_records_wait_for_a_registry_that_is_down(kafka: Kafka, client: SchemaRegistryClient, tmp_path: Path) -> None:
    """Nothing is rejected and nothing is skipped; the probe says why, and when the registry answers they pass."""
    names = topics_for(kafka.bootstrap, "outage", 1)
    own = SchemaRegistry(tmp_path)
    own.start()
    settings = names.settings(input={"formats": ["json", "avro"]}, schema_registry={"url": own.url, "timeout": "1s"})
    sender = Sender(names, client)
    bridge = Bridge(tmp_path / "bridge", settings)
    try:
        found = own.ask("POST", "/subjects/agents/versions", {"schema": json.dumps(REQUEST)})["id"]
        own.freeze()
        before, avro, after = stop(), stop(), stop()
        sender.plain(before)
        sender.raw(b"\0" + found.to_bytes(4, "big") + avro_body(names, client, avro))
        sender.plain(after)
        sender.flush()
        until(lambda: "schema registry" in bridge.get("/readyz")[1], 60, "the probe names the registry")
        assert bridge.get("/livez")[0] == 200
        own.thaw()
        caught_up(names, bridge)
        assert bridge.stop() == 0, bridge.child.tail()
    finally:
        bridge.kill()
        own.stop()
    rows = [json.loads(message.value() or b"") for message in topics.read_all(kafka.bootstrap, names.normalized)]
    assert [row["subject_session_id"] for row in rows] == [child(one) for one in (before, avro, after)]
    assert list(topics.read_all(kafka.bootstrap, names.dead_letter)) == []


def test_a_schema_that_may_not_be_registered_stops_the_start(
    kafka: Kafka, schema_registry: SchemaRegistry, tmp_path: Path
) -> None:
    """With the exit code of a failed start and one line that says what to do."""
    names = topics_for(kafka.bootstrap, "refused", 1)
    registry = {"url": schema_registry.url, "auto_register": False}
    bridge = Bridge(tmp_path, names.settings(normalized={"format": "avro"}, schema_registry=registry))
    assert bridge.child.wait(60) == 3
    last = bridge.child.output().splitlines()[-1]
    assert f"{names.normalized}-value" in last
    assert "schemas/normalized/event.avsc" in last
    assert schema_registry.ask("GET", "/subjects").count(f"{names.normalized}-value") == 0


def avro_body(names: Names, client: SchemaRegistryClient, sent: dict[str, Any]) -> bytes:
    """The request in Avro, without the header that names a schema."""
    held: list[bytes] = []
    sender = Sender(names, client)
    sender.raw = lambda value, headers=None: held.append(value or b"")  # type: ignore[method-assign]
    sender.avro(sent)
    return held[0][5:]


def test_forged_and_repeated_hooks(kafka: Kafka, client: SchemaRegistryClient, tmp_path: Path) -> None:
    """Unsigned and forged hooks are dead letters, a replayed one is marked, a rotated secret is taken without a restart."""
    names = topics_for(kafka.bootstrap, "signed", 1)
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    settings = names.settings(
        input={"replay_guard": True}, signature={"mode": "require", "keys": {"agents": {"file": str(secret)}}}
    )
    sender = Sender(names, client)
    good = signing.signed(stop(), SECRET, "agents")
    with running(tmp_path, settings) as bridge:
        for sent in (good, stop(), signing.signed(stop(), b"guessed", "agents"), good):
            sender.plain(sent)
        sender.flush()
        until(lambda: bridge.total("events_total", "stage")["normalize",] == 4, 60, "four hooks are judged")
        secret.write_bytes(b"the next secret")
        until(lambda: "signature.keys_changed" in bridge.child.output(), 30, "the new secret is read")
        sender.plain(signing.signed(stop(), b"the next secret", "agents"))
        sender.flush()
        caught_up(names, bridge)
        until(lambda: bridge.total("events_total", "stage")["normalize",] == 5, 20, "the metrics show the last batch")
        assert bridge.total("dead_letters_total", "code") == {("signature_missing",): 1, ("signature_invalid",): 1}
        assert bridge.total("signatures_total", "status") == {("verified",): 3}
        assert bridge.total("sessions_events_total", "kind")["replayed",] == 1
        assert bridge.stop() == 0, bridge.child.tail()
    assert SECRET.decode() not in bridge.child.output()
    found = list(topics.read_all(kafka.bootstrap, names.normalized))
    assert [headers(message).get("acs-duplicate") for message in found] == [None, b"true", None]
    assert [json.loads(message.value() or b"")["signature"] for message in found] == [
        {"status": "verified", "algorithm": "HMAC-SHA256", "key_id": "agents"}
    ] * 3
    # Each child is said to start and to end once: what was replayed is told apart there anyway.
    assert len(list(topics.read_all(kafka.bootstrap, names.lifecycle))) == 4
