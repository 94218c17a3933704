"""The traffic that other tests rely on is what it says it is."""

from __future__ import annotations

import random

import pytest

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Emit, Outcome, Record, Reject
from acs_aaep_bridge.core.stages import build_stage
from tests import traffic

NORMALIZE = build_stage("normalize", Config())


def _record(sent: traffic.Sent) -> Record:
    return Record("acs.events.raw", 0, 0, 1_780_000_000_000, sent.key, sent.value, sent.headers)


def _fate(outcome: Outcome) -> str:
    if isinstance(outcome, Emit):
        return "emit"
    return f"reject:{outcome.code}" if isinstance(outcome, Reject) else f"skip:{outcome.reason}"


@pytest.mark.parametrize("kind", traffic.ODDITIES)
def test_every_oddity_meets_its_stated_fate(kind: str) -> None:
    """What the generator claims of an odd record is what the normalize stage does with it."""
    chance = random.Random(1)
    sent = traffic.ODDITIES[kind](chance, traffic.Clock(chance))
    outcomes = NORMALIZE.apply(_record(sent), NORMALIZE.new_state(), 0)
    assert tuple(map(_fate, outcomes)) == sent.fate


def test_the_fleet_sends_nothing_wrong() -> None:
    """Every record of the fleet is emitted, with and without calls in subagents."""
    for calls in (False, True):
        for sent in traffic.fleet(7, 500, calls_in_children=calls):
            (outcome,) = NORMALIZE.apply(_record(sent), NORMALIZE.new_state(), 0)
            assert isinstance(outcome, Emit), outcome


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Two runs with one seed agree, and another seed differs."""
    first, again, other = (list(traffic.mixed(seed, 300)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_every_oddity_and_outcome_occurs() -> None:
    """A thousand mixed records hold every kind of oddity and every outcome of a subagent."""
    sent = list(traffic.mixed(5, 1_000))
    fates = {fate for one in sent for fate in one.fate}
    chance = random.Random(2)
    wanted = {fate for make in traffic.ODDITIES.values() for fate in make(chance, traffic.Clock(chance)).fate}
    assert fates == wanted
    text = b"".join(one.value or b"" for one in sent)
    assert all(f'"outcome":"{outcome}"'.encode() in text for outcome in traffic.OUTCOMES)


def test_a_standard_stop_has_its_size() -> None:
    """The record of the benchmarks is 600 bytes, and valid."""
    for sent in traffic.standard_stops(9, 20):
        assert sent.value is not None
        assert len(sent.value) == 600
        (outcome,) = NORMALIZE.apply(_record(sent), NORMALIZE.new_state(), 0)
        assert isinstance(outcome, Emit)
