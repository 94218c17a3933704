"""The records of the changelog: what is written for a session, where the input goes on, and what is still to be said.

A session's record has its key, its entry (`core.statecodec`) as the value, and, while something that a timer decided is not
acknowledged yet, that event in a header `outbox`: state and event are one record, so neither is there without the other.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from acs_aaep_bridge.core.model import Header, Outgoing
from acs_aaep_bridge.errors import UnreadableState
from acs_aaep_bridge.kafka.ports import Item, Owed, Restored

NEXT_OFFSET_KEY = b"@next-offset"
"""Key of the entry that says where the input goes on, written in each transaction: a commit is answered before the offset is
readable, and whoever takes the partition starts at the larger of the two. No session has this key."""

OUTBOX = "outbox"
"""Name of the header with one event that is to be published; a record has one for each."""

_VERSION = 1


def entries(
    topic: str,
    partition: int,
    changes: Iterable[tuple[bytes, bytes | None]],
    timestamp: int,
    owed: Mapping[bytes, Sequence[Outgoing]] | None = None,
) -> list[Item]:
    """Changes of the state as items to publish, each with what is `owed` for its session."""
    return [
        Item(Outgoing(topic, key, value, tuple((OUTBOX, _pack(one)) for one in (owed or {}).get(key, ())), timestamp), partition)
        for key, value in changes
    ]


def next_offset_entry(topic: str, partition: int, offset: int, timestamp: int) -> Item:
    """Where the input goes on once this transaction is committed."""
    value = orjson.dumps({"version": _VERSION, "offset": offset})
    return Item(Outgoing(topic, NEXT_OFFSET_KEY, value, (), timestamp), partition)


class Reading:
    """Takes the records of one partition of the changelog in log order. `outputs` is the topic that owed events go to."""

    def __init__(self, load: Callable[[bytes, bytes | None], None], outputs: str) -> None:
        self._load = load
        self._outputs = outputs
        self._owed: dict[bytes, Owed] = {}
        self._next_offset: int | None = None
        self.count = 0

    def take(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> None:
        """One record. Raises UnreadableState for what this version cannot read."""
        if key is None:
            return
        if key == NEXT_OFFSET_KEY:
            self._next_offset = _read_next_offset(value)
            return
        self.count += 1
        self._load(key, value)
        if self._owed:
            self._owed.pop(key, None)
        if headers and value is not None:
            outgoing = tuple(_unpack(self._outputs, key, content) for name, content in headers if name == OUTBOX)
            if outgoing:
                self._owed[key] = Owed(key, value, outgoing)

    def restored(self, end: int) -> Restored:
        """What was found, up to the log's `end`."""
        return Restored(self.count, end, self._next_offset, tuple(self._owed.values()))


def _read_next_offset(value: bytes | None) -> int | None:
    if value is None:
        return None
    try:
        content = orjson.loads(value)
        if content["version"] == _VERSION:
            return int(content["offset"])
        reason = f"version {content['version']}"
    except (ValueError, KeyError, TypeError):
        reason = "malformed"
    raise UnreadableState(f"the changelog entry {NEXT_OFFSET_KEY.decode()} cannot be read by this version ({reason})")


def _pack(outgoing: Outgoing) -> bytes:
    """Without the topic: it is published where events go when it is published."""
    headers = [[name, _text(content)] for name, content in outgoing.headers]
    return orjson.dumps([_VERSION, _text(outgoing.key), _text(outgoing.value), headers, outgoing.timestamp])


def _unpack(topic: str, session: bytes, packed: bytes | None) -> Outgoing:
    try:
        version, key, value, headers, timestamp = orjson.loads(packed or b"")
        if version == _VERSION:
            named = tuple([(str(name), _bytes(content)) for name, content in headers])
            return Outgoing(topic, _bytes(key), _bytes(value), named, int(timestamp))
        reason = f"version {version}"
    except (ValueError, TypeError):
        reason = "malformed"
    raise UnreadableState(
        f"the event that waits in the changelog for the session {session.decode('utf-8', 'replace')!a} cannot be read by "
        f"this version ({reason}): run the version that wrote it"
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(content: Any) -> bytes | None:
    return None if content is None else b64decode(content, validate=True)
