"""Reading topics from the command line: without a group, read_committed, every partition; commits nothing, changes nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Record
from acs_aaep_bridge.errors import AuthorizationError, BrokerUnreachable, TopicError
from acs_aaep_bridge.kafka.client import Clients, reach

_POLL_MS: Final = 500

C = TypeVar("C", AIOKafkaConsumer, AIOKafkaProducer)


@contextmanager
def broker_errors(doing: str) -> Iterator[None]:
    """What aiokafka raises, told as an error of ours: `doing` completes the sentence."""
    try:
        yield
    except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
        raise AuthorizationError(f"not allowed to {doing}: {type(error).__name__}") from None
    except (KafkaError, TimeoutError) as error:
        raise BrokerUnreachable(f"could not {doing}: {str(error) or type(error).__name__}") from None


class Part(NamedTuple):
    """Some records of a topic, and how many of those known at the start are done, of how many."""

    records: Sequence[Record]
    done: int
    total: int


@asynccontextmanager
async def connected(
    config: Config, doing: str, topics: Collection[str], make: Callable[[Clients], C]
) -> AsyncIterator[tuple[C, list[TopicPartition]]]:
    """The client that `make` makes, started, and the partitions of `topics`; stopped behind the block.

    Raises StartError for what the broker does not have or does not allow, in the block too; `doing` says what could not be done.
    """
    clients = Clients(config)
    await reach(clients, config.kafka)
    client = make(clients)
    with broker_errors(doing):
        try:
            await client.start()
            yield client, await _partitions_of(clients, topics) if topics else []
        finally:
            await client.stop()


@asynccontextmanager
async def _reader(config: Config, topics: Collection[str]) -> AsyncIterator[tuple[AIOKafkaConsumer, list[TopicPartition]]]:
    doing = f"read {', '.join(topics)}"
    async with connected(config, doing, topics, lambda clients: clients.reader("reader")) as (consumer, partitions):
        consumer.assign(partitions)
        yield consumer, partitions


async def _partitions_of(clients: Clients, topics: Collection[str]) -> list[TopicPartition]:
    """All partitions of `topics`. Raises TopicError naming those that do not exist; makes none."""
    client = clients.plain("reader-metadata")
    try:
        await client.bootstrap()
        cluster = await client.fetch_all_metadata()
    finally:
        await client.close()
    missing = [topic for topic in topics if not cluster.partitions_for_topic(topic)]
    if missing:
        raise TopicError(f"there is no topic {', '.join(missing)}; `acs-aaep-bridge topics create` makes the bridge's own")
    return [TopicPartition(topic, one) for topic in topics for one in sorted(cluster.partitions_for_topic(topic))]


async def to_end(config: Config, topic: str) -> AsyncGenerator[Part, None]:
    """Everything in `topic` up to what is its end now, in order within each partition.

    Raises StartError when the broker, the topic or a right is missing.
    """
    async with _reader(config, [topic]) as (consumer, partitions):
        begin: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
        end: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        total = sum(end.values()) - sum(begin.values())
        for partition in partitions:
            consumer.seek(partition, begin[partition])
        waiting = {partition for partition in partitions if begin[partition] < end[partition]}
        while waiting:
            batches = await consumer.getmany(*waiting, timeout_ms=_POLL_MS)
            records = [as_record(one) for each, batch in batches.items() for one in batch if one.offset < end[each]]
            positions = {partition: await consumer.position(partition) for partition in partitions}
            waiting = {partition for partition in waiting if positions[partition] < end[partition]}
            done = sum(min(position, end[each]) - begin[each] for each, position in positions.items())
            yield Part(records, done, total)


async def follow(
    config: Config, topics: Collection[str], start: Literal["beginning", "end"], ready: Callable[[], None] = lambda: None
) -> AsyncGenerator[Record, None]:
    """The records of `topics`, for ever; `ready` is called when nothing that comes from now on can be missed."""
    async with _reader(config, topics) as (consumer, partitions):
        ask: Any = consumer.beginning_offsets if start == "beginning" else consumer.end_offsets
        offsets: dict[TopicPartition, int] = await ask(partitions)
        for partition in partitions:
            consumer.seek(partition, offsets[partition])
        ready()
        while True:
            batches = await consumer.getmany(timeout_ms=_POLL_MS)
            for batch in batches.values():
                for one in batch:
                    yield as_record(one)


def as_record(one: Any) -> Record:
    """aiokafka's record as ours."""
    return Record(one.topic, one.partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
