"""Fetched records of one partition that wait to be processed."""

from __future__ import annotations

from collections import deque

from acs_aaep_bridge.kafka.ports import Fetched


class Inbox:
    """A queue of fetches, counted in records and bytes."""

    def __init__(self) -> None:
        self._queue: deque[Fetched] = deque()
        self.records = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    def put(self, fetched: Fetched) -> None:
        """Add records that follow the last ones in the log."""
        self._queue.append(fetched)
        self.records += len(fetched.records)
        self.bytes += _size(fetched)

    def take(self, max_records: int) -> list[Fetched]:
        """Fetches with at most so many records together, the last one cut if it must be; none if there is nothing."""
        taken: list[Fetched] = []
        room = max_records
        while self._queue and room:
            fetched = self._queue.popleft()
            if len(fetched.records) > room:
                rest = fetched.records[room:]
                self._queue.appendleft(fetched._replace(records=rest))
                fetched = fetched._replace(records=fetched.records[:room], next_offset=rest[0].offset)
            taken.append(fetched)
            room -= len(fetched.records)
            self.bytes -= _size(fetched)
        self.records -= max_records - room
        return taken

    def clear(self) -> None:
        self._queue.clear()
        self.records = self.bytes = 0


def _size(fetched: Fetched) -> int:
    return sum(len(record.value or b"") for record in fetched.records)
