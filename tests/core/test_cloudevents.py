"""What the lifecycle stage reads and writes besides plain JSON: Avro in, CloudEvents out."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.samples import RECEIVED, config, record, request

from acs_aaep_bridge.core.encode_avro import normalized_schema
from acs_aaep_bridge.core.model import Emit, Outcome, Outgoing, Record, Reject, WriterSchema
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.core.writers import framed

ID = 5
URL = "http://registry:8081"


def normalized(sent: dict[str, Any], avro_id: int | None) -> Outgoing:
    stage = build_stage("normalize", config(), avro_id=avro_id)
    (outcome,) = stage.apply(record(sent), stage.new_state(), RECEIVED)
    assert isinstance(outcome, Emit)
    return outcome.outgoing[0]


def spoken(outgoing: Outgoing, learned: bool = True, **options: str) -> Outcome:
    stage = build_stage("lifecycle", config(**options))
    if learned:
        stage.learn(ID, WriterSchema("AVRO", normalized_schema()))
    read = Record(outgoing.topic, 0, 0, outgoing.timestamp, outgoing.key, outgoing.value, outgoing.headers)
    (outcome,) = stage.apply(read, stage.new_state(), RECEIVED)
    return outcome


def test_avro_and_json_say_the_same() -> None:
    """The lifecycle stage decides by the record, not by the configuration."""
    plain, avro = (spoken(normalized(request(), avro_id)) for avro_id in (None, ID))
    assert isinstance(plain, Emit)
    assert plain.outgoing
    assert avro == plain


@pytest.mark.parametrize(
    ("value", "learned", "code"),
    [
        (framed(ID, b"\x02"), True, "undecodable_avro"),
        (framed(ID, b"\x02"), False, "unknown_schema"),
        (b"\0", True, "undecodable_avro"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter_of_this_stage(value: bytes, learned: bool, code: str) -> None:
    """Anybody may write to the normalized topic."""
    outcome = spoken(normalized(request(), None)._replace(value=value), learned)
    assert isinstance(outcome, Reject)
    assert (outcome.stage, outcome.code) == ("lifecycle", code)


def test_a_payload_deeper_than_allowed_is_refused() -> None:
    """Also when it travels as text inside Avro, which bounds nothing."""
    depth = 200
    outgoing = normalized(request("steps/memoryStore", {"a": "x" * 2 * depth}), ID)
    headers = tuple(pair for pair in outgoing.headers if pair[0] != "acs-method")
    deep = b"[" * (depth + 1) + b"]" * (depth + 1)
    value = (outgoing.value or b"").replace(b'"' + b"x" * 2 * depth + b'"', deep)
    outcome = spoken(outgoing._replace(value=value, headers=headers))
    assert isinstance(outcome, Reject)
    assert outcome.code == "too_deep"


def test_schemas_are_wanted_only_where_there_is_a_registry() -> None:
    """Without one there is nobody to ask, and waiting would never end."""
    records = [Record("n", 0, 0, -1, None, framed(ID, b""))]
    assert build_stage("lifecycle", config()).wants(records) == frozenset()
    assert build_stage("lifecycle", config(schema_registry__url=URL)).wants(records) == {ID}


def test_lifecycle_events_are_cloudevents_where_asked_for() -> None:
    """Binary mode: headers around the same value. The agent's id is made a part of a URN whatever it holds."""
    sent = request(metadata={"agent_id": "trip planner/é:1", "session_id": request()["params"]["metadata"]["session_id"]})
    plain, wrapped = spoken(normalized(sent, None)), spoken(normalized(sent, None), lifecycle__cloudevents="true")
    assert isinstance(plain, Emit)
    assert isinstance(wrapped, Emit)
    for one, other in zip(plain.outgoing, wrapped.outgoing, strict=True):
        event = orjson.loads(one.value or b"")
        assert one.value == other.value
        assert not any(name.startswith("ce_") for name, _ in one.headers)
        assert set(other.headers) - set(one.headers) == {
            ("ce_specversion", b"1.0"),
            ("ce_id", event["event_id"].encode()),
            ("ce_type", event["type"].encode()),
            ("ce_source", b"urn:acs-aaep-bridge:agent:trip%20planner%2F%C3%A9%3A1"),
            ("ce_subject", event["session_id"].encode()),
            ("ce_time", event["timestamp"].encode()),
        }
