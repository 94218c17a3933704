"""The replay guard: which requests of a session this partition has already seen (docs/formats.md, "Replay guard")."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

REMEMBERED = 32_768


class SeenRequests:
    """The state of the normalize stage with the replay guard on: bounded, in memory only, and part of each batch.

    At least the last `REMEMBERED` requests of the partition are known, at most twice as many (some 5 MB). What a batch
    adds counts at once within the batch, and after `commit` for later ones; `rollback` forgets it, so that a retried
    batch does not take its own events for repeats.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._pending: set[int] = set()
        self._marked: list[int] = []

    def repeated(self, session_id: str, request_id: str) -> bool:
        """Whether the session has shown this request before; remembers it. Both ids in lower case."""
        digest = int.from_bytes(blake2b(f"{session_id}\x1f{request_id}".encode(), digest_size=8).digest())
        if digest in self._pending or digest in self._young or digest in self._old:
            return True
        self._pending.add(digest)
        self._marked.append(digest)
        return False

    def next_deadline(self) -> int | None:
        return None

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        return ()

    def commit(self) -> None:
        self._young |= self._pending
        self._pending = set()
        if len(self._young) >= self._remembered:
            self._old, self._young = self._young, set()

    def rollback(self) -> None:
        self._pending = set()

    def mark(self) -> None:
        self._marked.clear()

    def undo(self) -> None:
        self._pending.difference_update(self._marked)

    def load(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self) -> None: ...

    def open_sessions(self) -> int:
        return 0
