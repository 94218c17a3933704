"""Requests and records that tests start from: valid ones, to be made wrong in one place."""

from __future__ import annotations

from typing import Any

import orjson

from acs_aaep_bridge.config import Config, load
from acs_aaep_bridge.core.model import Record, Stage
from acs_aaep_bridge.core.stages import build_stage

PARENT = "5c3f1b8e-9a0d-4c2e-8f4b-2d6a7e9c1b30"
CHILD = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
REQUEST = "0b2f6f7e-0c1d-4e5f-8a9b-1c2d3e4f5a60"
HASH = "ab" * 32
RECEIVED = 1_779_632_559_000
"""A record timestamp, in milliseconds, 79 after the hook's own."""
OCCURRED = "2026-05-24T14:22:38.921Z"

STOP = {"subagent_session_id": CHILD, "outcome": "completed", "final_chain_hash": HASH}
PAYLOADS: dict[str, dict[str, Any]] = {
    "steps/sessionStart": {"policy_mode": "enforce"},
    "steps/agentTrigger": {"trigger_type": "user_message"},
    "steps/turnStart": {"turn_id": "turn-1", "triggered_by": "user_message"},
    "steps/userMessage": {"content": [{"type": "text", "value": "Find flights."}]},
    "steps/agentResponse": {"content": [{"type": "text", "value": "Here they are."}]},
    "steps/knowledgeRetrieval": {"query": "flights"},
    "steps/memoryContextRetrieval": {},
    "steps/memoryStore": {"entries": []},
    "steps/toolCallRequest": {"tool": {"name": "Bash"}, "arguments": {"command": {"value": "ls"}}},
    "steps/toolCallResult": {"tool": {"name": "Bash"}, "exit_status": "success", "outputs": [{"value": "a"}], "duration_ms": 12},
    "steps/preCompact": {},
    "steps/postCompact": {},
    "steps/subagentStart": {"subagent_session_id": CHILD, "subagent_descriptor": {"agent_name": "Explore"}},
    "steps/subagentStop": STOP,
    "steps/skillRegister": {},
    "steps/skillLoad": {},
    "steps/skillUnload": {},
    "steps/turnEnd": {"turn_id": "turn-1", "outcome": "completed", "step_count": 3},
    "steps/sessionEnd": {"reason": "completed"},
}


def request(method: str = "steps/subagentStop", payload: Any = None, /, **params: Any) -> dict[str, Any]:
    """A valid request; `payload` replaces the method's own, `params` are put over the others (None takes one away)."""
    members = {
        "acs_version": "0.1.0",
        "request_id": REQUEST,
        "timestamp": OCCURRED,
        "metadata": {"agent_id": "planner", "session_id": PARENT},
        "payload": PAYLOADS[method] if payload is None else payload,
        **params,
    }
    kept = {name: value for name, value in members.items() if value is not None}
    return {"jsonrpc": "2.0", "method": method, "id": "m-1", "params": kept}


def record(value: Any, *, timestamp: int = RECEIVED, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Record:
    """A record of the raw topic; a value that is not bytes is written as JSON."""
    raw = value if value is None or isinstance(value, bytes) else orjson.dumps(value)
    return Record("acs.events.raw", 3, 42, timestamp, b"key", raw, headers)


def config(**overrides: str) -> Config:
    """The defaults with dotted options changed; `__` stands for the dot."""
    return load("", {}, {name.replace("__", "."): value for name, value in overrides.items()})


def normalize_stage(**overrides: str) -> Stage:
    return build_stage("normalize", config(**overrides))
