"""CloudEvents 1.0 in the Kafka protocol binding: taken out of requests, put around lifecycle events."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import orjson

from acs_aaep_bridge.core.model import Headers, Json
from acs_aaep_bridge.core.writers import MAGIC, Unreadable

STRUCTURED: Final = "application/cloudevents"
BATCH: Final = "application/cloudevents-batch"
JSON_FORMAT: Final = "application/cloudevents+json"
SPECVERSION: Final = "1.0"
SOURCE_PREFIX: Final = "urn:acs-aaep-bridge:agent:"
_REQUIRED: Final = ("id", "source", "specversion", "type")


def media_type(headers: Headers) -> str:
    """The media type of the `content-type` header in lower case, without parameters; "" when there is none."""
    for name, value in headers:
        if value is not None and name.lower() == "content-type":
            return value.partition(b";")[0].strip().lower().decode("latin-1")
    return ""


def attributes(headers: Headers) -> dict[str, str] | None:
    """The attributes of a binary-mode event; None when the record is not one (it has no `ce_specversion`)."""
    found = {name[3:]: value.decode(errors="replace") for name, value in headers if value is not None and name.startswith("ce_")}
    return found if "specversion" in found else None


def problem(event: Mapping[str, Json], where: str) -> Unreadable | None:
    """What makes the attributes unusable. `where` stands before an attribute's name: "/" in a document, "" for headers."""
    version = event.get("specversion")
    if isinstance(version, str) and version and version != SPECVERSION:
        message = "the record is a CloudEvent of another version than 1.0: send specversion 1.0"
        return Unreadable("unsupported_format", message, where and "/specversion")
    for name in _REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not value:
            message = f"the CloudEvent has no {name}: id, source, specversion and type are required, and are texts"
            return Unreadable("cloudevent_invalid", message, where and f"/{name}")
    return None


def unsupported(media: str) -> Unreadable | None:
    """Why a structured event of this media type is not read; None when it is."""
    if media == JSON_FORMAT:
        return None
    if media.startswith(BATCH):
        return Unreadable("unsupported_format", "the record is a batch of CloudEvents: send each event as a record of its own")
    return Unreadable("unsupported_format", f"of the CloudEvents event formats only JSON is read: send {JSON_FORMAT}")


def data(event: Json) -> bytes | Unreadable:
    """The request inside a structured-mode event, as JSON text."""
    if not isinstance(event, dict):
        return Unreadable("cloudevent_invalid", "a structured CloudEvent is a JSON object")
    if wrong := problem(event, "/"):
        return wrong
    plain, encoded = event.get("data"), event.get("data_base64")
    if (plain is None) == (encoded is None):
        message = "the CloudEvent needs exactly one of data and data_base64"
        return Unreadable("cloudevent_invalid", message, "/data")
    if encoded is not None:
        return _decoded(encoded)
    if isinstance(plain, list):
        message = "the CloudEvent's data is an array: send each request as a CloudEvent of its own"
        return Unreadable("cloudevent_invalid", message, "/data")
    return orjson.dumps(plain)


def _decoded(encoded: Json) -> bytes | Unreadable:
    try:
        text = base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return Unreadable("cloudevent_invalid", "the CloudEvent's data_base64 is not base64", "/data_base64")
    if text[:1] == MAGIC:
        message = "the CloudEvent carries a schema registry's format in data_base64: send it in binary mode"
        return Unreadable("unsupported_format", message, "/data_base64")
    if text.lstrip(b" \t\r\n")[:1] == b"[":
        message = "the CloudEvent's data is an array: send each request as a CloudEvent of its own"
        return Unreadable("cloudevent_invalid", message, "/data_base64")
    return text


def binary_headers(event: Mapping[str, Json]) -> Headers:
    """The headers that make an AAEP event's record a binary-mode CloudEvent; its `content-type` header is the data's.

    `ce_source` is the agent, percent-encoded into a URN; with `ce_id`, the event id, it is unique.
    """
    return (
        ("ce_specversion", SPECVERSION.encode()),
        ("ce_id", event["event_id"].encode()),
        ("ce_source", (SOURCE_PREFIX + quote(event["producer"]["agent_id"], safe="")).encode()),
        ("ce_type", event["type"].encode()),
        ("ce_subject", event["session_id"].encode()),
        ("ce_time", event["timestamp"].encode()),
    )
