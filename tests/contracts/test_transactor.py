"""A transactor: all or nothing, with the input offset, and only from the latest who holds the id."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition

from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.kafka.entries import entries
from acs_aaep_bridge.kafka.ports import Item, Owed, Refused
from tests.contracts.conftest import LIMIT, PARTITIONS, Place

AT = 1_780_000_000_123


def _items(place: Place, *values: bytes) -> list[Item]:
    return [Item(Outgoing(place.names.normalized, b"key", value, (), AT)) for value in values]


async def _values(place: Place) -> list[bytes | None]:
    return [one.value for one in await asyncio.to_thread(place.read, place.names.normalized)]


async def _committed(place: Place, tp: TopicPartition) -> int | None:
    async with place.member() as member:
        await member.owns(PARTITIONS)
        async with asyncio.timeout(20):
            # The end of a transaction is answered before its markers are written.
            while (found := await member.source.committed(tp)) is None:
                await member.source.poll([], 0.05)
        return found


async def test_output_and_offset_appear_together(place: Place) -> None:
    """Nothing shows before the commit, everything after it, and the group has the offset."""
    place.needs("transactions")
    tp = TopicPartition(place.names.raw, 1)
    transactor = place.backend.transactor("normalize", tp)
    await transactor.start()
    try:
        await transactor.begin()
        await transactor.send(_items(place, b"a", b"b"))
        assert await _values(place) == []
        await transactor.commit(tp, 42)
        assert await _values(place) == [b"a", b"b"]
        assert await _committed(place, tp) == 42
    finally:
        await transactor.kill(5)


async def test_the_next_owner_fences_the_former(place: Place) -> None:
    """Once another has started for the same partition, what the former had open never shows."""
    place.needs("transactions")
    tp = TopicPartition(place.names.raw, 0)
    former, latter = (place.backend.transactor("normalize", tp) for _ in range(2))
    await former.start()
    try:
        await former.begin()
        await former.send(_items(place, b"former"))
        await latter.start()
        with pytest.raises(Exception):  # noqa: B017, PT011 - fencing has many faces, and all are answered alike
            async with asyncio.timeout(15):
                await former.commit(tp, 1)
        await latter.begin()
        await latter.send(_items(place, b"latter"))
        await latter.commit(tp, 2)
        assert await _values(place) == [b"latter"]
        assert await _committed(place, tp) == 2
    finally:
        await former.kill(5)
        await latter.kill(5)


async def test_what_was_open_at_a_kill_never_shows(place: Place) -> None:
    """A killed transactor's work is settled by the next start."""
    place.needs("transactions")
    tp = TopicPartition(place.names.raw, 2)
    first, second = (place.backend.transactor("normalize", tp) for _ in range(2))
    await first.start()
    await first.begin()
    await first.send(_items(place, b"lost"))
    await first.kill(5)
    await second.start()
    try:
        await second.begin()
        await second.send(_items(place, b"kept"))
        await second.commit(tp, 7)
        assert await _values(place) == [b"kept"]
    finally:
        await second.kill(5)


async def test_a_refusal_is_told_and_nothing_shows(place: Place) -> None:
    """An item that is too large fails the transaction, which is then given up."""
    place.needs("transactions", "size limits")
    tp = TopicPartition(place.names.raw, 0)
    transactor = place.backend.transactor("normalize", tp)
    await transactor.start()
    large = _items(place, b"x" * (LIMIT + 1))
    try:
        await transactor.begin()
        with pytest.raises(Refused) as refused:
            await transactor.send([*_items(place, b"small"), *large], alone=True)
        assert [item for item, _ in refused.value.refusals] == large
    finally:
        await transactor.kill(5)
    assert await _values(place) == []


async def test_state_comes_back_in_order(place: Place) -> None:
    """The changelog gives its entries in log order, where the input goes on, and an end that moves when anyone writes."""
    place.needs("end offsets")
    probe = place.backend.probe("lifecycle")
    await probe.start()
    try:
        changelog = place.backend.changelog(probe)
        loaded: list[tuple[bytes, bytes | None]] = []

        def load(key: bytes, value: bytes | None) -> None:
            loaded.append((key, value))

        empty = await changelog.restore(1, load, lambda entries, position, end: None)
        assert (empty.entries, empty.end, empty.next_offset) == (0, 0, None)
        await asyncio.to_thread(_write_state, place, changelog.topic)
        restored = await changelog.restore(1, load, lambda entries, position, end: None)
        assert loaded == [(b"one", b"1"), (b"two", b"2"), (b"one", None)]
        assert restored.entries == 3
        assert restored.end == await changelog.end(1) == 3
        assert await changelog.end(0) == 0
    finally:
        await probe.stop()


async def test_what_is_owed_comes_back_until_it_is_written_off(place: Place) -> None:
    """An event that was written with its session is given whole, unless a later entry of the session is without it."""
    place.needs("end offsets")
    names = place.names
    said = [Outgoing(names.lifecycle, b"s", value, (("h", b"\xff"), ("none", None)), AT) for value in (b"\x00event", b"next")]
    probe, sink = place.backend.probe("lifecycle"), place.backend.sink("lifecycle")
    await probe.start()
    await sink.start()
    try:
        changelog = place.backend.changelog(probe)
        owed = {b"paid": said[:1], b"gone": said[:1], b"due": said}
        await sink.send(entries(changelog.topic, 2, [(key, b"state") for key in owed], AT, owed))
        await sink.send(entries(changelog.topic, 2, [(b"paid", b"later"), (b"gone", None)], AT))
        restored = await changelog.restore(2, lambda key, value: None, lambda count, position, end: None)
        assert restored.entries == 5
        assert restored.owed == (Owed(b"due", b"state", tuple(said)),)
    finally:
        await sink.stop(5)
        await probe.stop()


def _write_state(place: Place, topic: str) -> None:
    place.write(topic, 1, [(b"one", b"1"), (b"two", b"2"), (b"one", None)])
