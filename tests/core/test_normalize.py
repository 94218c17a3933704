"""The normalized event, member for member."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from tests.samples import CHILD, OCCURRED, PARENT, PAYLOADS, RECEIVED, REQUEST, STOP, request

from acs_aaep_bridge.config import Acs
from acs_aaep_bridge.core.hooks import HOOKS
from acs_aaep_bridge.core.model import HookEvent, Record
from acs_aaep_bridge.core.normalize import normalize
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.validate import RequestValidator

VALIDATOR = RequestValidator(shipped(), Acs())
ROW = shipped().validator("urn:acs-aaep-bridge:schema:normalized:v1")
RECORD = Record("acs.events.raw", 3, 42, RECEIVED, None, None)


def normalized(message: dict[str, Any]) -> dict[str, Any]:
    event = VALIDATOR.check(message)
    assert isinstance(event, HookEvent)
    row = normalize(event, RECORD, 1)
    assert ROW.is_valid(row)
    return row


def test_an_event_without_options_has_the_required_members_and_no_others() -> None:
    assert normalized(request("steps/sessionStart", {"policy_mode": "x"})) == {
        "schema_version": 1,
        "request_id": REQUEST,
        "jsonrpc_id": "m-1",
        "acs_version": "0.1.0",
        "method": "steps/sessionStart",
        "occurred_at": OCCURRED,
        "session_id": PARENT,
        "subject_session_id": PARENT,
        "agent_id": "planner",
        "metadata": {"agent_id": "planner", "session_id": PARENT},
        "payload": {"policy_mode": "x"},
        "signature": {"status": "unsigned"},
        "source": {"topic": "acs.events.raw", "partition": 3, "offset": 42, "timestamp": RECEIVED, "index": 1},
    }


def test_optional_members_are_taken_from_where_the_protocol_has_them() -> None:
    metadata = {
        "agent_id": "planner",
        "session_id": PARENT,
        "agent_name": "Planner",
        "turn_id": "turn-1",
        "parent_turn_id": "turn-0",
        "environment": "staging",
        "platform": "claude-code",
        "platform_version": "2",
        "user_context": {"user_id": "u-7", "roles": []},
        "cwd": "/srv",
    }
    row = normalized(request("steps/sessionStart", metadata=metadata, tenant_id="acme"))
    optional = {name: row[name] for name in row if name not in normalized(request("steps/sessionStart"))}
    assert optional == {
        "agent_name": "Planner",
        "tenant_id": "acme",
        "turn_id": "turn-1",
        "parent_turn_id": "turn-0",
        "environment": "staging",
        "platform": "claude-code",
        "platform_version": "2",
        "user_id": "u-7",
    }
    assert row["metadata"] == metadata


@pytest.mark.parametrize(
    ("method", "promoted"),
    [
        ("steps/subagentStop", {"outcome": "completed"}),
        ("steps/turnStart", {"turn_id": "turn-1"}),
        ("steps/turnEnd", {"outcome": "completed", "turn_id": "turn-1"}),
        ("steps/toolCallRequest", {"tool_name": "Bash"}),
        ("steps/toolCallResult", {"tool_name": "Bash", "exit_status": "success"}),
    ],
)
def test_members_that_people_query_by_are_promoted(method: str, promoted: dict[str, str]) -> None:
    row = normalized(request(method))
    assert {name: row.get(name) for name in promoted} == promoted


def test_the_payload_s_turn_stands_before_the_metadata_s_unless_it_is_empty() -> None:
    metadata = {"agent_id": "planner", "session_id": PARENT, "turn_id": "outer"}
    assert normalized(request("steps/turnStart", {"turn_id": "inner"}, metadata=metadata))["turn_id"] == "inner"
    assert normalized(request("steps/turnStart", {"turn_id": ""}, metadata=metadata))["turn_id"] == "outer"
    assert normalized(request("steps/turnStart", {}, metadata=metadata))["turn_id"] == "outer"
    assert normalized(request("steps/toolCallRequest", metadata=metadata))["turn_id"] == "outer"


@pytest.mark.parametrize("method", HOOKS)
def test_only_a_subagent_s_start_and_stop_are_about_another_session_than_the_sender_s(method: str) -> None:
    row = normalized(request(method))
    about_child = method in {"steps/subagentStart", "steps/subagentStop"}
    assert row["session_id"] == PARENT
    assert row["subject_session_id"] == (CHILD if about_child else PARENT)
    assert row.get("parent_session_id") == (PARENT if about_child else None)


def test_the_parent_is_the_session_that_sent_the_start() -> None:
    other = "00000000-0000-0000-0000-000000000001"
    row = normalized(request("steps/subagentStart", {"subagent_session_id": CHILD, "parent_session_id": other}))
    assert row["parent_session_id"] == PARENT
    assert row["payload"]["parent_session_id"] == other


def test_known_uuids_become_lower_case_and_nothing_else_does() -> None:
    upper = PARENT.upper()
    payload = {"subagent_session_id": CHILD.upper(), "parent_session_id": upper, "parent_step_id": upper}
    metadata = {"agent_id": "AGENT", "session_id": upper, "host_session": upper}
    row = normalized(request("steps/subagentStart", payload, metadata=metadata, request_id=REQUEST.upper()))
    assert (row["request_id"], row["session_id"], row["subject_session_id"]) == (REQUEST, PARENT, CHILD)
    assert row["payload"] == {"subagent_session_id": CHILD, "parent_session_id": PARENT, "parent_step_id": upper}
    assert row["metadata"] == metadata
    result = PAYLOADS["steps/toolCallResult"] | {"request_id_ref": REQUEST.upper()}
    assert normalized(request("steps/toolCallResult", result))["payload"]["request_id_ref"] == REQUEST


@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("steps/subagentStop", "subagent_step_count"),
        ("steps/toolCallResult", "duration_ms"),
        ("steps/turnEnd", "step_count"),
        ("steps/turnEnd", "tool_call_count"),
    ],
)
@pytest.mark.parametrize(
    ("value", "expected"), [(3.0, 3), (1e2, 100), (-0.0, 0), (2.0**53, 2**53), (2.0**60, 2.0**60), (1e300, 1e300)]
)
def test_integers_lose_a_zero_fraction_while_they_are_exact(method: str, member: str, value: float, expected: float) -> None:
    written = normalized(request(method, PAYLOADS[method] | {member: value}))["payload"][member]
    assert (written, type(written)) == (expected, type(expected))


def test_floats_that_are_not_known_integers_stay_as_received() -> None:
    payload = STOP | {"cost": 3.0, "summary": {"value": 3.0, "provenance": {"provenance_id": "p", "origin": "system"}}}
    row = normalized(request("steps/subagentStop", payload))
    assert type(row["payload"]["cost"]) is float
    assert type(row["payload"]["summary"]["value"]) is float


def test_the_payload_of_an_unknown_hook_is_left_alone() -> None:
    payload = {"subagent_session_id": CHILD.upper(), "request_id_ref": 5, "turn_id": 7, "outcome": ["x"], "duration_ms": 2.0}
    message = request("steps/subagentStop", payload) | {"method": "steps/new"}
    row = normalized(message)
    assert row["payload"] == payload
    assert not {"outcome", "turn_id", "tool_name", "parent_session_id"} & set(row)


@pytest.mark.parametrize("method", HOOKS)
def test_the_request_is_never_written_into(method: str) -> None:
    message = request(method, PAYLOADS[method] | {"subagent_session_id": CHILD.upper(), "step_count": 3.0}, tenant_id="t")
    before = deepcopy(message)
    normalized(message)
    assert message == before
    assert str(message) == str(before)
