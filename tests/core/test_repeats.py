"""The replay guard: what counts as a repeat, what a failed batch leaves behind, and that memory is bounded."""

from __future__ import annotations

import orjson
from tests.core.hooks_sent import REQUEST, SESSION, request

from acs_aaep_bridge.config import load
from acs_aaep_bridge.core.model import Emit, Outcome, Record, Reject
from acs_aaep_bridge.core.repeats import SeenRequests
from acs_aaep_bridge.core.stages import DUPLICATE, build_stage

STAGE = build_stage("normalize", load("input: {replay_guard: true}", {}))


def applied(state: object, *sent: object) -> tuple[Outcome, ...]:
    value = orjson.dumps(list(sent) if len(sent) > 1 else sent[0])
    return STAGE.apply(Record("raw", 0, 0, 1_779_632_558_000, None, value), state, 0)  # type: ignore[arg-type]


def marked(outcome: Outcome) -> bool:
    assert isinstance(outcome, Emit)
    (outgoing,) = outcome.outgoing
    assert (DUPLICATE in outgoing.headers) is (outcome.notes == ("replayed",))
    return DUPLICATE in outgoing.headers


def other_session() -> dict[str, object]:
    return request(metadata={"agent_id": "a", "session_id": "00000000-0000-4000-8000-000000000000"})


def test_a_repeat_is_marked_and_still_normalized() -> None:
    """The same request in the same session, whatever the case of its ids; another session's is its own."""
    state = STAGE.new_state()
    upper = request(request_id=REQUEST.upper(), metadata={"agent_id": "a", "session_id": SESSION.upper()})
    assert [marked(applied(state, sent)[0]) for sent in (request(), upper, other_session())] == [False, True, False]


def test_a_repeat_inside_one_batch_is_marked() -> None:
    """Elements of a batch are in order, so the second is the repeat."""
    assert [marked(outcome) for outcome in applied(STAGE.new_state(), request(), request())] == [False, True]


def test_a_batch_that_failed_leaves_no_trace() -> None:
    """After a rollback the retried records are no repeats of themselves; after a commit they are."""
    state = STAGE.new_state()
    applied(state, request())
    state.rollback()
    assert not marked(applied(state, request())[0])
    state.commit()
    state.rollback()
    assert marked(applied(state, request())[0])


def test_a_rejected_request_is_not_remembered() -> None:
    """Sent again in order, it is the first of its kind."""
    state = STAGE.new_state()
    (refused,) = applied(state, request(timestamp="yesterday"))
    assert isinstance(refused, Reject)
    assert not marked(applied(state, request())[0])


def test_without_the_guard_nothing_is_marked() -> None:
    """It is off unless asked for."""
    plain = build_stage("normalize", load("", {}))
    state = plain.new_state()
    record = Record("raw", 0, 0, -1, None, orjson.dumps(request()))
    outcomes = [plain.apply(record, state, 0)[0] for _ in range(2)]
    assert [marked(outcome) for outcome in outcomes] == [False, False]


def test_memory_is_bounded() -> None:
    """At least the last `remembered` requests are known, and never more than twice as many and one batch."""
    state = SeenRequests(remembered=100)
    for number in range(1000):
        assert not state.repeated(SESSION, str(number))
        if number % 10 == 9:
            state.commit()
    assert all(state.repeated(SESSION, str(number)) for number in range(900, 1000))
    known = sum(state.repeated(SESSION, str(number)) for number in range(800))
    assert known == 0


def test_the_guard_keeps_no_changelog() -> None:
    """It remembers what this process has seen since it took the partition, and nothing has to be restored."""
    state = SeenRequests()
    state.repeated(SESSION, REQUEST)
    assert (state.changes(), state.next_deadline(), state.open_sessions()) == ((), None, 0)
