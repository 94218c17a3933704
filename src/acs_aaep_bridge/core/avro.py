"""Avro to plain JSON values, by the schema the writer used.

What JSON lacks is written as JSON writers do: UUIDs, dates, times and decimals as text (timestamps in RFC 3339, UTC),
bytes and fixed in base64, enums as their symbols. A record field that is null is absent, since Avro has no other way to
say so; a null in an array or a map stays. docs/formats.md has the table.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import date, timedelta
from io import BytesIO
from uuid import UUID

import fastavro
from fastavro.read import LOGICAL_READERS

from acs_aaep_bridge.core.avro_schema import UnusableSchema, readable
from acs_aaep_bridge.core.identity import format_timestamp
from acs_aaep_bridge.core.model import Json, WriterSchema

_EPOCH_DAY = date(1970, 1, 1)


class UndecodableAvro(ValueError):
    """The bytes are not what the writer's schema says; the text says why, without quoting them."""


class NotJson(ValueError):
    """A value that neither JSON nor a text in JSON can express."""


class AvroReader:
    """Reads what was written with one schema. Raises UnusableSchema when made, UndecodableAvro when used."""

    def __init__(self, schema: WriterSchema) -> None:
        try:
            self._schema = fastavro.parse_schema(readable(schema))
        except UnusableSchema:
            raise
        except Exception as error:  # a foreign schema can make the parser raise almost anything
            raise UnusableSchema(f"it is not a valid Avro schema ({type(error).__name__})") from None

    def read(self, data: bytes) -> Json:
        """The value as JSON has it. Every byte must be used."""
        source = BytesIO(data)
        try:
            value = fastavro.schemaless_reader(source, self._schema, None)
        except NotJson as error:
            raise UndecodableAvro(str(error)) from None
        except Exception as error:  # truncated or foreign bytes surface as almost any exception
            raise UndecodableAvro(f"the bytes do not fit the schema they name ({type(error).__name__})") from None
        if source.tell() < len(data):
            raise UndecodableAvro("bytes are left over after the value: they were written with another schema")
        return value


Schema = dict[str, Json] | None  # what fastavro hands to a reader
Reader = Callable[[Json, Schema, Schema], Json]


def _ours(written: Schema) -> Json:
    return written["bridge"] if written else None


def _present(value: Json, _written: Schema, _wanted: Schema = None) -> Json:
    return {name: member for name, member in value.items() if member is not None}


def _symbol(value: Json, written: Schema, _wanted: Schema = None) -> Json:
    symbols = _ours(written)
    if not 0 <= value < len(symbols):
        raise NotJson("an enum's index is outside its symbols")
    return symbols[value]


def _base64(value: Json, _written: Schema, _wanted: Schema = None) -> Json:
    return b64encode(value).decode()


def _decimal(value: Json, written: Schema, _wanted: Schema = None) -> Json:
    """Exact: every digit of the scale is kept, as the writer meant it."""
    number = int.from_bytes(value, "big", signed=True)
    scale: int = _ours(written)
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if number < 0 else text


def _finite(value: Json, _written: Schema, _wanted: Schema = None) -> Json:
    if not math.isfinite(value):
        raise NotJson("a number is NaN or infinite, which JSON cannot express")
    return value


def _uuid(value: Json, _written: Schema, _wanted: Schema = None) -> Json:
    return str(UUID(bytes=value))


def _date(value: Json, _written: Schema, _wanted: Schema = None) -> Json:
    return (_EPOCH_DAY + timedelta(days=value)).isoformat()


def _instant(digits: int, zone: str) -> Reader:
    def read(value: Json, _written: Schema, _wanted: Schema = None) -> Json:
        seconds, fraction = divmod(value, 10**digits)
        return f"{format_timestamp(seconds * 1000)[:19]}.{fraction:0{digits}d}{zone}"

    return read


def _time(digits: int) -> Reader:
    def read(value: Json, _written: Schema, _wanted: Schema = None) -> Json:
        seconds, fraction = divmod(value, 10**digits)
        if not 0 <= seconds < 86_400:
            raise NotJson("a time of day is outside the day")
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"

    return read


# The names are our own, so that reading with any other schema in this process is unchanged.
LOGICAL_READERS.update(
    {
        "record-bridge-record": _present,
        "int-bridge-enum": _symbol,
        "bytes-bridge-bytes": _base64,
        "fixed-bridge-bytes": _base64,
        "bytes-bridge-decimal": _decimal,
        "fixed-bridge-decimal": _decimal,
        "fixed-bridge-uuid": _uuid,
        "float-bridge-finite": _finite,
        "double-bridge-finite": _finite,
        "int-bridge-date": _date,
        "int-bridge-time-millis": _time(3),
        "long-bridge-time-micros": _time(6),
        "long-bridge-timestamp-millis": _instant(3, "Z"),
        "long-bridge-timestamp-micros": _instant(6, "Z"),
        "long-bridge-timestamp-nanos": _instant(9, "Z"),
        "long-bridge-local-timestamp-millis": _instant(3, ""),
        "long-bridge-local-timestamp-micros": _instant(6, ""),
        "long-bridge-local-timestamp-nanos": _instant(9, ""),
    }
)
