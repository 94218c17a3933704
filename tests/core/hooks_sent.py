"""Requests as an agent host sends them."""

from __future__ import annotations

from typing import Any

SESSION = "5c3f1b8e-9a0d-4c2e-8f4b-2d6a7e9c1b30"
CHILD = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
REQUEST = "0b2f6f7e-0c1d-4e5f-8a9b-1c2d3e4f5a60"


def request(method: str = "steps/sessionStart", payload: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """A valid request; `params` replaces or adds members of `params`."""
    return {
        "jsonrpc": "2.0",
        "method": method,
        "id": "m-1",
        "params": {
            "acs_version": "0.1.0",
            "request_id": REQUEST,
            "timestamp": "2026-05-24T14:22:38.921Z",
            "metadata": {"agent_id": "trip-planner", "session_id": SESSION},
            "payload": payload or {},
            **params,
        },
    }


def subagent_stop(**payload: Any) -> dict[str, Any]:
    """A valid `subagentStop` under either revision of its schema."""
    stop = {
        "subagent_session_id": CHILD,
        "outcome": "completed",
        "final_chain_hash": "0" * 64,
        "summary": {"value": "Found 3 flights.", "provenance": {"provenance_id": "p9", "origin": "agent_generated"}},
        "subagent_step_count": 12,
    }
    return request("steps/subagentStop", {**stop, **payload})
