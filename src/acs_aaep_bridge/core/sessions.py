"""The reducer: (state, hook, now) -> (state, events), and what time alone does to a session (docs/mapping.md, 6).

Pure: a state goes in and another comes out, nothing is written into either. A hook that changes nothing gives the very
same state back.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from acs_aaep_bridge.core.attention import header_of, silence
from acs_aaep_bridge.core.draft import Draft, Moment, Said
from acs_aaep_bridge.core.endings import ANSWERED, UNREPORTED, end
from acs_aaep_bridge.core.model import new
from acs_aaep_bridge.core.normalized import SUBAGENT_START, SUBAGENT_STOP, Hook
from acs_aaep_bridge.core.policy import Policy
from acs_aaep_bridge.core.session import (
    DIGEST_BYTES,
    MAX_REPEATS,
    Ending,
    SessionState,
    has_applied,
    with_source,
)
from acs_aaep_bridge.core.subagents import release
from acs_aaep_bridge.core.translate import TRANSLATORS

_KEPT = MAX_REPEATS * DIGEST_BYTES
_OF_CHILD = frozenset({SUBAGENT_START, SUBAGENT_STOP})


class Step(NamedTuple):
    """What one hook, or one deadline, did. `state` None: nothing is (or is to be) remembered of this session."""

    state: SessionState | None
    said: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()


class Refused(NamedTuple):
    """The hook is dead-lettered: `code`, and the member (JSON pointer) that shows why."""

    code: str
    message: str
    pointer: str


def reduce(policy: Policy, state: SessionState | None, hook: Hook, now: int) -> Step | Refused:
    """Apply one hook of a session at stream time `now`. The hook must have a row in `TRANSLATORS`."""
    context = hook.context
    if context.hook in _OF_CHILD and context.subject == context.sender:
        return _SELF_PARENT
    mark = blake2b(context.request_id.encode(), digest_size=DIGEST_BYTES).digest()
    if state is not None:
        if has_applied(state, mark, hook.source, hook.replayed):
            return Step(state, (), ("duplicate",))
        if context.hook in _OF_CHILD and (refused := _stranger(state, hook)):
            return refused
    draft = Draft(
        policy, state or SessionState(context.subject, context.tenant, now, hook.stamp), hook, Moment(context, hook.at), now
    )
    row = TRANSLATORS[context.hook]
    (row.root if draft.state.subagent is None else row.subagent)(draft, hook)
    if hook.clock_ahead:
        draft.notes.append("clock_ahead")
    if draft.dropped:
        return Step(state, (), tuple(draft.notes))
    return new(Step, (_applied(draft, hook, mark), tuple(draft.said), tuple(draft.notes)))


def expire(policy: Policy, state: SessionState, now: int) -> Step:
    """The first thing that is due at `now`: a held hook, an answer that nothing followed, a silence, or forgetting."""
    open_ = state.open
    if open_ is None:
        return Step(None if now >= state.seen + policy.timing.retention else state)
    if state.held is not None and now >= state.held.due:
        return settle(policy, state, now)
    if open_.answer is not None and now >= open_.answer.due:
        return settle(policy, state, now)
    idle = silence(policy.timing, header_of(state))
    if idle and now >= state.seen + idle:
        return abandon(policy, state, state.stamp + idle, now)
    return Step(state)


def settle(policy: Policy, state: SessionState, now: int) -> Step:
    """End what only waits for something better to come: a held hook, or an answer that nothing followed."""
    open_ = state.open
    if open_ is not None and state.held is not None:
        draft = Draft(policy, state, None, Moment(state.held.context, state.held.at), now)
        release(draft, state.held)
        return _done(draft)
    if open_ is not None and open_.answer is not None:
        draft = Draft(policy, state, None, Moment(open_.context, open_.answer.stamp), now)
        end(draft, open_, Ending(ANSWERED), draft.moment)
        return _done(draft)
    return Step(state)


def abandon(policy: Policy, state: SessionState, at: int, now: int) -> Step:
    """End an open session because nothing is heard of it, dated `at`. Nobody said that it took too long, so neither do we."""
    open_ = state.open
    if open_ is None:
        return Step(state)
    draft = Draft(policy, state, None, Moment(open_.context, at), now)
    end(draft, open_, Ending(UNREPORTED), draft.moment, silent=True)
    return _done(draft)


def _done(draft: Draft) -> Step:
    return Step(
        draft.state._replace(open=draft.open, seen=max(draft.state.seen, draft.now)), tuple(draft.said), tuple(draft.notes)
    )


def _applied(draft: Draft, hook: Hook, mark: bytes) -> SessionState:
    open_ = draft.open
    if open_ is not None and not draft.elsewhere:
        open_ = open_._replace(context=hook.context, triggered=draft.triggered, answer=draft.answer)
    subject, tenant, seen, stamp, subagent, _, held, turns, responded, closed, late, repeats, sources = draft.state
    seen, stamp = max(seen, draft.now), max(stamp, hook.stamp)
    repeats = (repeats + mark)[-_KEPT:]
    if not hook.replayed:
        sources = with_source(sources, hook.source)
    return new(
        SessionState,
        (subject, tenant, seen, stamp, subagent, open_, held, turns, responded, closed, late, repeats, sources),
    )


def _stranger(state: SessionState, hook: Hook) -> Refused | None:
    """A start or stop from elsewhere: one forged stop must not silence a session."""
    if state.subagent is not None and state.subagent.parent != hook.context.parent:
        return _OTHER_PARENT
    if state.tenant != hook.context.tenant:
        return _OTHER_TENANT
    return None


_SELF_PARENT = Refused(
    "self_parent",
    "the subagent's session is the sender's own: the sender must name the session of the subagent, not its own",
    "/payload/subagent_session_id",
)
_OTHER_PARENT = Refused(
    "parent_mismatch",
    "this subagent is known to belong to another parent session: only its parent may report its start and stop",
    "/session_id",
)
_OTHER_TENANT = Refused(
    "parent_mismatch",
    "this session is known to belong to another tenant: the sender must set the tenant_id that the session began with",
    "/tenant_id",
)
