"""A refusal says what to do about the mistakes senders really make."""

from __future__ import annotations

from typing import Any

import pytest
from tests.samples import CHILD, PARENT, STOP, normalize_stage, record, request

from acs_aaep_bridge.core.model import Reject

STAGE = normalize_stage()
INNER = {name: value for name, value in request()["params"].items() if name != "payload"}


def message_for(value: Any) -> str:
    (outcome,) = STAGE.apply(record(value), STAGE.new_state(), 0)
    assert isinstance(outcome, Reject)
    return outcome.message


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({"hook_event_name": "SubagentStop", "session_id": "abc"}, "put an ACS adapter"),
        ({"sessionId": "s", "timestamp": 1, "toolName": "Bash"}, "put an ACS adapter"),
        ({"schema": {"type": "string"}, "payload": "{}"}, "value.converter.schemas.enable=false"),
        ({"specversion": "1.0", "id": "1", "source": "x", "type": "y", "data": {}}, "input.formats"),
        ({"seq": 4, "direction": "request", "method": "steps/x", "envelope": request()}, "publish the request itself"),
        ({"jsonrpc": "2.0", "method": "steps/subagentStop", "id": 1, "params": {}} | INNER, "belong inside params"),
        ({("Method" if name == "method" else name): value for name, value in request().items()}, "case-sensitive"),
        (request() | {"id": None}, "notification"),
        (request(timestamp=1_789_812_003_000), "not a number"),
        (request(timestamp="1789812003"), "not a number"),
        (request(timestamp="2026-09-19T10:00:03"), "with an offset"),
        (request(metadata={"agent_id": "a", "session_id": "conv-1"}), "derives a UUID"),
        (request(request_id="r-1"), "request_id is a UUID"),
        (request("steps/subagentStop", STOP | {"final_chain_hash": None}), "left out, not null"),
        (request("steps/subagentStop", {"subagent_session_id": CHILD, "outcome": "failed"}), "acs.final_chain_hash"),
        (request("steps/subagentStop", STOP | {"subagent_session_id": "a1b2"}), "UUID with its dashes"),
        (request("steps/toolCallRequest", {"tool": {"name": "x"}, "arguments": {"a": "raw"}}), '{"value": …}'),
    ],
)
def test_a_common_mistake_gets_its_remedy(value: Any, hint: str) -> None:
    assert hint in message_for(value)


def test_a_missing_member_gets_no_hint_about_its_form() -> None:
    assert "UUID" not in message_for(request(request_id=None, metadata={"agent_id": "a"}))


def test_a_wrapper_around_something_else_gets_no_hint() -> None:
    assert message_for({"envelope": {"a": 1}, "session": PARENT}).endswith("/params (required).")
