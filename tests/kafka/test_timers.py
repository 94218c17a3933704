"""Timers go by stream time; by the wall clock only where there is nothing left to read."""

from __future__ import annotations

import time

import pytest
from aiokafka.errors import KafkaConnectionError
from tests.kafka.bench import CHANGELOG, LIFECYCLE, NORMALIZED, config, copy_of, log, record, running

from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.kafka.memory import MemoryLog, MemorySink
from acs_aaep_bridge.kafka.ports import Item

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])


def _now() -> int:
    return int(time.time() * 1000)


@DELIVERIES
async def test_a_later_record_releases_what_is_due(delivery: str) -> None:
    """What was due before a record's time is said before what the record says."""
    memory = log()
    memory.publish(NORMALIZED, b"wait", key=b"a", at=1_000)
    memory.publish(NORMALIZED, b"v", key=b"b", at=2_500)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    assert memory.values(LIFECYCLE) == [b"a=1", b"a!", b"b=1"]


@DELIVERIES
async def test_the_wall_clock_releases_at_the_end_of_the_input(delivery: str) -> None:
    """With nothing more to read, a timer is due by the clock, and its release is durable like everything else."""
    memory = log()
    memory.publish(NORMALIZED, b"wait", key=b"a", at=_now() - 900)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until(lambda: len(memory.values(LIFECYCLE)) == 2)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until(lambda: bool(run.watcher.heard("partition.taken")))
    assert memory.values(LIFECYCLE) == [b"a=1", b"a!"]


async def test_a_deadline_in_the_future_waits() -> None:
    """Stream time never runs ahead of the wall clock, whatever a record's timestamp says."""
    memory = log()
    memory.publish(NORMALIZED, b"wait", key=b"a", at=_now() + 3_600_000)
    memory.publish(NORMALIZED, b"v", key=b"b", at=_now() + 7_200_000)
    async with running(memory, config(), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    assert memory.values(LIFECYCLE) == [b"a=1", b"b=1"]


async def test_records_without_a_timestamp_leave_the_time_alone() -> None:
    """A record that has none (-1) is processed like any other."""
    memory = log()
    memory.publish(NORMALIZED, b"wait", key=b"a", at=_now() + 60_000)
    memory.publish(NORMALIZED, b"v", key=b"b", at=-1)
    async with running(memory, config(), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    assert memory.values(LIFECYCLE) == [b"a=1", b"b=1"]
    assert [len(report.latencies) for report in run.watcher.reports] == [1]


async def test_a_timers_decision_is_written_before_it_is_said() -> None:
    """At least once: had it been said first and then forgotten, it might be decided otherwise the next time."""
    memory = log()
    memory.publish(NORMALIZED, b"wait", key=b"a", at=_now() - 900)
    order: list[str] = []

    def trap(operation: str, about: object) -> None:
        if operation == "send":
            order.extend(sorted({item.outgoing.topic for item in about}))  # type: ignore[attr-defined]

    memory.trap = trap
    async with running(memory, config("at_least_once"), ["lifecycle"]) as run:
        await run.until(lambda: len(memory.values(LIFECYCLE)) == 2)
    assert order == [LIFECYCLE, CHANGELOG, CHANGELOG, LIFECYCLE, CHANGELOG]


@DELIVERIES
async def test_what_a_timer_decided_is_said_by_whoever_comes_next(delivery: str) -> None:
    """A process that dies at least once between the decision and its event leaves the event to its successor, of either kind."""
    memory = log()
    memory.publish(NORMALIZED, b"wait", key=b"a", at=_now() - 900)
    left_behind: list[MemoryLog] = []

    def keep_what_a_death_would_leave(name: str) -> None:
        said = memory.values(LIFECYCLE)
        if name == "changelog_acked" and len(memory.values(CHANGELOG)) == 2 and said == [b"a=1"]:
            left_behind.append(copy_of(memory))

    async with running(memory, config("at_least_once"), ["lifecycle"], failpoint=keep_what_a_death_would_leave) as run:
        await run.until(lambda: len(memory.values(LIFECYCLE)) == 2)
    (dead,) = left_behind
    for _ in range(2):
        async with running(dead, config(delivery), ["lifecycle"]) as run:
            await run.until(lambda: bool(run.watcher.heard("partition.taken")))
            await run.until(lambda: len(dead.values(LIFECYCLE)) == 2)
    assert [record(dead, LIFECYCLE, place) for place in (0, 1)] == [record(memory, LIFECYCLE, place) for place in (0, 1)]
    assert dead.values(LIFECYCLE) == [b"a=1", b"a!"]


async def test_what_was_said_is_owed_no_longer() -> None:
    """At least once: the last entry of a session whose event was acknowledged does not carry the event."""
    memory = log()
    memory.publish(NORMALIZED, b"wait", key=b"a", at=_now() - 900)
    async with running(memory, config("at_least_once"), ["lifecycle"]) as run:
        await run.until(lambda: len(memory.values(CHANGELOG)) == 3)
    owing = [[name for name, _ in record(memory, CHANGELOG, place).headers] for place in range(3)]
    assert owing == [[], ["outbox"], []]


async def test_what_does_not_fit_into_the_changelog_with_its_session_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least once: hundreds of open calls that end with their session must not block the partition."""

    def takes(outgoing: Outgoing) -> bool:
        return outgoing.topic != CHANGELOG or not outgoing.headers

    monkeypatch.setattr(MemorySink, "fits", lambda sink, outgoing: takes(outgoing))
    monkeypatch.setattr(
        MemoryLog, "refusals", lambda log, items: [(item, "too_large") for item in items if not takes(item.outgoing)]
    )
    memory = log(sessions=20)
    memory.publish(NORMALIZED, b"wait", key=b"a", at=_now() - 900)
    order: list[str] = []

    def trap(operation: str, subject: object) -> None:
        if operation == "send" and isinstance(subject, list) and subject:
            order.append(subject[0].outgoing.topic)

    memory.trap = trap
    async with running(memory, config("at_least_once"), ["lifecycle"]) as run:
        await run.until(lambda: len(memory.values(CHANGELOG)) == 2)
    assert memory.values(LIFECYCLE) == [b"a=1", b"a!"]
    assert order == [LIFECYCLE, CHANGELOG, LIFECYCLE, CHANGELOG]


@DELIVERIES
async def test_an_event_that_waits_and_cannot_be_read_blocks(delivery: str) -> None:
    """It is neither guessed nor forgotten."""
    memory = log()
    entry = Outgoing(CHANGELOG, b"a", b"[1,null]", (("outbox", b"[2]"),), 1_000)
    memory.append(Item(entry, 0))
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until(lambda: bool(run.watcher.heard("partition.blocked")))
        (blocked,) = run.watcher.heard("partition.blocked")
    assert "the event that waits in the changelog for the session 'a' cannot be read" in blocked["reason"]
    assert memory.values(LIFECYCLE) == []


async def test_a_tombstone_waits_for_the_commit() -> None:
    """At least once: a session is deleted from the changelog only when no replay can ask for it again."""
    memory = log()
    memory.publish(NORMALIZED, b"v", b"forget", key=b"a", at=1_000)
    committed_before: list[bool] = []

    def trap(operation: str, about: object) -> None:
        if operation == "send" and any(item.outgoing.value is None for item in about):  # type: ignore[attr-defined]
            committed_before.append(bool(memory.committed))

    memory.trap = trap
    async with running(memory, config("at_least_once", kafka__max_poll_records="1"), ["lifecycle"]) as run:
        await run.until(lambda: memory.values(CHANGELOG)[-1:] == [None])
    assert committed_before == [True]


async def test_a_tombstone_outlives_a_rebalance() -> None:
    """At least once: what waits for its commit when the partition is revoked and comes back is still written then."""
    memory = log()
    memory.publish(NORMALIZED, b"v", b"forget", key=b"a", at=1_000)
    refusing = True

    def trap(operation: str, about: object) -> None:
        if operation == "commit" and refusing:
            raise KafkaConnectionError

    memory.trap = trap
    async with running(memory, config("at_least_once", kafka__max_poll_records="1"), ["lifecycle"]) as run:
        await run.until(lambda: sum(report.records for report in run.watcher.reports) == 2)
        await memory.rebalance("g-lifecycle")
        await run.until(lambda: len(run.watcher.heard("partition.taken")) == 2)
        assert memory.values(CHANGELOG)[-1] is not None
        refusing = False
        memory.publish(NORMALIZED, b"v", key=b"b", at=2_000)
        await run.until(lambda: None in memory.values(CHANGELOG))
    assert [taken["reused"] for taken in run.watcher.heard("partition.taken")] == [False, True]


async def test_a_tombstone_does_not_bury_a_session_that_has_come_back() -> None:
    """At least once: what was forgotten and begins anew before the commit has passed is there after a restart."""
    memory = log()
    memory.publish(NORMALIZED, b"v", b"v", b"forget", b"v", b"v", key=b"a", at=1_000)
    settings = config("at_least_once", kafka__max_poll_records="1")
    async with running(memory, settings, ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    memory.publish(NORMALIZED, b"v", key=b"a", at=1_000)
    async with running(memory, settings, ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    assert memory.values(LIFECYCLE) == [b"a=1", b"a=2", b"a=1", b"a=2", b"a=3"]
