"""The sessions of one input partition: durable ones, and above them the changes of the batch in hand.

Changes stay in the overlay until they are durable (`commit`) or never happened (`rollback`); otherwise a retry would
take its own events for repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from acs_aaep_bridge.core.agenda import Agenda, Candidates
from acs_aaep_bridge.core.attention import Header, due_at, header_of
from acs_aaep_bridge.core.policy import Timing
from acs_aaep_bridge.core.session import SessionState
from acs_aaep_bridge.core.statecodec import decode, encode, read_header

_REFRESH_PARTS = 16
_SPARE_CANDIDATES = 1_024


class _Before(NamedTuple):
    """What stood in the overlay for a key when the record came that changed it."""

    changed: bool
    state: SessionState | None
    dirty: bool
    written: int | None


class SessionTable:
    """Implements `core.model.PartitionState`. Keys are those of the normalized records. Not thread-safe; nothing blocks.

    A loaded entry stays bytes until its session is heard of.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._base: dict[bytes, SessionState | bytes] = {}
        self._overlay: dict[bytes, SessionState | None] = {}
        self._dirty: dict[bytes, None] = {}
        self._written: dict[bytes, int] = {}
        self._open = 0
        self._opened_in_overlay = 0
        self._opened_at_mark = 0
        self._since_mark: dict[bytes, _Before] = {}
        self._agenda = Agenda()
        self._candidates: Candidates | None = None
        self._refresh = max(1, timing.subagent_idle // _REFRESH_PARTS)

    def get(self, key: bytes) -> SessionState | None:
        """The session of this key, overlay included."""
        if key in self._overlay:
            return self._overlay[key]
        entry = self._base.get(key)
        if isinstance(entry, bytes):
            entry = self._base[key] = decode(key, entry)
        return entry

    def put(self, key: bytes, state: SessionState | None) -> None:
        """Remember `state`, or forget the session (None)."""
        before = self._overlay[key] if key in self._overlay else self._base.get(key)
        if isinstance(before, bytes):
            before = self.get(key)
        was_open = before is not None and before.open is not None
        self._note(key)
        self._overlay[key] = state
        self._dirty[key] = None
        self._written.pop(key, None)
        if state is None:
            self._opened_in_overlay -= was_open
            return
        head = header_of(state)
        self._opened_in_overlay += head.open - was_open
        self._agenda.plan(key, due_at(self._timing, head))
        if self._candidates is not None and head.open and not was_open:
            self._candidates.add(key, head)

    def touch(self, key: bytes, now: int, timestamp: int) -> None:
        """The session was heard of by a hook that says nothing: it is alive.

        Goes to the changelog only when it is a sixteenth of the silence later than what stands there: after a restart a
        session may be thought silent that much longer than it was, and a stream of such hooks costs next to nothing.
        """
        state = self.get(key)
        if state is None:
            return
        seen, stamp = max(state.seen, now), max(state.stamp, timestamp)
        if seen == state.seen and stamp == state.stamp:
            return
        self._note(key)
        written = self._written.setdefault(key, state.seen)
        self._overlay[key] = state._replace(seen=seen, stamp=stamp)
        if seen - written >= self._refresh:
            self._dirty[key] = None
            del self._written[key]

    def sessions(self) -> Iterator[SessionState]:
        """Every session that is remembered, open or closed, overlay included."""
        for key in [*self._base, *(key for key in self._overlay if key not in self._base)]:
            state = self.get(key)
            if state is not None:
                yield state

    def next_deadline(self) -> int | None:
        """Stream time at which some session needs attention; 0 while more sessions are open than may be."""
        if self.open_sessions() > self._timing.max_open:
            return 0
        first = self._agenda.first(self._due)
        return None if first is None else first[0]

    def pop_due(self, now: int) -> bytes | None:
        """The key of the session whose deadline passed first; it is the caller's to decide about, by `put`."""
        first = self._agenda.first(self._due)
        return self._agenda.pop() if first is not None and first[0] <= now else None

    def pop_victim(self) -> bytes | None:
        """While too many sessions are open: the key of the one to end now."""
        limit = self._timing.max_open
        if self.open_sessions() <= limit:
            return None
        if self._candidates is None or len(self._candidates) > 2 * limit + _SPARE_CANDIDATES:
            keys = {**self._base, **self._overlay}
            heads = ((key, self._header(key)) for key in keys)
            self._candidates = Candidates((key, head) for key, head in heads if head is not None)
        return self._candidates.pop(self._header)

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        entries: list[tuple[bytes, bytes | None]] = []
        for key in self._dirty:
            state = self._overlay[key]
            if state is not None:
                entries.append((key, encode(state)))
            elif key in self._base:
                entries.append((key, None))
        return entries

    def commit(self) -> None:
        for key, state in self._overlay.items():
            if state is None:
                self._base.pop(key, None)
            else:
                self._base[key] = state
        self._open += self._opened_in_overlay
        self._clear()

    def rollback(self) -> None:
        touched = tuple(self._overlay)
        self._clear()
        self._candidates = None
        for key in touched:
            self._agenda.plan(key, self._due(key))

    def mark(self) -> None:
        self._since_mark.clear()
        self._opened_at_mark = self._opened_in_overlay

    def undo(self) -> None:
        for key, before in self._since_mark.items():
            _put_back(self._overlay, key, before.changed, before.state)
            _put_back(self._dirty, key, before.dirty, None)
            _put_back(self._written, key, before.written is not None, before.written)
            self._agenda.plan(key, self._due(key))
        if self._since_mark:
            self._candidates = None
        self._opened_in_overlay = self._opened_at_mark
        self._since_mark.clear()

    def load(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._base.pop(key, None)
        else:
            self._base[key] = value

    def loaded(self) -> None:
        """Reads every entry's header, which takes about a microsecond a session. Raises UnreadableState."""
        heads = {key: head for key in self._base if (head := self._header(key)) is not None}
        self._open = sum(head.open for head in heads.values())
        dues = ((key, due_at(self._timing, head)) for key, head in heads.items())
        self._agenda = Agenda((key, due) for key, due in dues if due is not None)
        self._candidates = None

    def open_sessions(self) -> int:
        return self._open + self._opened_in_overlay

    def _note(self, key: bytes) -> None:
        if key not in self._since_mark:
            overlay = self._overlay
            self._since_mark[key] = _Before(key in overlay, overlay.get(key), key in self._dirty, self._written.get(key))

    def _clear(self) -> None:
        self._since_mark.clear()
        self._overlay.clear()
        self._dirty.clear()
        self._opened_in_overlay = 0

    def _header(self, key: bytes) -> Header | None:
        entry = self._overlay[key] if key in self._overlay else self._base.get(key)
        if entry is None:
            return None
        return read_header(key, entry) if isinstance(entry, bytes) else header_of(entry)

    def _due(self, key: bytes) -> int | None:
        head = self._header(key)
        return None if head is None else due_at(self._timing, head)


def _put_back(where: dict[bytes, Any], key: bytes, was_there: bool, value: Any) -> None:
    if was_there:
        where[key] = value
    else:
        where.pop(key, None)
