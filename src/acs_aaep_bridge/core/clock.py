"""Stream time: the clock that timers of a partition go by (docs/mapping.md, 2)."""

from __future__ import annotations


class StreamClock:
    """The highest min(record timestamp, wall clock) seen, in ms; moved by the wall clock only while caught up.

    So a restart after an outage ends no session before reading what happened meanwhile, and one record dated in the
    future does not end every other session of its partition. Never runs backwards. Pure: the wall clock is an argument.
    """

    __slots__ = ("_now",)

    def __init__(self, now: int = 0) -> None:
        self._now = now

    @property
    def now(self) -> int:
        return self._now

    def record(self, timestamp: int, wall: int) -> int:
        """A record was read; a `timestamp` of -1 (none) tells nothing. Gives the stream time."""
        self._now = max(self._now, min(timestamp, wall))
        return self._now

    def caught_up(self, wall: int) -> int:
        """The partition has nothing more to read at `wall`. Gives the stream time."""
        self._now = max(self._now, wall)
        return self._now
