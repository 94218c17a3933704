"""What the bridge knows of each ACS hook: one row per method."""

from __future__ import annotations

from typing import NamedTuple

_STEPS = "urn:acs-aaep-bridge:schema:acs:hooks:"
SUBAGENT_STOP_SCHEMA = "https://genai-security-project.github.io/agent-control-standard/schema/v0.1.0/hooks/subagent-stop.json"


class Hook(NamedTuple):
    """One hook's payload.

    `uuids` and `integers` are members given one canonical form, `promoted` are members that become fields of the
    normalized event: the field, the object in the payload that has the member ("" for the payload itself), the member.
    `of_child` marks the hooks that are about the subagent and not about their sender.
    """

    schema: str
    uuids: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    promoted: tuple[tuple[str, str, str], ...] = ()
    of_child: bool = False


_TOOL_NAME = ("tool_name", "tool", "name")
_OUTCOME = ("outcome", "", "outcome")
_TURN = ("turn_id", "", "turn_id")

HOOKS: dict[str, Hook] = {
    "steps/sessionStart": Hook(_STEPS + "session-start"),
    "steps/agentTrigger": Hook(_STEPS + "agent-trigger"),
    "steps/turnStart": Hook(_STEPS + "turn-start", promoted=(_TURN, ("parent_turn_id", "", "parent_turn_id"))),
    "steps/userMessage": Hook(_STEPS + "user-message"),
    "steps/agentResponse": Hook(_STEPS + "agent-response"),
    "steps/knowledgeRetrieval": Hook(_STEPS + "knowledge-retrieval"),
    "steps/memoryContextRetrieval": Hook(_STEPS + "memory-context-retrieval"),
    "steps/memoryStore": Hook(_STEPS + "memory-store"),
    "steps/toolCallRequest": Hook(_STEPS + "tool-call-request", promoted=(_TOOL_NAME,)),
    "steps/toolCallResult": Hook(
        _STEPS + "tool-call-result",
        uuids=("request_id_ref",),
        integers=("duration_ms",),
        promoted=(_TOOL_NAME, ("exit_status", "", "exit_status")),
    ),
    "steps/preCompact": Hook(_STEPS + "pre-compact"),
    "steps/postCompact": Hook(_STEPS + "post-compact"),
    "steps/subagentStart": Hook(_STEPS + "subagent-start", uuids=("subagent_session_id", "parent_session_id"), of_child=True),
    "steps/subagentStop": Hook(
        SUBAGENT_STOP_SCHEMA,
        uuids=("subagent_session_id",),
        integers=("subagent_step_count",),
        promoted=(_OUTCOME,),
        of_child=True,
    ),
    "steps/skillRegister": Hook(_STEPS + "skill-register"),
    "steps/skillLoad": Hook(_STEPS + "skill-load"),
    "steps/skillUnload": Hook(_STEPS + "skill-unload"),
    "steps/turnEnd": Hook(_STEPS + "turn-end", integers=("step_count", "tool_call_count"), promoted=(_OUTCOME, _TURN)),
    "steps/sessionEnd": Hook(_STEPS + "session-end"),
}

UNKNOWN = Hook("")
"""A method without a row: only its envelope is checked, nothing of its payload is touched."""
