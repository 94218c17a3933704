"""The bridge notices when nothing moves, says so, and helps itself once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, KafkaConnectionError
from tests.kafka.bench import CHANGELOG, NORMALIZED, RAW, config, fill, log, running, start

from acs_aaep_bridge.errors import StalledError, TopicError
from acs_aaep_bridge.kafka import watch
from acs_aaep_bridge.kafka.memory import MemoryProbe, MemorySink, MemorySource
from acs_aaep_bridge.kafka.ports import Ends, Listener


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PROBE_EVERY", 0.05)


async def test_a_stall_rebuilds_the_consumer_once_then_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lag without commit progress: one new consumer, and if that does not help, exit 5."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(MemorySink, "_send", never)
    memory = log()
    memory.publish(RAW, b"v", at=1)
    run = start(memory, config("at_least_once", watchdog__stall_after="300ms"))
    with pytest.raises(StalledError, match="raw-0") as raised:
        await run.until(lambda: False)
    assert raised.value.exit_code == 5
    assert len(run.watcher.heard("consumer.rebuilt")) == 1


async def test_a_watchdog_that_is_off_lets_a_partition_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `watchdog.stall_after: 0` lag is measured, and nothing is done about it."""
    hanging = asyncio.Event()
    send = MemorySink._send

    async def held_up(self: MemorySink, items: list[object], after: object) -> None:
        await hanging.wait()
        await send(self, items, None)  # type: ignore[arg-type]

    monkeypatch.setattr(MemorySink, "_send", held_up)
    memory = log()
    memory.publish(RAW, b"v", at=1)
    probed = 0

    async with running(memory, config("at_least_once", watchdog__stall_after="0")) as run:
        lag = run.watcher.lag

        def count(*seen: object) -> None:
            nonlocal probed
            probed += seen[3] == 1
            lag(*seen)  # type: ignore[arg-type]

        monkeypatch.setattr(run.watcher, "lag", count)
        await run.until(lambda: probed >= 5)
        assert not run.watcher.heard("consumer.rebuilt")
        hanging.set()
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:v"]


async def test_a_lag_that_was_not_known_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a partition cannot be asked about nobody knows whether it stalls: the watchdog begins when it can be."""
    hanging, hidden = asyncio.Event(), [True]
    send, lags = MemorySink._send, MemoryProbe.lags
    asked = 0

    async def held_up(self: MemorySink, items: list[object], after: object) -> None:
        await hanging.wait()
        await send(self, items, None)  # type: ignore[arg-type]

    async def some(self: MemoryProbe, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Ends]:
        nonlocal asked
        asked += 1
        return {} if hidden[0] else await lags(self, partitions)

    monkeypatch.setattr(MemorySink, "_send", held_up)
    monkeypatch.setattr(MemoryProbe, "lags", some)
    memory = log()
    memory.publish(RAW, b"v", at=1)
    async with running(memory, config("at_least_once", watchdog__stall_after="1s")) as run:
        began = time.monotonic()
        await run.until(lambda: time.monotonic() - began > 1.2)
        hidden[0] = False
        seen = asked
        await run.until(lambda: asked > seen + 2)
        assert run.watcher.lags[TopicPartition(RAW, 0)] == 1
        assert not run.watcher.heard("consumer.rebuilt")
        hanging.set()
        await run.until_committed(memory)


async def test_a_rebuild_that_helps_is_the_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the consumer was made anew and the lag is gone, the partition counts as sound again."""
    hanging = [True]
    send = MemorySink._send

    async def sometimes(self: MemorySink, items: list[object], after: object) -> None:
        if hanging[0]:
            await asyncio.Event().wait()
        await send(self, items, None)  # type: ignore[arg-type]

    monkeypatch.setattr(MemorySink, "_send", sometimes)
    memory = log()
    memory.publish(RAW, b"v", at=1)
    async with running(memory, config("at_least_once", watchdog__stall_after="300ms")) as run:
        await run.until(lambda: bool(run.watcher.heard("consumer.rebuilt")))
        hanging[0] = False
        await run.until_committed(memory)
        await run.until(lambda: not run.watcher.reasons["normalize"])
    assert memory.values(NORMALIZED) == [b"n:v"]


async def test_a_dead_consumer_is_made_anew() -> None:
    """When the client's background tasks have died, polling it would wait for ever."""
    memory = log()
    memory.publish(RAW, b"v0", at=1)
    async with running(memory, config()) as run:
        await run.until_committed(memory)
        memory.members["g-normalize"][0].broken = True
        memory.publish(RAW, b"v1", at=1)
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:v0", b"n:v1"]
    assert len(run.watcher.heard("consumer.rebuilt")) == 1


async def test_an_outage_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """While no broker answers there can be no progress; the watchdog waits, and readiness says what is wrong."""
    monkeypatch.setattr(watch, "PROBE_VALID", 0.1)
    memory = log()
    away = [False]

    def trap(operation: str, about: object) -> None:
        if away[0]:
            raise KafkaConnectionError("away")

    memory.trap = trap
    memory.publish(RAW, b"v0", at=1)
    async with running(memory, config(watchdog__stall_after="200ms")) as run:
        await run.until_committed(memory)
        away[0] = True
        memory.publish(RAW, b"v1", at=1)
        await run.until(lambda: any("no broker has answered" in reason for reason in run.watcher.reasons["normalize"]))
        await asyncio.sleep(0.5)
        assert not run.watcher.heard("consumer.rebuilt")
        away[0] = False
        await run.until_committed(memory)
        await run.until(lambda: not run.watcher.reasons["normalize"])


async def test_a_partition_that_is_not_taken_for_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A take that hangs is no secret, although nothing has failed yet; it is over when the partition is taken."""
    monkeypatch.setattr(watch, "LONG_TAKE", 0.1)
    answers, committed = asyncio.Event(), MemorySource.committed

    async def hanging(self: MemorySource, partition: TopicPartition) -> int | None:
        await answers.wait()
        return await committed(self, partition)

    monkeypatch.setattr(MemorySource, "committed", hanging)
    async with running(log(), config()) as run:
        await run.until(lambda: any(f"{RAW}-0 has not been taken" in reason for reason in run.watcher.reasons["normalize"]))
        answers.set()
        await run.until(lambda: not run.watcher.reasons["normalize"])


async def test_lag_counts_from_the_position_when_idle() -> None:
    """Markers at the end of a log leave no lag behind: nobody will ever commit past them."""
    memory = log()
    memory.publish(RAW, b"v0", at=1)
    memory.mark(TopicPartition(RAW, 0))
    async with running(memory, config()) as run:
        await run.until_committed(memory)
        await run.until(lambda: run.watcher.lags.get(TopicPartition(RAW, 0)) == 0)


async def test_a_member_without_partitions_is_ready() -> None:
    """More members than partitions is no fault: the spare one waits, and is ready."""
    memory = log(partitions=1)
    async with running(memory, config()) as first, running(memory, config()) as second:
        await first.until(lambda: not first.watcher.reasons["normalize"])
        await second.until(lambda: not second.watcher.reasons["normalize"])
        memory.publish(RAW, b"v", at=1)
        await first.until_committed(memory)
        assert sum(bool(one.watcher.reports) for one in (first, second)) == 1


async def test_restoring_is_said() -> None:
    """While sessions are restored, readiness says so."""
    memory = log()
    fill(memory, 3, 1)
    said: list[str] = []

    def trap(operation: str, about: object) -> None:
        if operation == "restore":
            said.extend(run.watcher.reasons["lifecycle"])

    memory.trap = trap
    run = start(memory, config(), ["lifecycle"])
    await run.until_committed(memory, "lifecycle")
    await run.end()
    assert said == ["restoring 1 partitions"]


@pytest.mark.parametrize("topic", [NORMALIZED, CHANGELOG])
async def test_another_number_of_partitions_ends_the_process(topic: str) -> None:
    """Sessions would be looked for in the wrong partition: better to stop than to forget them all."""
    memory = log()
    run = start(memory, config(), ["lifecycle"])
    await run.until(lambda: not run.watcher.reasons["lifecycle"])
    memory.partitions[TopicPartition(topic, 1)] = []
    with pytest.raises(TopicError, match="has 2 partitions and had 1"):
        await run.until(lambda: False)


async def test_a_topic_that_is_gone_is_said() -> None:
    """A deleted topic shows in the readiness, and is not made anew behind anyone's back."""
    memory = log()
    async with running(memory, config()) as run:
        await run.until(lambda: not run.watcher.reasons["normalize"])
        del memory.partitions[TopicPartition(NORMALIZED, 0)]
        await run.until(lambda: list(run.watcher.reasons["normalize"]) == ["the topic normalized is gone"])


async def test_what_may_not_be_written_is_said_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that the broker does not let us write is the operator's to mend: no new consumer, no end of the process."""
    allowed = asyncio.Event()
    send = MemorySink._send

    async def denied(self: MemorySink, items: list[object], after: object) -> None:
        await allowed.wait()
        await send(self, items, None)  # type: ignore[arg-type]

    monkeypatch.setattr(MemorySink, "_send", denied)
    monkeypatch.setattr(MemorySink, "forbidden", lambda self: None if allowed.is_set() else "not allowed to write normalized")
    memory = log()
    memory.publish(RAW, b"v", at=1)
    async with running(memory, config("at_least_once", watchdog__stall_after="100ms")) as run:
        await run.until(lambda: "not allowed to write normalized" in run.watcher.reasons["normalize"])
        seen = len(run.watcher.probes)
        await run.until(lambda: len(run.watcher.probes) > seen + 10)
        assert not run.watcher.heard("consumer.rebuilt")
        allowed.set()
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [b"n:v"]


async def test_a_stop_is_heard_while_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that lets us connect and then says nothing does not hold up a stop."""
    reached = asyncio.Event()

    async def never(self: MemoryProbe) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(MemoryProbe, "start", never)
    run = start(log(), config())
    await reached.wait()
    async with asyncio.timeout(4):
        await run.end()
    assert not run.watcher.heard("bridge.started")


async def test_partitions_that_come_while_leaving_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance may end while we leave: who takes then would fence the next owner."""
    memory = log()
    memory.publish(RAW, b"v", at=1)
    stop = MemorySource.stop

    async def late(self: MemorySource, timeout: float) -> None:
        self.receive(frozenset({TopicPartition(RAW, 0)}))
        await asyncio.sleep(0.05)
        await stop(self, timeout)

    monkeypatch.setattr(MemorySource, "stop", late)
    async with running(memory, config()) as run:
        await run.until_committed(memory)
    assert memory.epochs["g-normalize/raw/0"] == 1


async def test_a_commit_that_is_not_allowed_is_tried_less_and_less_often() -> None:
    """Each attempt waits twice as long as the one before: no storm of requests and log lines."""
    memory = log()
    memory.publish(RAW, b"v", at=1)
    at: list[float] = []

    def trap(operation: str, about: object) -> None:
        if operation == "commit":
            at.append(asyncio.get_running_loop().time())
            if len(at) < 4:
                raise GroupAuthorizationFailedError("g-normalize")

    memory.trap = trap
    async with running(memory, config("at_least_once")) as run:
        await run.until_committed(memory)
    waits = [after - before for before, after in itertools.pairwise(at)]
    assert waits == sorted(waits)
    assert waits[2] > 3 * waits[0]


async def test_a_consumer_that_cannot_be_made_anew_is_no_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a consumer nothing is read, although the broker answers: whoever asks is told so."""
    memory = log()
    may_start = asyncio.Event()
    begin = MemorySource.start

    async with running(memory, config()) as run:
        await run.until(lambda: not run.watcher.reasons["normalize"])

        async def refuse(self: MemorySource, listener: Listener) -> None:
            await may_start.wait()
            await begin(self, listener)

        monkeypatch.setattr(MemorySource, "start", refuse)
        memory.members["g-normalize"][0].broken = True
        await run.until(lambda: "the consumer is being made anew" in run.watcher.reasons["normalize"])
        may_start.set()
        await run.until(lambda: not run.watcher.reasons["normalize"])
