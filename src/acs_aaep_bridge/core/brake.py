"""When rejected records must stop a partition, before a broken deploy drains a whole topic into the dead letters."""

from __future__ import annotations

from collections import Counter, deque

WINDOW = 2_000


class Brake:
    """Counts accepted and rejected records of one partition, in log order, over the life of the process.

    It trips past `max_consecutive` rejected records in a row, or when more than `max_ratio` of the last 2,000 were
    rejected (not before there were 2,000); 0 turns either rule off. Once tripped it stays so. A record that is read
    again after a failure has the same offset and does not count twice.
    """

    def __init__(self, max_consecutive: int, max_ratio: float) -> None:
        self._max_consecutive = max_consecutive
        self._max_rejected = int(max_ratio * WINDOW) if max_ratio else WINDOW
        self._window: deque[str | None] = deque(maxlen=WINDOW)
        self._codes: Counter[str] = Counter()
        self._consecutive = 0
        self._rejected = 0
        self._highest = -1
        self._tripped: str | None = None
        self.tripped_at = -1
        """The offset of the record that tripped it."""

    @property
    def tripped(self) -> str | None:
        """The most frequent dead-letter code of the window when it tripped; None while it has not."""
        return self._tripped

    def note(self, offset: int, code: str | None) -> None:
        """The record at `offset` was rejected with `code`, or accepted (None). Replayed records are not to be noted."""
        if offset <= self._highest:
            return
        self._highest = offset
        if len(self._window) == WINDOW:
            self._forget(self._window[0])
        self._window.append(code)
        if code is None:
            self._consecutive = 0
            return
        self._consecutive += 1
        self._rejected += 1
        self._codes[code] += 1
        if self._tripped is None and self._is_over():
            self._tripped = min(self._codes, key=lambda each: (-self._codes[each], each))
            self.tripped_at = offset

    def _forget(self, code: str | None) -> None:
        if code is not None:
            self._rejected -= 1
            self._codes[code] -= 1

    def _is_over(self) -> bool:
        in_a_row = bool(self._max_consecutive) and self._consecutive > self._max_consecutive
        return in_a_row or (len(self._window) == WINDOW and self._rejected > self._max_rejected)
