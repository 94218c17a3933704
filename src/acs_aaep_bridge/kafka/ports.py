"""What the workers need of Kafka, so that the same machinery runs on the real thing and in memory.

Every method that is not a coroutine returns at once. Coroutines are called under a deadline of the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from aiokafka import TopicPartition

from acs_aaep_bridge.core.model import Outgoing, Record, Reject, StageName, WriterSchema

FailPoint = Callable[[str], None]
"""Called at named moments (`transaction_open outputs_acked changelog_acked before_commit after_commit`); a test may die there."""

TroubleKind = Literal["out_of_range", "authorization", "corrupt", "failing"]
Refusal = Literal["too_large", "timestamp"]
Ends = tuple[int, int]
"""The last stable offset of a partition, and its high watermark."""


class Fault(NamedTuple):
    """A record that the client could not hand over whole: goes to the dead letters with this code."""

    code: str
    message: str


class Fetched(NamedTuple):
    """Records of one partition in log order. `next_offset` is where the log goes on, past markers and what was compacted."""

    partition: TopicPartition
    records: Sequence[Record]
    next_offset: int
    faults: Mapping[int, Fault] = {}


class Trouble(NamedTuple):
    """A partition that cannot be read, and why in words. None: the consumer as a whole."""

    partition: TopicPartition | None
    kind: TroubleKind
    message: str


class Item(NamedTuple):
    """One record to be published and where it came from, so that a refusal can be answered.

    `partition` None: by the key. `record` None: a timer's or the changelog's. `reject` is set for a dead letter. `session` is
    the changelog key of the session that a timer spoke for, `element` the place in the record's JSON-RPC batch, if it is one.
    """

    outgoing: Outgoing
    partition: int | None = None
    record: Record | None = None
    method: str = ""
    reject: Reject | None = None
    session: bytes | None = None
    element: int | None = None


class Refused(Exception):
    """The broker will never take these items, each with why; the others of the same delivery may have been taken."""

    def __init__(self, refusals: Sequence[tuple[Item, Refusal]]) -> None:
        super().__init__(f"the broker refused {len(refusals)} records")
        self.refusals = refusals


class Owed(NamedTuple):
    """What a timer decided of a session and nobody may have heard yet. To be published; then `value` is to be written anew."""

    key: bytes
    value: bytes
    outgoing: tuple[Outgoing, ...]


class Restored(NamedTuple):
    """What a restore found: how many entries, the end of the log, and where the input goes on (None if never written)."""

    entries: int
    end: int
    next_offset: int | None
    owed: tuple[Owed, ...] = ()


class Listener(Protocol):
    """Is told of the assignment, from within the rebalance."""

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """These are owned now, and paused. No heartbeat is sent while this runs: it must return at once."""

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """These will be gone when this returns. Heartbeats go on. Never raises."""


class Source(Protocol):
    """One member of a consumer group."""

    async def start(self, listener: Listener) -> None:
        """Connect and begin to join. Raises when no broker can be reached."""

    async def stop(self, timeout: float) -> None:
        """Leave and close within `timeout` seconds; after that it is closed without leaving. Never raises."""

    async def poll(self, partitions: Collection[TopicPartition], timeout: float) -> Sequence[Fetched | Trouble]:
        """What there is of `partitions`, waiting up to `timeout` seconds, longer during a rebalance. Never raises.

        With none it only keeps the membership alive. What it returns is accepted: the next poll goes on after it.
        """

    def joined(self) -> bool:
        """Whether the group has an assignment for this member, be it an empty one."""

    def alive(self) -> bool:
        """False when the client is beyond repair and must be made anew."""

    def owns(self, partition: TopicPartition) -> bool: ...

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading there, and read: the partition is resumed."""

    def pause(self, partition: TopicPartition) -> None:
        """Read no more of it, throwing away what was fetched ahead. Ignored for a partition that is not owned."""

    def seen_until(self, partition: TopicPartition) -> int | None:
        """The wall clock (ms) at which the broker last said there is nothing more to read; None if there was, or unknown."""

    def position(self, partition: TopicPartition) -> int | None:
        """Where the next fetch reads; moves over markers without records. None if unknown."""

    async def committed(self, partition: TopicPartition) -> int | None: ...

    async def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset in the log and the one after the last (high watermark)."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for the current generation. Raises `OwnershipLost` when the group has moved on."""


class Sink(Protocol):
    """Publishes at least once. Retries for ever what may still succeed."""

    async def start(self) -> None: ...

    async def stop(self, timeout: float) -> None: ...

    def send(self, items: Sequence[Item]) -> asyncio.Future[None]:
        """Done when all are acknowledged; `Refused` when all are settled and some never will be. In order per partition.

        Items that are cancelled (their future is) are dropped, but for those on their way to the broker already.
        """

    def fits(self, outgoing: Outgoing) -> bool:
        """Whether the topic would take it, compressed as it will be."""

    @property
    def suspect(self) -> int:
        """Values up to so many bytes fit for sure, and need no measuring."""

    async def room(self) -> None:
        """Returns when fewer bytes are in flight than allowed."""

    def forbidden(self) -> str | None:
        """What the broker does not let us write, in words; None when it has not said so. It is tried on and on."""

    def overdue(self, seconds: float) -> str | None:
        """What has waited longer than that for its acknowledgement, in words; None when nothing has."""


class Transactor(Protocol):
    """One transactional producer, for one input partition. After any failure: `kill`, never abort."""

    async def start(self) -> None:
        """Fence the former owner of the transactional id and settle what it left open."""

    async def begin(self) -> None: ...

    async def send(self, items: Sequence[Item], alone: bool = False) -> None:
        """Returns when every one is acknowledged. Raises `Refused`, or what went wrong.

        With `alone` each goes in a batch of its own, so that a refusal names the one.
        """

    async def commit(self, partition: TopicPartition, offset: int) -> None:
        """Put the input offset into the transaction and end it."""

    def fits(self, outgoing: Outgoing) -> bool: ...

    @property
    def suspect(self) -> int: ...

    async def kill(self, timeout: float) -> None:
        """Give up within `timeout` seconds, leaving an open transaction to the next `start`. Never raises."""


class Changelog(Protocol):
    """The durable state of input partitions."""

    topic: str

    async def restore(
        self, partition: int, load: Callable[[bytes, bytes | None], None], progress: Callable[[int, int, int], None]
    ) -> Restored:
        """Load every entry in log order. `progress(entries, position, end)` is called on the way."""

    async def end(self, partition: int) -> int:
        """The end offset now, committed data only."""


class SchemaSource(Protocol):
    """Writer schemas by id, from a registry."""

    async def fetch(self, schema_id: int) -> WriterSchema | None:
        """The schema, None when the registry has none by that id. Raises, in time, when it cannot be asked."""


class Probe(Protocol):
    """Asks the broker how things stand, on a connection of its own."""

    async def start(self) -> None: ...

    async def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Ends]:
        """The ends of those that can be asked about; raises when no broker answers, also without partitions."""

    def partitions(self, topic: str) -> int | None:
        """How many the topic has by the last answer; None if it is gone or forbidden."""

    def forbidden(self, topic: str) -> bool:
        """Whether the broker, by its last answer, does not let us see the topic."""

    async def stop(self) -> None: ...


P = TypeVar("P", bound=Probe)


class Backend(Protocol[P]):
    """Makes the parts for a stage. None of them is connected yet."""

    def source(self, stage: StageName) -> Source: ...

    def sink(self, stage: StageName) -> Sink: ...

    def transactor(self, stage: StageName, partition: TopicPartition) -> Transactor:
        """A new producer for one input partition, fencing all others for the same one."""

    def probe(self, stage: StageName) -> P: ...

    def changelog(self, probe: P) -> Changelog: ...

    def expected(self, stage: StageName) -> dict[str, int]:
        """Partition counts of the topics a stage reads and writes, as they were found."""
