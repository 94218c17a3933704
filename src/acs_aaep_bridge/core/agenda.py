"""Two heaps that may be out of date by design: an entry is checked against its session when it comes to the top.

Most deadlines move with every hook of their session; moving a heap entry each time would cost more than the hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace

from acs_aaep_bridge.core.attention import Header


class Agenda:
    """Deadlines by key. What is planned is never later than the truth; the truth is asked for at the top."""

    def __init__(self, planned: Iterable[tuple[bytes, int]] = ()) -> None:
        self._planned = dict(planned)
        self._heap = [(due, key) for key, due in self._planned.items()]
        heapify(self._heap)

    def plan(self, key: bytes, due: int | None) -> None:
        """`key` needs attention at `due` at the earliest (None: never)."""
        known = self._planned.get(key)
        if due is not None and (known is None or due < known):
            self._planned[key] = due
            heappush(self._heap, (due, key))

    def first(self, truth: Callable[[bytes], int | None]) -> tuple[int, bytes] | None:
        """The earliest deadline that is true, and its key; the smaller key among equals."""
        while self._heap:
            due, key = self._heap[0]
            if self._planned.get(key) != due:
                heappop(self._heap)
                continue
            actual = truth(key)
            if actual == due:
                return due, key
            if actual is None:
                self.pop()
            else:
                self._planned[key] = actual
                heapreplace(self._heap, (actual, key))
        return None

    def pop(self) -> bytes:
        """Take the top off; its key is planned again when it is next decided about."""
        key = heappop(self._heap)[1]
        del self._planned[key]
        return key


class Candidates:
    """Open sessions in the order in which they are given up: inferred ones first, then the longest silent."""

    def __init__(self, sessions: Iterable[tuple[bytes, Header]]) -> None:
        self._heap = [_rank(key, head) for key, head in sessions if head.open]
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, key: bytes, head: Header) -> None:
        heappush(self._heap, _rank(key, head))

    def pop(self, truth: Callable[[bytes], Header | None]) -> bytes | None:
        """The next to go; None when there is none."""
        while self._heap:
            known = heappop(self._heap)
            key = known[2]
            head = truth(key)
            if head is None or not head.open:
                continue
            actual = _rank(key, head)
            if actual == known:
                return key
            heappush(self._heap, actual)
        return None


def _rank(key: bytes, head: Header) -> tuple[bool, int, bytes]:
    return not head.inferred, head.seen, key
