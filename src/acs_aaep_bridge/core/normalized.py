"""A normalized event as the session rules see it: what they decide by, and what the events they make are stamped with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from acs_aaep_bridge.core import identity
from acs_aaep_bridge.core.clean import MAX_ID, label
from acs_aaep_bridge.core.model import Json, Record, new

SUBAGENT_START = "steps/subagentStart"
SUBAGENT_STOP = "steps/subagentStop"
TURN_START = "steps/turnStart"
TURN_END = "steps/turnEnd"
USER_MESSAGE = "steps/userMessage"
AGENT_TRIGGER = "steps/agentTrigger"
TOOL_REQUEST = "steps/toolCallRequest"
TOOL_RESULT = "steps/toolCallResult"
AGENT_RESPONSE = "steps/agentResponse"
PRE_COMPACT = "steps/preCompact"
SESSION_END = "steps/sessionEnd"

CLOCK_TOLERANCE_MS = 300_000
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: no record, however it is dated, takes an event beyond what RFC 3339 can write."""
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?")


class Context(NamedTuple):
    """Who is speaking and by which hook: everything of a hook that an event derived from it carries.

    `trace` is a well-formed W3C traceparent. Texts are safe to show and bounded, so it can be kept with the session.
    """

    hook: str
    request_id: str
    sender: str
    subject: str
    parent: str | None
    turn: str | None
    tenant: str | None
    agent_id: str
    agent_name: str | None
    platform: str | None
    signature: str
    trace: str | None


class Position(NamedTuple):
    """Where the raw record lies; `element` is the place in a JSON-RPC batch."""

    topic: str
    partition: int
    offset: int
    element: int


class Hook(NamedTuple):
    """`at` is when the hook fired and `stamp` its Kafka record's timestamp, both in ms since the epoch.

    `turn` is the turn it belongs to, in full, since it names the session.
    `clock_ahead` tells that `at` was more than five minutes after the record and was taken back to it.
    """

    context: Context
    at: int
    stamp: int
    turn: str | None
    parent_turn: str | None
    payload: Mapping[str, Json]
    metadata: Mapping[str, Json]
    source: Position
    replayed: bool
    clock_ahead: bool


def read(event: Mapping[str, Json], record: Record, now: int) -> Hook | None:
    """The hook in a valid normalized event; `record` is the Kafka record that carried it.

    A record without a timestamp counts as arriving at `now`. None when the hook's time cannot be represented.
    """
    trace, replayed = _headers(record)
    at = identity.timestamp_ms(event["occurred_at"])
    if at is None:
        return None
    stamp = min(record.timestamp, LATEST_MS) if record.timestamp >= 0 else now
    ahead = record.timestamp >= 0 and at > stamp + CLOCK_TOLERANCE_MS
    payload, source = event["payload"], event["source"]
    turn = event.get("turn_id")
    context = new(
        Context,
        (
            event["method"],
            event["request_id"],
            event["session_id"],
            event["subject_session_id"],
            event.get("parent_session_id"),
            _label(turn),
            _label(event.get("tenant_id")),
            _label(event["agent_id"]) or "",
            _label(event.get("agent_name")),
            _label(event.get("platform")),
            event["signature"]["status"],
            trace,
        ),
    )
    position = new(Position, (source["topic"], source["partition"], source["offset"], source["index"]))
    at = stamp if ahead else at
    parent_turn = event.get("parent_turn_id") or None
    return new(Hook, (context, at, stamp, turn or None, parent_turn, payload, event["metadata"], position, replayed, ahead))


def text(holder: Json, name: str) -> str | None:
    """The member `name` if `holder` is an object and the member a string; None otherwise."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else None


def digest(text: str) -> str:
    """Eight bytes, in hex, by which an identifier of any length is recognized again."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _label(text: str | None) -> str | None:
    if text is None or (len(text) <= MAX_ID and text.isprintable()):
        return text
    return label(text)


def _headers(record: Record) -> tuple[str | None, bool]:
    trace: str | None = None
    replayed = False
    for name, value in record.headers:
        if name == "traceparent" and value is not None and len(value) < 256:
            candidate = value.decode("latin-1")
            trace = candidate if _TRACEPARENT.fullmatch(candidate) else None
        elif name == "bridge.replay.count":
            replayed = True
    return trace, replayed
