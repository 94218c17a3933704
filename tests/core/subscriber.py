"""What a subscriber may rely on, twice: the public AAEP checkers, and a description of our own that shares no code with them.

Written from the protocol, not from the bridge: nothing here imports the core.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from aaep_conformance.checks import envelope, lifecycle, safety, streaming, tools

Event = dict[str, Any]
TERMINAL = {"aaep:agent.session.completed", "aaep:agent.session.errored", "aaep:agent.session.cancelled"}
ALLOWED = {
    *("@context", "aaep_version", "type", "event_id", "session_id", "timestamp", "producer", "verbosity", "urgency"),
    *("localization_hints", "correlation_id", "extensions", "summary_normal", "summary_terse", "summary_detailed"),
    *("requested_by", "duration_ms", "tool_invocations_count", "output_summary", "error_category", "error_code"),
    *("cancelled_by", "cancellation_reason", "partial_result", "from_state", "to_state", "progress", "tool", "tool_call_id"),
    *("args_summary", "risk_level", "status", "chunk", "position", "complete", "coalesce_hint", "output_id"),
}
STREAM_CHECKS = (
    lifecycle.check_session_terminates,
    lifecycle.check_terminal_event_types,
    lifecycle.check_lifecycle_ordering,
    lifecycle.check_session_started_present,
    tools.check_tool_invoked_before_completed,
    tools.check_tool_call_id_pairing,
    tools.check_tool_status_enum,
    tools.check_tool_name_consistency,
    streaming.check_position_monotonic,
    streaming.check_exactly_one_completion,
    streaming.check_no_chunks_after_completion,
    streaming.check_coalesce_hint_valid,
    streaming.check_content_type_format,
    safety.check_irreversible_high_risk_rule,
    safety.check_critical_urgency_on_errored,
)
EVENT_CHECKS = (
    envelope.check_envelope_required_fields,
    envelope.check_event_id_format,
    envelope.check_session_id_format,
    envelope.check_timestamp_format,
    envelope.check_producer_field,
)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


def public_failures(session: list[Event]) -> list[str]:
    """What AAEP's own Level 1 checkers find wrong with the stream of one session that is over."""
    results = [check(session) for check in STREAM_CHECKS]
    results += [check(event) for check in EVENT_CHECKS for event in session]
    return [f"{result.test_id}: {result.message}" for result in results if not result.passed]


def broken_promises(session: list[Event]) -> list[str]:
    """What breaks the protocol's promises about the stream of one session that is over, in words."""
    wrong: list[str] = []
    kinds = [event["type"] for event in session]
    if kinds.count("aaep:agent.session.started") != 1 or kinds[0] != "aaep:agent.session.started":
        wrong.append("a session begins with exactly one started")
    if sum(kind in TERMINAL for kind in kinds) != 1 or kinds[-1] not in TERMINAL:
        wrong.append("a session ends with exactly one terminal event")
    ids = [event["event_id"] for event in session]
    if len(set(ids)) < len(ids):
        wrong.append("event ids are unique")
    times = [event["timestamp"] for event in session]
    if not all(_TIMESTAMP.fullmatch(time) for time in times) or times != sorted(times):
        wrong.append("timestamps have milliseconds and never run backwards")
    for time in times:
        datetime.fromisoformat(time)
    for event in session:
        wrong += _member_rules(event)
    return wrong + _broken_states(session) + _broken_calls(session) + _broken_outputs(session)


def _broken_states(session: list[Event]) -> list[str]:
    state = "idle"
    wrong = []
    for event in session:
        if event["type"] == "aaep:agent.state.changed":
            if event["from_state"] != state or event["to_state"] == state:
                wrong.append("a state change starts where the last one led, and leads elsewhere")
            state = event["to_state"]
    return wrong


def _broken_calls(session: list[Event]) -> list[str]:
    calls: dict[str, str] = {}
    wrong = []
    for event in session:
        if event["type"] == "aaep:agent.tool.invoked":
            if event["tool_call_id"] in calls:
                wrong.append("a call is invoked once")
            calls[event["tool_call_id"]] = event["tool"]
        elif event["type"] == "aaep:agent.tool.completed":
            if calls.get(event["tool_call_id"]) != event["tool"]:
                wrong.append("a call completes once, after it was invoked, under the same name")
            calls[event["tool_call_id"]] = ""
    if any(calls.values()):
        wrong.append("every call is completed before the session ends")
    return wrong


def _broken_outputs(session: list[Event]) -> list[str]:
    outputs: dict[str, tuple[int, bool]] = {}
    wrong = []
    for event in session:
        if event["type"] == "aaep:agent.output.streaming":
            end, complete = outputs.get(event["output_id"], (0, False))
            if complete or event["position"] != end or not event["chunk"]:
                wrong.append("chunks follow each other without a gap until the complete one")
            outputs[event["output_id"]] = (end + len(event["chunk"]), event["complete"])
    if not all(complete for _, complete in outputs.values()):
        wrong.append("every output is completed")
    return wrong


def _member_rules(event: Event) -> list[str]:
    wrong: list[str] = []
    if not set(event) <= ALLOWED:
        wrong.append(f"no member of our own: {sorted(set(event) - ALLOWED)}")
    if not set(event["producer"]) <= {"agent_id", "agent_name"}:
        wrong.append("the producer has no member of our own")
    if (event["type"] == "aaep:agent.session.errored") != (event["urgency"] == "critical"):
        wrong.append("errors, and only errors, are critical")
    has_words = any(name in event for name in ("summary_normal", "chunk"))
    if has_words != ("localization_hints" in event):
        wrong.append("events with words, and only those, say how to speak them")
    if any(isinstance(value, str) and not value for value in event.values()):
        wrong.append("no text is empty")
    return wrong
