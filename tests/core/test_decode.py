"""Bytes to requests: strict JSON, bounded size and depth, batches whose elements stand alone."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import request

from acs_aaep_bridge.config import Limits
from acs_aaep_bridge.core.decode import Batch, elements, fate, read
from acs_aaep_bridge.core.model import Reject, Skip, Violation

LIMITS = Limits()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def code(value: bytes, limits: Limits = LIMITS) -> str:
    outcome = read(value, limits)
    return outcome.code if isinstance(outcome, Reject) else "read"


def nested(depth: int) -> bytes:
    return b'{"a":' * (depth // 2) + b"[" * (depth - depth // 2) + b"]" * (depth - depth // 2) + b"}" * (depth // 2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "malformed_json"),
        (b" \n", "malformed_json"),
        (b"{", "malformed_json"),
        (b"\xef\xbb\xbf{}", "malformed_json"),
        (b'{"a":NaN}', "malformed_json"),
        (b'{"a":-Infinity}', "malformed_json"),
        (b'{"a":1e999}', "malformed_json"),
        (b'{"a":' + b"9" * 5000 + b"}", "malformed_json"),
        (b'{"a":"\\ud800"}', "malformed_json"),
        (b'{"a":"\\udc00\\ud800"}', "malformed_json"),
        (b'{"a":"\n"}', "malformed_json"),
        (b'{"a":01}', "malformed_json"),
        (b"{'a':1}", "malformed_json"),
        (b'{"a":1,}', "malformed_json"),
        (b"{}{}", "malformed_json"),
        (b"{}\n{}", "malformed_json"),
        (b"{}\x00", "malformed_json"),
        ("{}".encode("utf-16"), "not_utf8"),
        ("{}".encode("utf-16-le"), "malformed_json"),
        (b'{"a":"\xff"}', "not_utf8"),
        (b'{"a":"\xed\xa0\x80"}', "not_utf8"),
        (b'{"a":"\xc0\xaf"}', "not_utf8"),
        (b" {} \r\n", "read"),
        (b'{"a":"\\u0000\\ud83d\\ude00"}', "read"),
        (b'{"a":1e-999,"b":' + b"9" * 300 + b',"c":-0.0}', "read"),
        (b'{"a":1,"a":2}', "read"),
    ],
)
def test_only_strict_utf8_json_is_read(value: bytes, expected: str) -> None:
    assert code(value) == expected


@pytest.mark.parametrize(
    ("value", "hint"),
    [(b"", "tombstone"), ("{}".encode("utf-16-le"), "UTF-16"), (b"\xef\xbb\xbf{}", "byte order mark"), (b'"\xff"', "at byte 1")],
)
def test_a_malformed_value_is_explained(value: bytes, hint: str) -> None:
    outcome = read(value, LIMITS)
    assert isinstance(outcome, Reject)
    assert hint in outcome.message


def test_a_record_may_be_as_large_as_the_limit_and_no_larger() -> None:
    limits = Limits(max_record_bytes=20)
    assert code(b'{"a":"0123456789ab"}', limits) == "read"
    assert code(b'{"a":"0123456789abc"}', limits) == "too_large"


@pytest.mark.parametrize("depth", [2, 63, 64])
def test_values_may_nest_as_deep_as_the_limit(depth: int) -> None:
    assert code(nested(depth)) == "read"
    assert code(b"[" + nested(depth) + b", " + nested(depth) + b"]") == "read"


@pytest.mark.parametrize("depth", [65, 66, 1_000, 1_025, 100_000])
def test_values_that_nest_deeper_are_refused_before_they_are_parsed(depth: int) -> None:
    assert code(nested(depth)) == "too_deep"
    assert code(b"[" * (depth + 1) + b"]" * (depth + 1)) == "too_deep"
    assert code(b"[" * (depth + 1)) == "too_deep"


def test_brackets_inside_strings_do_not_count() -> None:
    assert code(orjson.dumps({"a": '[{"\\' * 10_000, '"[{': ["}]" * 500]})) == "read"
    assert code(b'{"a":"' + b'\\"[' * 10_000) == "malformed_json"


@given(JSON)
def test_depth_is_judged_exactly(value: Any) -> None:
    def depth(node: Any) -> int:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    wrapped = {"v": value, "pad": [[], []]}
    for limit in (2, 3, 4):
        assert (code(orjson.dumps(wrapped), Limits(max_depth=limit)) == "too_deep") == (depth(wrapped) > limit)


@given(st.lists(JSON, min_size=1), st.sampled_from([None, 1]), st.sampled_from([(",", ":"), (" ,\n ", "\t: ")]))
def test_each_element_of_a_batch_keeps_its_own_bytes(values: list[Any], indent: int | None, separators: tuple[str, str]) -> None:
    text = json.dumps(values, ensure_ascii=False, indent=indent, separators=separators).encode()
    parts = elements(b"\n " + text + b" ")
    assert parts is not None
    assert [json.loads(part) for part in parts] == values
    assert all(part in text and part == part.strip() for part in parts)


@pytest.mark.parametrize("value", [b"", b"[1] x", b"[1", b"[[1]", b"1,2", b"[1]]", b"[1][2]", b"[[1]] [2]", b"[1]],[2]"])
def test_what_is_not_one_array_has_no_elements(value: bytes) -> None:
    assert elements(value) is None


def test_a_batch_is_its_requests_in_order() -> None:
    assert read(b'[{"a":1}, 2]', LIMITS) == Batch([{"a": 1}, 2], b'[{"a":1}, 2]')


def test_an_element_that_is_too_deep_leaves_the_others_readable() -> None:
    value = b'[{"a":1}, ' + nested(65) + b", " + nested(64) + b"]"
    batch = read(value, LIMITS)
    assert isinstance(batch, Batch)
    assert [type(one) for one in batch.requests] == [dict, Reject, dict]
    assert batch.payload == value


def test_a_batch_with_a_deep_and_a_malformed_element_is_malformed() -> None:
    assert code(b"[{}, " + nested(65) + b", {a}]") == "malformed_json"


@pytest.mark.parametrize(
    ("value", "expected"), [(b"[]", "envelope_invalid"), (b" [ ] ", "envelope_invalid"), (b"[1,2,3]", "too_large")]
)
def test_a_batch_holds_something_but_not_too_much(value: bytes, expected: str) -> None:
    assert code(value, Limits(max_batch=2)) == expected


def test_a_batch_with_a_deep_element_is_bounded_too() -> None:
    assert code(b"[{},{}," + nested(65) + b"]", Limits(max_batch=2)) == "too_large"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, Skip("response")),
        ({"jsonrpc": "2.0", "id": 1, "error": None}, Skip("response")),
        ({"method": "system/ping"}, Skip("ping", "system/ping")),
        ({"method": "handshake/hello"}, Skip("handshake", "handshake/hello")),
        ({"method": "handshake/anything", "params": 7}, Skip("handshake", "handshake/anything")),
    ],
)
def test_what_is_not_an_event_is_skipped(message: Any, expected: Skip) -> None:
    assert fate(message) == expected


NO_METHODS = (
    "",
    "ping",
    "Steps/subagentStop",
    " steps/subagentStop",
    "step/x",
    "tools/call",
    "steps/",
    "steps/\n",
    "steps/\u2028x",
)
NO_NAMES = ("wrapped:", "system/", "system/ping\n", "system/pong", "handshake/", "handshake/\n")


@pytest.mark.parametrize("method", NO_METHODS + NO_NAMES)
def test_a_method_outside_the_protocol_is_unknown(method: str) -> None:
    rejected = fate({"method": method, "params": {"acs_version": "9.0.0"}})
    assert isinstance(rejected, Reject)
    assert (rejected.code, rejected.violations) == ("unknown_method", (Violation("/method", "pattern"),))


@pytest.mark.parametrize("method", ["steps/x", "steps/subagentStop\n", "agbom/x", "protocols/MCP/x", "wrapped:x", "trace/é"])
def test_other_methods_of_the_protocol_go_on_to_validation(method: str) -> None:
    assert fate(request() | {"method": method}) is None


@pytest.mark.parametrize("version", ["1.0.0", "10.0.0", "01.2.3", "9" * 5000 + ".0.0"])
def test_another_major_version_is_unsupported_whatever_else_is_wrong(version: str) -> None:
    rejected = fate({"method": "steps/x", "params": {"acs_version": version}})
    assert isinstance(rejected, Reject)
    assert rejected.code == "unsupported_version"


@pytest.mark.parametrize(
    "version", ["0.1.0", "0.99.7", "00.1.0", "0", "1.0", "1.0.0\n", "v1.0.0", "١.٠.٠", "", 1, None, ["1.0.0"]]
)
def test_a_version_of_major_0_or_of_no_form_is_left_to_validation(version: Any) -> None:
    assert fate({"method": "steps/x", "params": {"acs_version": version}}) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "not_an_object"),
        (True, "not_an_object"),
        ("x", "not_an_object"),
        (1.5, "not_an_object"),
        ([], "envelope_invalid"),
        ([{}], "envelope_invalid"),
    ],
)
def test_what_is_not_an_object_is_no_request(value: Any, expected: str) -> None:
    rejected = fate(value)
    assert isinstance(rejected, Reject)
    assert rejected.code == expected


@pytest.mark.parametrize("message", [{}, {"method": None, "result": 1}, {"method": 5}, {"id": 1}, {"Method": "steps/x"}])
def test_a_missing_method_is_left_to_validation(message: Any) -> None:
    assert fate(message) is None


def test_of_two_members_with_one_name_the_last_stands() -> None:
    assert read(b'{"a":1,"b":2,"a":3}', LIMITS) == {"a": 3, "b": 2}
