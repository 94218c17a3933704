"""Records in a schema registry's wire format: a zero byte, four bytes of schema id, the value (docs/formats.md, "Avro")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import orjson

from acs_aaep_bridge.core.avro import AvroReader, UndecodableAvro
from acs_aaep_bridge.core.avro_schema import UnusableSchema
from acs_aaep_bridge.core.model import Json, Record, WriterSchema

MAGIC: Final = b"\0"
_HEADER: Final = 5


class Unreadable(NamedTuple):
    """Why a value cannot be read: a dead-letter code, its message, and the JSON pointer of what is wrong ("" the whole)."""

    code: str
    message: str
    pointer: str = ""


_TRUNCATED = Unreadable("undecodable_avro", "the value begins like a schema registry's format and ends before its schema id")
_UNKNOWN = Unreadable(
    "unknown_schema",
    "the schema registry has no schema with the id in the record: check that sender and bridge use the same registry",
)
_PROTOBUF = Unreadable("unsupported_format", "the record is Protobuf: send JSON or Avro")


class WriterSchemas:
    """The schemas learned so far, ready to read with. Learning one again changes nothing; none of it blocks."""

    def __init__(self) -> None:
        self._readers: dict[int, AvroReader | Unreadable | None] = {}

    def wants(self, records: Iterable[Record]) -> frozenset[int]:
        """The ids that these records name and that are not known. An id the registry did not have is wanted again."""
        named = {schema_id(record.value) for record in records if record.value is not None and record.value[:1] == MAGIC}
        return frozenset(found for found in named if found is not None and found not in self._readers)

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None:
        """Take a schema; None (the registry has no such id) leaves it unknown, and its records unreadable."""
        if schema is not None:
            self._readers[schema_id] = _reader(schema)

    def text(self, value: bytes, holder: str = "params") -> bytes | Unreadable:
        """A framed object, or array of objects, as JSON text.

        `holder` is the member in which `payload_json` and `metadata_json` stand for free JSON, "" the object itself.
        """
        reader = self._reader_of(value)
        if isinstance(reader, Unreadable):
            return reader
        if reader is None:
            return value[_HEADER:]
        try:
            document = reader.read(value[_HEADER:])
        except UndecodableAvro as error:
            return Unreadable("undecodable_avro", f"the record is not readable as Avro: {error}")
        for one in document if isinstance(document, list) else (document,):
            members = one.get(holder) if holder and isinstance(one, dict) else one
            if isinstance(members, dict) and (wrong := _embed(members, f"/{holder}" if holder else "")):
                return wrong
        return orjson.dumps(document)

    def _reader_of(self, value: bytes) -> AvroReader | Unreadable | None:
        """None stands for JSON under a schema, whose text follows the header as it is."""
        found = schema_id(value)
        return _TRUNCATED if found is None else self._readers.get(found, _UNKNOWN)


def schema_id(value: bytes | None) -> int | None:
    """The id of the schema a value was written with; None when it is not in the wire format, or cut off inside the id."""
    if value is None or value[:1] != MAGIC or len(value) < _HEADER:
        return None
    return int.from_bytes(value[1:_HEADER], "big")


def framed(schema_id: int, body: bytes) -> bytes:
    """A value in the wire format."""
    return MAGIC + schema_id.to_bytes(4, "big") + body


def _reader(schema: WriterSchema) -> AvroReader | Unreadable | None:
    if schema.kind == "JSON":
        return None
    if schema.kind != "AVRO":
        return _PROTOBUF
    try:
        return AvroReader(schema)
    except UnusableSchema as error:
        return Unreadable("unsupported_format", f"the Avro schema of the record cannot be used: {error}")


def _embed(members: dict[str, Json], pointer: str) -> Unreadable | None:
    """Put free JSON, which Avro carries as text, in its place. A member that is there already stands."""
    for name in ("metadata", "payload"):
        text = members.get(f"{name}_json")
        if not isinstance(text, str) or name in members:
            continue
        try:
            orjson.loads(text)  # a fragment is not looked at when it is written
        except orjson.JSONDecodeError as error:
            return Unreadable("malformed_json", f"{name}_json is not JSON: {error}", f"{pointer}/{name}_json")
        members[name] = orjson.Fragment(text)
        del members[f"{name}_json"]
    return None
