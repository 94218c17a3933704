"""Tool calls: from the request that announces one to whatever ends it (docs/mapping.md, 6, rule 5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from acs_aaep_bridge.core import identity
from acs_aaep_bridge.core.announce import LONGEST_MS, SUMMARY_LIMIT, Words
from acs_aaep_bridge.core.clean import clean, label
from acs_aaep_bridge.core.cut import cut
from acs_aaep_bridge.core.draft import TOOL_COMPLETED, TOOL_INVOKED, Draft, Event, Moment
from acs_aaep_bridge.core.model import Json
from acs_aaep_bridge.core.normalized import Hook, text
from acs_aaep_bridge.core.session import CALLING_TOOL, MAX_CALLS, THINKING, Call, Open

_ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}")
_REFUSED = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_CALLS_BYTES = 32 << 10
_FEW_CALLS = 24

STATUS = {"success": "success", "failure": "error", "timeout": "timeout", "blocked": "error"}


def invoke(draft: Draft, hook: Hook) -> None:
    """A `toolCallRequest`: `tool.invoked`. The oldest call gives way when too many are open."""
    open_ = draft.current
    call = _call(hook)
    if any(known.id == call.id for known in open_.calls):
        draft.drop("duplicate")
        return
    draft.change_state(CALLING_TOOL)
    open_ = draft.current
    while _too_many((*open_.calls, call)):
        open_ = _unanswered(draft, open_, open_.calls[0], draft.moment)
    fields: dict[str, Any] = {
        **draft.policy.announcer.texts(
            "tool_invoked", draft.who()._replace(tool=draft.policy.announcer.tool(call.name or call.tool))
        ),
        "tool": call.tool,
        "tool_call_id": identity.tool_call(call.id),
    }
    if arguments := _arguments(draft, hook.payload.get("arguments")):
        fields["args_summary"] = arguments
    if (capability := text(hook.payload, "capability")) is not None:
        fields["risk_level"] = risk(draft.policy.risk, capability)
    direction = "auto" if arguments else "own"
    at = draft.say(open_, Event(TOOL_INVOKED, fields, draft.quiet(), direction, extension=_original(call)))
    draft.open = open_._replace(calls=(*open_.calls, call), invoked=open_.invoked + 1, last=at)


def answer(draft: Draft, hook: Hook) -> None:
    """A `toolCallResult`: `tool.completed` of the call it names, else of the youngest open one of that tool."""
    open_ = draft.current
    call = _answered(open_, hook)
    if call is None:
        draft.notes.append("orphan_result")
        return
    exit_status = hook.payload["exit_status"]
    fields: dict[str, Any] = {
        **draft.policy.announcer.texts(f"tool_{exit_status}", Words(tool=draft.policy.announcer.tool(call.name or call.tool))),
        "tool": call.tool,
        "status": STATUS[exit_status],
        "tool_call_id": identity.tool_call(call.id),
    }
    duration = hook.payload.get("duration_ms")
    if isinstance(duration, int) and 0 <= duration <= LONGEST_MS:
        fields["duration_ms"] = duration
    urgency = "background" if exit_status == "success" else draft.quiet()
    at = draft.say(open_, Event(TOOL_COMPLETED, fields, urgency, extension=_original(call), outcome=exit_status))
    draft.open = open_._replace(calls=tuple(known for known in open_.calls if known is not call), last=at)
    if not draft.current.calls and draft.current.state == CALLING_TOOL:
        draft.change_state(THINKING)


def close_calls(draft: Draft, open_: Open, moment: Moment) -> Open:
    """Every open call ends as never answered, oldest first."""
    for call in open_.calls:
        open_ = _unanswered(draft, open_, call, moment)
    return open_


def risk(table: Mapping[str, str], capability: str) -> str:
    """The risk of a capability: its own row, else the longest `prefix.*` that covers it, else the `*` row, else low."""
    if capability in table:
        return table[capability]
    parts = capability.split(".")
    for length in range(len(parts) - 1, 0, -1):
        if (row := table.get(".".join(parts[:length]) + ".*")) is not None:
            return row
    return table.get("*", "low")


def aaep_tool(name: str) -> str:
    """The name as AAEP allows it: what it refuses becomes `_`, character by character; a leading digit gets one."""
    if _ALLOWED.fullmatch(name):
        return name
    tool = _REFUSED.sub("_", name[:256])
    if tool[:1].isdigit():
        tool = "_" + tool
    elif not tool or tool[0] in ".-":
        tool = "_" + tool[1:]
    return tool[:256]


def _unanswered(draft: Draft, open_: Open, call: Call, moment: Moment) -> Open:
    fields = {
        **draft.policy.announcer.texts("tool_unanswered", Words(tool=draft.policy.announcer.tool(call.name or call.tool))),
        "tool": call.tool,
        "status": "timeout",
        "tool_call_id": identity.tool_call(call.id),
    }
    never = Event(
        TOOL_COMPLETED,
        fields,
        "background",
        identity=(TOOL_COMPLETED, f"{identity.tool_call(call.id)}:end"),
        extension=_original(call),
        inferred=True,
        outcome="unanswered",
    )
    at = draft.say(open_, never, moment)
    return open_._replace(calls=tuple(known for known in open_.calls if known is not call), last=at)


def _call(hook: Hook) -> Call:
    name = hook.payload["tool"]["name"]
    tool = aaep_tool(name)
    return Call(identity.bare(hook.context.request_id), tool, None if tool == name else label(name))


def _answered(open_: Open, hook: Hook) -> Call | None:
    reference = text(hook.payload, "request_id_ref")
    if reference is not None:
        wanted = identity.bare(reference)
        return next((call for call in open_.calls if call.id == wanted), None)
    asked = _call(hook)
    return next((call for call in reversed(open_.calls) if call[1:] == asked[1:]), None)


def _too_many(calls: tuple[Call, ...]) -> bool:
    if len(calls) <= _FEW_CALLS:
        return False
    return len(calls) > MAX_CALLS or sum(50 + len(call.tool) + len(orjson.dumps(call.name)) for call in calls) > _MAX_CALLS_BYTES


def _original(call: Call) -> dict[str, str] | None:
    return None if call.name is None else {"tool_name": call.name}


def _arguments(draft: Draft, arguments: Json) -> str:
    """The arguments' names; their values too where the deployer asked for them, those always redacted."""
    if not isinstance(arguments, dict) or not arguments:
        return ""
    if draft.policy.include_arguments:
        raw = ", ".join(f"{name}: {_value(argument)}" for name, argument in arguments.items())
        return cut(clean(raw), SUMMARY_LIMIT)
    return cut(draft.policy.announcer.clean(", ".join(arguments)), SUMMARY_LIMIT)


def _value(argument: Json) -> str:
    value = argument.get("value") if isinstance(argument, dict) else argument
    return value if isinstance(value, str) else orjson.dumps(value).decode()
