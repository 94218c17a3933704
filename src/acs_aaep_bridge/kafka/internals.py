"""Every private part of aiokafka that the bridge touches, and nothing else. Each has a test that fails when it changes.

None of these blocks unless it is a coroutine; what they raise is aiokafka's own.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import aiokafka.admin.client
import aiokafka.client
import aiokafka.conn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator
from aiokafka.errors import AuthenticationFailedError, KafkaError, StaleMetadata, for_code
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from acs_aaep_bridge.core.model import Headers

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2


class _AskOnly(MetadataRequest):
    """A metadata request that never makes the broker create the topics it names."""

    def __init__(self, topics: list[str] | None = None, allow_auto_topic_creation: bool | None = None) -> None:
        super().__init__(topics, allow_auto_topic_creation=bool(allow_auto_topic_creation))


def forbid_topic_creation() -> None:
    """Keep every aiokafka client of this process from creating topics by asking about them.

    A topic that an operator deletes would otherwise come back at once, with the broker's default partition count.
    """
    for module in (aiokafka.client, aiokafka.admin.client):
        vars(module)["MetadataRequest"] = _AskOnly


class _HeedingAuthenticator(OAuthAuthenticator):
    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if self._token_sent and payload:
            raise AuthenticationFailedError(f"the broker does not accept the token: {payload[:200]!r}")
        answer: tuple[bytes, bool] | None = await super().step(payload)  # type: ignore[no-untyped-call]
        return answer


def heed_refused_tokens() -> None:
    """Make a refused OAUTHBEARER token an error, in every aiokafka client of this process.

    The broker answers it with success and a body that says why not (RFC 7628, 3.2.2). aiokafka does not look, takes itself
    for authenticated, and is told of a cluster without brokers from then on.
    """
    vars(aiokafka.conn)["OAuthAuthenticator"] = _HeedingAuthenticator


async def probe(host: str, port: int, settings: Mapping[str, Any]) -> None:
    """Connect, negotiate and authenticate with one broker, then hang up. Raises the first error as it is."""
    options = {key: value for key, value in settings.items() if key.startswith(("sasl_", "ssl_", "security_"))}
    connection = AIOKafkaConnection(host, port, client_id=settings["client_id"], request_timeout_ms=10_000, **options)
    try:
        await connection.connect()
    finally:
        connection.close()
        if connection._protocol is not None and connection._closed_fut is not None:  # there was a socket: until it is closed
            await asyncio.wait([connection._closed_fut], timeout=1)


def repair_fetch_count(consumer: AIOKafkaConsumer) -> None:
    """After `getmany` raised: its context manager does not count down then, and the poll-interval guard is off for good."""
    subscription = consumer._subscription
    subscription._fetch_count = 0
    subscription._last_fetch_ended = time.monotonic()


def keep_alive(consumer: AIOKafkaConsumer) -> None:
    """What a poll does for a member with nothing to poll: stay within the poll interval, raise what went wrong behind it."""
    if consumer._coordinator is not None:
        consumer._coordinator.check_errors()
    with consumer._subscription.fetch_context():
        pass


def background_failed(consumer: AIOKafkaConsumer) -> bool:
    """Whether the fetch or the coordination task has died: `getmany` would wait for ever, or raise for ever."""
    tasks = []
    if consumer._fetcher is not None:
        tasks.append(consumer._fetcher._fetch_task)
    coordinator = consumer._coordinator
    if coordinator is not None and hasattr(coordinator, "_coordination_task"):
        tasks.append(coordinator._coordination_task)
    return not consumer._closed and any(task.done() for task in tasks)


def client_of(consumer: AIOKafkaConsumer) -> AIOKafkaClient:
    """The client below a consumer."""
    return consumer._client


def position(consumer: AIOKafkaConsumer, tp: TopicPartition) -> int | None:
    """Where the next fetch of `tp` reads; None if it is not assigned or has none yet. The public method may wait."""
    subscription = consumer._subscription
    if not subscription.is_assigned(tp):
        return None
    state = subscription.subscription.assignment.state_value(tp)
    return int(state.position) if state.has_valid_position else None


def is_rebalancing(consumer: AIOKafkaConsumer) -> bool:
    """Whether a rebalance is going on; `getmany` blocks while it is."""
    return bool(consumer._subscription.reassignment_in_progress)


def has_joined(consumer: AIOKafkaConsumer) -> bool:
    """Whether the consumer is a member of its group with an assignment, be it an empty one."""
    coordinator = consumer._coordinator
    return bool(coordinator is not None and coordinator.generation > 0 and not is_rebalancing(consumer))


async def stop_consumer(consumer: AIOKafkaConsumer, timeout: float) -> bool:
    """Leave the group and close; after `timeout` seconds give up and cancel what is left. True if it ended by itself."""
    task = asyncio.ensure_future(consumer.stop())
    done, _ = await asyncio.wait([task], timeout=timeout)
    # It may also end by a cancellation of aiokafka's own making, with sockets still open.
    if done and not task.cancelled() and task.exception() is None:
        return True
    consumer._closed = True
    await _cancel([task])
    owners = [consumer._coordinator, consumer._fetcher, consumer._client]
    await _cancel(_tasks_of([owner for owner in owners if owner is not None]))
    await close_client(consumer._client)
    return False


async def stop_producer(producer: AIOKafkaProducer, timeout: float) -> bool:
    """Flush and close; after `timeout` seconds give up and cancel what is left. True if it ended by itself.

    An open transaction is left to the next owner of its transactional id: nothing is aborted here. When this is cancelled,
    the producer is dropped at once.
    """
    task = asyncio.ensure_future(producer.stop())
    try:
        done, _ = await asyncio.wait([task], timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        drop_producer(producer)
        raise
    if done and not task.cancelled() and task.exception() is None:
        _abandon(producer)
        return True
    producer._closed = True
    await _cancel([task])
    sender, accumulator = producer._sender, producer._message_accumulator
    await _cancel(_tasks_of([sender, accumulator]))
    await close_client(producer.client)
    _abandon(producer)
    return False


def drop_producer(producer: AIOKafkaProducer) -> None:
    """Close its sockets and cancel its tasks without waiting for any of them."""
    producer._closed = True
    owners = [producer._sender, producer._message_accumulator, producer.client]
    for task in _tasks_of(owners):
        task.cancel()
    for connection in producer.client._conns.values():
        connection.close()
    _abandon(producer)


def _abandon(producer: AIOKafkaProducer) -> None:
    """Fail what nobody will send any more, and mark the failures as seen: those who waited for it have been told already."""
    accumulator, manager = producer._message_accumulator, producer._txn_manager
    given_up = KafkaError("the producer was given up")
    batches = [*accumulator._pending_batches, *(batch for queue in accumulator._batches.values() for batch in queue)]
    futures = [future for batch in batches for future in (batch.future, batch._drain_waiter)]
    accumulator.fail_all(given_up)
    if manager is not None and manager._transaction_waiter is not None:
        futures += [future for _, _, future in manager._pending_txn_offsets]
        if not manager._transaction_waiter.done():
            manager.fatal_error(given_up)
        futures.append(manager._transaction_waiter)
    for future in futures:
        if future.done() and not future.cancelled():
            future.exception()


async def close_client(client: AIOKafkaClient) -> None:
    """Close its connections, within a second. Never raises.

    In a task of its own: it awaits futures that were cancelled with whoever awaited them before, and that must not look as
    if the caller were cancelled.
    """
    task = asyncio.ensure_future(client.close())
    await asyncio.wait([task], timeout=1)
    await _cancel([task])


def transaction_error(producer: AIOKafkaProducer) -> BaseException | None:
    """Why the open transaction has failed, where the producer knows: what its batches then fail with only follows from that."""
    waiter = producer._txn_manager._transaction_waiter if producer._txn_manager is not None else None
    return waiter.exception() if waiter is not None and waiter.done() and not waiter.cancelled() else None


def _tasks_of(owners: Iterable[object]) -> list[asyncio.Task[Any]]:
    """Running tasks whose coroutine is a method of one of `owners`: aiokafka keeps some of them in local variables only."""
    wanted = {id(owner) for owner in owners}
    found = []
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        if frame is not None and id(frame.f_locals.get("self")) in wanted:
            found.append(task)
    return found


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel until they end: some of aiokafka's tasks answer the first cancellation by waiting for others."""
    for _ in range(5):
        pending = [task for task in tasks if not task.done()]
        if not pending:
            break
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.2)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


def batch_builder(producer: AIOKafkaProducer, limit: int) -> BatchBuilder:
    """An empty batch for `producer` that holds up to `limit` bytes before compression, however big its own batches are."""
    accumulator = producer._message_accumulator
    manager = producer._txn_manager
    transactional = manager is not None and manager.transactional_id is not None
    return BatchBuilder(limit, accumulator._compression_type, is_transactional=transactional)


def batch_size(producer: AIOKafkaProducer, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int) -> int:
    """How many bytes a batch with this one record has on the wire, compressed as `producer` does."""
    codec = producer._message_accumulator._compression_type
    builder = DefaultRecordBatchBuilder(2, codec, 1, -1, -1, 0, 1 << 30)
    builder.append(0, timestamp, key=key, value=value, headers=list(headers))
    return len(builder.build())


def partition_count(producer: AIOKafkaProducer, topic: str) -> int | None:
    """How many partitions `topic` has by the producer's metadata; None while unknown."""
    partitions = producer.client.cluster.partitions_for_topic(topic)
    return len(partitions) if partitions else None


async def list_offsets(
    client: AIOKafkaClient, partitions: Iterable[TopicPartition], which: int, isolation: int
) -> dict[TopicPartition, int]:
    """The first (`EARLIEST`) or next (`LATEST`) offset of each partition; with `READ_COMMITTED` the last stable one.

    Asks once; raises KafkaError when a leader is unknown or refuses. Partitions of unknown topics raise as well.
    """
    by_node: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for tp in partitions:
        leader = client.cluster.leader_for_partition(tp)
        if leader is None or leader == -1:
            client.add_topic(tp.topic)
            client.force_metadata_update()
            raise StaleMetadata(f"the leader of {tp.topic}-{tp.partition} is not known")
        by_node[leader][tp.topic].append((tp.partition, which))
    requests = [client.send(node, OffsetRequest(-1, isolation, list(topics.items()))) for node, topics in by_node.items()]
    found: dict[TopicPartition, int] = {}
    for response in await asyncio.gather(*requests):
        for topic, answers in response.topics:
            for partition, code, _timestamp, offset in answers:
                if code:
                    client.force_metadata_update()
                    raise for_code(code)(f"{topic}-{partition}")
                found[TopicPartition(topic, partition)] = offset
    return found


async def raw_fetch(
    client: AIOKafkaClient, tp: TopicPartition, offset: int, max_bytes: int
) -> tuple[bytes, list[tuple[int, int]]]:
    """The log of one partition from `offset` on as the broker keeps it, with the aborted transactions (producer, first offset).

    Reads committed data only. The first batch comes whole, however big it is; the last may be cut off.
    """
    leader = client.cluster.leader_for_partition(tp)
    if leader is None or leader == -1:
        client.add_topic(tp.topic)
        raise StaleMetadata(f"the leader of {tp.topic}-{tp.partition} is not known")
    request = FetchRequest(500, 1, max_bytes, READ_COMMITTED, [(tp.topic, [(tp.partition, offset, max_bytes)])])
    response = await client.send(leader, request)
    for _topic, partitions in response.topics:
        for _partition, code, _highwater, *rest in partitions:
            if code:
                raise for_code(code)(f"{tp.topic}-{tp.partition}")
            aborted = rest[2] if response.API_VERSION >= 11 else rest[-2]
            return bytes(rest[-1] or b""), [(producer, first) for producer, first in aborted or ()]
    raise StaleMetadata(f"{tp.topic}-{tp.partition} is missing from the answer")


def unpack(batch: bytes) -> Iterable[Any]:
    """The records of one batch of the log: `offset`, `timestamp`, `key`, `value`, `headers` each. By compiled code."""
    records: Iterable[Any] = DefaultRecordBatch(batch)
    return records
