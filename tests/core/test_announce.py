"""Every sentence, word for word, and who is named in it."""

from __future__ import annotations

from typing import Any

import pytest
from aaep_conformance.checks.safety import check_no_secrets_in_args_summary
from tests.samples import CHILD

from acs_aaep_bridge.core.announce import SUMMARY_LIMIT, Announcer, Name, Result, Words, first_sentence
from acs_aaep_bridge.core.texts import ENGLISH, LANGUAGES

AGENT = Name("planner", "planner")
SUBAGENT = Name("subagent 631", "Subagent 631")
EXPLORE = Name("Explore 631", "Explore 631")
TOOL = Name("Edit", "Edit")
SAYS = Result("Found 3 flights. Cheapest is 412 EUR.", True)
TABLE = Result('{"a":1}', False)

SENTENCES: list[tuple[str, Words, str, str, str | None]] = [
    ("request_started", Words(AGENT), "planner is working.", "planner working.", None),
    ("request_started", Words(Name("agent", "Agent")), "Agent is working.", "Agent working.", None),
    ("request_completed", Words(AGENT), "planner is done.", "planner done.", None),
    ("request_errored", Words(AGENT), "planner ran into an error.", "planner failed.", None),
    ("request_interrupted", Words(AGENT), "planner was interrupted.", "planner interrupted.", None),
    ("request_deferred", Words(AGENT), "planner is waiting for a decision.", "planner waiting.", None),
    ("request_denied", Words(AGENT), "A policy denied the request to planner.", "planner denied.", None),
    ("request_denied", Words(Name("agent", "Agent")), "A policy denied the request to agent.", "Agent denied.", None),
    ("request_stopped", Words(AGENT), "planner was stopped.", "planner stopped.", None),
    ("request_timed_out", Words(AGENT), "planner ran out of time.", "planner timed out.", None),
    ("request_ended", Words(AGENT, reason="quota"), "planner ended: quota.", "planner ended.", None),
    ("request_ended_bare", Words(AGENT, reason=""), "planner ended.", "planner ended.", None),
    ("request_unreported", Words(AGENT), "No result was reported for planner.", "planner: no result.", None),
    ("request_superseded", Words(AGENT, SUBAGENT), "planner goes on as subagent 631.", "Subagent 631.", None),
    ("subagent_started", Words(AGENT, SUBAGENT), "planner is starting subagent 631.", "Subagent 631 starting.", None),
    ("subagent_active", Words(child=SUBAGENT), "Subagent 631 is active.", "Subagent 631 active.", None),
    ("subagent_completed", Words(child=EXPLORE), "Explore 631 finished.", "Explore 631 done.", None),
    (
        "subagent_completed",
        Words(child=EXPLORE, result=SAYS, steps=12, duration_ms=125_000),
        "Explore 631 finished. It says: Found 3 flights.",
        "Explore 631 done.",
        "Explore 631 finished after 12 steps and 2 minutes 5 seconds. It says: Found 3 flights. Cheapest is 412 EUR.",
    ),
    (
        "subagent_completed",
        Words(child=EXPLORE, result=Result("Done.", True)),
        "Explore 631 finished. It says: Done.",
        "Explore 631 done.",
        None,
    ),
    ("subagent_completed", Words(child=EXPLORE, result=TABLE), "Explore 631 finished.", "Explore 631 done.", None),
    ("subagent_failed", Words(child=EXPLORE), "Explore 631 failed.", "Explore 631 failed.", None),
    (
        "subagent_failed",
        Words(child=EXPLORE, result=TABLE, steps=1),
        "Explore 631 failed.",
        "Explore 631 failed.",
        'Explore 631 failed after 1 step. It says: {"a":1}',
    ),
    (
        "subagent_cancelled",
        Words(child=EXPLORE, result=SAYS, duration_ms=3_600_000),
        "Explore 631 was cancelled.",
        "Explore 631 cancelled.",
        "Explore 631 was cancelled after 1 hour.",
    ),
    (
        "subagent_timed_out",
        Words(child=EXPLORE, steps=0, duration_ms=999),
        "Explore 631 ran out of time.",
        "Explore 631 timed out.",
        "Explore 631 ran out of time after 0 steps.",
    ),
    (
        "subagent_denied",
        Words(child=EXPLORE, steps=3),
        "Explore 631 was not started: a policy denied it.",
        "Explore 631 denied.",
        None,
    ),
    (
        "subagent_ended",
        Words(child=EXPLORE, reason="quota", duration_ms=61_000),
        "Explore 631 ended: quota.",
        "Explore 631 ended.",
        "Explore 631 ended after 1 minute 1 second: quota.",
    ),
    ("subagent_ended_bare", Words(child=EXPLORE, reason=""), "Explore 631 ended.", "Explore 631 ended.", None),
    (
        "subagent_unreported",
        Words(child=EXPLORE, duration_ms=5_000),
        "No result was reported for Explore 631.",
        "Explore 631: no result.",
        None,
    ),
    ("tool_invoked", Words(AGENT, tool=TOOL), "planner is using Edit.", "Edit.", None),
    ("tool_invoked", Words(child=SUBAGENT, tool=Name("tool", "Tool")), "Subagent 631 is using tool.", "Tool.", None),
    ("tool_success", Words(tool=TOOL), "Edit finished.", "Edit done.", None),
    ("tool_failure", Words(tool=TOOL), "Edit failed.", "Edit failed.", None),
    ("tool_timeout", Words(tool=TOOL), "Edit timed out.", "Edit timed out.", None),
    ("tool_blocked", Words(tool=TOOL), "Edit was blocked by a policy.", "Edit blocked.", None),
    ("tool_unanswered", Words(tool=TOOL), "No result was reported for Edit.", "Edit: no result.", None),
    ("condensing", Words(child=EXPLORE), "Explore 631 is condensing its memory.", "Condensing.", None),
]


def announcer(**names: str) -> Announcer:
    return Announcer("en", names, True, True)


@pytest.mark.parametrize(("row", "words", "normal", "terse", "detailed"), SENTENCES)
def test_each_sentence_is_said_word_for_word(row: str, words: Words, normal: str, terse: str, detailed: str | None) -> None:
    expected = {"summary_terse": terse, "summary_normal": normal}
    if detailed is not None:
        expected["summary_detailed"] = detailed
    assert announcer().texts(row, words) == expected


def test_no_sentence_goes_untested() -> None:
    assert {sentence[0] for sentence in SENTENCES} == set(ENGLISH.rows)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=lambda language: language.tag)
def test_every_language_has_every_sentence(language: Any) -> None:
    assert set(language.rows) == set(ENGLISH.rows)


@pytest.mark.parametrize(
    ("name", "agent_id", "platform", "expected"),
    [
        ("Trip Planner", "a1", None, "Trip Planner"),
        (" \u202eTrip\x1b[31m  Planner ", "a1", None, "Trip Planner"),
        ("\u200b", "trip-planner", None, "trip-planner"),
        (None, "known", None, "Known One"),
        (None, "trip-planner", None, "trip-planner"),
        (None, "7c9e6679-7425-40de-944b-e07fc1f90ae7", "claude-code", "claude-code"),
        (None, "a7c9e6679742540de944be07fc1f90ae", "claude-code", "claude-code"),
        (None, "0x123", None, None),
        (None, "a" * 41, None, None),
        (None, "agent:7", "9platform", None),
        (None, "", None, None),
        ("n" * 80, "a1", None, "n" * 63 + "…"),
    ],
)
def test_an_agent_is_called_by_the_first_name_a_person_could_use(
    name: str | None, agent_id: str, platform: str | None, expected: str | None
) -> None:
    found = announcer(known="Known One").agent(name, agent_id, platform)
    assert found == (Name(expected, expected) if expected else Name("agent", "Agent"))


@pytest.mark.parametrize(("name", "expected"), [("Explore", "Explore 631"), (None, "Subagent 631"), ("\u200b", "Subagent 631")])
def test_a_subagent_is_told_apart_by_three_hex_digits(name: str | None, expected: str) -> None:
    assert announcer().child(CHILD, name).first == expected


def test_two_subagents_of_one_moment_sound_different() -> None:
    """UUIDv7s made together share their first digits, so the number comes from a hash."""
    ids = [f"0190a5c4-1111-7000-8000-00000000000{n}" for n in range(4)]
    assert len({announcer().child(one, "Explore").first for one in ids}) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Found 3 flights. Cheapest is 412.", "Found 3 flights."),
        ("Yes. It works as planned. More.", "Yes. It works as planned."),
        ("Version 1.2.3 is out. More.", "Version 1.2.3 is out."),
        ("Is this the answer? Yes.", "Is this the answer?"),
        ("Alles ist fertig geworden… Mehr.", "Alles ist fertig geworden…"),
        ("三つの便が見つかりました、とても安い。次の文です。", "三つの便が見つかりました、とても安い。"),
        ("No stop at all", "No stop at all"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_the_first_sentence_is_what_is_spoken(text: str, expected: str) -> None:
    assert first_sentence(text) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("logout", "logout"), ("Used up.", "Used up"), (".", ""), ("", ""), ("x" * 300, "x" * 199 + "…"), ("a\nb!", "a b")],
)
def test_a_reason_is_cut_and_loses_its_final_stop(reason: str, expected: str) -> None:
    assert announcer().reason(reason) == expected


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        (None, None),
        ({}, None),
        ("text", None),
        ({"value": None}, None),
        ({"value": " \u200b"}, None),
        ({"value": "a\tb"}, Result("a b", True)),
        ({"value": {"b": [1, None]}}, Result('{"b":[1,null]}', False)),
        ({"value": {"password": "hunter2"}}, Result("{[redacted]}", False)),
        ({"value": 0}, Result("0", False)),
        ({"value": False}, Result("false", False)),
    ],
)
def test_a_result_is_cleaned_and_json_is_never_spoken(summary: Any, expected: Result | None) -> None:
    assert announcer().result(summary) == expected


def test_a_detailed_text_fits_its_field_and_the_payload_gives_way() -> None:
    text = announcer().texts("subagent_failed", Words(child=EXPLORE, result=Result("é" * SUMMARY_LIMIT, True)))[
        "summary_detailed"
    ]
    assert len(text) == SUMMARY_LIMIT
    assert text.startswith("Explore 631 failed. It says: é")
    assert text.endswith("é…")


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [
        (999, ""),
        (1_000, "1 second"),
        (59_999, "59 seconds"),
        (60_000, "1 minute"),
        (125_900, "2 minutes 5 seconds"),
        (3_605_000, "1 hour"),
        (7_260_000, "2 hours 1 minute"),
        (86_399_999, "23 hours 59 minutes"),
        (86_400_000, "1 day"),
        (86_400_001, ""),
    ],
)
def test_time_is_told_in_its_two_largest_units(duration_ms: int, expected: str) -> None:
    told = announcer().texts("subagent_completed", Words(child=EXPLORE, duration_ms=duration_ms)).get("summary_detailed")
    assert told == (f"Explore 631 finished after {expected}." if expected else None)


def test_no_text_of_ours_looks_like_a_secret_to_the_public_checker() -> None:
    """Its keyword check takes innocent words of payloads for secrets, so it is asked about our own words only."""
    events = [dict(announcer().texts(row, words), event_id=row) for row, words, *_ in SENTENCES]
    assert check_no_secrets_in_args_summary(events).passed
