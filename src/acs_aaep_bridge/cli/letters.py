"""Dead letters as the commands see them: the rejected record, and what its headers say went wrong."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import orjson

from acs_aaep_bridge.cli.reading import Part, to_end
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.deadletter import ERROR_PREFIX, original_headers, replay_count
from acs_aaep_bridge.core.model import Headers, Record


class Letter(NamedTuple):
    """One dead letter. `error` holds its `bridge.error.*` headers by their last part (`code`, `topic`, …)."""

    record: Record
    error: dict[str, str]

    @property
    def code(self) -> str:
        return self.error.get("code", "")

    @property
    def source(self) -> str:
        """The topic the record came from, and goes back to."""
        return self.error.get("topic", "")

    @property
    def replays(self) -> int:
        return replay_count(self.record.headers)

    @property
    def truncated(self) -> bool:
        """Whether the record itself was too large to keep: the value is a reference to it."""
        return "truncated" in self.error

    def original_headers(self) -> Headers:
        return original_headers(self.record.headers)

    def method(self) -> str:
        """The hook's name as the record has it, "" if it has none."""
        if self.truncated:
            return ""
        try:
            tree = orjson.loads(self.record.value or b"")
        except orjson.JSONDecodeError:
            return ""
        found = tree.get("method") if isinstance(tree, dict) else None
        return found if isinstance(found, str) else ""

    def described(self) -> dict[str, Any]:
        """The rejected record in the form that `translate --records` and `explain --records` read, and the error beside it."""
        told: dict[str, Any] = {"topic": self.source or self.record.topic, "timestamp": self.record.timestamp}
        for name in ("partition", "offset"):
            if self.error.get(name, "").isdecimal():
                told[name] = int(self.error[name])
        if self.record.key is not None:
            told["key"] = self.record.key.decode(errors="replace")
        headers = self.original_headers()
        if headers:
            told["headers"] = [[name, None if value is None else value.decode(errors="replace")] for name, value in headers]
        return told | _value(self.record.value) | {"error": self.error, "replays": self.replays}


def _value(value: bytes | None) -> dict[str, str | None]:
    try:
        return {"value": None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value or b"").decode()}


def as_letter(record: Record) -> Letter:
    """Of a header that occurs twice the last one counts."""
    named = {name.removeprefix(ERROR_PREFIX): value for name, value in record.headers if name.startswith(ERROR_PREFIX)}
    return Letter(record, {name: (value or b"").decode(errors="replace") for name, value in named.items()})


class Selection(NamedTuple):
    """Which dead letters are meant. `codes` empty means any; `since` in milliseconds since the epoch."""

    codes: frozenset[str]
    since: int

    def takes(self, letter: Letter) -> bool:
        return (not self.codes or letter.code in self.codes) and letter.record.timestamp >= self.since


async def selected(
    config: Config, selection: Selection, progress: Callable[[Part], None] = lambda part: None
) -> AsyncGenerator[list[Letter], None]:
    """The dead letters that are meant and are there now, some at a time."""
    async with aclosing(to_end(config, config.topics.dead_letter)) as parts:
        async for part in parts:
            progress(part)
            found = [letter for letter in map(as_letter, part.records) if selection.takes(letter)]
            if found:
                yield found
