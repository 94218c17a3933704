"""Normalized event -> Avro in the schema registry's wire format (schemas/normalized/event.avsc)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from io import BytesIO

import fastavro
import orjson

from acs_aaep_bridge.core.encode import event_headers
from acs_aaep_bridge.core.identity import timestamp_ms
from acs_aaep_bridge.core.model import Json, Outgoing, Record
from acs_aaep_bridge.core.schemas import folder
from acs_aaep_bridge.core.writers import framed

CONTENT_TYPE = ("content-type", b"application/avro")


@cache
def normalized_schema() -> str:
    """The text of the Avro schema of normalized events. Blocks to read a small file, once per process."""
    return (folder() / "normalized" / "event.avsc").read_text(encoding="utf-8")


class AvroEncoding:
    """Writes normalized events under the id the registry gave our schema."""

    def __init__(self, schema_id: int) -> None:
        self._schema_id = schema_id
        self._schema = fastavro.parse_schema(_physical(orjson.loads(normalized_schema())))

    def __call__(self, event: Mapping[str, Json], record: Record, topic: str) -> Outgoing:
        """The event, keyed by its subject session, with the timestamp of the record it came from."""
        body = BytesIO()
        fastavro.schemaless_writer(body, self._schema, _row(event))
        key = event["subject_session_id"].encode()
        headers = event_headers(CONTENT_TYPE, event, record)
        return Outgoing(topic, key, framed(self._schema_id, body.getvalue()), headers, record.timestamp)


def _row(event: Mapping[str, Json]) -> dict[str, Json]:
    return {
        **event,
        "occurred_at": timestamp_ms(event["occurred_at"]),
        "metadata_json": orjson.dumps(event["metadata"]).decode(),
        "payload_json": orjson.dumps(event["payload"]).decode(),
    }


def _physical(node: Json) -> Json:
    """The schema without logical types: the bytes are the same, and ours are texts and milliseconds already."""
    if isinstance(node, dict):
        return {name: _physical(member) for name, member in node.items() if name not in {"logicalType", "doc"}}
    return [_physical(member) for member in node] if isinstance(node, list) else node
