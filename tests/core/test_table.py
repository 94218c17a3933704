"""The session table and what it writes to the changelog: nothing is lost by a restart, nothing kept of a rolled back batch."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.core.stream import EPOCH, Bridge, Hook, raw
from tests.core.test_lifecycle import call, result, start, stop, turn, uid
from tests.samples import CHILD, PARENT

from acs_aaep_bridge.core.attention import due_at, header_of
from acs_aaep_bridge.core.policy import Timing
from acs_aaep_bridge.core.session import MAX_CALLS, MAX_SOURCES, MAX_TOPIC, SessionState
from acs_aaep_bridge.core.statecodec import MAX_ENTRY_BYTES, VERSION, decode, encode, read_header
from acs_aaep_bridge.core.table import SessionTable
from acs_aaep_bridge.errors import UnreadableState

TIMING = Timing(grace=5_000, subagent_idle=1_800_000, idle=86_400_000, retention=3_600_000, max_open=20_000)
KEY = CHILD.encode()


def sessions(**options: str) -> list[SessionState]:
    """States of every kind: open, held, answered, ended, with calls, turns and repeats."""
    made: list[SessionState] = []
    plans: list[list[Hook]] = [
        [start()],
        [start(tenant="acme"), call(1, name="a b", tenant="acme"), stop(2, tenant="acme", summary="Held. Yes.")],
        [start(), Hook("sessionEnd", CHILD, {"reason": "odd"}, 3, uid())],
        [start(), stop()],
        [turn("turnStart", 0), turn("turnStart", 1, "nested", parent_turn_id="turn-1"), call(2, PARENT), result(3, PARENT)],
        [turn("turnStart", 0), turn("turnEnd", 1, outcome="error"), turn("turnStart", 2, "other")],
        [
            Hook("agentTrigger", PARENT, {}, 0, uid()),
            Hook("agentResponse", PARENT, {"content": [{"type": "image", "value": "x"}]}, 1, uid()),
        ],
    ]
    for plan in plans:
        made += Bridge(**options).send_all(plan).table.sessions()
    return made


@pytest.mark.parametrize("state", sessions())
def test_what_is_written_is_read_back_whole(state: SessionState) -> None:
    value = encode(state)
    assert decode(state.subject.encode(), value) == state
    assert read_header(KEY, value) == header_of(state)


@pytest.mark.parametrize("state", sessions())
def test_a_typical_session_takes_less_than_a_kibibyte(state: SessionState) -> None:
    assert len(encode(state)) < 1_024


def test_no_session_takes_more_than_the_changelog_allows() -> None:
    bridge = Bridge(content__agent_output="all")
    wide = "\U0001f600" * 400
    metadata = {"agent_id": wide, "agent_name": wide, "platform": wide, "turn_id": wide}
    bridge.send(start(tenant=wide, metadata=metadata))
    for number in range(MAX_CALLS + 10):
        bridge.send(call(number, name=f"{number} {wide}", tenant=wide, metadata=metadata))
    held = stop(400, "completed", tenant=wide, metadata=metadata, summary=wide * 100)
    held.payload["summary"]["provenance"].update(source_id=wide, derived_from=[wide] * 40)
    bridge.send(held)
    (state,) = bridge.table.sessions()
    assert state.held is not None
    assert len(encode(state)) <= MAX_ENTRY_BYTES
    assert decode(KEY, encode(state)) == state


FILLS = st.sampled_from(["\U0001f600", '"', "\\", "\x01", "a", "\u00e9", " ", "\u200c"])
TOPICS = st.sampled_from(["t", "t" * 100, "t" * (MAX_TOPIC - 2), "t" * 10_000, '"' * (MAX_TOPIC - 2)])
TRACE = f"00-{'a' * 32}-{'b' * 16}-01-".ljust(255, '"').encode()


def largest(label: str, tool: str, other: str, topic: str) -> Bridge:
    """As much of everything as is ever kept of one session: of a subagent with open calls whose stop is held."""
    bridge, label, origin = Bridge(content__agent_output="all"), label * 300, other * 300
    metadata = dict.fromkeys(("agent_id", "agent_name", "platform", "turn_id"), label)
    more: dict[str, Any] = {"tenant": label, "metadata": metadata}
    first, last = start(**more), stop(400, summary=other * 30_000, **more)
    first.payload["subagent_descriptor"]["agent_name"] = origin
    provenance = {"provenance_id": origin, "source_id": origin, "derived_from": [origin] * 40, "trust": origin}
    last.payload["summary"]["provenance"] |= provenance
    last.payload.update(final_chain_hash="f" * 64, subagent_step_count=1 << 53)
    asked = [call(number, name=f"{number}-{tool * 300}", **more) for number in range(MAX_SOURCES + 10)]
    for number, hook in enumerate([first, *asked, last]):
        record = bridge.normalized(raw(hook), EPOCH + hook.after)
        event = orjson.loads(record.value or b"")
        event["source"] |= {"topic": f"{topic}{number:02}", "partition": (1 << 31) - 1, "offset": (1 << 63) - 1, "index": 99_999}
        bridge.feed(record._replace(value=orjson.dumps(event), headers=(*record.headers, ("traceparent", TRACE))))
    return bridge


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILLS, FILLS, FILLS, TOPICS)
@example("\U0001f600", '"', "\U0001f600", "t" * (MAX_TOPIC - 2))
@example("\U0001f600", "\U0001f600", '"', "t" * 100)
def test_the_largest_session_there_can_be_fits(label: str, tool: str, other: str, topic: str) -> None:
    """Whatever a host fills its texts with: each part of an entry is kept to its share of the limit."""
    bridge = largest(label, tool, other, topic)
    (state,) = bridge.table.sessions()
    assert state.held is not None
    assert state.open is not None
    assert state.open.calls
    assert len(encode(state)) <= MAX_ENTRY_BYTES
    assert decode(KEY, encode(state)) == state


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "format -1"),
        (b"\x02rest", "format 2"),
        (bytes([VERSION]), "cut off after 1 bytes"),
        (encode(sessions()[0])[:-1], "checksum"),
        (encode(sessions()[0]) + b" ", "checksum"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named(value: bytes, message: str) -> None:
    table = SessionTable(TIMING)
    table.load(KEY, value)
    with pytest.raises(UnreadableState, match=message) as caught:
        table.loaded()
    assert CHILD in str(caught.value)


def test_the_last_entry_of_a_key_counts_and_a_tombstone_forgets_it() -> None:
    first, last = sessions()[0], sessions()[3]
    table = SessionTable(TIMING)
    for key, value in (
        (KEY, b"unreadable"),
        (KEY, encode(first)),
        (b"other", encode(first)),
        (KEY, encode(last)),
        (b"other", None),
    ):
        table.load(key, value)
    table.loaded()
    assert list(table.sessions()) == [last]
    assert table.open_sessions() == 0
    assert table.next_deadline() == due_at(TIMING, header_of(last))


def test_deadlines_come_in_order_whatever_order_sessions_were_put_in() -> None:
    table = SessionTable(TIMING)
    base = sessions()[0]
    for seen in (30, 10, 20):
        table.put(b"%d" % seen, base._replace(seen=seen))
    table.put(b"10", base._replace(seen=40))
    assert table.next_deadline() == 20 + TIMING.subagent_idle
    order = []
    while (key := table.pop_due(1 << 60)) is not None:
        order.append(key)
    assert order == [b"20", b"30", b"10"]
    assert table.next_deadline() is None


def test_a_rollback_restores_deadlines_that_were_taken() -> None:
    table = SessionTable(TIMING)
    state = sessions()[0]
    table.put(KEY, state)
    table.commit()
    due = table.next_deadline()
    assert table.pop_due(1 << 60) == KEY
    table.put(KEY, None)
    assert table.next_deadline() is None
    assert table.open_sessions() == 0
    table.rollback()
    assert table.next_deadline() == due
    assert table.open_sessions() == 1
    assert table.get(KEY) == state
    assert not table.changes()


def test_a_record_can_be_undone_without_the_others_of_its_batch() -> None:
    """Sessions, deadlines, the number of open ones and the changelog's entries are as they were at the mark."""
    first, *_ = states = sessions()
    table = SessionTable(TIMING)
    table.put(KEY, first)
    before = table.next_deadline(), table.open_sessions(), list(table.changes())
    table.mark()
    table.put(KEY, None)
    for number, state in enumerate(states):
        table.put(b"other-%d" % number, state)
    table.undo()
    assert (table.next_deadline(), table.open_sessions(), list(table.changes())) == before
    table.mark()
    table.touch(KEY, first.seen + TIMING.subagent_idle, first.stamp)
    table.undo()
    assert table.get(KEY) == first
    table.commit()
    assert table.get(KEY) == first
    assert list(table.sessions()) == [first]


def test_a_session_that_came_and_went_within_a_batch_leaves_no_tombstone() -> None:
    table = SessionTable(TIMING)
    table.put(KEY, sessions()[0])
    table.put(KEY, None)
    assert not table.changes()


def test_candidates_for_eviction_follow_what_sessions_have_become() -> None:
    table = SessionTable(TIMING._replace(max_open=1))
    base = next(state for state in sessions() if state.subagent is None and state.open is not None)
    assert base.open is not None
    for name, seen in ((b"a", 1), (b"b", 2), (b"c", 3)):
        table.put(name, base._replace(seen=seen))
    assert table.pop_victim() == b"a"
    table.put(b"a", None)
    table.put(b"b", base._replace(seen=9))
    assert table.pop_victim() == b"c"
    table.rollback()
    assert table.pop_victim() is None


@pytest.mark.timeout(60)
def test_a_big_restore_reads_headers_only() -> None:
    """Loading is a dict assignment and a header per session, so a session that was never heard of again stays bytes."""
    value = encode(sessions()[0])
    table = SessionTable(TIMING)
    keys = [str(uuid4()).encode() for _ in range(2_000)]
    for _ in range(10):
        for key in keys:
            table.load(key, value)
    table.loaded()
    assert table.open_sessions() == len(keys)
    base: dict[bytes, Any] = table._base
    assert all(entry is value for entry in base.values())


def test_the_clock_of_a_stream_follows_records_but_never_runs_ahead_or_back() -> None:
    clock = Bridge().clock
    assert clock.record(-1, EPOCH) == 0
    assert clock.record(1_000, EPOCH) == 1_000
    assert clock.record(500, EPOCH) == 1_000
    assert clock.record(EPOCH + 9, EPOCH) == EPOCH
    assert clock.caught_up(EPOCH - 1) == EPOCH
    assert clock.caught_up(EPOCH + 1) == EPOCH + 1
    assert clock.now == EPOCH + 1
