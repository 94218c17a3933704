"""Records from a file or from standard input, a line at a time: no file is too large, no line can fill the memory."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import click
import orjson

from acs_aaep_bridge.core.model import Headers, Record
from acs_aaep_bridge.errors import UsageError

LONGEST: Final = 64 << 20
"""Bytes of one line that are kept. Far above any record a broker takes; what is longer is cut, and rejected as too large."""

_CHUNK: Final = 1 << 20


class Line(NamedTuple):
    """One value, and the number of the line it begins on (from 1)."""

    number: int
    text: bytes


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """The file called `name`, or standard input for `-`. Raises UsageError, in one line, for one that cannot be read."""
    if name == "-":
        if sys.stdin.isatty():
            click.echo("Reading records from the keyboard, one a line; Ctrl-D ends.", err=True)
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below; only opening it may be told as an unreadable file
    except (OSError, ValueError) as error:
        raise UsageError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    with file:
        yield file


def lines(file: BinaryIO, name: str) -> Iterator[Line]:
    """The values in `file`: one a line, blank lines ignored; a `.json` file that is one document over many lines is one value."""
    if Path(name).suffix == ".json":
        first = file.readline(LONGEST + 1)
        while first and not first.strip():
            first = file.readline(LONGEST + 1)
        if first and not _is_json(first):
            yield Line(1, (first + file.read(LONGEST)).rstrip())
            return
        if first:
            yield Line(1, _without_end(first))
    number = 1 if Path(name).suffix == ".json" else 0
    while text := _next(file):
        number += 1
        if text.strip():
            yield Line(number, _without_end(text))


def _next(file: BinaryIO) -> bytes:
    text = file.readline(LONGEST + 1)
    if len(text) > LONGEST and not text.endswith(b"\n"):
        while (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
            pass
    return text


def _without_end(text: bytes) -> bytes:
    return text.removesuffix(b"\n").removesuffix(b"\r")


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def plain(line: Line, index: int, topic: str) -> Record:
    """The line as the value of a record that has no timestamp."""
    return Record(topic, 0, index, -1, None, line.text)


def described(line: Line, index: int, topic: str) -> Iterator[Record]:
    """The records that a line of the `--records` form describes: one, or each of an array.

    Raises UsageError naming the line and the member.
    """
    try:
        tree = orjson.loads(line.text)
    except orjson.JSONDecodeError:
        tree = None
    for place, member in enumerate(tree if isinstance(tree, list) else [tree]):
        if not isinstance(member, dict):
            raise UsageError(f"line {line.number}: with --records each line is a JSON object that describes a record")
        form = _Form(line.number, member)
        yield Record(
            form.text("topic") or topic,
            form.number("partition", 0),
            form.number("offset", index + place),
            form.number("timestamp", -1),
            _encoded(form.text("key")),
            form.value(),
            form.headers(),
        )


class _Form:
    """Reads the members of one described record."""

    def __init__(self, line: int, tree: dict[str, Any]) -> None:
        self._line, self._tree = line, tree

    def text(self, name: str) -> str | None:
        found = self._tree.get(name)
        if found is not None and not isinstance(found, str):
            raise self._wrong(name, "text or null")
        return found

    def number(self, name: str, default: int) -> int:
        found = self._tree.get(name)
        if found is None:
            return default
        if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found < 1 << 63:
            raise self._wrong(name, "a whole number")
        return found

    def value(self) -> bytes | None:
        if "value_base64" in self._tree:
            try:
                return base64.b64decode(self.text("value_base64") or "", validate=True)
            except (binascii.Error, ValueError):
                raise self._wrong("value_base64", "base64") from None
        if "value" not in self._tree:
            raise self._wrong("value", "there (text or null), or value_base64 instead")
        return _encoded(self.text("value"))

    def headers(self) -> Headers:
        found = self._tree.get("headers") or []
        pairs = list(found.items()) if isinstance(found, dict) else found
        if not isinstance(pairs, list) or not all(map(_is_header, pairs)):
            raise self._wrong("headers", "an object of texts, or a list of [name, text] pairs")
        return tuple((name, _encoded(text)) for name, text in pairs)

    def _wrong(self, name: str, wanted: str) -> UsageError:
        return UsageError(f"line {self._line}: {name} must be {wanted}")


def _is_header(pair: object) -> bool:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return False
    return isinstance(pair[0], str) and (pair[1] is None or isinstance(pair[1], str))


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
