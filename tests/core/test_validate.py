"""Requests judged: what is accepted, what is refused, and that a refusal names every rule and no value."""

from __future__ import annotations

from typing import Any

import pytest
from tests.samples import CHILD, PARENT, PAYLOADS, STOP, request

from acs_aaep_bridge.config import Acs
from acs_aaep_bridge.core.hooks import HOOKS
from acs_aaep_bridge.core.model import HookEvent, Reject, Violation
from acs_aaep_bridge.core.schemas import MAX_VIOLATIONS, shipped
from acs_aaep_bridge.core.validate import ENVELOPE_SCHEMA, RequestValidator, jsonrpc_id

STRICT = RequestValidator(shipped(), Acs())
RELAXED = RequestValidator(shipped(), Acs(final_chain_hash="optional"))
METADATA = {"agent_id": "planner", "session_id": PARENT}
SECRET = "hunter2-must-not-appear"


def refuse(message: dict[str, Any], validator: RequestValidator = STRICT) -> Reject:
    outcome = validator.check(message)
    assert isinstance(outcome, Reject)
    assert validator.accept(message) is None
    return outcome


def accept(message: dict[str, Any], validator: RequestValidator = STRICT) -> HookEvent:
    outcome = validator.check(message)
    assert isinstance(outcome, HookEvent)
    assert validator.accept(message) == (outcome if message["method"] in HOOKS else None)
    return outcome


@pytest.mark.parametrize("method", HOOKS)
def test_every_hook_is_accepted_as_the_protocol_writes_it(method: str) -> None:
    event = accept(request(method))
    assert (event.method, event.jsonrpc_id) == (method, "m-1")
    assert event.params["payload"] == PAYLOADS[method]


def test_the_chain_hash_is_required_unless_the_option_says_otherwise() -> None:
    message = request("steps/subagentStop", {"subagent_session_id": CHILD, "outcome": "failed"})
    rejected = refuse(message)
    assert rejected.code == "payload_invalid"
    assert rejected.violations == (Violation("/params/payload/final_chain_hash", "required"),)
    assert "acs.final_chain_hash: optional" in rejected.message
    accept(message, RELAXED)


@pytest.mark.parametrize("value", [None, "AB" * 32, "ab" * 31, "ab" * 32 + "\n", "g" * 64, 7])
def test_a_chain_hash_that_is_there_is_checked_in_both_revisions(value: Any) -> None:
    for validator in (STRICT, RELAXED):
        rejected = refuse(request("steps/subagentStop", STOP | {"final_chain_hash": value}), validator)
        assert rejected.pointer == "/params/payload/final_chain_hash"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"jsonrpc": 2.0}, Violation("/jsonrpc", "const")),
        ({"jsonrpc": "2.1"}, Violation("/jsonrpc", "const")),
        ({"id": None}, Violation("/id", "type")),
        ({"id": True}, Violation("/id", "type")),
        ({"id": ["a"]}, Violation("/id", "type")),
        ({"method": None}, Violation("/method", "type")),
        ({"params": None}, Violation("/params", "type")),
        ({"params": []}, Violation("/params", "type")),
    ],
)
def test_a_broken_outer_envelope_is_refused(changes: dict[str, Any], expected: Violation) -> None:
    rejected = refuse(request() | changes)
    assert (rejected.code, rejected.schema, rejected.violations) == ("envelope_invalid", ENVELOPE_SCHEMA, (expected,))


@pytest.mark.parametrize(
    ("params", "pointer", "keyword"),
    [
        ({"acs_version": "0.1"}, "acs_version", "pattern"),
        ({"acs_version": "0.1.0\n"}, "acs_version", "pattern"),
        ({"acs_version": "٠.١.٠"}, "acs_version", "pattern"),
        ({"request_id": "r-1"}, "request_id", "format"),
        ({"timestamp": 1_789_812_003_000}, "timestamp", "type"),
        ({"timestamp": "1789812003000"}, "timestamp", "format"),
        ({"timestamp": "2026-09-19T10:00:03"}, "timestamp", "format"),
        ({"metadata": "x"}, "metadata", "type"),
        ({"metadata": METADATA | {"agent_id": 7}}, "metadata/agent_id", "type"),
        ({"metadata": METADATA | {"session_id": ""}}, "metadata/session_id", "format"),
        ({"metadata": METADATA | {"session_id": "conv-1"}}, "metadata/session_id", "format"),
        ({"metadata": METADATA | {"session_id": PARENT.replace("-", "")}}, "metadata/session_id", "format"),
        ({"metadata": METADATA | {"environment": "test"}}, "metadata/environment", "enum"),
        ({"metadata": METADATA | {"turn_id": 5}}, "metadata/turn_id", "type"),
        ({"metadata": METADATA | {"user_context": {"roles": ["a", 1]}}}, "metadata/user_context/roles/1", "type"),
        ({"metadata": METADATA | {"session_state": {"chain_hash": 0}}}, "metadata/session_state/chain_hash", "type"),
        ({"payload": []}, "payload", "type"),
        ({"nonce": "short"}, "nonce", "minLength"),
        ({"nonce": "x" * 65}, "nonce", "maxLength"),
        ({"tenant_id": 7}, "tenant_id", "type"),
        ({"signature": {"algorithm": "HMAC-SHA256", "value": "x"}}, "signature/key_id", "required"),
    ],
)
def test_a_broken_inner_envelope_is_refused(params: dict[str, Any], pointer: str, keyword: str) -> None:
    message = request()
    message["params"] |= params
    rejected = refuse(message)
    assert rejected.code == "envelope_invalid"
    assert rejected.violations == (Violation(f"/params/{pointer}", keyword),)


@pytest.mark.parametrize(
    ("method", "payload", "pointer", "keyword"),
    [
        ("steps/agentTrigger", {"trigger_type": "magic"}, "trigger_type", "enum"),
        ("steps/turnStart", {"turn_id": 5}, "turn_id", "type"),
        ("steps/userMessage", {"content": []}, "content", "minItems"),
        ("steps/userMessage", {"content": [{"type": "smell"}]}, "content/0/type", "enum"),
        ("steps/agentResponse", {"content": "text"}, "content", "type"),
        ("steps/agentResponse", {"content": [{"provenance": {"provenance_id": "p"}}]}, "content/0/provenance/origin", "required"),
        ("steps/toolCallRequest", {"arguments": {}}, "tool", "required"),
        ("steps/toolCallRequest", {"tool": {}, "arguments": {}}, "tool/name", "required"),
        ("steps/toolCallRequest", {"tool": {"name": "x"}, "arguments": {"a": "raw"}}, "arguments/a", "type"),
        ("steps/toolCallResult", PAYLOADS["steps/toolCallResult"] | {"exit_status": "ok"}, "exit_status", "enum"),
        ("steps/toolCallResult", PAYLOADS["steps/toolCallResult"] | {"duration_ms": -1}, "duration_ms", "minimum"),
        ("steps/toolCallResult", PAYLOADS["steps/toolCallResult"] | {"duration_ms": 1.5}, "duration_ms", "type"),
        ("steps/toolCallResult", PAYLOADS["steps/toolCallResult"] | {"request_id_ref": "m-1"}, "request_id_ref", "format"),
        ("steps/subagentStart", {}, "subagent_session_id", "required"),
        ("steps/subagentStart", {"subagent_session_id": CHILD, "parent_session_id": "p"}, "parent_session_id", "format"),
        ("steps/subagentStart", {"subagent_session_id": CHILD, "intent_derivation": "x"}, "intent_derivation", "enum"),
        ("steps/subagentStop", STOP | {"outcome": "aborted"}, "outcome", "enum"),
        ("steps/subagentStop", STOP | {"subagent_session_id": f"urn:uuid:{CHILD}"}, "subagent_session_id", "format"),
        ("steps/subagentStop", STOP | {"subagent_step_count": True}, "subagent_step_count", "type"),
        ("steps/subagentStop", STOP | {"subagent_step_count": -1}, "subagent_step_count", "minimum"),
        ("steps/subagentStop", STOP | {"summary": "text"}, "summary", "type"),
        ("steps/subagentStop", STOP | {"summary": {"value": 1}}, "summary/provenance", "required"),
        ("steps/turnEnd", {"turn_id": "t", "outcome": "done"}, "outcome", "enum"),
        ("steps/sessionEnd", {"reason": 1}, "reason", "type"),
    ],
)
def test_a_broken_payload_is_refused(method: str, payload: dict[str, Any], pointer: str, keyword: str) -> None:
    rejected = refuse(request(method, payload))
    assert (rejected.code, rejected.schema, rejected.method) == ("payload_invalid", HOOKS[method].schema, method)
    assert rejected.violations == (Violation(f"/params/payload/{pointer}", keyword),)


@pytest.mark.parametrize("count", [0, 3.0, 1e2, -0.0, 1e300, 2**63])
def test_a_step_count_may_be_any_whole_number(count: float) -> None:
    accept(request("steps/subagentStop", STOP | {"subagent_step_count": count}))


@pytest.mark.parametrize("value", [None, "", 5, ["x"], {"a": None}, True])
def test_a_summary_may_be_any_json(value: Any) -> None:
    provenance = {"provenance_id": "p", "origin": "tool_output"}
    accept(request("steps/subagentStop", STOP | {"summary": {"value": value, "provenance": provenance}}))


@pytest.mark.parametrize("method", ["steps/new", "agbom/x", "protocols/MCP/x", "wrapped:x", "trace/x", "steps/subagentStop\n"])
def test_of_other_methods_only_the_envelope_is_checked(method: str) -> None:
    message = request() | {"method": method}
    message["params"]["payload"] = {"subagent_session_id": 5, "outcome": []}
    accept(message)
    message["params"]["payload"] = 5
    assert refuse(message).code == "envelope_invalid"


def test_unknown_members_are_ignored_everywhere() -> None:
    message = request("steps/subagentStop", STOP | {"x": 1}, x=1, metadata=METADATA | {"cwd": "/", "permission_mode": 1}) | {
        "x": 1
    }
    accept(message)


def test_an_envelope_is_judged_before_its_payload_and_its_payload_before_its_time() -> None:
    wrong_time = {"timestamp": "0000-01-01T00:00:00Z"}
    assert refuse(request("steps/subagentStop", {}, request_id="x", **wrong_time)).code == "envelope_invalid"
    assert refuse(request("steps/subagentStop", {}, **wrong_time)).code == "payload_invalid"
    rejected = refuse(request(**wrong_time))
    assert (rejected.code, rejected.pointer) == ("invalid_timestamp", "/params/timestamp")


def test_a_refusal_names_rules_and_never_values() -> None:
    provenance = {"provenance_id": 7, "origin": SECRET}
    wrong = request(
        "steps/subagentStop",
        {"subagent_session_id": SECRET, "outcome": SECRET, "final_chain_hash": SECRET, "summary": {"provenance": provenance}},
    )
    rejected = refuse(wrong)
    assert len(rejected.violations) == 6
    assert SECRET not in str(tuple(rejected))
    wrong["params"]["metadata"]["session_id"] = wrong["params"]["timestamp"] = wrong["params"]["request_id"] = SECRET
    rejected = refuse(wrong | {"jsonrpc": SECRET})
    assert len(rejected.violations) == 4
    assert SECRET not in str(tuple(rejected))


def test_a_refusal_of_very_much_stays_short() -> None:
    rejected = refuse(request("steps/userMessage", {"content": [1] * 100_000}))
    assert len(rejected.violations) == MAX_VIOLATIONS
    assert len(rejected.message) < 1_000


@pytest.mark.parametrize(
    ("identifier", "text"),
    [("m-1", "m-1"), ("", ""), (7, "7"), (7.0, "7"), (-0.0, "0"), (1.5, "1.5"), (1e300, "1e+300"), (2**63, str(2**63))],
)
def test_the_json_rpc_id_becomes_text(identifier: Any, text: str) -> None:
    assert jsonrpc_id(identifier) == text
    assert accept(request() | {"id": identifier}).jsonrpc_id == text


@pytest.mark.parametrize(
    ("signature", "status"),
    [
        (None, {"status": "unsigned"}),
        (
            {"algorithm": "HMAC-SHA256", "value": "x", "key_id": "k1", "extra": 1},
            {"status": "unverified", "algorithm": "HMAC-SHA256", "key_id": "k1"},
        ),
    ],
)
def test_a_signature_nobody_verified_is_called_so(signature: Any, status: dict[str, str]) -> None:
    assert accept(request(signature=signature)).signature == status
