"""One topic, many formats: each record is read in its own, or rejected with a code that says which it is."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.hooks_sent import request, subagent_stop

from acs_aaep_bridge.config import load
from acs_aaep_bridge.core.model import Emit, Headers, Outcome, Record, Reject, Skip, Stage, WriterSchema
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.core.writers import framed

AVRO_ID, JSON_ID, PROTOBUF_ID, RECURSIVE_ID, LIST_ID = 7, 8, 9, 10, 11
ENVELOPE = {
    "type": "record",
    "name": "Request",
    "fields": [
        {"name": "jsonrpc", "type": "string"},
        {"name": "method", "type": "string"},
        {"name": "id", "type": ["null", "string", "long"]},
        {
            "name": "params",
            "type": {
                "type": "record",
                "name": "Params",
                "fields": [
                    {"name": "acs_version", "type": "string"},
                    {"name": "request_id", "type": {"type": "string", "logicalType": "uuid"}},
                    {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                    {"name": "nonce", "type": ["null", "string"]},
                    {
                        "name": "metadata",
                        "type": {
                            "type": "record",
                            "name": "Metadata",
                            "fields": [
                                {"name": "agent_id", "type": "string"},
                                {"name": "session_id", "type": {"type": "string", "logicalType": "uuid"}},
                                {"name": "agent_name", "type": ["null", "string"]},
                            ],
                        },
                    },
                    {"name": "payload_json", "type": "string"},
                ],
            },
        },
    ],
}
RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
PARSED = fastavro.parse_schema(ENVELOPE)
EVERY = ("json", "avro", "cloudevents")


def stage(formats: tuple[str, ...] = EVERY, more: str = "") -> Stage:
    config = load(f"input: {{formats: [{', '.join(formats)}]}}\nschema_registry: {{url: 'http://registry:8081'}}\n{more}", {})
    built = build_stage("normalize", config, secrets={})
    for found, kind, text in (
        (AVRO_ID, "AVRO", orjson.dumps(ENVELOPE).decode()),
        (JSON_ID, "JSON", '{"type": "object"}'),
        (PROTOBUF_ID, "PROTOBUF", 'syntax = "proto3";'),
        (RECURSIVE_ID, "AVRO", orjson.dumps(RECURSIVE).decode()),
        (LIST_ID, "AVRO", orjson.dumps({"type": "array", "items": ENVELOPE}).decode()),
    ):
        built.learn(found, WriterSchema(kind, text))
    return built


def avro_body(sent: dict[str, Any], payload_json: str | None = None) -> bytes:
    """The request as an Avro producer writes it: the timestamp as a long, the payload as text."""
    params = dict(sent["params"])
    text = orjson.dumps(params.pop("payload")).decode() if payload_json is None else payload_json
    out = BytesIO()
    fastavro.schemaless_writer(out, PARSED, {**sent, "params": {**params, "timestamp": 1779632558921, "payload_json": text}})
    return out.getvalue()


def applied(value: bytes | None, headers: Headers = (), formats: tuple[str, ...] = EVERY, more: str = "") -> tuple[Outcome, ...]:
    one = stage(formats, more)
    return one.apply(Record("raw", 0, 0, 1_779_632_558_000, None, value, headers), one.new_state(), 0)


def code(*args: Any, **options: Any) -> str:
    """`emit`, `skip`, or the dead-letter code of the only outcome."""
    (outcome,) = applied(*args, **options)
    return outcome.code if isinstance(outcome, Reject) else type(outcome).__name__.lower()


def event(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Emit)
    found: dict[str, Any] = orjson.loads(outcome.outgoing[0].value or b"")
    return found


STOP = orjson.dumps(subagent_stop())
CE_JSON: Headers = (("content-type", b"application/cloudevents+json; charset=UTF-8"),)
CE_BINARY: Headers = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/hosts/1"),
    ("ce_type", b"acs.hook"),
    ("content-type", b"application/json"),
)
CE = {"specversion": "1.0", "id": "1", "source": "/hosts/1", "type": "acs.hook", "datacontenttype": "application/json"}


def structured(**members: Any) -> bytes:
    return orjson.dumps({name: value for name, value in {**CE, **members}.items() if value is not ...})


ENCODED = base64.b64encode(STOP).decode()


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (STOP, ()),
        (STOP, (("content-type", b"text/plain"), ("other", None))),
        (STOP, CE_BINARY),
        (structured(data=subagent_stop()), CE_JSON),
        (structured(data_base64=ENCODED), CE_JSON),
        (structured(data=subagent_stop()), (("Content-Type", b" Application/CloudEvents+JSON ;x=y"),)),
        (framed(JSON_ID, STOP), ()),
        (framed(AVRO_ID, avro_body(subagent_stop())), ()),
        (framed(AVRO_ID, avro_body(subagent_stop())), (("content-type", b"application/avro"), *CE_BINARY[:4])),
    ],
)
def test_every_format_gives_the_same_event(value: bytes, headers: Headers) -> None:
    """Plain JSON, binary and structured CloudEvents, Confluent JSON and Avro may mix on one topic."""
    (plain,) = applied(STOP)
    (other,) = applied(value, headers)
    assert event(other) == event(plain)


@pytest.mark.parametrize(
    ("value", "headers", "expected"),
    [
        (b"\0", (), "undecodable_avro"),
        (b"\0\0\0\0", (), "undecodable_avro"),
        (framed(AVRO_ID, b""), (), "undecodable_avro"),
        (framed(AVRO_ID, avro_body(request()) + b"\0"), (), "undecodable_avro"),
        (framed(AVRO_ID, avro_body(request(), "{")), (), "malformed_json"),
        (framed(AVRO_ID, avro_body(request(), "[" * 65 + "]" * 65)), (), "too_deep"),
        (framed(AVRO_ID, avro_body(request(), '{},"method":"x"')), (), "malformed_json"),
        (framed(AVRO_ID, avro_body(request(), "[]")), (), "envelope_invalid"),
        (framed(JSON_ID, b"{"), (), "malformed_json"),
        (framed(PROTOBUF_ID, b"\0"), (), "unsupported_format"),
        (framed(RECURSIVE_ID, b"\2" * 5000 + b"\0"), (), "unsupported_format"),
        (framed(99, STOP), (), "unknown_schema"),
        (b"Obj\x01", (("content-type", b"application/avro"),), "unsupported_format"),
        (
            b"[" + structured(data=request()) + b"]",
            (("content-type", b"application/cloudevents-batch+json"),),
            "unsupported_format",
        ),
        (STOP, (("content-type", b"application/cloudevents+avro"),), "unsupported_format"),
        (structured(data=request(), specversion="0.3"), CE_JSON, "unsupported_format"),
        (structured(data=request(), id=...), CE_JSON, "cloudevent_invalid"),
        (structured(data=request(), source=""), CE_JSON, "cloudevent_invalid"),
        (structured(data=request(), type=5), CE_JSON, "cloudevent_invalid"),
        (structured(data=request(), specversion=...), CE_JSON, "cloudevent_invalid"),
        (structured(), CE_JSON, "cloudevent_invalid"),
        (structured(data=request(), data_base64=ENCODED), CE_JSON, "cloudevent_invalid"),
        (structured(data_base64="%%%"), CE_JSON, "cloudevent_invalid"),
        (structured(data_base64="é"), CE_JSON, "cloudevent_invalid"),
        (structured(data_base64=5), CE_JSON, "cloudevent_invalid"),
        (structured(data_base64=base64.b64encode(framed(JSON_ID, STOP)).decode()), CE_JSON, "unsupported_format"),
        (structured(data=[request()]), CE_JSON, "cloudevent_invalid"),
        (structured(data="text"), CE_JSON, "not_an_object"),
        (b"[]", CE_JSON, "envelope_invalid"),
        (b"[1]", CE_JSON, "cloudevent_invalid"),
        (b"5", CE_JSON, "cloudevent_invalid"),
        (b"{", CE_JSON, "malformed_json"),
        (b"\xff", CE_JSON, "not_utf8"),
        (structured(data=[]) + b" " * (1 << 20), CE_JSON, "too_large"),
        (STOP, (("ce_specversion", b"2.0"), *CE_BINARY[1:]), "unsupported_format"),
        (STOP, CE_BINARY[:3], "cloudevent_invalid"),
        (STOP, (*CE_BINARY[:3], ("ce_type", b"")), "cloudevent_invalid"),
        (STOP, CE_BINARY[1:], "emit"),
        (None, CE_JSON, "skip"),
    ],
)
def test_what_cannot_be_read_is_rejected_by_its_own_code(value: bytes | None, headers: Headers, expected: str) -> None:
    """Never an exception, and each code says what to do; without ce_specversion a record is no CloudEvent."""
    assert code(value, headers) == expected


@pytest.mark.parametrize(
    ("formats", "value", "headers", "expected"),
    [
        (("json",), STOP, (), "emit"),
        (("json",), STOP, CE_BINARY, "emit"),
        (("json",), STOP, CE_BINARY[:1], "emit"),
        (("json",), structured(data=request()), CE_JSON, "unsupported_format"),
        (("json", "cloudevents"), framed(JSON_ID, STOP), (), "unsupported_format"),
        (("cloudevents",), STOP, (), "unsupported_format"),
        (("cloudevents",), STOP, CE_BINARY, "emit"),
        (("avro",), STOP, (), "unsupported_format"),
        (("avro",), framed(JSON_ID, STOP), (), "emit"),
    ],
)
def test_only_the_formats_of_the_configuration_are_read(
    formats: tuple[str, ...], value: bytes, headers: Headers, expected: str
) -> None:
    """A binary CloudEvent is JSON with headers, so plain JSON allows it too."""
    assert code(value, headers, formats) == expected


def test_a_structured_event_may_nest_as_deep_as_a_plain_one() -> None:
    """The envelope around it does not count against limits.max_depth."""
    deepest: Any = {}
    for _ in range(61):
        deepest = {"a": deepest}
    sent = request(payload=deepest)  # the request, params and payload are three levels more
    assert [code(orjson.dumps(sent)), code(structured(data=sent), CE_JSON)] == ["emit", "emit"]
    sent = request(payload={"a": deepest})
    assert [code(orjson.dumps(sent)), code(structured(data=sent), CE_JSON)] == ["too_deep", "too_deep"]


def test_repeated_members_are_refused_in_every_format() -> None:
    """Also beside the data, and inside a payload that travels as text."""
    verify = "signature: {mode: verify, keys: {k: {env: X}}}"
    twice = b'{"specversion":"1.0","specversion":"1.0",' + structured(data=request())[1:]
    assert code(twice, CE_JSON) == "emit"
    assert code(twice, CE_JSON, more=verify) == "malformed_json"
    body = framed(AVRO_ID, avro_body(request(), '{"a":1,"a":2}'))
    assert code(body) == "emit"
    assert code(body, more=verify) == "malformed_json"


def test_a_batch_may_be_avro() -> None:
    """An array of requests is a JSON-RPC batch; a bad element's dead letter is its JSON."""
    bad = request(timestamp="x")
    bodies = [avro_body(request()), avro_body({**bad, "jsonrpc": "1.0"})]
    good, refused = applied(framed(LIST_ID, b"\x04" + b"".join(bodies) + b"\x00"))
    assert isinstance(good, Emit)
    assert isinstance(refused, Reject)
    assert (refused.code, refused.element) == ("envelope_invalid", 1)
    assert orjson.loads(refused.raw or b"")["jsonrpc"] == "1.0"


def test_decoded_avro_keeps_the_size_limit() -> None:
    """What counts is the JSON that the event is made of."""
    body = framed(AVRO_ID, avro_body(request(), '{"a":"' + "x" * 2000 + '"}'))
    assert code(body, more="limits: {max_record_bytes: 2000}") == "too_large"


def test_ids_are_wanted_until_they_are_learned() -> None:
    """A schema that the registry did not have is wanted again with the next records."""
    one = stage()
    records = [
        Record("raw", 0, n, -1, None, value)
        for n, value in enumerate([STOP, None, b"", b"\0\0", framed(AVRO_ID, b""), framed(99, b"")])
    ]
    assert one.wants(records) == {99}
    one.learn(99, None)
    assert one.wants(records) == {99}
    one.learn(99, WriterSchema("JSON", "{}"))
    assert one.wants(records) == frozenset()


def test_nothing_is_wanted_where_avro_is_not_read() -> None:
    """Without Avro among the formats there may be no registry to ask."""
    assert stage(("json",)).wants([Record("raw", 0, 0, -1, None, framed(99, b""))]) == frozenset()


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["content-type", "ce_specversion", "ce_id", "ce_type", "ce_source", "x"]),
        st.none() | st.binary(max_size=9) | st.sampled_from([b"1.0", b"application/cloudevents+json", b"application/avro"]),
    ),
    max_size=6,
).map(tuple)
BODIES = st.binary(max_size=60) | st.builds(framed, st.sampled_from([AVRO_ID, JSON_ID, LIST_ID, 99]), st.binary(max_size=60))
SHARED = stage(more="signature: {mode: verify, keys: {k: {env: X}}}")


@given(BODIES, HEADERS)
def test_any_bytes_under_any_headers_yield_an_outcome(value: bytes, headers: Headers) -> None:
    """Nothing is raised, and the same record gives the same outcome."""
    record = Record("raw", 0, 0, -1, None, value, headers)
    outcomes = SHARED.apply(record, SHARED.new_state(), 0)
    assert outcomes
    assert all(isinstance(outcome, (Emit, Skip, Reject)) for outcome in outcomes)
    assert SHARED.apply(record, SHARED.new_state(), 0) == outcomes
