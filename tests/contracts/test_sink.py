"""A sink: what it says is acknowledged is in the log, whole and in order, where everybody else would put it."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from aiokafka.partitioner import murmur2

from acs_aaep_bridge.core.model import Outgoing
from acs_aaep_bridge.kafka.ports import Item, Refused
from tests.contracts.conftest import LIMIT, PARTITIONS, Place

AT = 1_780_000_000_123


def _item(place: Place, key: bytes | None, value: bytes | None) -> Item:
    headers = (("content-type", b"application/json"), ("same", b"1"), ("same", b"2"), ("none", None), ("", b""))
    return Item(Outgoing(place.names.normalized, key, value, headers, AT))


async def test_what_is_acknowledged_is_in_the_log(place: Place) -> None:
    """Key, value, headers and timestamp as they were handed over; also a null value, a null key and doubled headers."""
    items = [_item(place, b"key", b"value"), _item(place, b"key", None), _item(place, None, b"no key"), _item(place, b"", b"")]
    async with place.sink() as sink:
        await sink.send(items)
    found = await asyncio.to_thread(place.read, place.names.normalized)
    assert sorted((one.key, one.value, one.headers, one.timestamp) for one in found if one.key and one.value) == [
        (b"key", b"value", items[0].outgoing.headers, AT)
    ]
    assert {(one.key, one.value) for one in found} == {(item.outgoing.key, item.outgoing.value) for item in items}
    assert all(one.headers == items[0].outgoing.headers and one.timestamp == AT for one in found)


async def test_a_key_goes_where_the_java_client_puts_it(place: Place) -> None:
    """By murmur2, and in the order of sending."""
    items = [_item(place, b"session-%d" % (number % 20), b"%d" % number) for number in range(400)]
    async with place.sink() as sink:
        await asyncio.gather(*(sink.send(items[start : start + 50]) for start in range(0, len(items), 50)))
    found = await asyncio.to_thread(place.read, place.names.normalized)
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for one in found:
        assert one.key is not None
        assert one.partition == (murmur2(one.key) & 0x7FFFFFFF) % PARTITIONS
        by_key[one.key].append(int(one.value or b""))
    assert all(numbers == sorted(numbers) and len(numbers) == 20 for numbers in by_key.values())


async def test_what_is_given_up_is_not_published(place: Place) -> None:
    """What still waits for its turn when its sender gives up: a partition that is someone else's by now."""
    async with place.sink() as sink:
        first, second, third = (sink.send([_item(place, b"key", value)]) for value in (b"1", b"2", b"3"))
        second.cancel()
        await asyncio.gather(first, third)
        await sink.send([_item(place, b"key", b"4")])
    found = await asyncio.to_thread(place.read, place.names.normalized)
    assert [one.value for one in found] == [b"1", b"3", b"4"]


async def test_a_place_can_be_named(place: Place) -> None:
    """An item that names its partition goes there, whatever its key."""
    async with place.sink() as sink:
        await sink.send([_item(place, b"same", b"%d" % number)._replace(partition=number) for number in range(PARTITIONS)])
    found = await asyncio.to_thread(place.read, place.names.normalized)
    assert [(one.partition, one.value) for one in found] == [(number, b"%d" % number) for number in range(PARTITIONS)]


async def test_what_is_too_large_is_refused_by_itself(place: Place) -> None:
    """The refusal names the item, and the others of the delivery are published."""
    place.needs("size limits")
    small, large = [_item(place, b"key", b"%d" % number) for number in range(30)], _item(place, b"key", b"x" * (LIMIT + 1))
    async with place.sink() as sink:
        assert sink.fits(small[0].outgoing)
        assert not sink.fits(large.outgoing)
        with pytest.raises(Refused) as refused:
            await sink.send([*small[:15], large, *small[15:]])
        assert refused.value.refusals == [(large, "too_large")]
        await sink.send([_item(place, b"key", b"after")])
    found = await asyncio.to_thread(place.read, place.names.normalized)
    assert [one.value for one in found] == [*(item.outgoing.value for item in small), b"after"]


async def test_nothing_to_send_is_done_at_once(place: Place) -> None:
    """An empty delivery needs no broker."""
    async with place.sink() as sink:
        await asyncio.wait_for(sink.send([]), 1)
        await sink.room()
        assert sink.overdue(0.0) is None
