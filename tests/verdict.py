"""Did everything arrive, and how often? An independent reader's topics against what the core says should be on them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from confluent_kafka import Message

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Outgoing, StageName
from tests import oracle
from tests.bridge import Names
from tests.brokers import topics

Delivery = Literal["exactly_once", "at_least_once"]
BOTH: tuple[StageName, ...] = ("normalize", "lifecycle")


class Lost(AssertionError):
    """Something that should be there is not."""


class Doubled(AssertionError):
    """Something is there twice and must not be."""


class Foreign(AssertionError):
    """Something is there that nothing accounts for, or differs by a byte from what it should be."""


class Disordered(AssertionError):
    """The events of a session are not in order."""


class Comparison(NamedTuple):
    """One output topic of one stage: what should be there and what is."""

    what: str
    wanted: Sequence[Outgoing]
    found: Sequence[Outgoing]

    def doubles(self) -> int:
        return len(oracle.compare(self.wanted, self.found)[1])


class Evidence:
    """Everything on the topics of a bridge that has caught up."""

    def __init__(self, names: Names, config: Config, stages: Sequence[StageName] = BOTH) -> None:
        self.names = names
        self.stages = stages
        self.raw = topics.read_all(names.bootstrap, names.raw)
        self.normalized = topics.read_all(names.bootstrap, names.normalized)
        self.lifecycle = topics.read_all(names.bootstrap, names.lifecycle)
        self.dead = topics.read_all(names.bootstrap, names.dead_letter)
        inputs = {"normalize": self.raw, "lifecycle": self.normalized}
        self.expected = {stage: oracle.expect(stage, config, inputs[stage]) for stage in stages}

    def comparisons(self) -> Iterator[Comparison]:
        names = self.names
        outputs = {"normalize": (names.normalized, self.normalized), "lifecycle": (names.lifecycle, self.lifecycle)}
        for stage in self.stages:
            topic, messages = outputs[stage]
            expected = self.expected[stage]
            yield Comparison(topic, expected.on(topic), _published(messages))
            mine = [one for one in _published(self.dead) if ("bridge.error.stage", stage.encode()) in one.headers]
            yield Comparison(f"dead letters of {stage}", expected.on(names.dead_letter), mine)

    def check(self, delivery: Delivery) -> None:
        """Nothing missing, nothing foreign, in order; once each, or byte-identical repeats where at-least-once allows them."""
        for comparison in self.comparisons():
            _check(comparison, delivery)


def _check(comparison: Comparison, delivery: Delivery) -> None:
    what, wanted, found = comparison
    missing, surplus = oracle.compare(wanted, found)
    if missing:
        raise Lost(f"{what}: missing {oracle.describe(missing)}")
    foreign = set(surplus) - set(wanted)
    if foreign:
        raise Foreign(f"{what}: not expected {oracle.describe(list(foreign))}")
    if surplus and delivery == "exactly_once":
        raise Doubled(f"{what}: doubled {oracle.describe(surplus)}")
    if "dead letters" not in what and _in_order(found) != _in_order(wanted):
        raise Disordered(f"{what}: the records of a session are not in the order of their input")


def _in_order(records: Sequence[Outgoing]) -> dict[tuple[bytes | None, int], list[bytes | None]]:
    """The values of each key in order; a repeat counts where it first was.

    Normalized events of one session come from the parent's and from its own raw partition, which overtake one another.
    """
    found: dict[tuple[bytes | None, int], dict[bytes | None, None]] = defaultdict(dict)
    for one in records:
        source = json.loads(one.value or b"{}").get("source", {})
        found[one.key, source.get("partition", -1)].setdefault(one.value)
    return {key: list(values) for key, values in found.items()}


def _published(messages: Sequence[Message]) -> list[Outgoing]:
    return [oracle.as_outgoing(message) for message in messages]
