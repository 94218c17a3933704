"""Session ids, event ids and timestamps: everything a subscriber recognizes an event by (docs/mapping.md, 1 and 2).

All of it is a function of the input: no clock, no random number, no offset. The same hook gives the same ids for ever.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256

STARTED = "started"
TERMINAL = "terminal"

_NAMESPACE = "acs-aaep-bridge/1"
_EPOCH = datetime(1970, 1, 1)  # naive UTC: aware arithmetic costs twice as much and overflows at the edges
_MILLISECOND = timedelta(milliseconds=1)
_MIN_MS = (datetime.min - _EPOCH) // _MILLISECOND
_MAX_MS = (datetime.max - _EPOCH) // _MILLISECOND

_DATE_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_FRACTIONS = tuple(f".{millis:03d}Z" for millis in range(1000))
_MILLIS = {fraction: millis for millis, fraction in enumerate(_FRACTIONS)}
_NOT_DIGIT = re.compile(r"[^0-9]")
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def bare(uuid: str) -> str:
    """The UUID's 32 hex digits, lower case, as AAEP ids want them."""
    return uuid.replace("-", "").lower()


def subagent_session(session_uuid: str) -> str:
    """The AAEP session of a subagent: one for its whole ACS session."""
    return "sess_" + bare(session_uuid)


def request_session(session_uuid: str, key: str) -> str:
    """The AAEP session of one user request in a root session.

    `key` is the turn id, or the `request_id` of the hook that opened the request where there is none.
    """
    return f"sess_{bare(session_uuid)}t{sha256(key.encode()).hexdigest()[:16]}"


def event_id(role: str, session: str, discriminator: str = "") -> str:
    """The id subscribers deduplicate on. `session` is the AAEP session's id.

    `role` is `STARTED` or `TERMINAL`, of which a session has one each, or the full AAEP type with a discriminator.
    """
    text = "\x1f".join((_NAMESPACE, role, session, discriminator))
    return "evt_" + sha256(text.encode()).hexdigest()[:32]


def tool_call(request_id: str) -> str:
    """The AAEP `tool_call_id` of a `toolCallRequest`."""
    return "call_" + bare(request_id)


def output(request_id: str) -> str:
    """The AAEP `output_id` of an `agentResponse`."""
    return "out_" + bare(request_id)


def is_timestamp(text: str) -> bool:
    """Whether `text` is an RFC 3339 date-time: calendar days, offsets up to 23:59, `:60` only at 23:59:60 UTC."""
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    offset_hour, offset_minute = int(match[9] or 0), int(match[10] or 0)
    if not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
        return False
    if hour > 23 or minute > 59 or second > 60 or offset_hour > 23 or offset_minute > 59:
        return False
    utc = hour * 60 + minute - (-1 if match[8] == "-" else 1) * (offset_hour * 60 + offset_minute)
    return second < 60 or utc % 1440 == 1439


def _days(year: int, month: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _DAYS[month - 1] + leap


def timestamp_ms(text: str) -> int | None:
    """Milliseconds since the epoch of a well-formed RFC 3339 date-time, truncated; a leap second is 59.999.

    None when it cannot be represented: year 0000, or outside the years 1 to 9999 once its offset is applied.
    The format is a precondition (`is_timestamp`, or a schema that asserts it); other text may raise ValueError.
    """
    try:
        ms = _whole_second(text[:19])
        if (millis := _MILLIS.get(text[19:])) is not None:
            return ms + millis
    except ValueError:
        if text[:4] == "0000":
            return None
        ms = _whole_second(text[:17] + "59") + 999
    else:
        if text[19] == ".":
            ms += int(text[20:23]) if len(text) == 24 else _fraction(text[20:23])
    if text[-1] in "Zz":
        return ms
    offset = (int(text[-5:-3]) * 60 + int(text[-2:])) * 60_000
    ms += offset if text[-6] == "-" else -offset
    return ms if _MIN_MS <= ms <= _MAX_MS else None


def _fraction(digits: str) -> int:
    """Milliseconds of the three characters after the point, the last of which may belong to the offset."""
    if not digits.isdecimal():
        digits = _NOT_DIGIT.split(digits)[0]
    return int(digits) * (1, 100, 10, 1)[len(digits)]


@lru_cache(maxsize=4096)
def _whole_second(text: str) -> int:
    """Hooks of one moment share their second, and reading it is most of the work."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MILLISECOND


def format_timestamp(ms: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ` of milliseconds since the epoch; raises OverflowError outside the years 1 to 9999."""
    return _second(ms // 1000) + _FRACTIONS[ms % 1000]


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """The way back from `_whole_second`, kept for the same reason."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()
