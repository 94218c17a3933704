"""Nothing is lost, whatever fails; exactly once, nothing is doubled either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from tests.kafka.bench import CHANGELOG, LETTERS, LIFECYCLE, NORMALIZED, RAW, config, counted, fill, log, record, running, start

from acs_aaep_bridge.core.deadletter import ERROR_PREFIX
from acs_aaep_bridge.errors import PartitionTakeError
from acs_aaep_bridge.kafka import group as group_module
from acs_aaep_bridge.kafka import watch
from acs_aaep_bridge.kafka.memory import MemorySink, MemorySource, MemoryTransactor

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
FAILPOINTS = ["transaction_open", "outputs_acked", "changelog_acked", "before_commit", "after_commit"]


class Once:
    """Raises the first `times` times it is called with `name`."""

    def __init__(self, name: str, times: int = 1, error: Callable[[], Exception] = lambda: RuntimeError("on purpose")) -> None:
        self.name = name
        self.left = times
        self._error = error

    def __call__(self, name: str, about: object = None) -> None:
        if name == self.name and self.left:
            self.left -= 1
            raise self._error()


@DELIVERIES
async def test_every_record_ends_in_one_of_four(delivery: str) -> None:
    """Emitted, rejected and skipped are counted apart, add up to what came in, and all of the input is committed."""
    memory = log(partitions=2)
    for number in range(300):
        value = b"skip" if number % 10 == 3 else b"bad" if number % 10 == 7 else b"v%d" % number
        memory.publish(RAW, value, key=b"k%d" % (number % 7), partition=number % 2, at=number)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
    assert run.watcher.events == {"emitted": 240, "rejected": 30, "skipped": 30}
    assert sum(report.records for report in run.watcher.reports) == 300
    assert len(memory.values(NORMALIZED)) == 240
    assert memory.values(LETTERS) == [b"bad"] * 30
    assert run.watcher.letters == {"payload_invalid": 30}


@DELIVERIES
async def test_a_dead_letter_is_the_record_and_the_reason(delivery: str) -> None:
    """Value, key and timestamp are the record's own; the headers say what and where."""
    memory = log()
    memory.publish(RAW, b"bad news", key=b"k", at=77)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
    letter = record(memory, LETTERS)
    assert (letter.value, letter.key, letter.timestamp) == (b"bad news", b"k", 77)
    headers = dict(letter.headers)
    assert headers[ERROR_PREFIX + "code"] == b"payload_invalid"
    assert headers[ERROR_PREFIX + "topic"] == RAW.encode()
    assert headers[ERROR_PREFIX + "offset"] == b"0"


@DELIVERIES
async def test_goes_on_where_it_stood(delivery: str) -> None:
    """After a stop in order nothing is read twice and nothing is left out; the sessions go on counting."""
    memory = log(partitions=2)
    fill(memory, 100, 2)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    fill(memory, 100, 2)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    assert counted(memory) == {b"k%d" % key: list(range(1, 41)) for key in range(5)}


@pytest.mark.parametrize("point", FAILPOINTS)
async def test_exactly_once_through_a_failure_at(point: str) -> None:
    """Whatever fails around a transaction, every record counts once: outputs, state and offset go together."""
    memory = log(partitions=2)
    fill(memory, 200, 2)
    once = Once(point, times=2)
    async with running(memory, config(transaction__max_records="20"), ["lifecycle"], failpoint=once) as run:
        await run.until_committed(memory, "lifecycle")
    assert once.left == 0
    assert counted(memory) == {b"k%d" % key: list(range(1, 41)) for key in range(5)}


@pytest.mark.parametrize("operation", ["begin", "send", "commit", "committed_transaction", "committed", "bounds", "restore"])
async def test_exactly_once_through_an_error_of(operation: str) -> None:
    """An error of any request is answered by taking the partition again, also when the commit had gone through."""
    memory = log()
    fill(memory, 100, 1)
    trap = Once(operation, error=lambda: KafkaConnectionError("on purpose"))
    memory.trap = trap
    async with running(memory, config(transaction__max_records="20"), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    assert trap.left == 0
    assert counted(memory) == {b"k%d" % key: list(range(1, 21)) for key in range(5)}


async def test_a_fenced_producer_takes_its_partition_again() -> None:
    """Someone else who initialises the same transactional id fences us; what was open is lost, and done again, once."""
    memory = log()
    fill(memory, 50, 1)
    tp = TopicPartition(NORMALIZED, 0)
    async with running(memory, config(), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
        await MemoryTransactor(memory, "g-lifecycle", tp).start()
        fill(memory, 50, 1)
        await run.until_committed(memory, "lifecycle")
    assert counted(memory) == {b"k%d" % key: list(range(1, 21)) for key in range(5)}
    assert run.watcher.commits["failed"] == 1


async def test_at_least_once_waits_for_a_broker_that_is_away() -> None:
    """While nothing can be published nothing is committed; afterwards everything is there, in order."""
    memory = log()
    fill(memory, 100, 1)
    away = Once("send", times=20, error=lambda: KafkaConnectionError("away"))
    memory.trap = away
    async with running(memory, config("at_least_once"), ["lifecycle"]) as run:
        await run.until(lambda: away.left < 18)
        assert not memory.committed
        await run.until_committed(memory, "lifecycle")
    assert counted(memory) == {b"k%d" % key: list(range(1, 21)) for key in range(5)}


@DELIVERIES
async def test_a_second_member_comes_and_goes(delivery: str) -> None:
    """Under load, a member that joins and leaves loses and doubles nothing, and the order within a key holds."""
    memory = log(partitions=4)
    settings = config(delivery, transaction__max_records="10", kafka__max_poll_records="10")
    async with running(memory, settings, ["lifecycle"]) as first:
        for _ in range(5):
            fill(memory, 40, 4, keys=8)
            async with running(memory, settings, ["lifecycle"]) as second:
                fill(memory, 40, 4, keys=8)
                await second.until(lambda: any(report.records for report in second.watcher.reports))
                fill(memory, 40, 4, keys=8)
            fill(memory, 40, 4, keys=8)
        await first.until_committed(memory, "lifecycle")
    assert counted(memory) == {b"k%d" % key: list(range(1, 101)) for key in range(8)}


async def test_a_clean_worker_is_used_again() -> None:
    """A rebalance that gives a partition back costs neither a new producer nor a restore."""
    memory = log()
    fill(memory, 50, 1)
    async with running(memory, config(), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
        await memory.rebalance("g-lifecycle")
        await run.until(lambda: len(run.watcher.heard("partition.taken")) == 2)
        fill(memory, 50, 1)
        await run.until_committed(memory, "lifecycle")
    assert [taken["reused"] for taken in run.watcher.heard("partition.taken")] == [False, True]
    assert len(run.watcher.heard("partition.restored")) == 1
    assert memory.epochs["g-lifecycle/normalized/0"] == 1
    assert counted(memory) == {b"k%d" % key: list(range(1, 21)) for key in range(5)}


async def test_state_that_someone_else_has_written_since_is_not_used_again() -> None:
    """When the changelog grew while we were away, state and producer are made anew."""
    memory = log()
    fill(memory, 50, 1)
    async with running(memory, config(), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
        source = memory.members["g-lifecycle"][0]
        await source.give_up()
        memory.publish(CHANGELOG, b"[70, null]", key=b"k0")
        source.receive(frozenset({TopicPartition(NORMALIZED, 0)}))
        await run.until(lambda: len(run.watcher.heard("partition.taken")) == 2)
        memory.publish(NORMALIZED, b"v", key=b"k0", at=5_000)
        await run.until_committed(memory, "lifecycle")
    assert counted(memory)[b"k0"][-1] == 71
    assert [taken["reused"] for taken in run.watcher.heard("partition.taken")] == [False, False]


async def test_starts_past_a_commit_that_is_not_readable_yet() -> None:
    """The offset in the changelog counts where the group's is behind it: the commit was answered before it could be read."""
    memory = log()
    fill(memory, 50, 1)
    async with running(memory, config(), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    memory.committed["g-lifecycle", TopicPartition(NORMALIZED, 0)] = 10
    fill(memory, 5, 1)
    async with running(memory, config(), ["lifecycle"]) as run:
        await run.until_committed(memory, "lifecycle")
    assert counted(memory) == {b"k%d" % key: list(range(1, 12)) for key in range(5)}


async def test_work_of_a_lost_assignment_is_not_committed() -> None:
    """A worker whose partition went away in the middle of its transaction commits nothing."""
    memory = log()
    fill(memory, 50, 1)

    def lose(name: str) -> None:
        if name == "outputs_acked" and not run.watcher.heard("lost"):
            run.watcher.log("info", "lost")
            memory.members["g-lifecycle"][0].receive(frozenset())

    run = start(memory, config(), ["lifecycle"], failpoint=lose)
    await run.until(lambda: run.watcher.commits["lost"] == 1)
    assert not memory.values(LIFECYCLE)
    assert not memory.committed
    await run.end()


async def test_gives_up_after_five_failures_in_ten_minutes() -> None:
    """A partition that cannot be taken although the broker answers ends the process with its own exit code."""
    memory = log()
    memory.trap = Once("committed", times=99)
    run = start(memory, config())
    with pytest.raises(PartitionTakeError, match="raw-0 could not be taken") as raised:
        await run.until(lambda: False)
    assert raised.value.exit_code == 4
    assert isinstance(memory.trap, Once)
    assert memory.trap.left == 99 - group_module.TAKE_FAILURES


async def test_failures_do_not_count_while_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage, however long, does not end the process."""
    monkeypatch.setattr(watch, "PROBE_VALID", -1.0)
    memory = log()
    memory.publish(RAW, b"v", at=1)
    memory.trap = Once("committed", times=12)
    async with running(memory, config()) as run:
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:v"]


async def test_a_cancellation_that_nobody_ordered_ends_the_process() -> None:
    """Libraries let one out now and then. It must not leave a partition standing still while the process looks ready."""

    def leak(name: str, _: object) -> None:
        if name == "committed":
            raise asyncio.CancelledError

    memory = log()
    memory.trap = leak
    run = start(memory, config())
    with pytest.raises(RuntimeError, match="the worker of raw-0 was cancelled while it was taking"):
        await run.until(lambda: False)


@DELIVERIES
async def test_a_bug_in_the_core_ends_the_process(delivery: str) -> None:
    """An exception of the core is not swallowed, not retried and not committed over."""
    memory = log()
    memory.publish(RAW, b"boom")
    run = start(memory, config(delivery))
    with pytest.raises(ZeroDivisionError):
        await run.until(lambda: False)
    assert not memory.committed


@DELIVERIES
async def test_stops_in_time_although_nothing_moves(delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every request hanging, a stop takes no longer than `shutdown.timeout`, and commits nothing it should not."""
    memory = log()
    fill(memory, 10, 1)
    hanging: list[str] = []

    async def never(*_: object) -> None:
        hanging.append("request")
        await asyncio.Event().wait()

    run = start(memory, config(delivery, shutdown__timeout="3s"), ["lifecycle"])
    await run.until_committed(memory, "lifecycle")
    before = dict(memory.committed)
    monkeypatch.setattr(MemoryTransactor, "send", never)
    monkeypatch.setattr(MemorySink, "_send", never)
    monkeypatch.setattr(MemorySource, "commit", never)
    fill(memory, 10, 1)
    await run.until(lambda: bool(hanging))
    async with asyncio.timeout(3.5):
        await run.end()
    assert memory.committed == before


@DELIVERIES
async def test_a_start_at_the_end_is_remembered(delivery: str) -> None:
    """Where `latest` was once is where it goes on: what is written while nobody reads is not skipped the next time."""
    memory = log()
    memory.publish(RAW, b"before", at=1)
    settings = config(delivery, input__start="latest")
    async with running(memory, settings) as run:
        await run.until(lambda: bool(memory.committed))
    memory.publish(RAW, b"meanwhile", at=1)
    async with running(memory, settings) as run:
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:meanwhile"]


async def test_what_could_not_be_committed_before_a_rebalance_is_committed_after_it() -> None:
    """At least once: a partition that comes back goes on where it was, and the group is told, without another record."""
    memory = log()
    memory.publish(RAW, b"v", b"v", at=1)
    away = Once("commit", times=10_000, error=lambda: KafkaConnectionError("away"))
    memory.trap = away
    async with running(memory, config("at_least_once")) as run:
        await run.until(lambda: bool(run.watcher.reports))
        await memory.rebalance("g-normalize")
        await run.until(lambda: len(run.watcher.heard("partition.taken")) == 2)
        away.left = 0
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:v"] * 2
