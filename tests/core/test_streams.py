"""Whole streams: what real hosts send, the full stream of events that comes out, and what a listener hears.

`tests/vectors/streams/<case>/input.jsonl` holds raw requests, one a line, each received when it was sent (`explain` and
`translate` read the same file); `case.json` says what the case is about, changes options and lets time pass at the end.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.core.stream import Bridge, by_session, spoken
from tests.core.subscriber import broken_promises, public_failures
from tests.core.vectors import ROOT, expect

from acs_aaep_bridge.core.announce import Announcer, Words
from acs_aaep_bridge.core.identity import timestamp_ms
from acs_aaep_bridge.core.model import Emit, Reject
from acs_aaep_bridge.core.texts import ENGLISH

STREAMS = {file.parent.name: file.parent for file in sorted(ROOT.glob("streams/*/input.jsonl"))}
QUIET_NOTES = {"inferred_start", "inferred_end", "superseded"}


def play(name: str) -> tuple[Bridge, list[dict[str, Any]]]:
    """The case's lines through both stages; what became of each line that did not simply say something."""
    about = orjson.loads((STREAMS[name] / "case.json").read_bytes())
    bridge = Bridge(**{option.replace(".", "__"): value for option, value in about.get("options", {}).items()})
    remarks: list[dict[str, Any]] = []
    for number, line in enumerate((STREAMS[name] / "input.jsonl").read_bytes().splitlines(), 1):
        sent = timestamp_ms(orjson.loads(line)["params"]["timestamp"])
        assert sent is not None
        outcome = bridge.feed(bridge.normalized(line, sent))
        if isinstance(outcome, Reject):
            remarks.append({"line": number, "code": outcome.code, "pointer": outcome.pointer})
        elif isinstance(outcome, Emit) and set(outcome.notes) - QUIET_NOTES:
            remarks.append({"line": number, "notes": outcome.notes})
    bridge.wait(about.get("then_wait_ms", 0))
    return bridge, remarks


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_told_as_written(name: str) -> None:
    bridge, remarks = play(name)
    told = {
        "spoken": spoken(bridge.events),
        "in_the_background": _background(bridge),
        "remarks": remarks,
        "events": bridge.events,
    }
    expect(STREAMS[name] / "expected.json", orjson.loads(orjson.dumps(told)))


@pytest.mark.parametrize("name", STREAMS)
def test_every_session_of_a_stream_that_is_over_passes_the_public_checks(name: str) -> None:
    bridge, _ = play(name)
    bridge.wait(3 * 86_400_000)
    for session in by_session(bridge.events).values():
        assert public_failures(session) == []
        assert broken_promises(session) == []


def test_every_text_is_heard_in_some_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: set[str] = set()
    texts = Announcer.texts

    def listening(self: Announcer, key: str, words: Words) -> dict[str, str]:
        heard.add(key)
        return texts(self, key, words)

    monkeypatch.setattr(Announcer, "texts", listening)
    for name in STREAMS:
        play(name)
    assert heard == set(ENGLISH.rows)


def _background(bridge: Bridge) -> list[str]:
    return spoken([event for event in bridge.events if event["urgency"] == "background"], quiet=True)
