"""Sample traffic: real hooks by the bridge's own rules, and what it claims to be."""

from __future__ import annotations

from collections import Counter
from itertools import count, islice
from pathlib import Path
from random import Random

import pytest

from acs_aaep_bridge.config import load
from acs_aaep_bridge.core.model import Emit, Outcome, Record, Reject, Skip
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.samples import SCENES, Host, Sample, not_events, poison, rounds

EXAMPLE = Path(__file__).parents[1] / "examples" / "agents.jsonl"
START = 1_780_000_000_000


def one_round(seed: int = 1) -> list[Sample]:
    ticks = count(START, 400)
    return list(next(rounds(seed, lambda: next(ticks))))


def outcomes(samples: list[Sample]) -> list[tuple[Outcome, ...]]:
    stage = build_stage("normalize", load("", {}))
    state = stage.new_state()
    records = (Record("raw", 0, offset, START, sample.key, sample.value) for offset, sample in enumerate(samples))
    return [stage.apply(record, state, START) for record in records]


def test_the_same_seed_and_clock_give_the_same_records() -> None:
    assert one_round() == one_round()
    assert one_round() != one_round(2)


def test_each_round_has_sessions_of_its_own() -> None:
    ticks = count(START)
    first, second = (list(one) for one in islice(rounds(1, lambda: next(ticks)), 2))
    assert not {sample.key for sample in first} & ({sample.key for sample in second} - {None})


def test_a_sample_says_how_many_events_are_in_it() -> None:
    samples = one_round()
    assert [len(found) for found in outcomes(samples)] == [sample.events for sample in samples]
    assert max(sample.events for sample in samples) > 1


def test_what_is_called_poison_is_rejected_each_for_another_reason_and_the_rest_is_not() -> None:
    codes: Counter[str] = Counter()
    for _, scene in SCENES:
        samples = list(scene(Host(Random(1), lambda: START, "agent")))
        flat = [one for found in outcomes(samples) for one in found]
        rejected = [one for one in flat if isinstance(one, Reject)]
        if scene is poison:
            assert len(rejected) == len(flat)
            codes.update(one.code for one in rejected)
        elif scene is not_events:
            assert all(isinstance(one, Skip) for one in flat)
        else:
            assert all(isinstance(one, Emit) for one in flat) or len(samples) == 1
            assert len(rejected) <= 1
    assert len(codes) >= 5


def test_every_outcome_of_a_subagent_occurs() -> None:
    text = b"".join(sample.value or b"" for sample in one_round())
    for outcome in ("completed", "failed", "cancelled", "timeout", "denied_at_spawn"):
        assert f'"outcome":"{outcome}"'.encode() in text


def test_the_example_file_is_such_traffic() -> None:
    """`examples/agents.jsonl` is one round without the records that a text file cannot hold."""
    written = "".join(f"{text}\n" for text in map(as_text, one_round()) if text)
    if EXAMPLE.read_text(encoding="utf-8") != written:
        EXAMPLE.write_text(written, encoding="utf-8")
        pytest.fail(f"{EXAMPLE.name} was not up to date; it is now, look at the difference")


def as_text(sample: Sample) -> str:
    try:
        return (sample.value or b"").decode()
    except UnicodeDecodeError:
        return ""
