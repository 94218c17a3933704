"""Whatever order the hooks come in, the streams that come out keep the protocol's promises."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.stream import Bridge, Hook, by_session, raw
from tests.core.subscriber import broken_promises, public_failures

from acs_aaep_bridge.core.model import Emit
from acs_aaep_bridge.core.table import SessionTable

NAMESPACE = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
DAY = 86_400_000
ROOTS = [str(uuid5(NAMESPACE, f"root {n}")) for n in range(2)]
CHILDREN = [str(uuid5(NAMESPACE, f"child {n}")) for n in range(2)]
TURNS = ["t1", "t2", "t3"]
TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["Done. All of it.", "\u202eevil", "token=abc", ""])
SUMMARY = st.builds(
    lambda value: {"value": value, "provenance": {"provenance_id": "p", "origin": "agent_generated"}},
    TEXT | st.integers(-(2**63), 2**63 - 1) | st.just({"a": [1]}),
)


def uuid(name: str) -> str:
    return str(uuid5(NAMESPACE, name))


def optional(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=members)


turn = st.sampled_from(TURNS)
call = st.sampled_from([uuid(f"request {n}") for n in range(12)])
tool = st.sampled_from(["Bash", "1st tool", "Grep", ""])
content = st.lists(st.builds(lambda value: {"type": "text", "value": value}, TEXT), min_size=1, max_size=2)
descriptor = optional(agent_name=TEXT, agent_id=TEXT)
PAYLOADS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "sessionStart": st.just({}),
    "turnStart": optional(turn_id=turn, parent_turn_id=turn),
    "userMessage": st.builds(lambda items: {"content": items}, content),
    "agentTrigger": st.just({}),
    "toolCallRequest": st.builds(
        lambda name, extra: {"tool": {"name": name}, "arguments": {"q": {"value": "x"}}, **extra},
        tool,
        optional(capability=st.sampled_from(["payment.card", "other"])),
    ),
    "toolCallResult": st.builds(
        lambda name, status, extra: {"tool": {"name": name}, "exit_status": status, "outputs": [], **extra},
        tool,
        st.sampled_from(["success", "failure", "timeout", "blocked"]),
        optional(request_id_ref=call, duration_ms=st.integers(0, 10**12)),
    ),
    "agentResponse": st.builds(lambda items: {"content": items}, content),
    "preCompact": st.just({}),
    "postCompact": st.just({}),
    "turnEnd": st.builds(
        lambda name, outcome, extra: {"turn_id": name, "outcome": outcome, **extra},
        turn,
        st.sampled_from(["completed", "deferred", "error", "interrupted", "denied_at_start"]),
        optional(summary=SUMMARY),
    ),
    "sessionEnd": optional(
        reason=st.sampled_from(["completed", "cancelled", "error", "timeout", "abandoned", "logout", ""]), session_reason=TEXT
    ),
    "subagentStart": st.builds(lambda extra: extra, optional(subagent_descriptor=descriptor)),
    "subagentStop": st.builds(
        lambda outcome, extra: {"outcome": outcome, **extra},
        st.sampled_from(["completed", "failed", "cancelled", "timeout", "denied_at_spawn"]),
        optional(summary=SUMMARY, subagent_step_count=st.integers(0, 40)),
    ),
}


@st.composite
def hooks(draw: st.DrawFn) -> list[Hook]:
    """Some forty hooks of two roots and two subagents, in any order, at any pace, some of them twice."""
    made: list[Hook] = []
    after = 0
    for number in range(draw(st.integers(1, 40))):
        method = draw(st.sampled_from(sorted(PAYLOADS)))
        payload = dict(draw(PAYLOADS[method]))
        if method.startswith("subagent"):
            child = draw(st.integers(0, len(CHILDREN) - 1))
            session, payload["subagent_session_id"] = ROOTS[child % len(ROOTS)], CHILDREN[child]
        else:
            session = draw(st.sampled_from(ROOTS + CHILDREN))
        metadata = draw(optional(turn_id=turn, parent_turn_id=turn, cursor_event=st.just("afterAgentThought")))
        after += draw(st.sampled_from([0, 1, 700, 4_999, 5_000, 60_000, 1_800_000, 1_800_001, DAY]))
        skew = draw(st.sampled_from([0, 0, 0, -3_600_000, -1, 200_000, 400_000, DAY]))
        made.append(Hook(method, session, payload, after + skew, uuid(f"request {number}"), metadata, None, -skew))
    for hook in draw(st.lists(st.sampled_from(made), max_size=6)):
        made.insert(draw(st.integers(0, len(made))), hook)
    return made


def bridge(agent_output: str) -> Bridge:
    """Closed sessions are remembered for longer than any stream here, for what is forgotten may begin again."""
    return Bridge(content__agent_output=agent_output, sessions__closed_retention="30000d")


OUTPUT = st.sampled_from(["none", "root", "all"])
many = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@many
@given(hooks(), OUTPUT)
def test_every_session_keeps_the_promises_of_the_protocol(made: list[Hook], agent_output: str) -> None:
    run = bridge(agent_output).send_all(made)
    run.wait(3 * DAY)
    run.wait(3 * DAY)
    assert not run.rejects
    assert run.table.open_sessions() == 0
    for session in by_session(run.events).values():
        assert public_failures(session) == []
        assert broken_promises(session) == []


@many
@given(hooks(), OUTPUT)
def test_the_same_input_gives_the_same_bytes(made: list[Hook], agent_output: str) -> None:
    assert bridge(agent_output).send_all(made).published == bridge(agent_output).send_all(made).published


@many
@given(hooks(), OUTPUT, st.data())
def test_a_rollback_leaves_no_trace(made: list[Hook], agent_output: str, data: st.DataObject) -> None:
    """A batch that is undone and done again gives the same events, changelog and deadlines as one done once."""
    straight, undone = bridge(agent_output), bridge(agent_output)
    first = data.draw(st.integers(0, len(made)))
    last = data.draw(st.integers(first, len(made)))
    straight.send_all(made)
    undone.send_all(made[:first])
    ahead = Bridge(content__agent_output=agent_output, sessions__closed_retention="30000d")
    ahead.table, ahead.clock, ahead.offset = undone.table, type(undone.clock)(undone.clock.now), undone.offset
    for hook in made[first:last]:
        record = ahead.normalized(raw(hook), 1_780_000_000_000 + hook.after + hook.late)
        now = ahead.clock.record(record.timestamp, 1 << 60)
        ahead.lifecycle.advance(ahead.table, now)
        ahead.lifecycle.apply(record, ahead.table, now)
    undone.table.rollback()
    undone.send_all(made[first:])
    assert undone.published == straight.published
    assert undone.table.open_sessions() == straight.table.open_sessions()
    assert undone.table.next_deadline() == straight.table.next_deadline()
    assert [emit.outgoing for emit in undone.wait(DAY)] == [emit.outgoing for emit in straight.wait(DAY)]


@many
@given(hooks(), OUTPUT, st.data())
def test_a_restart_from_the_changelog_changes_nothing_that_is_said(
    made: list[Hook], agent_output: str, data: st.DataObject
) -> None:
    straight, restarted = bridge(agent_output).send_all(made), bridge(agent_output)
    at = data.draw(st.integers(0, len(made)))
    log: list[tuple[bytes, bytes | None]] = []
    for hook in made[:at]:
        record = restarted.normalized(raw(hook), 1_780_000_000_000 + hook.after + hook.late)
        now = restarted.clock.record(record.timestamp, 1 << 60)
        for emit in (
            *restarted.lifecycle.advance(restarted.table, now),
            *restarted.lifecycle.apply(record, restarted.table, now),
        ):
            assert isinstance(emit, Emit)
            restarted.published += [outgoing.value or b"" for outgoing in emit.outgoing]
        log += restarted.table.changes()
        restarted.table.commit()
    table: SessionTable = restarted.new_table()
    for key, value in log:
        table.load(key, value)
    table.loaded()
    assert table.open_sessions() == restarted.table.open_sessions()
    restarted.table = table
    restarted.send_all(made[at:])
    straight.wait(3 * DAY)
    restarted.wait(3 * DAY)
    if not any(hook.method in {"sessionStart", "postCompact"} for hook in made):
        assert restarted.published == straight.published
    else:  # hooks that only show life are not always in the changelog: a silence may end a little earlier
        assert sorted(map(_identity, restarted.published)) == sorted(map(_identity, straight.published))


def _identity(value: bytes) -> tuple[str, str]:
    event = orjson.loads(value)
    return event["session_id"], event["event_id"]


@pytest.mark.parametrize("agent_output", ["none", "root", "all"])
def test_a_clean_session_passes_every_public_check(agent_output: str) -> None:
    run = bridge(agent_output)
    root, child = ROOTS[0], CHILDREN[0]
    steps: list[tuple[str, str, dict[str, Any]]] = [
        ("turnStart", root, {"turn_id": "t"}),
        ("subagentStart", root, {"subagent_session_id": child}),
        ("toolCallRequest", child, {"tool": {"name": "Grep"}, "arguments": {}}),
        ("toolCallResult", child, {"tool": {"name": "Grep"}, "exit_status": "success", "outputs": []}),
        ("agentResponse", child, {"content": [{"type": "text", "value": "Found it."}]}),
        ("subagentStop", root, {"subagent_session_id": child, "outcome": "completed"}),
        ("agentResponse", root, {"content": [{"type": "text", "value": "Here it is."}]}),
        ("turnEnd", root, {"turn_id": "t", "outcome": "completed"}),
    ]
    run.send_all(Hook(*step, 1_000 * number, uuid(f"clean {number}")) for number, step in enumerate(steps))
    sessions = by_session(run.events)
    assert len(sessions) == 2
    for session in sessions.values():
        assert public_failures(session) == []
        assert broken_promises(session) == []
