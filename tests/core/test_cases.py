"""Requests as real hosts send them, and what becomes of each."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.samples import RECEIVED, config, normalize_stage, record

from acs_aaep_bridge.core.model import Emit, Outcome, Record, Reject, Skip
from acs_aaep_bridge.core.stages import build_stage

CASES = [orjson.loads(line) for line in (Path(__file__).parents[1] / "fixtures/cases.jsonl").read_bytes().splitlines()]
LATER = {"self_parent"}
"""Codes of the lifecycle stage: the normalized topic has these events."""

TERMINAL = ("aaep:agent.session.completed", "aaep:agent.session.errored", "aaep:agent.session.cancelled")

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


def announced(case: dict[str, Any]) -> list[str | None]:
    """Through both stages: the type of the terminal event, or the code, of each event that was normalized."""
    settings = config(acs__final_chain_hash="optional")
    normalize, lifecycle = build_stage("normalize", settings), build_stage("lifecycle", settings)
    told: list[str | None] = []
    for outcome in normalize.apply(record(value(case)), normalize.new_state(), RECEIVED):
        for sent in outcome.outgoing if isinstance(outcome, Emit) else ():
            received = Record(sent.topic, 0, 0, sent.timestamp, sent.key, sent.value, sent.headers)
            (said,) = lifecycle.apply(received, lifecycle.new_state(), RECEIVED)
            if isinstance(said, Reject):
                told.append(said.code)
                continue
            assert isinstance(said, Emit)
            types = [orjson.loads(event.value or b"")["type"] for event in said.outgoing]
            told.append(next((kind for kind in types if kind in TERMINAL), None))
    return told


@pytest.mark.parametrize("case", [case for case in CASES if "lifecycle" in case["expect"]], ids=lambda case: case["id"])
def test_a_real_request_that_is_taken_is_announced_as_it_should(case: dict[str, Any]) -> None:
    assert announced(case) == [case["expect"]["lifecycle"]]


@pytest.mark.parametrize("case", [case for case in CASES if case["expect"].get("code") in LATER], ids=lambda case: case["id"])
def test_what_the_lifecycle_stage_refuses_is_normalized_first(case: dict[str, Any]) -> None:
    assert announced(case) == [case["expect"]["code"]]
