"""Normalized event -> the record on the normalized topic (docs/mapping.md, 7)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import orjson

from acs_aaep_bridge.core.hooks import HOOKS
from acs_aaep_bridge.core.model import Header, Headers, Json, Outgoing, Record, new

_JSON = ("content-type", b"application/json")
_KNOWN = {method: ("acs-method", method.encode()) for method in HOOKS}
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def encode_json(event: Mapping[str, Json], record: Record, topic: str) -> Outgoing:
    """The event as JSON, keyed by its subject session, with the timestamp of the record it came from.

    Raises TypeError for a value JSON cannot hold; a request that was JSON has none.
    """
    key = event["subject_session_id"].encode()
    headers = event_headers(_JSON, event, record)
    return new(Outgoing, (topic, key, orjson.dumps(event), headers, record.timestamp))


def event_headers(content_type: Header, event: Mapping[str, Json], record: Record) -> Headers:
    """What a consumer can decide by without reading the value; `traceparent` is passed on as it came."""
    method = event["method"]
    headers: Headers = (
        content_type,
        _KNOWN.get(method) or ("acs-method", header_text(method)),
        ("acs-request-id", event["request_id"].encode()),
    )
    if "tenant_id" in event:
        headers += (("acs-tenant", header_text(event["tenant_id"])),)
    if record.headers:
        headers += tuple(pair for pair in record.headers if pair[0] == "traceparent")
    return headers


def header_text(text: str) -> bytes:
    """Printable ASCII as it is; every other byte of the UTF-8, and `%`, percent-encoded, so that no two texts look alike."""
    if text.isascii() and text.isprintable() and "%" not in text:
        return text.encode()
    return quote(text, safe=_PRINTABLE).encode()
