"""Normalized events as Avro: the same event as in JSON, and what earlier releases wrote stays readable."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.hooks_sent import REQUEST, SESSION
from tests.core.vectors import CASES, settings
from tests.samples import record

from acs_aaep_bridge.core.encode_avro import AvroEncoding, normalized_schema
from acs_aaep_bridge.core.model import Emit, Outgoing, Record, WriterSchema
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.stages import NormalizeStage
from acs_aaep_bridge.core.writers import Unreadable, WriterSchemas, schema_id

ID = 70_001
RELEASES = sorted((Path(__file__).parents[1] / "fixtures").glob("normalized-avro-*"))
WRITTEN = [(folder, orjson.loads(line)) for folder in RELEASES for line in (folder / "records.jsonl").read_bytes().splitlines()]


def schemas(text: str, found: int = ID) -> WriterSchemas:
    known = WriterSchemas()
    known.learn(found, WriterSchema("AVRO", text))
    return known


def read(known: WriterSchemas, value: bytes | None) -> Any:
    """The event, or why there is none."""
    text = known.text(value or b"", holder="")
    return text if isinstance(text, Unreadable) else orjson.loads(text)


def emitted(file: Path, avro_id: int | None) -> list[Outgoing]:
    stage = NormalizeStage(settings(file.parent), None, avro_id)
    outcomes = stage.apply(record(file.read_bytes()), stage.new_state(), 0)
    return [outgoing for outcome in outcomes if isinstance(outcome, Emit) for outgoing in outcome.outgoing]


@pytest.mark.parametrize("case", CASES)
def test_avro_carries_what_json_carries(case: str) -> None:
    """Every vector, written as Avro and read back, is the event that JSON has; only value and content type differ."""
    known = schemas(normalized_schema())
    pairs = zip(emitted(CASES[case], ID), emitted(CASES[case], None), strict=True)
    for avro, plain in pairs:
        assert schema_id(avro.value) == ID
        assert read(known, avro.value) == orjson.loads(plain.value or b"")
        assert avro.headers[0] == ("content-type", b"application/avro")
        assert (avro.topic, avro.key, avro.timestamp, avro.headers[1:]) == (
            plain.topic,
            plain.key,
            plain.timestamp,
            plain.headers[1:],
        )


def test_the_schema_has_the_members_of_the_json_schema() -> None:
    """One row each, required or optional alike; payload and metadata as text."""
    plain = shipped().schema("urn:acs-aaep-bridge:schema:normalized:v1")
    assert_alike(orjson.loads(normalized_schema()), plain, {"metadata": "metadata_json", "payload": "payload_json"})


def assert_alike(avro: dict[str, Any], plain: dict[str, Any], renamed: dict[str, str]) -> None:
    rows = {field["name"]: field for field in avro["fields"]}
    assert list(rows) == [renamed.get(name, name) for name in plain["properties"]]
    for name, member in plain["properties"].items():
        row = rows[renamed.get(name, name)]
        optional = isinstance(row["type"], list)
        assert optional == (name not in plain["required"]), name
        assert not optional or (row["type"][0] == "null" and row["default"] is None), name
        if isinstance(row["type"], dict) and row["type"]["type"] == "record":
            assert_alike(row["type"], member, {})


def test_no_field_is_an_enum() -> None:
    """An Avro enum's default would read a value added later as another value."""
    assert '"enum"' not in normalized_schema()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(max_size=20)
ENCODING = AvroEncoding(ID)
KNOWN = schemas(normalized_schema())


@given(
    st.fixed_dictionaries(
        {
            "schema_version": st.just(1),
            "request_id": st.just(REQUEST),
            "jsonrpc_id": TEXT,
            "acs_version": TEXT,
            "method": TEXT,
            "occurred_at": st.sampled_from(["0001-01-01T00:00:00.000Z", "2026-05-24T14:22:38.921Z", "9999-12-31T23:59:59.999Z"]),
            "session_id": st.just(SESSION),
            "subject_session_id": st.just(SESSION),
            "agent_id": TEXT,
            "metadata": st.dictionaries(TEXT, JSON, max_size=3),
            "payload": st.dictionaries(TEXT, JSON, max_size=3),
            "signature": st.fixed_dictionaries({"status": TEXT}, optional={"algorithm": TEXT, "key_id": TEXT}),
            "source": st.fixed_dictionaries(
                {
                    "topic": TEXT,
                    "partition": st.integers(0, 2**31 - 1),
                    "offset": st.integers(0, 2**63 - 1),
                    "timestamp": st.integers(-1, 2**63 - 1),
                    "index": st.integers(0, 2**31 - 1),
                }
            ),
        },
        optional=dict.fromkeys(("agent_name", "tenant_id", "turn_id", "outcome", "tool_name", "user_id"), TEXT),
    )
)
def test_what_is_encoded_is_decoded(event: dict[str, Any]) -> None:
    """decode(encode(x)) = x for any event, whatever its payload holds."""
    outgoing = ENCODING(event, Record("raw", 0, 0, 0, None, None), "normalized")
    assert read(KNOWN, outgoing.value) == event


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_record_cut_short_is_unreadable(cut: int) -> None:
    """Never a half event."""
    whole = emitted(CASES["subagentStop/all_metadata"], ID)[0].value or b""
    assert isinstance(read(KNOWN, whole[:-1]), Unreadable)
    assert isinstance(read(KNOWN, whole[:cut]), Unreadable)


@pytest.mark.parametrize(("folder", "written"), WRITTEN, ids=[f"{folder.name}-{one['case']}" for folder, one in WRITTEN])
def test_todays_schema_reads_what_every_release_wrote(folder: Path, written: dict[str, Any]) -> None:
    """By Avro's own schema resolution, as a subscriber with today's schema does it, and by the bridge."""
    value = base64.b64decode(written["value_base64"])
    then = (folder / "event.avsc").read_text(encoding="utf-8")
    writer, reader = fastavro.parse_schema(orjson.loads(then)), fastavro.parse_schema(orjson.loads(normalized_schema()))
    row: Any = fastavro.schemaless_reader(BytesIO(value[5:]), writer, reader)
    event = written["event"]
    assert str(row["request_id"]) == event["request_id"]
    assert row["occurred_at"].isoformat(timespec="milliseconds").replace("+00:00", "Z") == event["occurred_at"]
    assert orjson.loads(row["payload_json"]) == event["payload"]
    assert row["outcome"] == event.get("outcome")
    assert read(schemas(then, 1), value) == event


@pytest.mark.parametrize("folder", RELEASES, ids=[folder.name for folder in RELEASES])
def test_the_schema_only_grows(folder: Path) -> None:
    """A released field keeps name, type and place; a new one has a default, so that old records can be read."""
    then = orjson.loads((folder / "event.avsc").read_bytes())["fields"]
    now = orjson.loads(normalized_schema())["fields"]
    bare = [{name: member for name, member in field.items() if name != "doc"} for field in now]
    assert [{name: member for name, member in field.items() if name != "doc"} for field in then] == bare[: len(then)]
    assert all("default" in field for field in now[len(then) :])
