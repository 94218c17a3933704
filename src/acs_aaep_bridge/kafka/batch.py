"""Records in, items to publish out: the stage applied to a whole fetch, with everything counted on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from acs_aaep_bridge.core.brake import Brake
from acs_aaep_bridge.core.clock import StreamClock
from acs_aaep_bridge.core.deadletter import REPLAY_COUNT, dead_letter, reference
from acs_aaep_bridge.core.decode import part
from acs_aaep_bridge.core.model import Emit, Outcome, Outgoing, PartitionState, Record, Reject, Stage, new
from acs_aaep_bridge.kafka.observer import BatchReport
from acs_aaep_bridge.kafka.ports import Fault, Item, Owed, Refusal
from acs_aaep_bridge.kafka.verdicts import Verdicts


@dataclass(slots=True)
class Batch:
    """Accepted records on their way: what they give, and where the input goes on after them."""

    next_offset: int
    report: BatchReport
    items: list[Item] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    """Record timestamps of input that gave output, for the latency."""
    entries: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Changelog entries (key, value) to be written before those of the state's own changes."""


class Unpublishable(Exception):
    """No form of this record can be published, not even the reference: the partition must wait for an operator."""


class Processor:
    """Applies a stage to the records of one partition. Synchronous; never raises on bad input.

    `fits` says whether a topic takes a record; values up to `suspect` bytes are not measured.
    """

    def __init__(self, stage: Stage, dead_letters: str, brake: Brake) -> None:
        self.stage = stage
        self.brake = brake
        self.state: PartitionState = stage.new_state()
        self.clock = StreamClock()
        self._settled = 0
        self._wall = 0
        self._present: int | None = None
        self.fits: Callable[[Outgoing], bool] = lambda outgoing: True
        self.suspect = self._ask_above = 1 << 40
        self._dead_letters = dead_letters
        self.verdicts = Verdicts()

    def commit(self) -> None:
        """What was applied is durable: merge the state, forget the verdicts that led there."""
        self.state.commit()
        self._settled = self.clock.now
        self.verdicts.settle()
        self._present = None

    def rollback(self) -> None:
        """What was applied never happened. Stream time goes back too, or the same records would find other deadlines due."""
        self.state.rollback()
        self.clock = StreamClock(self._settled)

    def renew(self) -> None:
        """Begin with an empty state, to be loaded from the changelog. Brake and verdicts stay."""
        self.state = self.stage.new_state()
        self.clock = StreamClock()
        self._settled = 0

    def apply(self, batch: Batch, records: Sequence[Record], faults: Mapping[int, Fault], wall: int) -> None:
        """Add what `records` give to `batch`. `wall` is the wall clock in milliseconds."""
        started = perf_counter()
        self._wall = wall
        self._ask_above = -1 if self.verdicts else self.suspect
        stage, state, tick, report = self.stage, self.state, self.clock.record, batch.report
        emits: list[Emit] = []
        mark = state.mark
        for record in records:
            now = tick(record.timestamp, wall)
            due = state.next_deadline()
            if due is not None and due <= now:
                self.advance(batch, now)
            if faults and record.offset in faults:
                code, message = faults[record.offset]
                outcomes: tuple[Outcome, ...] = (Reject(stage.name, code, message),)
            else:
                mark()
                outcomes = stage.apply(record, state, now)
            self._take(batch, record, outcomes, emits)
        report.events.update([(emit.method, "emitted" if emit.outgoing else "absorbed") for emit in emits])
        _count(report, emits)
        report.records += len(records)
        report.processing_seconds += perf_counter() - started

    def advance(self, batch: Batch, now: int) -> None:
        """Add what is due at `now`, in stream time, without a record."""
        self.clock.caught_up(now)
        self._wall = max(self._wall, now)
        emits = self.stage.advance(self.state, now)
        _count(batch.report, emits)
        for emit in emits:
            batch.items += [self._fitting(Item(outgoing, session=emit.session)) for outgoing in emit.outgoing]

    def repeat(self, batch: Batch, owed: Sequence[Owed], wall: int) -> None:
        """Add what was decided before and perhaps never said: the events, and the entries that owe them no longer."""
        self._wall = wall
        for one in owed:
            batch.items += [self._fitting(Item(outgoing, session=one.key)) for outgoing in one.outgoing]
            batch.entries.append((one.key, one.value))

    def _take(self, batch: Batch, record: Record, outcomes: tuple[Outcome, ...], emits: list[Emit]) -> None:
        """Add what one record gives to `batch`, and what of it was accepted to `emits`, to be counted all at once."""
        report, items, suspect = batch.report, batch.items, self._ask_above
        code: str | None = None
        accepted = False
        before = len(items)
        alone = len(outcomes) == 1
        for place, outcome in enumerate(outcomes):
            if type(outcome) is Emit:
                first, refused = len(items), None
                for outgoing in outcome.outgoing:
                    item = new(Item, (outgoing, None, record, outcome.method, None, None, None if alone else place))
                    if len(outgoing.value or b"") > suspect:
                        item = self._fitting(item)
                        refused = refused or (item if item.reject is not None else None)
                    items.append(item)
                if refused is None:
                    accepted = True
                    emits.append(outcome)
                    continue
                # All of a hook or nothing: half of it told, and remembered as told, could not be made good by a replay.
                items[first:] = [refused]
                if alone:  # in a batch the other elements stand; only the replay guard keeps state there
                    self.state.undo()
                code = "output_too_large"
                report.events[outcome.method, "rejected"] += 1
                report.dead_letters[code] += 1
            elif type(outcome) is Reject:
                code = outcome.code
                report.events[outcome.method, "rejected"] += 1
                report.dead_letters[code] += 1
                letter = dead_letter(record, outcome, self._dead_letters)
                items.append(self._fitting(Item(letter, None, record, outcome.method, outcome)))
            else:
                accepted = True
                report.events[outcome.method, "skipped"] += 1
        if len(items) > before:
            batch.timestamps.append(record.timestamp)
        self._note(record, None if accepted else code)

    def _note(self, record: Record, code: str | None) -> None:
        if not record.headers or not _is_replayed(record):
            self.brake.note(record.offset, code)

    def _fitting(self, item: Item) -> Item:
        """The item, or what stands in for it where it is too large or was refused before."""
        while True:
            refusal = self.verdicts.on(item, self._wall) if self.verdicts else None
            if refusal is None and len(item.outgoing.value or b"") > self.suspect and not self.fits(item.outgoing):
                refusal = "too_large"
            if refusal is None:
                return item
            # One present for all attempts, so that its refusal is recognized.
            self._present = self._present or self._wall
            item = self.instead(item, refusal, self._present)

    def replace(self, batch: Batch, item: Item, refusal: Refusal, wall: int) -> Item:
        """Put what `instead` gives into the batch in the place of an item that the broker refused, and count it so."""
        stand_in = self.instead(item, refusal, wall)
        batch.items[batch.items.index(item)] = stand_in
        if refusal == "timestamp":
            self.verdicts.remember(item, refusal, wall)
        if item.reject is None and stand_in.reject is not None and item.record is not None:
            code = stand_in.reject.code
            batch.report.events[item.method, "emitted"] -= 1
            batch.report.events[item.method, "rejected"] += 1
            batch.report.dead_letters[code] += 1
            if not any(one.record is item.record and one.reject is None for one in batch.items):  # as in `_take`
                self._note(item.record, code)
        return stand_in

    def instead(self, item: Item, refusal: Refusal, wall: int) -> Item:
        """What stands in for an item that a topic will not take. Raises Unpublishable when nothing can.

        A timestamp that the broker finds too far from now becomes `wall`; an event that is too large becomes a dead
        letter, and a dead letter that is too large a reference to the original record.
        """
        outgoing, record = item.outgoing, item.record
        if refusal == "timestamp":
            if outgoing.timestamp == wall:
                raise Unpublishable(
                    f"{outgoing.topic} refuses the present as a timestamp: compare this host's clock with the brokers', "
                    "and see message.timestamp.after.max.ms and message.timestamp.before.max.ms"
                )
            return item._replace(outgoing=outgoing._replace(timestamp=wall))
        if record is None:
            raise Unpublishable(f"{outgoing.topic} does not take what a timer gives; raise its max.message.bytes")
        if item.reject is None:
            limit = "its max.message.bytes"
            reject = Reject(
                self.stage.name,
                "output_too_large",
                f"the event is larger than {outgoing.topic} takes; raise {limit} there, then replay",
                method=item.method,
                element=item.element,
                raw=None if item.element is None else part(record.value or b"", item.element),
            )
            letter = dead_letter(record, reject, self._dead_letters)
            return item._replace(outgoing=letter, reject=reject)
        stand_in = reference(record, item.reject, self._dead_letters)
        if stand_in == outgoing:
            raise Unpublishable(f"{outgoing.topic} does not take even a reference to {record!r}; raise its max.message.bytes")
        return item._replace(outgoing=stand_in)


def _count(report: BatchReport, emits: Sequence[Emit]) -> None:
    for _, _, notes, announced, skew_ms, _, _ in emits:
        if notes:
            report.notes.update(notes)
        if announced:
            report.lifecycle.update(announced)
        if skew_ms is not None:
            report.skews.append(skew_ms / 1000)
    report.signatures.update([emit.signature for emit in emits if emit.signature is not None])


def _is_replayed(record: Record) -> bool:
    return any(name == REPLAY_COUNT for name, _ in record.headers)
