"""The record on the normalized topic: key, headers, bytes and timestamp."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import CHILD, RECEIVED, REQUEST, normalize_stage, record, request

from acs_aaep_bridge.core.encode import header_text
from acs_aaep_bridge.core.model import Emit, Outgoing, Record

STAGE = normalize_stage(topics__normalized="team.normalized")
TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def encoded(source: Record) -> Outgoing:
    (outcome,) = STAGE.apply(source, STAGE.new_state(), 0)
    assert isinstance(outcome, Emit)
    (outgoing,) = outcome.outgoing
    return outgoing


def test_the_record_is_keyed_by_its_subject_and_keeps_the_input_s_time() -> None:
    outgoing = encoded(record(request()))
    assert (outgoing.topic, outgoing.key, outgoing.timestamp) == ("team.normalized", CHILD.encode(), RECEIVED)
    assert orjson.loads(outgoing.value or b"")["subject_session_id"] == CHILD


def test_a_record_without_a_time_gives_one_without_a_time() -> None:
    outgoing = encoded(record(request(), timestamp=-1))
    assert outgoing.timestamp == -1
    assert orjson.loads(outgoing.value or b"")["source"]["timestamp"] == -1


def test_headers_tell_what_a_consumer_decides_by() -> None:
    assert encoded(record(request())).headers == (
        ("content-type", b"application/json"),
        ("acs-method", b"steps/subagentStop"),
        ("acs-request-id", REQUEST.encode()),
    )
    assert encoded(record(request(tenant_id="acme"))).headers[-1] == ("acs-tenant", b"acme")


def test_a_trace_is_passed_on_and_other_headers_are_not() -> None:
    headers = (("x-secret", b"1"), TRACE, ("content-type", b"text/plain"), ("acs-tenant", b"forged"), ("null", None))
    outgoing = encoded(record(request(), headers=headers))
    assert outgoing.headers[-1] == TRACE
    assert [name for name, _ in outgoing.headers] == ["content-type", "acs-method", "acs-request-id", "traceparent"]
    assert dict(outgoing.headers)["content-type"] == b"application/json"


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("steps/subagentStop", b"steps/subagentStop"),
        ("steps/subagentStop\n", b"steps/subagentStop%0A"),
        ("a\x00b\r\nx: y", b"a%00b%0D%0Ax: y"),
        ("50%", b"50%25"),
        ("münchen", b"m%C3%BCnchen"),
        ("", b""),
    ],
)
def test_header_text_holds_nothing_that_a_terminal_or_a_proxy_could_obey(text: str, header: bytes) -> None:
    assert header_text(text) == header


@given(st.text())
def test_header_text_is_printable_and_reversible(text: str) -> None:
    header = header_text(text)
    assert all(0x20 <= byte < 0x7F for byte in header)
    assert unquote_to_bytes(header) == text.encode()


def test_a_method_with_a_newline_is_another_method_in_the_header_too() -> None:
    message = request() | {"method": "steps/subagentStop\n"}
    assert dict(encoded(record(message)).headers)["acs-method"] == b"steps/subagentStop%0A"
