"""What a worker must know before it begins: the sessions, and where its input goes on."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from aiokafka import TopicPartition

from acs_aaep_bridge.errors import OffsetOutOfRange
from acs_aaep_bridge.kafka.batch import Processor
from acs_aaep_bridge.kafka.ports import Changelog, Restored
from acs_aaep_bridge.kafka.surroundings import Surroundings

ASK_WITHIN = 30.0  # seconds for one question to the brokers


class Start(NamedTuple):
    """The first offset to be read, and the group's (None: it has none). `owes_commit`: asked again, the group would send us
    elsewhere than here."""

    offset: int
    committed: int | None
    owes_commit: bool


async def restore(around: Surroundings, partition: TopicPartition, processor: Processor, changelog: Changelog) -> Restored:
    """Fill the processor's state from the changelog. Raises UnreadableState, TimeoutError and whatever the client raises."""
    started, state = time.monotonic(), processor.state
    observer, place = around.observer, (around.name, *partition)
    where = around.where(partition)

    def tell_progress(entries: int, position: int, end: int) -> None:
        observer.restoring(*place, entries)
        observer.log("info", "partition.restoring", **where, entries=entries, position=position, end=end)

    observer.restoring(*place, 0)
    restored = await changelog.restore(partition.partition, state.load, tell_progress)
    state.loaded()
    observer.restoring(*place, restored.entries)
    observer.sessions_open(*place, state.open_sessions())
    observer.log(
        "info",
        "partition.restored",
        **where,
        entries=restored.entries,
        end=restored.end,
        open_sessions=state.open_sessions(),
        seconds=round(time.monotonic() - started, 3),
    )
    return restored


async def where_to_start(around: Surroundings, partition: TopicPartition, known: int | None) -> Start:
    """The larger of what the group has and what we know, within the log. Raises OffsetOutOfRange where policy says `block`."""
    async with asyncio.timeout(ASK_WITHIN):
        committed = await around.source.committed(partition)
        first, last = await around.source.bounds(partition)
    offsets = [offset for offset in (committed, known) if offset is not None]
    if not offsets:
        return Start(last, committed, True) if around.start == "latest" else Start(first, committed, False)
    start = max(offsets)
    if first <= start <= last:
        return Start(start, committed, start != committed)
    if around.on_out_of_range == "block":
        raise OffsetOutOfRange(
            f"the committed offset {start} is not in the log ({first} to {last}): records were deleted before they were "
            "read, or the topic was made anew; see input.on_out_of_range"
        )
    return Start(first if around.on_out_of_range == "earliest" else last, committed, True)
