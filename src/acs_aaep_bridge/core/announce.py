"""Turning what happened into sentences: who is meant, what was said, how long it took (docs/mapping.md, 3).

The sentences themselves are rows of `texts`. Whatever comes from a payload is cleaned here and cut to its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from acs_aaep_bridge.core.clean import clean
from acs_aaep_bridge.core.cut import cut
from acs_aaep_bridge.core.model import Json
from acs_aaep_bridge.core.texts import LANGUAGES, Row

SUMMARY_LIMIT = 16_384
NAME_LIMIT = 64
SENTENCE_LIMIT = 200
LONGEST_MS = 86_400_000
MAX_STEPS = 1 << 53
_CACHED = 4_096
_MIN_SENTENCE = 12

_READABLE = re.compile(r"[A-Za-z][A-Za-z0-9 ._-]{0,39}")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_FINAL_STOPS = (".", "!", "?", "…", "。", "！", "？")
_SENTENCE_END = re.compile(r"[.!?…](?= )|[。！？]")
_OPENS_SENTENCE = re.compile(r"(^|[.!?] )\{(agent|child|who|tool)\}")


class Name(NamedTuple):
    """A name as it stands inside a sentence, and at its start."""

    inside: str
    first: str


class Result(NamedTuple):
    """What an agent returned, cleaned. `spoken` is False for JSON that is not a string: it is shown, never spoken."""

    text: str
    spoken: bool


class Words(NamedTuple):
    """What fills the placeholders of one row. None where the row has no use for it, or it is not known."""

    agent: Name | None = None
    child: Name | None = None
    tool: Name | None = None
    reason: str | None = None
    result: Result | None = None
    steps: int | None = None
    duration_ms: int | None = None


class Announcer:
    """Speaks one language under one content policy. Immutable; remembers names it has already cleaned."""

    def __init__(self, language: str, names: Mapping[str, str], redacting: bool, include_summary: bool) -> None:
        self.language = LANGUAGES[language]
        self._rows = {key: Row(*map(_capitalizing, row)) for key, row in self.language.rows.items()}
        self._names = dict(names)
        self._redacting = redacting
        self._include_summary = include_summary
        self.agent = lru_cache(_CACHED)(self._agent)
        self.full_name = lru_cache(_CACHED)(self.clean)
        self._name = lru_cache(_CACHED)(self._cleaned_name)
        self.child = lru_cache(_CACHED)(self._child)
        self.tool = lru_cache(_CACHED)(self._tool)
        self._count = lru_cache(_CACHED)(self._counted)
        self._sizes = tuple(size for size, _ in self.language.units)

    def clean(self, text: str) -> str:
        """`text` cleaned under this policy."""
        return clean(text, self._redacting)

    def result(self, summary: Json) -> Result | None:
        """The result in an ACS `summary` object; None when there is none to show or the policy keeps results out."""
        value = summary.get("value") if isinstance(summary, dict) else None
        if value is None or not self._include_summary:
            return None
        spoken = isinstance(value, str)
        text = self.clean(value if spoken else orjson.dumps(value).decode())
        return Result(cut(text, SUMMARY_LIMIT), spoken) if text else None

    def reason(self, text: str) -> str:
        """A host's own words for why something ended, without the final stop."""
        text = self.clean(text)
        return cut(text[:-1].rstrip() if text.endswith(_FINAL_STOPS) else text, SENTENCE_LIMIT)

    def texts(self, key: str, words: Words) -> dict[str, Any]:
        """`summary_terse` and `summary_normal` of a row, and `summary_detailed` where it says more than normal."""
        row = self._rows[key]
        filling = _filling(words)
        result = words.result
        spoken = result is not None and result.spoken
        if spoken and row.spoken and result is not None:
            filling["short"] = first_sentence(result.text)
            normal = row.spoken.format_map(filling)
        else:
            normal = row.normal.format_map(filling)
        texts = {"summary_terse": row.terse.format_map(filling), "summary_normal": normal}
        if row.timed:
            detailed = self._detailed(row, filling, words)
            if detailed != normal:
                texts["summary_detailed"] = detailed
        return texts

    def _detailed(self, row: Row, filling: dict[str, str], words: Words) -> str:
        filling["after"] = self._after(words.steps, words.duration_ms)
        told = words.result is not None and row.told and (words.result.spoken or row is self._rows["subagent_failed"])
        if not told or words.result is None:
            return row.timed.format_map(filling)
        filling["value"] = value = words.result.text
        text = row.told.format_map(filling)
        if len(text) > SUMMARY_LIMIT:
            filling["value"] = cut(value, max(1, len(value) - len(text) + SUMMARY_LIMIT))
            text = row.told.format_map(filling)
        return text

    def _after(self, steps: int | None, duration_ms: int | None) -> str:
        """ " after 12 steps and 2 minutes 5 seconds", as far as it is known; empty when nothing is."""
        counted = "" if steps is None else self._count(-1, steps)
        timed = "" if duration_ms is None else self._span(duration_ms)
        if counted and timed:
            return self.language.after_both.format(steps=counted, time=timed)
        return self.language.after.format(one=counted or timed) if counted or timed else ""

    def _span(self, duration_ms: int) -> str:
        """A length of time in its two largest units ("2 minutes 5 seconds"); empty below a second and above a day."""
        if not 1_000 <= duration_ms <= LONGEST_MS:
            return ""
        rest = duration_ms // 1000
        sizes = self._sizes
        largest = next(index for index, size in enumerate(sizes) if rest >= size)
        parts: list[str] = []
        for index in range(largest, min(largest + 2, len(sizes))):
            number, rest = divmod(rest, sizes[index])
            if number:
                parts.append(self._count(index, number))
        return " ".join(parts)

    def _counted(self, unit: int, number: int) -> str:
        forms = self.language.steps if unit < 0 else self.language.units[unit][1]
        return forms[self.language.plural(number)].format(n=number)

    def _agent(self, name: str | None, agent_id: str, platform: str | None) -> Name:
        for candidate in (name, self._names.get(agent_id), _readable(agent_id), _readable(platform)):
            if candidate and (cleaned := self._name(candidate)):
                return Name(cleaned, cleaned)
        return _word(self.language.agent)

    def _child(self, session_uuid: str, name: str | None) -> Name:
        cleaned = self._name(name) if name else ""
        number = sha256(session_uuid.encode()).hexdigest()[:3].upper()
        word = Name(cleaned, cleaned) if cleaned else _word(self.language.subagent)
        return Name(f"{word.inside} {number}", f"{word.first} {number}")

    def _tool(self, name: str) -> Name:
        cleaned = self._name(name)
        return Name(cleaned, cleaned) if cleaned else _word(self.language.tool)

    def _cleaned_name(self, text: str) -> str:
        return cut(self.clean(text), NAME_LIMIT)


def first_sentence(text: str) -> str:
    """The first sentence of a cleaned text, at most 200 characters; an abbreviation in the first twelve does not end it."""
    if text.isascii() and "! " not in text and "? " not in text:  # what most results are, without the regular expression
        stop = text.find(". ", _MIN_SENTENCE)
        end = len(text) if stop < 0 else stop + 1
    else:
        found = _SENTENCE_END.search(text, _MIN_SENTENCE)
        end = found.end() if found else len(text)
    return cut(text[:end], SENTENCE_LIMIT)


def _filling(words: Words) -> dict[str, str]:
    """A word for each placeholder, and under its capitalized name the form for the start of a sentence."""
    agent, child, tool, reason, *_ = words
    filling: dict[str, str] = {}
    if agent is not None:
        filling["agent"], filling["Agent"] = filling["who"], filling["Who"] = agent
    if child is not None:
        filling["child"], filling["Child"] = filling["who"], filling["Who"] = child
    if tool is not None:
        filling["tool"], filling["Tool"] = tool
    if reason is not None:
        filling["reason"] = reason
    return filling


def _readable(text: str | None) -> str | None:
    return text if text and _READABLE.fullmatch(text) and not _UUID.fullmatch(text) else None


def _word(word: str) -> Name:
    return Name(word, word[:1].upper() + word[1:])


def _capitalizing(template: str) -> str:
    return _OPENS_SENTENCE.sub(lambda match: f"{match[1]}{{{match[2].capitalize()}}}", template)
