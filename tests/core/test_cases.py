"""Requests as real hosts send them, and what becomes of each."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.samples import normalize_stage, record

from acs_aaep_bridge.core.model import Emit, Outcome, Reject, Skip

CASES = [orjson.loads(line) for line in (Path(__file__).parents[1] / "fixtures/cases.jsonl").read_bytes().splitlines()]
LATER = {"self_parent"}
"""Codes of the lifecycle stage: the normalized topic has these events."""

KINDS: dict[type[Outcome], str] = {Emit: "emit", Skip: "skip", Reject: "reject"}


def value(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["input"]) if case.get("encoding") == "base64" else case["input"].encode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_real_request_is_normalized_skipped_or_refused(case: dict[str, Any]) -> None:
    stage = normalize_stage(acs__final_chain_hash="optional")
    outcomes = stage.apply(record(value(case)), stage.new_state(), 0)
    expected = case["expect"]
    wanted = "emit" if expected.get("code") in LATER else expected["outcome"]
    assert KINDS[type(outcomes[0])] == wanted
    if wanted == "reject" and "code" in expected:
        assert isinstance(outcomes[0], Reject)
        assert outcomes[0].code == expected["code"]
