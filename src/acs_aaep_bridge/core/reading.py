"""A record of the normalized topic -> a valid normalized event, or why it is none.

The normalize stage writes that topic, but anybody may: nothing in it is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from acs_aaep_bridge.config import Limits
from acs_aaep_bridge.core import decode
from acs_aaep_bridge.core.hooks import HOOKS, SUBAGENT_STOP_SCHEMA
from acs_aaep_bridge.core.model import Json, Reject, Violation
from acs_aaep_bridge.core.schemas import SchemaSet, violations
from acs_aaep_bridge.core.validate import without_required
from acs_aaep_bridge.core.writers import MAGIC, Unreadable, WriterSchemas

NORMALIZED_SCHEMA = "urn:acs-aaep-bridge:schema:normalized:v1"
_HEADROOM_BYTES = 64 << 10
_HEADROOM_DEPTH = 4
_NAMED = 8
_NOT_OURS = "a normalized event is a JSON object: only the bridge should write this topic"


class EventReader:
    """Reads JSON, and Avro by the schemas learned, with room for what normalizing adds to the greatest allowed raw record."""

    def __init__(self, limits: Limits, writers: WriterSchemas) -> None:
        self._writers = writers
        grown = {"max_record_bytes": limits.max_record_bytes + _HEADROOM_BYTES, "max_depth": limits.max_depth + _HEADROOM_DEPTH}
        self._limits = limits.model_copy(update=grown)

    def __call__(self, value: bytes) -> Json:
        """The event as JSON types, unjudged, or a Reject. Never raises on bad input."""
        if value[:1] == MAGIC:
            text = self._writers.text(value, holder="")
            if isinstance(text, Unreadable):
                violations = (Violation(text.pointer, "format"),) if text.pointer else ()
                return Reject("lifecycle", text.code, text.message, violations)
            value = text
        event = decode.read(value, self._limits)
        if isinstance(event, Reject):
            return event._replace(stage="lifecycle")
        return None if isinstance(event, decode.Batch) else event


class EventValidator:
    """The normalized schema and the payload's, asked together; `methods` are those whose payload is used."""

    def __init__(self, schemas: SchemaSet, methods: Iterable[str]) -> None:
        relaxed = schemas.replacing(without_required(schemas.schema(SUBAGENT_STOP_SCHEMA), "final_chain_hash"))
        self._normalized = relaxed.validator(NORMALIZED_SCHEMA)
        self._whole = {method: relaxed.compile(_whole(HOOKS[method].schema)) for method in methods}

    def check(self, event: Json) -> Reject | None:
        """Why the event is not valid; None when it is."""
        if type(event) is not dict:
            return Reject("lifecycle", "not_an_object", _NOT_OURS)
        method = event.get("method")
        name = method if type(method) is str else ""
        whole = self._whole.get(name, self._normalized)
        if whole.is_valid(event):
            return None
        return self._broken(event, name)

    def _broken(self, event: Mapping[str, Json], method: str) -> Reject:
        found = violations(self._normalized, event)
        code, schema = "envelope_invalid", NORMALIZED_SCHEMA
        if not found:
            found = violations(self._whole[method], event)
            code, schema = "payload_invalid", HOOKS[method].schema
        named = ", ".join(f"{pointer or 'the whole'} ({keyword})" for pointer, keyword in found[:_NAMED])
        message = f"the normalized event is not valid: {named}. Only the bridge should write this topic."
        return Reject("lifecycle", code, message, found, method, schema)


def _whole(payload_schema: str) -> dict[str, Json]:
    return {"allOf": [{"$ref": NORMALIZED_SCHEMA}, {"properties": {"payload": {"$ref": payload_schema}}}]}
