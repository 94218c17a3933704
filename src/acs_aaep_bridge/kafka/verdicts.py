"""What the broker has refused, so that it is not asked again."""

from __future__ import annotations

from acs_aaep_bridge.kafka.ports import Item, Refusal

_Identity = tuple[int, str, bytes | None, bytes | None, int]


class Verdicts:
    """The refusals of one input partition. Times in milliseconds.

    A refused size is that item's own, until it is settled. A refused timestamp speaks for every other that is as far from
    the present or farther, for good: a topic full of old records would otherwise be refused one record at a time.
    """

    def __init__(self) -> None:
        self._items: dict[_Identity, Refusal] = {}
        self._too_old: dict[str, int] = {}
        self._too_far_ahead: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether anything has been refused: only then is there something to ask."""
        return bool(self._items or self._too_old or self._too_far_ahead)

    def remember(self, item: Item, refusal: Refusal, wall: int) -> None:
        """The broker refused this, at `wall` o'clock."""
        self._items[_identity(item)] = refusal
        topic, ahead = item.outgoing.topic, item.outgoing.timestamp - wall
        if refusal != "timestamp":
            return
        if ahead > 0:
            self._too_far_ahead[topic] = min(ahead, self._too_far_ahead.get(topic, ahead))
        elif ahead < 0:
            self._too_old[topic] = max(item.outgoing.timestamp, self._too_old.get(topic, 0))

    def settle(self) -> None:
        """What was refused has been answered: its items will not come again."""
        self._items.clear()

    def on(self, item: Item, wall: int) -> Refusal | None:
        """What the broker would say to this at `wall` o'clock, as far as we know."""
        if self._items and (refusal := self._items.get(_identity(item))) is not None:
            return refusal
        topic, timestamp = item.outgoing.topic, item.outgoing.timestamp
        oldest, farthest = self._too_old.get(topic), self._too_far_ahead.get(topic)
        if timestamp < 0:  # none at all, which is never refused
            return None
        if (oldest is not None and timestamp <= oldest) or (farthest is not None and timestamp - wall >= farthest):
            return "timestamp"
        return None


def _identity(item: Item) -> _Identity:
    """What was refused, not what stands in for it: that has another topic, value or timestamp."""
    offset = item.record.offset if item.record is not None else -1
    outgoing = item.outgoing
    return offset, outgoing.topic, outgoing.key, outgoing.value, outgoing.timestamp
