"""HookEvent -> the normalized event: one flat object per hook (docs/mapping.md, 7).

What is absent stays absent, what is unknown stays as received; nothing is written into the request.
"""

from __future__ import annotations

from collections.abc import Mapping

from acs_aaep_bridge.core.hooks import HOOKS, UNKNOWN, Hook
from acs_aaep_bridge.core.identity import format_timestamp
from acs_aaep_bridge.core.model import HookEvent, Json

SCHEMA_VERSION = 1
_FROM_METADATA = ("turn_id", "parent_turn_id", "environment", "platform", "platform_version")
_EXACT = 2**53


def normalize(event: HookEvent) -> dict[str, Json]:
    """A new object with the members of `schemas/normalized/event.json`; shares what it did not change with `event`."""
    method, jsonrpc_id, params, occurred_at, origin, signature = event
    metadata = params["metadata"]
    hook = HOOKS.get(method, UNKNOWN)
    payload = _canonical(params["payload"], hook)
    session = metadata["session_id"].lower()
    row = {
        "schema_version": SCHEMA_VERSION,
        "request_id": params["request_id"].lower(),
        "jsonrpc_id": jsonrpc_id,
        "acs_version": params["acs_version"],
        "method": method,
        "occurred_at": format_timestamp(occurred_at),
        "session_id": session,
        "subject_session_id": session,
    }
    if hook.of_child:
        row["subject_session_id"] = payload["subagent_session_id"]
        row["parent_session_id"] = session
    row["agent_id"] = metadata["agent_id"]
    _optional(row, params, metadata)
    for field, path in hook.promoted:
        _promote(row, field, payload, path)
    topic, partition, offset, timestamp, index = origin
    row["metadata"] = metadata
    row["payload"] = payload
    row["signature"] = signature
    row["source"] = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp, "index": index}
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


def _promote(row: dict[str, Json], field: str, payload: Json, path: tuple[str, ...]) -> None:
    """A payload's own turn id stands before the metadata's, unless it is empty."""
    for name in path:
        if name not in payload:
            return
        payload = payload[name]
    if payload or field not in row:
        row[field] = payload


def _canonical(payload: dict[str, Json], hook: Hook) -> dict[str, Json]:
    """UUIDs that name sessions and requests in lower case, integers without a fraction; the same object if nothing differs."""
    changed: dict[str, Json] = {}
    for name in hook.uuids:
        value = payload.get(name)
        if value is not None and value != (lower := value.lower()):
            changed[name] = lower
    for name in hook.integers:
        value = payload.get(name)
        if type(value) is float and value.is_integer() and abs(value) <= _EXACT:
            changed[name] = int(value)
    return {**payload, **changed} if changed else payload
