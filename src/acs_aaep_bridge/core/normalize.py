"""HookEvent -> the normalized event: one flat object per hook (docs/mapping.md, 7).

What is absent stays absent, what is unknown stays as received; nothing is written into the request.
"""

from __future__ import annotations

from collections.abc import Mapping

from acs_aaep_bridge.core.hooks import HOOKS, UNKNOWN
from acs_aaep_bridge.core.identity import format_timestamp
from acs_aaep_bridge.core.model import HookEvent, Json, Record

SCHEMA_VERSION = 1
_FROM_METADATA = ("turn_id", "parent_turn_id", "environment", "platform", "platform_version")
_REQUIRED_IN_METADATA = 2
_REQUIRED_IN_PARAMS = 5
_EXACT = 2**53
_NOTHING: Mapping[str, Json] = {}


def normalize(event: HookEvent, record: Record, element: int = 0) -> dict[str, Json]:
    """A new object with the members of `schemas/normalized/event.json`; shares what it did not change with `event`.

    `record` is the raw record it came in, `element` its place there in a JSON-RPC batch.
    """
    method, jsonrpc_id, params, occurred_at, signature = event
    topic, partition, offset, timestamp, _, _, _ = record
    _, uuids, integers, promoted, of_child = HOOKS.get(method, UNKNOWN)
    metadata = params["metadata"]
    payload = _canonical(params["payload"], uuids, integers)
    session = metadata["session_id"].lower()
    row = {
        "schema_version": SCHEMA_VERSION,
        "request_id": params["request_id"].lower(),
        "jsonrpc_id": jsonrpc_id,
        "acs_version": params["acs_version"],
        "method": method,
        "occurred_at": format_timestamp(occurred_at),
        "session_id": session,
        "subject_session_id": payload["subagent_session_id"] if of_child else session,
    }
    if of_child:
        row["parent_session_id"] = session
    row["agent_id"] = metadata["agent_id"]
    if len(metadata) > _REQUIRED_IN_METADATA or len(params) > _REQUIRED_IN_PARAMS:
        _optional(row, params, metadata)
    for field, holder, name in promoted:
        within = payload.get(holder, _NOTHING) if holder else payload
        # A payload's own turn id stands before the metadata's, unless it is empty.
        if name in within and (within[name] or field not in row):
            row[field] = within[name]
    row["metadata"] = metadata
    row["payload"] = payload
    row["signature"] = signature
    row["source"] = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp, "index": element}
    return row


def _optional(row: dict[str, Json], params: Mapping[str, Json], metadata: Mapping[str, Json]) -> None:
    if "agent_name" in metadata:
        row["agent_name"] = metadata["agent_name"]
    if "tenant_id" in params:
        row["tenant_id"] = params["tenant_id"]
    for name in _FROM_METADATA:
        if name in metadata:
            row[name] = metadata[name]
    if "user_context" in metadata and "user_id" in metadata["user_context"]:
        row["user_id"] = metadata["user_context"]["user_id"]


def _canonical(payload: dict[str, Json], uuids: tuple[str, ...], integers: tuple[str, ...]) -> dict[str, Json]:
    """UUIDs that name sessions and requests in lower case, integers without a fraction; the same object if nothing differs."""
    for name in uuids:
        value = payload.get(name)
        if value is not None and value != (lower := value.lower()):
            payload = {**payload, name: lower}
    for name in integers:
        value = payload.get(name)
        if type(value) is float and value.is_integer() and abs(value) <= _EXACT:
            payload = {**payload, name: int(value)}
    return payload
