"""When rejected records must stop a partition, before a broken deploy drains a whole topic into the dead letters."""

from __future__ import annotations

from collections import Counter, deque

WINDOW = 2_000


class Brake:
    """Counts accepted and rejected records of one partition, in log order, over the life of the process.

    It trips past `max_consecutive` rejected records in a row, or when more than `max_ratio` of the last 2,000 were
    rejected (not before there were 2,000); 0 turns either rule off. Once tripped it stays so. A record that is read
    again after a failure has the same offset and does not count twice; rejected once, it counts as rejected.
    """

    def __init__(self, max_consecutive: int, max_ratio: float) -> None:
        self._max_consecutive = max_consecutive
        self._max_rejected = int(max_ratio * WINDOW) if max_ratio else WINDOW
        self._window: deque[int] = deque(maxlen=WINDOW)
        self._rejected: dict[int, str] = {}
        self._codes: Counter[str] = Counter()
        self._consecutive = 0
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
            if code is not None:
                self._revise(offset, code)
            return
        self._highest = offset
        if len(self._window) == WINDOW:
            self._forget(self._window[0])
        self._window.append(offset)
        if code is None:
            self._consecutive = 0
            return
        self._consecutive += 1
        self._rejected[offset] = code
        self._count(offset, code, self._consecutive)

    def _revise(self, offset: int, code: str) -> None:
        """It was accepted by us, and then the broker would not take what it gave."""
        if offset in self._rejected or offset not in self._window:
            return
        self._rejected[offset] = code
        row, is_last = self._row_around(offset)
        if is_last:
            self._consecutive = row
        self._count(offset, code, row)

    def _row_around(self, offset: int) -> tuple[int, bool]:
        """How many rejected records lie in a row with this one, and whether the row goes on."""
        window = list(self._window)
        first = last = window.index(offset)
        while first and window[first - 1] in self._rejected:
            first -= 1
        while last + 1 < len(window) and window[last + 1] in self._rejected:
            last += 1
        return last - first + 1, last + 1 == len(window)

    def _count(self, offset: int, code: str, row: int) -> None:
        self._codes[code] += 1
        if self._tripped is None and self._is_over(row):
            self._tripped = min(self._codes, key=lambda each: (-self._codes[each], each))
            self.tripped_at = offset

    def _forget(self, offset: int) -> None:
        code = self._rejected.pop(offset, None)
        if code is not None:
            self._codes[code] -= 1

    def _is_over(self, row: int) -> bool:
        in_a_row = bool(self._max_consecutive) and row > self._max_consecutive
        return in_a_row or (len(self._window) == WINDOW and len(self._rejected) > self._max_rejected)
