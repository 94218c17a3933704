"""The normalize stage as a whole: any bytes have an outcome, the same bytes the same one, and elements stand alone."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import OCCURRED, PAYLOADS, RECEIVED, config, normalize_stage, record, request

from acs_aaep_bridge.core.deadletter import dead_letter, reference
from acs_aaep_bridge.core.model import Emit, Outcome, Record, Reject, Skip
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.telemetry.labels import DEAD_LETTER_CODES

STAGE = normalize_stage()
STATE = STAGE.new_state()
OTHER = normalize_stage()
"""Compiled apart from the first: nothing may depend on which process judges a record."""
ROW = shipped().validator("urn:acs-aaep-bridge:schema:normalized:v1")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["2.0", "steps/subagentStop", "steps/turnEnd", "0.1.0", OCCURRED, "0000-01-01T00:00:00Z", "completed"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value inside `value` lies."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in inner for path in ((*here, key), *paths(item, (*here, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A valid request with a few values replaced or taken away anywhere."""
    message = deepcopy(request(draw(st.sampled_from(sorted(PAYLOADS)))))
    for _ in range(draw(st.integers(0, 3))):
        *parents, last = draw(st.sampled_from(paths(message) or [("jsonrpc",)]))
        node: Any = message
        for key in parents:
            node = node[key]
        if draw(st.booleans()):
            del node[last]
        else:
            node[last] = draw(JSON)
    return message


def judge(source: Record) -> tuple[Outcome, ...]:
    outcomes = STAGE.apply(source, STATE, 0)
    assert outcomes
    for outcome in outcomes:
        match outcome:
            case Emit(outgoing=(outgoing,)):
                assert ROW.is_valid(orjson.loads(outgoing.value or b""))
                assert outgoing.timestamp == source.timestamp
            case Reject():
                assert outcome.code in DEAD_LETTER_CODES
                assert outcome.stage == "normalize"
                letter = dead_letter(source, outcome, "dead")
                assert letter.value == (source.value if outcome.raw is None else outcome.raw)
                assert reference(source, outcome, "dead").value
            case Skip():
                assert outcome.reason in {"tombstone", "response", "ping", "handshake"}
            case _:
                pytest.fail(f"unexpected outcome {outcome!r}")
    return outcomes


@given(st.binary())
def test_any_bytes_have_an_outcome(value: bytes) -> None:
    judge(record(value))


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner), max_leaves=10))
def test_any_json_has_an_outcome(value: Any) -> None:
    judge(record(orjson.dumps(value)))


@given(mutated())
def test_any_request_has_an_outcome_and_always_the_same(message: dict[str, Any]) -> None:
    first = judge(record(message))
    assert first == judge(record(message))
    assert first == OTHER.apply(record(message), OTHER.new_state(), 99)


@given(mutated(), st.integers(0, 400), st.integers(0, 255))
def test_any_broken_byte_has_an_outcome(message: dict[str, Any], place: int, byte: int) -> None:
    value = bytearray(orjson.dumps(message))
    value[place % len(value)] = byte
    judge(record(bytes(value)))


@given(st.lists(mutated() | JSON, min_size=1, max_size=5))
def test_every_element_of_a_batch_fares_as_if_it_had_come_alone(messages: list[Any]) -> None:
    value = b"[ " + b" ,\n".join(json.dumps(message, separators=(", ", " :")).encode() for message in messages) + b"]"
    outcomes = judge(record(value))
    if len(outcomes) != len(messages) or (isinstance(outcomes[0], Reject) and outcomes[0].element is None):
        (whole,) = outcomes
        assert isinstance(whole, Reject)
        assert whole.code in {"malformed_json", "too_deep"}
        return
    for index, (message, outcome) in enumerate(zip(messages, outcomes, strict=True)):
        own = json.dumps(message, separators=(", ", " :")).encode()
        if isinstance(message, list):
            assert isinstance(outcome, Reject)
            assert outcome.code == "envelope_invalid"
            assert outcome.raw == own
            continue
        (alone,) = judge(record(own))
        assert type(outcome) is type(alone)
        if isinstance(outcome, Reject) and isinstance(alone, Reject):
            assert outcome == alone._replace(element=index, raw=own)
        elif isinstance(outcome, Emit) and isinstance(alone, Emit):
            row = orjson.loads(outcome.outgoing[0].value or b"")
            assert row["source"].pop("index") == index
            expected = orjson.loads(alone.outgoing[0].value or b"")
            del expected["source"]["index"]
            assert row == expected
        else:
            assert outcome == alone


def test_a_null_value_is_a_tombstone() -> None:
    assert judge(record(None)) == (Skip("tombstone"),)


def test_an_emit_tells_the_method_the_signature_and_the_skew() -> None:
    (outcome,) = judge(record(request()))
    assert isinstance(outcome, Emit)
    assert (outcome.method, outcome.signature, outcome.skew_ms) == ("steps/subagentStop", "unsigned", -79)
    assert (outcome.notes, outcome.announced) == ((), ())


def test_a_record_without_a_time_has_no_skew() -> None:
    (outcome,) = judge(record(request(), timestamp=-1))
    assert isinstance(outcome, Emit)
    assert outcome.skew_ms is None


@pytest.mark.parametrize("timestamp", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
def test_any_time_that_can_be_written_is_accepted_however_far(timestamp: str) -> None:
    (outcome,) = judge(record(request(timestamp=timestamp)))
    assert isinstance(outcome, Emit)
    assert abs(outcome.skew_ms or 0) > 10**12


def test_the_stage_keeps_no_state_and_has_no_deadlines() -> None:
    stage = build_stage("normalize", config())
    state = stage.new_state()
    stage.apply(record(request()), state, RECEIVED)
    assert (state.next_deadline(), tuple(state.changes()), state.open_sessions()) == (None, (), 0)
    assert stage.advance(state, RECEIVED + 10**9) == ()
    assert stage.name == "normalize"
