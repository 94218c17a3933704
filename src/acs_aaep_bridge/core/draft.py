"""The work of one hook, or of one timer, on one session: what it says so far, and what is to be remembered.

A draft lives only inside one call of the reducer; the rules write into it, so that each rule can be short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from acs_aaep_bridge.core import identity
from acs_aaep_bridge.core.announce import Name, Words
from acs_aaep_bridge.core.model import new
from acs_aaep_bridge.core.normalized import LATEST_MS, Context, Hook, digest
from acs_aaep_bridge.core.policy import Policy
from acs_aaep_bridge.core.session import MAX_REMEMBERED_TURNS, Answer, Open, SessionState, Subagent

STARTED: Final = "aaep:agent.session.started"
COMPLETED: Final = "aaep:agent.session.completed"
ERRORED: Final = "aaep:agent.session.errored"
CANCELLED: Final = "aaep:agent.session.cancelled"
STATE_CHANGED: Final = "aaep:agent.state.changed"
PROGRESS_UPDATED: Final = "aaep:agent.progress.updated"
TOOL_INVOKED: Final = "aaep:agent.tool.invoked"
TOOL_COMPLETED: Final = "aaep:agent.tool.completed"
OUTPUT_STREAMING: Final = "aaep:agent.output.streaming"

AAEP_VERSION = "1.0.0"
UNKNOWN_AGENT = "unknown"

Fields = Mapping[str, Any]


class Moment(NamedTuple):
    """By whom and when an event came into being: a hook's own context and time, or the last known ones."""

    context: Context
    at: int


class Said(NamedTuple):
    """One AAEP event: `trace` is the traceparent it travels with, `outcome` what its terminal reports ("" otherwise)."""

    event: dict[str, Any]
    trace: str | None
    outcome: str


class Event(NamedTuple):
    """What is particular about an event; the envelope is the draft's business.

    `identity` is (role, discriminator), None for an ordinary event of the hook. `direction`: "own" for texts of ours,
    "auto" where they quote a payload, "" without texts. `extension` goes under `extensions.acs`.
    """

    type: str
    fields: Fields
    urgency: str = "normal"
    direction: str = "own"
    identity: tuple[str, str] | None = None
    extension: Fields | None = None
    inferred: bool = False
    hints: dict[str, str] | None = None
    outcome: str = ""


class Draft:
    """`moment` is the hook's, or the timer's. `open` is what `state.open` becomes when the draft is done.

    `triggered` and `answer` are what the hook leaves in the open session; `elsewhere`: the hook belonged to another one.
    """

    __slots__ = (
        "_counts",
        "answer",
        "dropped",
        "elsewhere",
        "hook",
        "moment",
        "notes",
        "now",
        "open",
        "policy",
        "said",
        "state",
        "triggered",
        "turn",
    )

    def __init__(self, policy: Policy, state: SessionState, hook: Hook | None, moment: Moment, now: int) -> None:
        self.policy = policy
        self.state = state
        self.hook = hook
        self.moment = moment
        self.now = now
        self.open = state.open
        self.turn = digest(hook.turn) if hook is not None and hook.turn else None
        self.said: list[Said] = []
        self.notes: list[str] = []
        self.dropped = False
        self.elsewhere = False
        self.triggered = False
        self.answer: Answer | None = None
        self._counts: dict[str, int] = {}

    @property
    def current(self) -> Open:
        """The open session, where a rule has made sure that there is one."""
        if self.open is None:
            raise AssertionError("no session is open")
        return self.open

    def drop(self, note: str) -> None:
        """The hook changes nothing; `note` says why."""
        self.notes.append(note)
        self.dropped = True

    def say(self, open_: Open, event: Event, moment: Moment | None = None) -> int:
        """Add `event` to what is said in `open_`; gives its time, which never runs backwards, for `open_.last`."""
        kind, fields, urgency, direction, named, more, inferred, hints, outcome = event
        context, at = moment or self.moment
        sess, last = open_.sess, open_.last
        at = min(max(at, last), LATEST_MS)
        role, discriminator = named or self._next_identity(kind, context)
        body: dict[str, Any] = {
            "@context": self.policy.contexts,
            "aaep_version": AAEP_VERSION,
            "type": kind,
            "event_id": identity.event_id(role, sess, discriminator),
            "session_id": sess,
            "timestamp": identity.format_timestamp(at),
            "producer": producer(context, self.policy),
            "verbosity": "normal",
            "urgency": urgency,
        }
        if direction:
            body["localization_hints"] = hints or self.policy.hints[direction]
        body["correlation_id"] = context.trace or context.request_id
        body.update(fields)
        body["extensions"] = {"acs": extension(context, more, inferred)}
        self.said.append(new(Said, (body, context.trace, outcome)))
        return at

    def begin(self, sess: str, row: str, words: Words, reported: bool, fields: Fields | None = None) -> Open:
        """Open the AAEP session `sess` with its `started`."""
        context, at = self.moment
        opened = Open(sess, at, at, context, at if reported else None)
        if not reported:
            self.notes.append("inferred_start")
        texts = self.policy.announcer.texts(row, words)
        if fields:
            texts |= fields
        urgency = "normal" if reported else "background"
        self.say(opened, Event(STARTED, texts, urgency, "own", _START, None, not reported))
        return opened

    def change_state(self, to_state: str) -> None:
        """`state.changed` from where the session is; nothing when it is there already (AAEP 4: the chain never breaks)."""
        open_ = self.open
        if open_ is None or open_.state == to_state:
            return
        fields = {"from_state": open_.state, "to_state": to_state}
        at = self.say(open_, Event(STATE_CHANGED, fields, "background", ""))
        self.open = open_._replace(state=to_state, last=at)

    def close(self, open_: Open, silent: bool) -> None:
        """`open_` has had its terminal event: remember its turns, `silent` when nobody reported its end."""
        subagent = self.state.subagent
        if subagent is not None:
            ended = Subagent(subagent.parent, subagent.name, "silence" if silent else "reported")
            self.state = self.state._replace(subagent=ended, held=None)
        turns = (*open_.nested, open_.turn) if open_.turn else open_.nested
        if turns:
            closed = (*(turn for turn in self.state.closed if turn not in turns), *turns)[-MAX_REMEMBERED_TURNS:]
            late = (*self.state.late, *turns) if silent else tuple(turn for turn in self.state.late if turn not in turns)
            self.state = self.state._replace(closed=closed, late=tuple(turn for turn in closed if turn in late))
        if self.open is not None and self.open.sess == open_.sess:
            self.open = None

    def agent(self, context: Context | None = None) -> Name:
        """Who the listener hears of as the agent."""
        context = context or self.moment.context
        return self.policy.announcer.agent(context.agent_name, context.agent_id, context.platform)

    def child(self) -> Name:
        """What the listener knows this subagent by."""
        subagent = self.state.subagent
        return self.policy.announcer.child(self.state.subject, subagent.name if subagent else None)

    def who(self) -> Words:
        """`{who}`: the child in a subagent's session, the agent elsewhere."""
        return Words(child=self.child()) if self.state.subagent is not None else Words(agent=self.agent())

    def quiet(self) -> str:
        """The urgency of everyday events: a subagent's stay in the background."""
        return "normal" if self.state.subagent is None else "background"

    def _next_identity(self, kind: str, context: Context) -> tuple[str, str]:
        number = self._counts.get(kind, 0)
        self._counts[kind] = number + 1
        return kind, f"{context.request_id}:{number}"


def producer(context: Context, policy: Policy) -> dict[str, str]:
    """The event's `producer`: the agent of the hook (AAEP 3.2.6 allows no member of our own)."""
    agent = {"agent_id": context.agent_id or UNKNOWN_AGENT}
    if context.agent_name and (name := policy.announcer.full_name(context.agent_name)):
        agent["agent_name"] = name
    return agent


def extension(context: Context, more: Fields | None, inferred: bool) -> dict[str, Any]:
    """`extensions.acs`: which hook of which session the event comes from, and what is particular about it."""
    hook, request_id, sender, subject, parent, turn, tenant, _, _, _, signature, _ = context
    acs: dict[str, Any] = {"hook": hook, "request_id": request_id, "session_id": sender, "subject_session_id": subject}
    if parent is not None:
        acs["parent_session_id"] = parent
    if turn is not None:
        acs["turn_id"] = turn
    if tenant is not None:
        acs["tenant_id"] = tenant
    acs["signature"] = signature
    if more:
        acs.update(more)
    if inferred:
        acs["inferred"] = True
    return acs


_START = (identity.STARTED, "")
