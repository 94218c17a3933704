"""Avro read by its writer's schema: what each type becomes in JSON, and that no bytes and no schema do harm."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acs_aaep_bridge.core.avro import AvroReader, UndecodableAvro
from acs_aaep_bridge.core.avro_schema import MAX_DEPTH, MAX_FREE, UnusableSchema
from acs_aaep_bridge.core.model import WriterSchema


def written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def reader(schema: Any, *references: Any) -> AvroReader:
    named = tuple((reference["name"], orjson.dumps(reference).decode()) for reference in references)
    return AvroReader(WriterSchema("AVRO", orjson.dumps(schema).decode(), named))


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


MOMENT = datetime(2026, 5, 24, 14, 22, 38, 921_700, UTC)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("long", -(2**63), -(2**63)),
        ("double", 1.5, 1.5),
        ("string", "é\u0000", "é\u0000"),
        ("bytes", b"\x00\xff", "AP8="),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x00\xff", "AP8="),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("-0.05"), "-0.05"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("1234.5"), "1234.50"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, Decimal(-7), "-7"),
        (
            {"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 3},
            Decimal("0.001"),
            "0.001",
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 5, 24), "2026-05-24"),
        ({"type": "int", "logicalType": "time-millis"}, time(14, 22, 38, 921_000), "14:22:38.921"),
        ({"type": "long", "logicalType": "time-micros"}, time(0, 0, 0, 1), "00:00:00.000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, "2026-05-24T14:22:38.921Z"),
        ({"type": "long", "logicalType": "timestamp-millis"}, -1, "1969-12-31T23:59:59.999Z"),
        ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, "2026-05-24T14:22:38.921700Z"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_000_000_001, "1970-01-01T00:00:01.000000001Z"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_001, "1970-01-01T00:00:01.001"),
        ({"type": "long", "logicalType": "unheard-of"}, 5, 5),
        (["null", "string"], "x", "x"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        ({"type": "map", "values": ["null", "int"]}, {"a": None, "b": 1}, {"a": None, "b": 1}),
        (record(a=["null", "int"], b=["null", "int"]), {"a": None, "b": 1}, {"b": 1}),
        (record(a={"type": "enum", "name": "n.E", "symbols": ["X"]}, b="n.E"), {"a": "X", "b": "X"}, {"a": "X", "b": "X"}),
    ],
)
def test_each_type_has_one_json_form(schema: Any, value: Any, expected: Any) -> None:
    """Null fields of a record are absent; nulls in arrays and maps stay."""
    assert reader(schema).read(written(schema, value)) == expected


def test_a_uuid_may_be_sixteen_bytes() -> None:
    """Avro 1.12 allows a uuid on fixed(16)."""
    schema = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    assert reader(schema).read(UUID(int=5).bytes) == str(UUID(int=5))


def test_types_may_come_from_references() -> None:
    """A referenced type is found by its full name, and its own names in its namespace."""
    inner = {
        "type": "record",
        "name": "com.x.Inner",
        "fields": [{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["S"]}}],
    }
    outer = {
        "type": "record",
        "name": "com.y.Outer",
        "fields": [{"name": "i", "type": "com.x.Inner"}, {"name": "e", "type": "com.x.E"}],
    }
    assert reader(outer, inner).read(b"\x00\x00") == {"i": {"e": "S"}, "e": "S"}


def test_a_primitive_may_be_named_without_quotes() -> None:
    """Registries hold such texts, though they are not JSON."""
    assert AvroReader(WriterSchema("AVRO", "string")).read(b"\x02a") == "a"


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("string", b"\x04a"),
        ("string", b"\x01a"),
        ("string", b"\x02\xff"),
        ("string", b"\x02ab"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("double", b"\x00" * 6 + b"\xf0\x7f"),
        ("float", b"\x00\x00\xc0\x7f"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01"),
        (["null", "int"], b"\x08"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, b"\xa0\x1f" + b"\x7f" * 2000),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f"),
        (record(a="int"), b""),
    ],
)
def test_bytes_that_do_not_fit_are_refused(schema: Any, data: bytes) -> None:
    """Also what JSON cannot express, and what is left over. The text never quotes the bytes."""
    with pytest.raises(UndecodableAvro):
        reader(schema).read(data)


def chain(length: int) -> list[Any]:
    """A union of records, each holding the one before: shallow as a text, deep as a value."""
    return [record(a="int") | {"name": "R0"}] + [record(a=f"R{number}") | {"name": f"R{number + 1}"} for number in range(length)]


def doubling(levels: int) -> list[Any]:
    return [record(a="null") | {"name": "R0"}] + [record(a=f"R{n}", b=f"R{n}") | {"name": f"R{n + 1}"} for n in range(levels)]


def nested(levels: int) -> Any:
    return {"type": "array", "items": nested(levels - 1)} if levels else "int"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(next=["null", "R"]), "recursive"),
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "array", "items": record(a="null")}, "take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
        (doubling(8), f"more than {MAX_FREE}"),
        (chain(MAX_DEPTH + 1), "deeper"),
        (nested(MAX_DEPTH + 1), "deeper"),
        (record(a="Unknown"), "names a type"),
        (record(a={"type": "enum", "name": "R", "symbols": ["A"]}), "twice"),
        ({"type": "record", "fields": []}, "without a name"),
        ({"type": "enum", "name": "E"}, "without symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "without a size"),
        ({"type": "bytes", "logicalType": "decimal", "scale": -1}, "scale"),
        (record(a=5), "no Avro type"),
    ],
)
def test_a_schema_that_cannot_be_read_with_safely_is_refused(schema: Any, why: str) -> None:
    """Recursion without end, values that take no bytes and endless nesting would end the process."""
    with pytest.raises(UnusableSchema, match=why):
        reader(schema)


@pytest.mark.parametrize("text", ["", "{", "nonsense", "null null"])
def test_a_schema_that_is_no_schema_is_refused(text: str) -> None:
    """The registry's text is as foreign as any input."""
    with pytest.raises(UnusableSchema):
        AvroReader(WriterSchema("AVRO", text))


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
JSON_TYPES = st.recursive(
    st.sampled_from(["boolean", "int", "long", "double", "string"]),
    lambda inner: (
        st.builds(lambda kind, items: {"type": "array", "items": items}, st.just("array"), inner)
        | st.builds(lambda values: {"type": "map", "values": values}, inner)
        | st.builds(lambda branch: ["null", branch], inner.filter(lambda kind: not isinstance(kind, list)))
    ),
    max_leaves=4,
)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(codec="utf-8")),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.none() | values(kind[1])
    if isinstance(kind, dict):
        return (
            st.lists(values(kind["items"]), max_size=3)
            if kind["type"] == "array"
            else st.dictionaries(st.text(), values(kind["values"]), max_size=3)
        )
    return SCALARS[kind]


@given(st.dictionaries(NAMES, JSON_TYPES, max_size=4), st.data())
def test_what_is_written_is_read_back(fields: dict[str, Any], data: st.DataObject) -> None:
    """decode(encode(x)) = x for whatever Avro and JSON both have, null fields being absent."""
    schema = record(**fields)
    value = {name: data.draw(values(kind)) for name, kind in fields.items()}
    read = reader(schema).read(written(schema, value))
    assert read == {name: member for name, member in value.items() if member is not None}
    assert orjson.loads(orjson.dumps(read)) == read


@given(st.dictionaries(NAMES, JSON_TYPES, min_size=1, max_size=4), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(fields: dict[str, Any], data: bytes) -> None:
    """Nothing but UndecodableAvro is ever raised, and what is read is JSON."""
    try:
        read = reader(record(**fields)).read(data)
    except UndecodableAvro:
        return
    assert all(math.isfinite(number) for number in floats(read))


def floats(value: Any) -> list[float]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, float) else [number for item in inner for number in floats(item)]
