"""Dead letters: the original untouched, the reason beside it, never stacked by replays."""

from __future__ import annotations

from hashlib import sha256

import orjson
import pytest
from tests.samples import RECEIVED, normalize_stage, record, request

from acs_aaep_bridge import __version__
from acs_aaep_bridge.core.deadletter import dead_letter, reference, replay_count
from acs_aaep_bridge.core.model import Headers, Record, Reject, Violation

TOPIC = "acs.events.dead-letter"
REJECT = Reject(
    "normalize",
    "payload_invalid",
    "a message",
    (Violation("/params/payload/outcome", "enum"), Violation("/params/payload/summary", "type")),
    "steps/subagentStop",
    "urn:schema",
)
FAILED = {
    "bridge.error.code": b"payload_invalid",
    "bridge.error.stage": b"normalize",
    "bridge.error.message": b"a message",
    "bridge.error.pointer": b"/params/payload/outcome",
    "bridge.error.schema": b"urn:schema",
    "bridge.error.topic": b"acs.events.raw",
    "bridge.error.partition": b"3",
    "bridge.error.offset": b"42",
    "bridge.error.timestamp": str(RECEIVED).encode(),
    "bridge.error.version": __version__.encode(),
    "bridge.replay.count": b"0",
}


def test_a_dead_letter_is_the_original_with_the_reason_in_headers() -> None:
    own: Headers = (("x", b"\xff"), ("x", None), ("", b""))
    outgoing = dead_letter(record(b"\xffnot json", headers=own), REJECT, TOPIC)
    assert (outgoing.topic, outgoing.key, outgoing.value, outgoing.timestamp) == (TOPIC, b"key", b"\xffnot json", RECEIVED)
    assert outgoing.headers[: len(own)] == own
    assert dict(outgoing.headers[len(own) :]) == FAILED


def test_what_does_not_apply_is_absent() -> None:
    outgoing = dead_letter(record(b"x"), Reject("normalize", "malformed_json", "m"), TOPIC)
    names = {name for name, _ in outgoing.headers}
    assert set(FAILED) - names == {"bridge.error.pointer", "bridge.error.schema"}


def test_the_whole_document_s_pointer_is_empty_but_there() -> None:
    outgoing = dead_letter(record(b"1"), Reject("normalize", "not_an_object", "m", (Violation("", "type"),)), TOPIC)
    assert dict(outgoing.headers)["bridge.error.pointer"] == b""


def test_an_element_of_a_batch_goes_alone_with_its_place() -> None:
    stage = normalize_stage()
    bad = b'{ "method" : "steps/x" ,\t"id":1.50 }'
    value = b"[ " + orjson.dumps(request()) + b" ,\n" + bad + b" ]"
    source = record(value)
    outcomes = stage.apply(source, stage.new_state(), 0)
    rejected = outcomes[1]
    assert isinstance(rejected, Reject)
    outgoing = dead_letter(source, rejected, TOPIC)
    assert outgoing.value == bad
    assert dict(outgoing.headers)["bridge.error.index"] == b"1"


def test_a_replay_replaces_the_headers_and_keeps_its_count() -> None:
    first = dead_letter(record(b"x", headers=(("own", b"1"),)), Reject("normalize", "too_deep", "old", element=7), TOPIC)
    replayed = tuple((name, b"2" if name == "bridge.replay.count" else value) for name, value in first.headers)
    second = dead_letter(record(b"x", headers=replayed), REJECT, TOPIC)
    assert second.headers[0] == ("own", b"1")
    assert dict(second.headers[1:]) == FAILED | {"bridge.replay.count": b"2"}
    assert len(second.headers) == len(dict(second.headers))


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([], 0),
        ([b"2"], 2),
        ([b"1", b"3", b"2"], 3),
        ([b"x"], 0),
        ([None], 0),
        ([b""], 0),
        ([b"-1"], 0),
        ([b"9" * 5000], 0),
        (["²".encode()], 0),
    ],
)
def test_the_replay_count_is_a_small_plain_number(values: list[bytes | None], count: int) -> None:
    assert replay_count(tuple(("bridge.replay.count", value) for value in values)) == count


@pytest.mark.parametrize(("raw", "value"), [(None, b"whole"), (b"element", b"element")])
def test_a_reference_tells_where_the_record_is_and_how_to_know_it(raw: bytes | None, value: bytes) -> None:
    source = record(b"whole", headers=(("huge", b"x" * 1_000_000),))
    outgoing = reference(source, REJECT._replace(raw=raw, element=None if raw is None else 4), TOPIC)
    assert orjson.loads(outgoing.value or b"") == {
        "topic": "acs.events.raw",
        "partition": 3,
        "offset": 42,
        "size": len(value),
        "sha256": sha256(value).hexdigest(),
    }
    headers = dict(outgoing.headers)
    assert headers["bridge.error.truncated"] == b"true"
    assert headers.get("bridge.error.index") == (None if raw is None else b"4")
    assert "huge" not in headers
    assert (outgoing.topic, outgoing.timestamp) == (TOPIC, RECEIVED)


def test_a_reference_is_small_however_large_the_key() -> None:
    source = Record("t", 0, 1, 2, b"k" * 1_000_000, b"v" * 1_000_000)
    outgoing = reference(source, REJECT, TOPIC)
    assert outgoing.key is None
    assert len(outgoing.value or b"") < 1_000
