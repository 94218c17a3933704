"""Ids and timestamps: the vectors every subscriber and every release must agree on."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acs_aaep_bridge.core import identity

UUID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
CHILD = "sess_7c9e6679742540de944be07fc1f90ae7"
ROOT = "sess_7c9e6679742540de944be07fc1f90ae7t974cad2dd603827b"
REQUEST = "0b2f6f7e-0c1d-4e5f-8a9b-1c2d3e4f5a60"


@pytest.mark.parametrize("uuid", [UUID, UUID.upper()])
def test_sessions_are_named_by_the_lower_case_uuid(uuid: str) -> None:
    assert identity.subagent_session(uuid) == CHILD
    assert identity.request_session(uuid, "turn-1") == ROOT


@pytest.mark.parametrize(
    ("role", "session", "discriminator", "expected"),
    [
        (identity.STARTED, CHILD, "", "evt_972e91fc5c6c88c5fc7aa85792896438"),
        (identity.TERMINAL, CHILD, "", "evt_f78442ba632c9130c9f744ea625296a7"),
        ("aaep:agent.tool.invoked", CHILD, f"{REQUEST}:0", "evt_427b297ae6513b8d44bd1419c9ddc35b"),
        (
            "aaep:agent.tool.completed",
            CHILD,
            f"{identity.tool_call(REQUEST)}:end",
            "evt_9dc4b56a9cbee8964b23b3f944b63364",
        ),
        (identity.STARTED, ROOT, "", "evt_0f9d0c95af5228654a313ed696009233"),
        (identity.TERMINAL, ROOT, "", "evt_ba8ffec71da2db061f1aba35a1b73f22"),
    ],
)
def test_event_ids_are_the_published_vectors(role: str, session: str, discriminator: str, expected: str) -> None:
    assert identity.event_id(role, session, discriminator) == expected


@pytest.mark.parametrize("uuid", [REQUEST, REQUEST.upper()])
def test_tool_calls_and_outputs_are_named_by_their_request(uuid: str) -> None:
    assert identity.tool_call(uuid) == "call_0b2f6f7e0c1d4e5f8a9b1c2d3e4f5a60"
    assert identity.output(uuid) == "out_0b2f6f7e0c1d4e5f8a9b1c2d3e4f5a60"


@given(st.text(), st.text(), st.text())
def test_every_id_fits_the_patterns_of_aaep(role: str, key: str, discriminator: str) -> None:
    session = identity.request_session(UUID, key)
    assert re.fullmatch(r"sess_[A-Za-z0-9]{1,64}", session)
    assert re.fullmatch(r"evt_[A-Za-z0-9]{1,64}", identity.event_id(role, session, discriminator))


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-05-24T15:22:38.9217+01:00", "2026-05-24T14:22:38.921Z"),
        ("2026-09-19T10:00:03Z", "2026-09-19T10:00:03.000Z"),
        ("2026-09-19t10:00:03z", "2026-09-19T10:00:03.000Z"),
        ("2026-09-19T10:00:03.1Z", "2026-09-19T10:00:03.100Z"),
        ("2026-09-19T10:00:03.12Z", "2026-09-19T10:00:03.120Z"),
        ("2026-09-19T10:00:03.1-00:30", "2026-09-19T10:30:03.100Z"),
        ("2026-09-19T10:00:03.123456789012345Z", "2026-09-19T10:00:03.123Z"),
        ("2026-09-19T10:00:03.9999999999Z", "2026-09-19T10:00:03.999Z"),
        ("2026-09-19T10:00:03-00:00", "2026-09-19T10:00:03.000Z"),
        ("2026-09-19T10:00:03+14:00", "2026-09-18T20:00:03.000Z"),
        ("2026-09-19T10:00:03+23:59", "2026-09-18T10:01:03.000Z"),
        ("2026-12-31T23:59:60Z", "2026-12-31T23:59:59.999Z"),
        ("2026-12-31T23:59:60.25Z", "2026-12-31T23:59:59.999Z"),
        ("2026-12-31T15:59:60.123-08:00", "2026-12-31T23:59:59.999Z"),
        ("2027-01-01T00:59:60+01:00", "2026-12-31T23:59:59.999Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000Z"),
        ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:60Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_timestamp_becomes_utc_truncated_to_milliseconds(text: str, utc: str) -> None:
    assert identity.is_timestamp(text)
    ms = identity.timestamp_ms(text)
    assert ms is not None
    assert identity.format_timestamp(ms) == utc


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "0000-02-29T00:00:00Z",
        "0000-12-31T23:59:60Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-12:00",
    ],
)
def test_a_well_formed_timestamp_that_no_calendar_holds_has_no_milliseconds(text: str) -> None:
    assert identity.is_timestamp(text)
    assert identity.timestamp_ms(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-09-19",
        "2026-09-19T10:00:03",
        "2026-09-19T10:00Z",
        "2026-09-19 10:00:03Z",
        "2026-09-19_10:00:03Z",
        "2026-09-19T10:00:03Z\n",
        " 2026-09-19T10:00:03Z",
        "2026-09-19T10:00:03.Z",
        "2026-09-19T10:00:03,5Z",
        "2026-09-19T10:00:03+0100",
        "2026-09-19T10:00:03+01",
        "2026-09-19T10:00:03+24:00",
        "2026-09-19T10:00:03+14:60",
        "2026-09-19T24:00:00Z",
        "2026-09-19T10:60:00Z",
        "2026-09-19T10:00:61Z",
        "2026-09-19T12:34:60Z",
        "2026-06-30T23:59:60+01:00",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-00-10T00:00:00Z",
        "2026-13-10T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-04-00T00:00:00Z",
        "٢٠٢٦-09-19T10:00:03Z",
        "2026-09-19T10:00:03.٢Z",
        "1789812003000",
    ],
)
def test_other_forms_are_not_timestamps(text: str) -> None:
    assert not identity.is_timestamp(text)


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.integers(-1439, 1439))
def test_any_moment_in_any_zone_keeps_its_instant(moment: datetime, minutes: int) -> None:
    sign, distance = ("-", -minutes) if minutes < 0 else ("+", minutes)
    text = f"{moment.isoformat()}{sign}{distance // 60:02d}:{distance % 60:02d}"
    assert identity.is_timestamp(text)
    expected = (moment - timedelta(minutes=minutes)).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert identity.timestamp_ms(text) == expected // timedelta(milliseconds=1)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_survive_formatting(ms: int) -> None:
    text = identity.format_timestamp(ms)
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", text)
    assert identity.timestamp_ms(text) == ms
