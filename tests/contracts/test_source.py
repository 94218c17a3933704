"""A source: a member of a group that is given its records in order, once, and is told where the log goes on."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition

from acs_aaep_bridge.errors import OwnershipLost
from tests.contracts.conftest import PARTITIONS, Member, Place

VALUES = [b"value-%d" % number for number in range(300)]


async def test_records_come_in_order_and_say_where_the_log_goes_on(place: Place) -> None:
    """Every record once, in log order, and `next_offset` never behind them."""
    await asyncio.to_thread(place.publish, place.names.raw, 1, VALUES)
    async with place.member() as member:
        owned = await member.owns(PARTITIONS)
        for tp in owned:
            member.source.seek(tp, 0)
        fetches = await member.collect(owned, len(VALUES))
        assert [record.value for one in fetches for record in one.records] == VALUES
        assert [record.offset for one in fetches for record in one.records] == list(range(len(VALUES)))
        assert fetches[-1].next_offset == len(VALUES)
        assert {one.partition for one in fetches} == {TopicPartition(place.names.raw, 1)}


async def test_a_partition_that_was_not_sought_is_not_read(place: Place) -> None:
    """After an assignment nothing comes before `seek` says from where."""
    await asyncio.to_thread(place.publish, place.names.raw, 0, VALUES)
    async with place.member() as member:
        owned = await member.owns(PARTITIONS)
        for _ in range(3):
            assert await member.source.poll(owned, 0.1) == []
        member.source.seek(owned[0], 290)
        (first, *_) = await member.collect(owned[:1], 10)
        assert first.records[0].offset == 290


async def test_seeking_back_reads_again(place: Place) -> None:
    """What was given is given again after a seek, and a paused partition gives nothing."""
    await asyncio.to_thread(place.publish, place.names.raw, 0, VALUES)
    async with place.member() as member:
        (tp, *_) = await member.owns(PARTITIONS)
        member.source.seek(tp, 0)
        await member.collect([tp], 100)
        member.source.pause(tp)
        assert await member.source.poll([tp], 0.1) == []
        member.source.seek(tp, 7)
        (again, *_) = await member.collect([tp], 1)
        assert again.records[0].offset == 7


async def test_a_commit_is_found_by_the_next_member(place: Place) -> None:
    """Nothing is committed at first; what is committed outlives the member."""
    await asyncio.to_thread(place.publish, place.names.raw, 0, VALUES)
    async with place.member() as member:
        (tp, *_) = await member.owns(PARTITIONS)
        assert await member.source.committed(tp) is None
        await member.source.commit({tp: 123})
        assert await member.source.committed(tp) == 123
    async with place.member() as successor:
        await successor.owns(PARTITIONS)
        assert await successor.source.committed(tp) == 123


async def test_two_members_share_the_partitions(place: Place) -> None:
    """A second member takes its share after a revoke, and gives it back when it leaves."""
    async with place.member() as first:
        everything = await first.owns(PARTITIONS)
        async with place.member() as second:
            both = asyncio.gather(_settles(first, second), _settles(second, first))
            async with asyncio.timeout(60):
                await both
            assert sorted(first.owned | second.owned) == everything
            assert not first.owned & second.owned
            assert first.revoked_so_far[0] == frozenset(everything)
            assert first.source.joined()
            assert second.source.joined()
        await first.owns(PARTITIONS, 60)


async def _settles(one: Member, other: Member) -> None:
    """Poll until both own something and all is dealt out."""
    while not (one.owned and other.owned and len(one.owned) + len(other.owned) == PARTITIONS):
        await one.source.poll([], 0.05)


async def test_a_commit_for_a_partition_that_is_gone_is_refused(place: Place) -> None:
    """Who has lost a partition hears `OwnershipLost` and commits nothing."""
    async with place.member() as member:
        (tp, *_) = await member.owns(PARTITIONS)
        await member.source.commit({tp: 1})
        elsewhere = TopicPartition(place.names.normalized, 0)
        with pytest.raises(OwnershipLost):
            await member.source.commit({elsewhere: 5})
        assert not member.source.owns(elsewhere)
        assert await member.source.committed(tp) == 1


async def test_caught_up_is_told_from_not_yet(place: Place) -> None:
    """`seen_until` has a time only when the broker has said that there is nothing more."""
    place.needs("end offsets")
    await asyncio.to_thread(place.publish, place.names.raw, 0, VALUES)
    async with place.member() as member:
        (tp, *_) = await member.owns(PARTITIONS)
        member.source.seek(tp, 0)
        assert member.source.seen_until(tp) is None
        await member.collect([tp], len(VALUES))
        async with asyncio.timeout(20):
            while member.source.seen_until(tp) is None:
                await member.source.poll([tp], 0.1)
        assert member.source.position(tp) == len(VALUES)


async def test_the_bounds_of_a_partition(place: Place) -> None:
    """The first offset and the one after the last, also of an empty partition."""
    place.needs("end offsets")
    await asyncio.to_thread(place.publish, place.names.raw, 2, VALUES)
    async with place.member() as member:
        first, _, third = await member.owns(PARTITIONS)
        assert await member.source.bounds(first) == (0, 0)
        assert await member.source.bounds(third) == (0, len(VALUES))
