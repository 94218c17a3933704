"""The commit rule: nothing unfinished lies below what is committed."""

from __future__ import annotations

from collections import deque


class LowWaterMark:
    """Offsets of one partition between accepted and committed, for one assignment.

    Batches are accepted in log order and may finish in any order. `value` moves only over the unbroken run of finished
    batches at the front, so what lies below it is finished, whatever offsets the log leaves out (compaction, markers).
    """

    def __init__(self, start: int) -> None:
        self._value = start
        self._accepted = start
        self._open: deque[int] = deque()
        self._finished: set[int] = set()

    @property
    def value(self) -> int:
        """The next offset to read after everything that is finished without a gap: what may be committed."""
        return self._value

    @property
    def pending(self) -> int:
        """Batches accepted and not yet below the mark."""
        return len(self._open)

    def accept(self, next_offset: int) -> None:
        """A batch was accepted; `next_offset` is where the log goes on after it. Raises ValueError out of log order."""
        if next_offset <= self._accepted:
            raise ValueError(f"offset {next_offset} was accepted after {self._accepted}")
        self._accepted = next_offset
        self._open.append(next_offset)

    def finish(self, next_offset: int) -> bool:
        """The batch accepted with `next_offset` is finished. True if the mark moved. Raises ValueError for an unknown one."""
        if next_offset not in self._open or next_offset in self._finished:
            raise ValueError(f"no open batch ends at offset {next_offset}")
        self._finished.add(next_offset)
        before = self._value
        while self._open and self._open[0] in self._finished:
            self._value = self._open.popleft()
            self._finished.discard(self._value)
        return self._value != before
