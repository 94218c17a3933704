"""What is remembered about one ACS session. All of it immutable; `statecodec` writes it to the changelog.

A session is a root until a `subagentStart` or `subagentStop` names it. A root has one AAEP session per user request, a
subagent has one for its whole life (docs/mapping.md, 1).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import orjson

from acs_aaep_bridge.core.announce import Name, Result
from acs_aaep_bridge.core.normalized import Context, Position

IDLE = "idle"
THINKING = "thinking"
CALLING_TOOL = "calling_tool"
WRITING_OUTPUT = "writing_output"

MAX_REMEMBERED_TURNS = 16
MAX_REPEATS = 64
DIGEST_BYTES = 8
MAX_SOURCES = 64
MAX_SOURCES_BYTES = 12 << 10
MAX_TOPIC = 249  # Kafka's own limit
MAX_CALLS = 256


class Call(NamedTuple):
    """A tool call without an answer. `name` is the tool's own name where `tool`, the AAEP one, differs."""

    id: str
    tool: str
    name: str | None


class Answer(NamedTuple):
    """The request's last hook was an agentResponse, in a host without turns: it is done at `due` (stream time).

    `stamp` is what the end is dated, in record time: the same whenever the timer gets to run.
    """

    due: int
    stamp: int


class Open(NamedTuple):
    """An AAEP session that has begun and not ended.

    `opened` and `last` are the timestamps of its first and last event, `started` when a hook reported the start (None:
    inferred so far), all in ms.
    `turn` and `nested` are digests of turn ids. `triggered`: the last hook was an agentTrigger. `context`: the last hook.
    """

    sess: str
    opened: int
    last: int
    context: Context
    started: int | None = None
    turn: str | None = None
    nested: tuple[str, ...] = ()
    state: str = IDLE
    calls: tuple[Call, ...] = ()
    invoked: int = 0
    triggered: bool = False
    answer: Answer | None = None

    @property
    def inferred(self) -> bool:
        return self.started is None

    def has_turn(self, turn: str | None) -> bool:
        """Whether the turn with this digest is this request's own or one nested in it."""
        return turn is not None and (turn == self.turn or turn in self.nested)


class Ending(NamedTuple):
    """How a session ends: `row` names the rule in `endings`, the rest is what its terminal event needs.

    `successor` is the subagent that a superseded request goes on as.
    """

    row: str
    reason: str | None = None
    result: Result | None = None
    steps: int | None = None
    successor: Name | None = None
    extension: dict[str, Any] = {}  # noqa: RUF012 - read-only by agreement, like every JSON value here


class Held(NamedTuple):
    """A subagent's stop or sessionEnd that waits for the other, until `due` at most (stream time)."""

    is_stop: bool
    due: int
    at: int
    context: Context
    ending: Ending


class Subagent(NamedTuple):
    """`name` is the announced one. `ended`: "silence" when nobody reported the end, "reported" when somebody did."""

    parent: str | None
    name: str | None = None
    ended: Literal["", "reported", "silence"] = ""


class SessionState(NamedTuple):
    """One ACS session. `seen` is the stream time and `stamp` the record time of its last hook, in ms.

    `closed` has the digests of the last turns that ended, `late` those of them that nobody ended. `repeats` are eight bytes
    for each of the last hooks applied, `sources` the highest raw position applied by topic and partition. `turns`: the
    session has shown a turnStart. `responded`: it has shown an agentResponse.
    """

    subject: str
    tenant: str | None
    seen: int
    stamp: int
    subagent: Subagent | None = None
    open: Open | None = None
    held: Held | None = None
    turns: bool = False
    responded: bool = False
    closed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    repeats: bytes = b""
    sources: tuple[Position, ...] = ()


def has_applied(state: SessionState, mark: bytes, source: Position, replayed: bool) -> bool:
    """Whether this hook is a repeat: its request was applied, or its raw record, or a later one of the same partition.

    A record that was replayed from the dead letters has its old position again, so only its request counts.
    """
    if mark in state.repeats and _is_aligned(state.repeats, mark):
        return True
    if replayed:
        return False
    for known in state.sources:
        if known[:2] == source[:2]:
            return source[2:] <= known[2:]
    return False


def _is_aligned(repeats: bytes, mark: bytes) -> bool:
    return any(repeats.startswith(mark, at) for at in range(0, len(repeats), DIGEST_BYTES))


def with_source(sources: tuple[Position, ...], source: Position) -> tuple[Position, ...]:
    """`sources` with this raw position as the highest of its partition; the partitions heard from longest ago give way.

    A repeat from one that gave way is known by its request alone, while that is among the last `MAX_REPEATS`. A topic that no
    broker could have is not remembered.
    """
    if len(sources) == 1 and sources[0][:2] == source[:2]:
        return (max(source, sources[0]),)
    if len(source.topic) > MAX_TOPIC:
        return sources
    if not sources:
        return (source,)
    others = tuple(known for known in sources if known[:2] != source[:2])
    same = [known for known in sources if known[:2] == source[:2]]
    kept = (*others[-MAX_SOURCES + 1 :], max(source, *same) if same else source)
    while len(kept) > _FEW_SOURCES and len(orjson.dumps(kept, default=tuple)) > MAX_SOURCES_BYTES:
        kept = kept[1:]
    return kept


_FEW_SOURCES = 4  # take less than `MAX_SOURCES_BYTES`, whatever their topics
