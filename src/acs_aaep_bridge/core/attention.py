"""When a session needs attention, whatever it hears: from the few facts that an entry's header holds."""

from __future__ import annotations

from typing import NamedTuple

from acs_aaep_bridge.core.policy import Timing
from acs_aaep_bridge.core.session import SessionState


class Header(NamedTuple):
    """`brief`: it may be silent only as long as a subagent may. `due`: when something held or answered is due."""

    open: bool
    brief: bool
    calls: bool
    inferred: bool
    seen: int
    due: int | None


_CLOSED = (False, False, False, False)


def header_of(state: SessionState) -> Header:
    """The facts about `state`."""
    open_ = state.open
    if open_ is None:
        return Header(*_CLOSED, state.seen, None)
    due = None if open_.answer is None else open_.answer.due
    if state.held is not None:
        due = state.held.due
    inferred = open_.started is None
    return Header(True, inferred or state.subagent is not None, bool(open_.calls), inferred, state.seen, due)


def silence(timing: Timing, head: Header) -> int:
    """How long the session may be silent, in ms; 0 is for ever."""
    return timing.subagent_idle if head.brief and not head.calls else timing.idle


def due_at(timing: Timing, head: Header) -> int | None:
    """The stream time at which the session needs attention; None: never."""
    if not head.open:
        return head.seen + timing.retention
    idle = silence(timing, head)
    end = head.seen + idle if idle else None
    return end if head.due is None or (end is not None and end < head.due) else head.due
