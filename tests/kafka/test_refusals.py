"""What a topic will not take is answered with a stand-in, never with a loss and never with a loop."""

from __future__ import annotations

import hashlib
import json

import pytest
from aiokafka import TopicPartition
from tests.kafka.bench import LETTERS, NORMALIZED, RAW, config, log, record, running

from acs_aaep_bridge.core.deadletter import ERROR_PREFIX
from acs_aaep_bridge.kafka.memory import MemorySink, MemoryTransactor

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
KNOWN = pytest.mark.parametrize("known", [True, False], ids=["measured", "refused by the broker"])


def _blind(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Without a measure of our own, the broker's refusal is the first we hear of it."""
    if not known:
        for sink in (MemorySink, MemoryTransactor):
            monkeypatch.setattr(sink, "fits", lambda self, outgoing: True)


@DELIVERIES
@KNOWN
async def test_an_event_that_is_too_large_is_dead_lettered(delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input goes to the dead letters as `output_too_large`; its neighbours are published; all are counted right."""
    _blind(monkeypatch, known)
    memory = log(normalized=100)
    memory.publish(RAW, b"before", b"x" * 200, b"after", key=b"k", at=5)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
    assert sorted(memory.values(NORMALIZED), key=str) == [b"n:after", b"n:before"]
    letter = record(memory, LETTERS)
    assert letter.value == b"x" * 200
    assert dict(letter.headers)[ERROR_PREFIX + "code"] == b"output_too_large"
    assert +run.watcher.events == {"emitted": 2, "rejected": 1}
    assert run.watcher.letters == {"output_too_large": 1}


@DELIVERIES
@KNOWN
async def test_a_dead_letter_that_is_too_large_becomes_a_reference(
    delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is, how large it is and its digest stand in for it."""
    _blind(monkeypatch, known)
    memory = log(letters=300)
    value = b"bad" + b"x" * 400
    memory.publish(RAW, b"before", value, b"after", key=b"k", at=5)
    async with running(memory, config(delivery)) as run:
        await run.until_committed(memory)
    letter = record(memory, LETTERS)
    content = json.loads(letter.value or b"")
    assert (content["topic"], content["partition"], content["offset"], content["size"]) == (RAW, 0, 1, 403)
    assert content["sha256"] == hashlib.sha256(value).hexdigest()
    assert dict(letter.headers)[ERROR_PREFIX + "truncated"] == b"true"
    assert len(memory.values(NORMALIZED)) == 2
    assert run.watcher.letters == {"payload_invalid": 1}


@DELIVERIES
@KNOWN
async def test_where_not_even_the_reference_fits_the_partition_stands_still(
    delivery: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead-letter topic that takes nothing loses nothing: it blocks, and says so."""
    _blind(monkeypatch, known)
    memory = log(letters=10)
    memory.publish(RAW, b"bad" + b"x" * 400, key=b"k", at=5)
    async with running(memory, config(delivery)) as run:
        await run.until(lambda: "even a reference" in " ".join(run.watcher.reasons["normalize"]))
    assert not memory.committed.get(("g-normalize", TopicPartition(RAW, 0)))
