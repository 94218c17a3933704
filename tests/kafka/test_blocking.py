"""A partition that must not go on stands still, says why, and leaves the others alone."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from tests.kafka.bench import CHANGELOG, LETTERS, NORMALIZED, RAW, Run, config, counted, fill, log, running
from tests.kafka.stages import CountStage, EchoStage

from acs_aaep_bridge.core.model import Outcome, PartitionState, Record, WriterSchema
from acs_aaep_bridge.errors import UnreadableState

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])


def _reason(run: Run, stage: str = "normalize") -> str:
    return " ".join(run.watcher.reasons[stage])


@DELIVERIES
async def test_the_brake_stops_one_partition_until_a_restart(delivery: str) -> None:
    """Past the limit nothing more of the partition is committed; the others go on; a restart goes on where it stood."""
    memory = log(partitions=2)
    settings = config(delivery, dead_letter__max_consecutive="20", kafka__max_poll_records="10")
    memory.publish(RAW, *[b"bad%d" % number for number in range(100)], partition=0, at=1)
    memory.publish(RAW, b"good", partition=1, at=1)
    bad, good = TopicPartition(RAW, 0), TopicPartition(RAW, 1)
    async with running(memory, settings) as run:
        await run.until(lambda: "braked" in _reason(run))
        await run.until(lambda: memory.committed.get(("g-normalize", good)) == 1)
        assert run.watcher.brakes == [(bad, "payload_invalid")]
        assert "up to the one at offset 20;" in _reason(run)
        stood = memory.committed.get(("g-normalize", bad), 0)
        assert stood <= 20
        assert len(memory.values(LETTERS)) == stood
        await memory.rebalance("g-normalize")
        await run.until(lambda: len(run.watcher.heard("partition.braked")) == 2)
        assert memory.committed.get(("g-normalize", bad), 0) == stood
    relaxed = config(delivery, dead_letter__max_consecutive="0", dead_letter__max_ratio="0")
    async with running(memory, relaxed) as run:
        await run.until_committed(memory)
    assert memory.values(LETTERS) == [b"bad%d" % number for number in range(100)]


@DELIVERIES
@pytest.mark.parametrize(("policy", "expected"), [("earliest", [b"n:v5", b"n:v6"]), ("latest", [])])
async def test_a_committed_offset_that_is_gone_follows_the_policy(delivery: str, policy: str, expected: list[bytes]) -> None:
    """With a policy the partition goes on at the edge of what there is."""
    memory = log()
    tp = TopicPartition(RAW, 0)
    memory.publish(RAW, *[b"v%d" % number for number in range(7)], at=1)
    memory.committed["g-normalize", tp] = 2
    memory.starts[tp] = 5
    async with running(memory, config(delivery, input__on_out_of_range=policy)) as run:
        await run.until(lambda: bool(run.watcher.heard("partition.taken")))
        memory.publish(RAW, b"new", at=2)
        await run.until_committed(memory)
    assert memory.values(NORMALIZED) == [*expected, b"n:new"]


@DELIVERIES
@pytest.mark.parametrize("committed", [2, 9])
async def test_a_committed_offset_that_is_gone_blocks_by_default(delivery: str, committed: int) -> None:
    """Behind the first offset or past the last: nobody guesses, an operator decides."""
    memory = log()
    tp = TopicPartition(RAW, 0)
    memory.publish(RAW, *[b"v%d" % number for number in range(7)], at=1)
    memory.committed["g-normalize", tp] = committed
    memory.starts[tp] = 5
    async with running(memory, config(delivery)) as run:
        await run.until(lambda: "not in the log (5 to 7)" in _reason(run))
    assert memory.values(NORMALIZED) == []
    assert memory.committed["g-normalize", tp] == committed


@DELIVERIES
async def test_an_offset_that_goes_while_reading_blocks(delivery: str) -> None:
    """Retention that overtakes a partition in the middle of its work is found out as well."""
    memory = log()
    tp = TopicPartition(RAW, 0)
    memory.publish(RAW, b"v0", at=1)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
        memory.starts[tp] = 50
        await run.until(lambda: "not in the log" in _reason(run))


@DELIVERIES
async def test_an_unreadable_session_blocks_its_partition(delivery: str) -> None:
    """A changelog entry of another version stops that partition, by name, and no crash loop begins."""
    memory = log(partitions=2)
    memory.publish(CHANGELOG, b"unreadable", key=b"k0", partition=0)
    fill(memory, 10, 2)
    other = TopicPartition(NORMALIZED, 1)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until(lambda: "k0 cannot be read" in _reason(run, "lifecycle"))
        await run.until(lambda: memory.committed.get(("g-lifecycle", other)) == len([e for e in memory.partitions[other] if e]))
        assert len(run.watcher.heard("partition.blocked")) == 1
    assert set(counted(memory)) == {b"k1", b"k3"}


@DELIVERIES
async def test_a_session_that_turns_out_to_be_unreadable_blocks_its_partition(
    delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries stay bytes until their session is heard of: what shows only then is no bug either."""

    def apply(stage: CountStage, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        raise UnreadableState("k0 does not have the shape of format 1")

    monkeypatch.setattr(CountStage, "apply", apply)
    memory = log()
    fill(memory, 1, 1)
    async with running(memory, config(delivery), ["lifecycle"]) as run:
        await run.until(lambda: "blocked: k0 does not have the shape" in _reason(run, "lifecycle"))


class _Registry:
    """Fails a few times, then has schema 7."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    async def fetch(self, schema_id: int) -> WriterSchema | None:
        if self.failures:
            self.failures -= 1
            raise OSError("the registry is away")
        return WriterSchema("AVRO", f"schema {schema_id}") if schema_id == 7 else None


@DELIVERIES
async def test_a_registry_that_is_away_holds_up_and_rejects_nothing(delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records wait for their schema, however long; then the stage is given it, or told that there is none."""
    learned: dict[int, WriterSchema | None] = {}

    def wants(stage: EchoStage, records: list[Record]) -> frozenset[int]:
        return frozenset({7, 8} - learned.keys())

    monkeypatch.setattr(EchoStage, "wants", wants)
    monkeypatch.setattr(EchoStage, "learn", lambda stage, schema_id, schema: learned.update({schema_id: schema}))
    memory = log()
    memory.publish(RAW, b"v", at=1)
    async with running(memory, config(delivery), schemas=_Registry(1)) as run:
        await run.until(lambda: "schema registry" in _reason(run))
        await run.until_committed(memory)
        await run.until(lambda: not _reason(run))
    assert learned == {7: WriterSchema("AVRO", "schema 7"), 8: None}
    assert memory.values(NORMALIZED) == [b"n:v"]
