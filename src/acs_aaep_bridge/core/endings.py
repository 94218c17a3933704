"""How sessions end: one row per reported outcome, and the endings that nobody reports (docs/mapping.md, 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from acs_aaep_bridge.core import identity
from acs_aaep_bridge.core.announce import LONGEST_MS, MAX_STEPS, Words
from acs_aaep_bridge.core.calls import close_calls
from acs_aaep_bridge.core.clean import label
from acs_aaep_bridge.core.draft import CANCELLED, COMPLETED, ERRORED, Draft, Event, Moment
from acs_aaep_bridge.core.model import Json
from acs_aaep_bridge.core.normalized import Hook, text
from acs_aaep_bridge.core.session import Ending, Open

MAX_DERIVED_FROM = 32
UNREPORTED = "unreported"
SUPERSEDED = "superseded"
ANSWERED = "answered"


class Row(NamedTuple):
    """`request` and `subagent` are the texts' rows in `texts` ("" where this ending cannot occur).

    `result` is the field that shows the result; `timed`: steps and time may be told.
    """

    type: str
    request: str
    subagent: str
    fields: Mapping[str, str]
    result: str = ""
    timed: bool = True
    urgency: str = "normal"


def _errored(request: str, subagent: str, code: str) -> Row:
    return Row(ERRORED, request, subagent, {"error_category": "unknown", "error_code": code}, urgency="critical")


def _cancelled(request: str, subagent: str, reason: str, by: str = "system", **more: Any) -> Row:
    return Row(CANCELLED, request, subagent, {"cancelled_by": by, "cancellation_reason": reason}, **more)


ENDINGS: Mapping[str, Row] = {
    "stop:completed": Row(COMPLETED, "", "subagent_completed", {}, "output_summary"),
    "stop:failed": _errored("", "subagent_failed", "SUBAGENT_FAILED"),
    "stop:cancelled": _cancelled("", "subagent_cancelled", "external_signal_received", result="partial_result"),
    "stop:timeout": _cancelled("", "subagent_timed_out", "timeout_exceeded", "timeout", result="partial_result"),
    "stop:denied_at_spawn": _cancelled("", "subagent_denied", "policy_violation_detected", timed=False),
    "turn:completed": Row(COMPLETED, "request_completed", "", {}, "output_summary"),
    "turn:error": _errored("request_errored", "", "TURN_FAILED"),
    "turn:interrupted": _cancelled("request_interrupted", "", "interrupted", result="partial_result"),
    "turn:deferred": _cancelled("request_deferred", "", "deferred", result="partial_result"),
    "turn:denied_at_start": _cancelled("request_denied", "", "policy_violation_detected"),
    "session:completed": Row(COMPLETED, "request_completed", "subagent_completed", {}),
    "session:error": _errored("request_errored", "subagent_failed", "SESSION_FAILED"),
    "session:cancelled": _cancelled("request_stopped", "subagent_cancelled", "cancelled"),
    "session:abandoned": _cancelled("request_stopped", "subagent_cancelled", "abandoned"),
    "session:timeout": _cancelled("request_timed_out", "subagent_timed_out", "timeout_exceeded", "timeout"),
    "session:": _cancelled("request_ended", "subagent_ended", "session_ended"),
    UNREPORTED: _cancelled("request_unreported", "subagent_unreported", "no_result_reported", timed=False),
    SUPERSEDED: _cancelled("request_superseded", "", "superseded", timed=False, urgency="background"),
    ANSWERED: Row(COMPLETED, "request_completed", "", {}),
}
INFERRED = frozenset({UNREPORTED, SUPERSEDED, ANSWERED})


def of_stop(hook: Hook, draft: Draft) -> Ending:
    """The ending that a `subagentStop` reports; a denied one has no result, since no subagent ran."""
    payload = hook.payload
    outcome = payload["outcome"]
    steps = payload.get("subagent_step_count")
    known: dict[str, Any] = {"outcome": outcome}
    if isinstance(chain_hash := payload.get("final_chain_hash"), str):
        known["final_chain_hash"] = chain_hash
    if isinstance(steps, int) and not isinstance(steps, bool) and 0 <= steps <= MAX_STEPS:
        known["subagent_step_count"] = steps
    else:
        steps = None
    result = None if outcome == "denied_at_spawn" else draft.policy.announcer.result(payload.get("summary"))
    known.update(_provenance(payload))
    return Ending(f"stop:{outcome}", None, result, steps, None, known)


def of_turn(hook: Hook, draft: Draft) -> Ending:
    """The ending that a `turnEnd` reports."""
    row = f"turn:{hook.payload['outcome']}"
    result = draft.policy.announcer.result(hook.payload.get("summary")) if ENDINGS[row].result else None
    return Ending(row, result=result, extension=_provenance(hook.payload))


def of_session(hook: Hook, draft: Draft) -> Ending:
    """The ending that a `sessionEnd` reports; hosts use either name for the reason, and words of their own."""
    reason = text(hook.payload, "reason")
    if reason is None:
        reason = text(hook.payload, "session_reason")
    if reason is None:
        reason = "completed"
    row = f"session:{reason}"
    return Ending(row) if reason and row in ENDINGS else Ending("session:", draft.policy.announcer.reason(reason))


def end(draft: Draft, open_: Open, ending: Ending, moment: Moment, silent: bool = False) -> None:
    """The terminal event of `open_`, after its open calls. `silent`: it ends for want of any sign of it."""
    row = ENDINGS[ending.row]
    inferred = ending.row in INFERRED
    open_ = close_calls(draft, open_, moment)
    fields, direction = _fields(draft, open_, ending, moment)
    if inferred:
        draft.notes.append("superseded" if ending.row == SUPERSEDED else "inferred_end")
    outcome = ending.row.partition(":")[2] or row.fields.get("cancellation_reason", "completed")
    said = Event(row.type, fields, row.urgency, direction, _TERMINAL, ending.extension, inferred, None, outcome)
    draft.say(open_, said, moment)
    draft.close(open_, silent)


def _fields(draft: Draft, open_: Open, ending: Ending, moment: Moment) -> tuple[dict[str, Any], str]:
    row = ENDINGS[ending.row]
    in_subagent = draft.state.subagent is not None
    key = row.subagent if in_subagent else row.request
    if ending.reason is not None and not ending.reason:
        key += "_bare"
    duration = _duration(open_, moment)
    words = Words(
        None if in_subagent else draft.agent(moment.context),
        draft.child() if in_subagent else ending.successor,
        None,
        ending.reason,
        ending.result,
        ending.steps,
        duration if row.timed else None,
    )
    fields: dict[str, Any] = draft.policy.announcer.texts(key, words)
    fields.update(row.fields)
    if row.result and ending.result is not None:
        fields[row.result] = ending.result.text
    if row.type == COMPLETED and open_.started is not None:
        if duration is not None:
            fields["duration_ms"] = duration
        fields["tool_invocations_count"] = open_.invoked
    return fields, "auto" if ending.result is not None or ending.reason else "own"


def _duration(open_: Open, moment: Moment) -> int | None:
    if open_.started is None:
        return None
    duration = max(moment.at, open_.last) - open_.started
    return duration if 0 <= duration <= LONGEST_MS else None


def _provenance(payload: Mapping[str, Json]) -> dict[str, Any]:
    summary = payload.get("summary")
    source = summary.get("provenance") if isinstance(summary, dict) else None
    if not isinstance(source, dict):
        return {}
    if "provenance_id" not in source or "origin" not in source:
        return {}
    known: dict[str, Any] = {"provenance_id": label(source["provenance_id"]), "origin": source["origin"]}
    if len(source) > 2:
        _more_provenance(source, known)
    return {"summary_provenance": known}


def _more_provenance(source: Mapping[str, Json], known: dict[str, Any]) -> None:
    if isinstance(source_id := source.get("source_id"), str):
        known["source_id"] = label(source_id)
    if isinstance(derived := source.get("derived_from"), list):
        known["derived_from"] = [label(item) for item in derived[:MAX_DERIVED_FROM] if isinstance(item, str)]
    trust = source.get("trust")
    if isinstance(trust, str):
        known["trust"] = label(trust)
    elif isinstance(trust, float) or (isinstance(trust, int) and abs(trust) <= MAX_STEPS):
        known["trust"] = trust


_TERMINAL = (identity.TERMINAL, "")
